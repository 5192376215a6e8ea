#!/usr/bin/env bash
# For whoever has a GPU: builds stint for it, and shows in one report, inside six minutes, that the CUDA backend is right and
# how fast it is:
#   1. every op through the module: strict has the reference's bits, fast lies within its bound, both twice the same
#   2. two short training runs: checksums equal to those that the CPU gave (tests/cuda/checksums.txt)
#   3. each op's time, strict and fast, and its share of the device's peaks; torch beside it, where python3 has it
#   4. whole training steps, strict and fast: tokens a second, and free device memory before and after
#   5. compute-sanitizer on the small cases of every op (memcheck, racecheck, initcheck), where it is installed
# Usage: tests/gpu.sh [REPORT]      (default: build-gpu/report.txt). Exit 0: all right; 1: something is wrong; 77: no GPU.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
folder=build-gpu
report=$(realpath -m "${1:-$folder/report.txt}")
started=$SECONDS
limit=345 # seconds: the last part that starts may take some
wrong=0

command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || {
  echo "no GPU here (nvidia-smi lists none): nothing was checked"
  exit 77
}
arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d '. ')
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)

left() { echo $((limit - (SECONDS - started))); }
say() { printf '%s\n' "$*" | tee -a "$report"; }
heading() { say "" "== $* ($((SECONDS - started)) s)"; }
say_all() { tee -a "$report"; }
# part WHAT SECONDS COMMAND...: runs it for no longer than that and than what is left; its output goes to the report
part() {
  local what=$1 most=$2 rest
  shift 2
  rest=$(left)
  [ "$rest" -gt 5 ] || {
    say "$what: left out, the six minutes are over"
    return 0
  }
  [ "$rest" -lt "$most" ] && most=$rest
  timeout "$most" "$@" 2>&1 | say_all
  local status=${PIPESTATUS[0]}
  case $status in
    0) say "$what: right" ;;
    124) say "$what: stopped after $most s" ;;
    *)
      say "$what: WRONG (status $status)"
      wrong=1
      ;;
  esac
}

mkdir -p "$folder" "$(dirname "$report")"
: >"$report"
say "stint on a GPU, $(date -u +%Y-%m-%dT%H:%MZ), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free,compute_cap,clocks.max.sm --format=csv | say_all
"$nvcc" --version | tail -2 | say_all

heading "building for sm_$arch"
. tools/packages
need "${build_packages[@]}" "${test_packages[@]}" || exit 1
# an architecture that the toolkit does not know yet runs the newest PTX
"$nvcc" --list-gpu-code | grep -qx "sm_$arch" || arch=auto
configure "$folder/b" -Dcuda=enabled "-Dgpu_arch=$arch" -Dbuildtype=debugoptimized &&
  ninja -C "$folder/b" tools/stint tools/memplan engine/libstint-cuda.so tests/cuda/test_device_ops tests/cuda/time_device \
    >"$folder/build.log" 2>&1 || {
  tail -40 "$folder/build.log"
  exit 1
}
say "built"
export STINT_CUDA_MODULE=$PWD/$folder/b/engine/libstint-cuda.so
export CRITERION_JOBS=1 DEVICE_TEST_MUST=1 # (without a device these tests skip: not here)
bin=$folder/b

ops() { # filter: the summary, and each failure
  "$bin/tests/cuda/test_device_ops" --filter "$1" --verbose=0 2>&1 | grep -vE '^\[(RUN|PASS)' | tail -40
  local status=${PIPESTATUS[0]}
  return "$status"
}
export -f ops
export bin

heading "every op, strict: the reference's bits"
part 'ops, strict' 90 bash -c "ops 'device_strict/*'"
heading "every op, fast: within the bound, twice the same bits"
part 'ops, fast' 60 bash -c "ops 'device_fast/*'"

heading "two short runs: checksums of the trained state after each step"
same_checksums() { # what, options...
  local what=$1
  shift
  tests/cuda/short_run.sh "$bin/tools/stint" "$folder/run-$what" "$@" >"$folder/run-$what.txt" || return 1
  diff "$folder/run-$what.txt" tests/cuda/checksums.txt && echo "$what: $(wc -l <"$folder/run-$what.txt") checksums as committed"
}
export -f same_checksums
export folder
part 'CPU' 20 bash -c 'same_checksums cpu'
part 'CUDA strict' 30 bash -c 'same_checksums strict --device cuda --numerics strict'
part 'CUDA fast runs' 30 bash -c 'tests/cuda/short_run.sh "$bin/tools/stint" "$folder/fast-1" --device cuda --numerics fast >"$folder/fast-1.txt" &&
  tests/cuda/short_run.sh "$bin/tools/stint" "$folder/fast-2" --device cuda --numerics fast | diff - "$folder/fast-1.txt" && echo "fast: the same twice"'

heading "time of each op"
part 'times, strict' 25 "$bin/tests/cuda/time_device" strict
part 'times, fast' 25 "$bin/tests/cuda/time_device" fast
if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
  part 'torch, the same shapes' 30 python3 - <<'PY'
import time, torch
import torch.nn.functional as F

def timed(what, call, flops):
    call()
    torch.cuda.synchronize()
    start, runs = time.time(), 0
    while time.time() - start < 0.2:
        call()
        torch.cuda.synchronize()
        runs += 1
    t = (time.time() - start) / runs
    print(f"{what:32s} {t*1e6:10.1f} us {flops/t/1e9:10.0f} GFLOP/s")

rows, width, wide, heads, kv, head = 2048, 2048, 5632, 32, 8, 64
for tf32 in (False, True):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    name = "TF32" if tf32 else "float32"
    x, w, dy = (torch.randn(*s, device="cuda") for s in ((rows, width), (wide, width), (rows, wide)))
    timed(f"matmul {name}", lambda: x @ w.T, 2.0 * rows * width * wide)
    timed(f"matmul_dx {name}", lambda: dy @ w, 2.0 * rows * width * wide)
q = torch.randn(1, heads, rows, head, device="cuda")
k = torch.randn(1, kv, rows, head, device="cuda").repeat_interleave(heads // kv, 1)
timed("attention causal float32", lambda: F.scaled_dot_product_attention(q, k, k, is_causal=True), 2.0 * rows * rows * head * heads)
PY
else
  say "torch: not here (python3 -m pip install torch), nothing to compare with"
fi

heading "whole steps"
steps() { # what, options...
  local what=$1 before after
  shift
  rm -rf "$folder/steps-$what"
  before=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader | head -1)
  "$bin/tools/stint" train "$folder/big.gguf" --data "$folder/big.txt" --ctx 512 --batch 4 --rank 16 --steps 12 --lr 1e-4 \
    -o "$folder/steps-$what" "$@" >"$folder/steps-$what.out" 2>&1 || {
    tail -5 "$folder/steps-$what.out"
    return 1
  }
  after=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader | head -1)
  awk -F, -v what="$what" '
    NR == 1 { for (i = 1; i <= NF; i++) { if ($i == "tokens_per_second") t = i; if ($i == "loss") l = i } if (!l) l = 2; next }
    NR > 3 { sum += $t; n++ } END { printf "%-8s %10.0f tokens/s, loss %s after %d steps\n", what, sum / n, $l, NR - 1 }' "$folder/steps-$what/log.csv"
  echo "         device memory free before $before, after $after"
}
export -f steps
cat docs/*.md kernels/*/*.c engine/*/*.c >"$folder/big.txt"
"$bin/tools/stint" new -o "$folder/big.gguf" --embd 768 --layers 12 --heads 12 --kv-heads 4 --ff 2048 --ctx 512 --seed 1 >/dev/null || wrong=1
"$bin/tools/memplan" "$folder/big.gguf" --ctx 512 --batch 4 --rank 16 --device cuda 2>&1 | tail -12 | say_all
part 'steps, strict' 40 bash -c 'steps strict --device cuda --numerics strict'
part 'steps, fast' 30 bash -c 'steps fast --device cuda --numerics fast'

heading "compute-sanitizer on the small cases"
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -n "$sanitizer" ]; then
  for tool in memcheck racecheck initcheck; do
    DEVICE_TEST_OPS=small part "sanitizer, $tool" 60 "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1 \
      --print-limit 10 "$bin/tests/cuda/test_device_ops" --filter 'device_strict/*' --verbose=0
  done
else
  say "compute-sanitizer: not here (it comes with the CUDA toolkit)"
fi

heading "end"
say "$([ "$wrong" -eq 0 ] && echo 'all that was checked is right' || echo 'something is WRONG: see above'); report: $report"
exit "$wrong"
