#!/usr/bin/env bash
# Two short training runs, every weight and an adapter, of a small new model on generated text; prints the checksum of the
# trained state after each step. tests/cuda/checksums.txt holds what the CPU prints; strict CUDA prints the same.
# Usage: short_run.sh STINT FOLDER [OPTION...]      the options go to `stint train`
set -eu
stint=$1 folder=$2
shift 2
rm -rf "$folder" && mkdir -p "$folder"
seq 1 3000 | awk '{ print $1, "squared is", $1 * $1, ($1 % 7 ? "and" : "but"), $1 % 7 }' >"$folder/text.txt"
"$stint" new -o "$folder/model.gguf" --embd 32 --layers 2 --heads 4 --kv-heads 2 --ff 80 --ctx 64 --seed 7 >/dev/null
shape=(--data "$folder/text.txt" --ctx 40 --batch 2 --steps 4 --lr 3e-3 --seed 5)
"$stint" train "$folder/model.gguf" "${shape[@]}" --full -o "$folder/full" "$@" >"$folder/full.out" 2>&1 || {
  cat "$folder/full.out" >&2
  exit 1
}
"$stint" train "$folder/model.gguf" "${shape[@]}" --rank 4 --dropout 0.1 -o "$folder/lora" "$@" >"$folder/lora.out" 2>&1 || {
  cat "$folder/lora.out" >&2
  exit 1
}
for run in full lora; do
  awk -F, -v run="$run" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == "checksum") at = i; next }
    { print run, $1, $at }' "$folder/$run/log.csv"
done
