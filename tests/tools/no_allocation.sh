#!/bin/sh
# The program as a person runs it, with the allocation trap preloaded: between the first step and the last no thread, no
# library and no call of the C library takes memory. Usage: no_allocation.sh FOLDER_OF_PROGRAMS TRAP_LIBRARY
set -eu
programs=$1 trap_library=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "no_allocation: $*" >&2; exit 1; }

"$programs/stint" new -o model.gguf --embd 64 --layers 2 --heads 4 --kv-heads 2 --ff 176 --seed 1 >/dev/null
i=0
while [ $i -lt 300 ]; do echo "line $i of a text about nothing in particular, long enough to train on"; i=$((i + 1)); done >text.txt
for options in "--threads 2" "--threads 8 --full --save-every 2 --eval-every 2" "--dropout 0.1 --accum 2 --optimizer sgd --momentum 0.9"; do
  rm -rf run report.txt
  STINT_ALLOC_TRAP=$work/report.txt LD_PRELOAD=$trap_library \
    "$programs/stint" train model.gguf --data text.txt --valid text.txt --ctx 64 --batch 2 --steps 5 $options -o run >out.txt 2>&1 ||
    fail "$options: $(tail -n 1 out.txt)"
  [ -s report.txt ] || fail "$options: the trap was never armed"
  grep -q 'alloc-trap: 0 calls in 1 armings' report.txt || fail "$options: $(cat report.txt)"
done
