#!/bin/sh
# A run under a hard limit of its plan and a stated constant succeeds; a byte budget below the plan is refused with
# the numbers before the first step. The constants hold code, libraries, stacks of the C library and page tables.
# Usage: limits.sh FOLDER_OF_PROGRAMS      (exit 77: the part that needs a control group was skipped)
set -eu
ADDRESS_SPACE_CONSTANT_MIB=16 # measured: 8 suffice
GROUP_CONSTANT_MIB=8
programs=$1
work=$(mktemp -d)
group=
cleanup() { rm -rf "$work"; [ -z "$group" ] || rmdir "$group" 2>/dev/null || true; }
trap cleanup EXIT
cd "$work"
fail() { echo "limits: $*" >&2; exit 1; }

"$programs/stint" new -o model.gguf --embd 128 --layers 4 --heads 4 --kv-heads 2 --ff 352 --seed 1 >/dev/null
i=0
while [ $i -lt 600 ]; do echo "line $i of a text about nothing in particular, long enough to train on"; i=$((i + 1)); done >text.txt
options="--ctx 128 --batch 4 --threads 2"

number() { sed -n "s/^  \"$1\": \([0-9]*\),*$/\1/p" plan.json; }
"$programs/memplan" model.gguf $options --json >plan.json
peak=$(number peak_bytes) arena=$(number arena_bytes) planning=$(number planning_bytes)
[ "$peak" -gt 1000000 ] || fail "no peak in the plan"
tokens=$((4 * $(wc -c <text.txt) + 65536)) # the token file, mapped

# address space: plan, mapped files, constant
(
  ulimit -v $(((peak + tokens) / 1024 + ADDRESS_SPACE_CONSTANT_MIB * 1024))
  "$programs/stint" train model.gguf --data text.txt $options --steps 2 -o under_limit >out.txt 2>&1
) || fail "under an address space of the plan and $ADDRESS_SPACE_CONSTANT_MIB MiB: $(tail -n 1 out.txt)"
[ -s under_limit/adapter.gguf ] || fail "nothing was saved under the limit"

# a budget of the smallest plan is enough; 1 MiB less is not
"$programs/memplan" model.gguf $options --budget 1 --json >plan.json && fail "a budget of one byte fits"
smallest=$(number peak_bytes)
"$programs/memplan" model.gguf $options --budget "$smallest" >/dev/null || fail "the smallest plan does not fit its own bytes"
if "$programs/stint" train model.gguf --data text.txt $options --steps 2 --budget $((smallest - 1048576)) -o refused >out.txt 2>err.txt; then
  fail "a budget 1 MiB below the smallest plan ran"
fi
grep -q "$smallest" err.txt || fail "the refusal does not name $smallest bytes: $(cat err.txt)"
grep -q "$((smallest - 1048576))" err.txt || fail "the refusal does not name the budget: $(cat err.txt)"
[ ! -e refused/adapter.gguf ] || fail "a refused run saved something"

# a control group's memory: anonymous memory of the plan and a constant; mapped files are reclaimed under pressure
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  candidate=$root/stint-test-$$
  mkdir "$candidate" 2>/dev/null || continue
  group=$candidate
  break
done
limit=$((arena + planning + GROUP_CONSTANT_MIB * 1048576))
set_limit() { for name in memory.limit_in_bytes memory.max; do [ -e "$group/$name" ] && echo $limit >"$group/$name" 2>/dev/null && return 0; done; return 1; }
if [ -z "$group" ] || ! set_limit; then
  echo "no memory control group can be made here (needs root and a writable /sys/fs/cgroup)"
  exit 77
fi
budget=$((peak + 1048576)) # stated: otherwise the plan would take less of what the group leaves
(
  sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" \
    "$programs/stint" train model.gguf --data text.txt $options --steps 2 --budget $budget -o in_group >out.txt 2>&1
) || fail "in a control group of the plan and $GROUP_CONSTANT_MIB MiB: $(tail -n 1 out.txt)"
[ -s in_group/adapter.gguf ] || fail "nothing was saved in the control group"
