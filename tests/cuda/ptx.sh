#!/usr/bin/env bash
# What nvcc makes of the CUDA kernels, read without a GPU.
#   strict kernels (all but fast_*.cu): no approximate instruction, no flush of denormals, no multiply or add that the
#     assembler may contract (each is .rn), no atomic on floats;
#   every kernel: on sm_80, sm_90 and the newest that the toolkit knows a stack frame of 0 bytes and no spill.
# First it reads a source with all of these defects in it and must see each. Exit 77: no nvcc.
# Usage: ptx.sh TREE
set -u
tree=$1
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null) || {
  echo "nvcc is not there (install the CUDA toolkit): PTX was not checked"
  exit 77
}
ptxas=$(dirname "$nvcc")/ptxas
[ -x "$ptxas" ] || ptxas=ptxas
newest=$("$nvcc" --list-gpu-code | sed -n 's/^sm_\([0-9]*\)$/\1/p' | sort -n | tail -1)
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
wrong=0

compile() { # source, PTX, flags...
  local source=$1 ptx=$2
  shift 2
  "$nvcc" -std=c++17 -O3 -arch=compute_80 -ptx -I"$tree" "$@" "$source" -o "$ptx" 2>"$ptx.log" && return
  cat "$ptx.log"
  return 1
}

# Instructions of a strict kernel that give other bits than the source spells, one a line.
inexact() { # PTX
  sed -E 's/^[[:space:]]+//; s/^@!?%p[0-9]+[[:space:]]+//' "$1" | grep -oE '^[a-z][a-z0-9_.:]*' | sort -u | awk '
    /\.approx|\.full|\.ftz/ { print; next }
    /^(atom|red)[.]/ && /[.](f|bf)[0-9]+/ { print; next }
    /^(add|sub|mul|fma|mad|div|rcp|sqrt)[.]/ && /[.](f|bf)(16|32|64)/ && !/[.]rn[.]/ { print; next }
    /^(ex2|lg2|sin|cos|tanh|rsqrt)[.]/ { print }'
}

# Entries of a PTX file that have a stack frame or spill on an architecture, one a line; at the end how many were read.
frames() { # PTX, architecture
  "$ptxas" -arch="sm_$2" -v "$1" -o /dev/null 2>&1 | awk '
    /Function properties for/ { name = $NF; next }
    /bytes stack frame/ { n++; if ($1 + 0 || $5 + 0 || $9 + 0) print name ": " $0 }
    / error / { print }
    END { print n + 0 }'
}

# ---- the detector sees what it is for ----
cat >"$scratch/defects.cu" <<'CU'
__global__ void contractible(float *x, float y) { x[threadIdx.x] = x[threadIdx.x] * y; }
__global__ void approximate(float *x) { x[threadIdx.x] = __expf(x[threadIdx.x]) / __fsqrt_rn(__fdividef(x[0], x[1])); }
__global__ void atomic(float *x, float *y) { y[threadIdx.x] = atomicAdd(x, 1.0f) + 1.0f; }
__global__ void framed(float *x, int i) {
  float a[64];
  for (int k = 0; k < 64; k++) a[k * i & 63] = x[k * threadIdx.x];
  x[0] = a[i & 63] + a[i * 3 & 63];
}
CU
compile "$scratch/defects.cu" "$scratch/defects.ptx" || exit 1
seen=$(inexact "$scratch/defects.ptx")
for instruction in 'ex2\.approx' 'div\.(approx|full)' '(atom|red)\..*f32' 'mul\.f32'; do
  grep -qE "^$instruction" <<<"$seen" || {
    echo "the check is blind: it does not see $instruction in a source that has it (saw: $(tr '\n' ' ' <<<"$seen"))"
    wrong=1
  }
done
frames "$scratch/defects.ptx" 80 | grep -q 'framed.*stack frame' || {
  echo "the check is blind: it does not see a stack frame in a source that has one"
  wrong=1
}

# ---- the kernels ----
check() { # source
  local source=$1 name ptx bad=0 arch flags=()
  name=$(basename "$source" .cu)
  ptx=$scratch/$name.ptx
  [[ $name == fast_* ]] || flags=(-fmad=false)
  compile "$source" "$ptx" "${flags[@]}" || return 1
  if [[ $name != fast_* ]]; then
    found=$(inexact "$ptx")
    [ -z "$found" ] || {
      echo "$name.cu is strict, and its PTX holds: $(tr '\n' ' ' <<<"$found")"
      bad=1
    }
  fi
  for arch in 80 90 "$newest"; do
    found=$(frames "$ptx" "$arch")
    [ "$(wc -l <<<"$found")" -eq 1 ] || {
      echo "$name.cu on sm_$arch:"
      sed '$d' <<<"$found"
      bad=1
    }
    [[ ${found##*$'\n'} -gt 0 || $name == fast_* ]] || { # (a fast file may use cuBLAS alone)
      echo "$name.cu on sm_$arch: no kernel was read"
      bad=1
    }
  done
  echo "$name.cu: ${found##*$'\n'} functions read"
  return $bad
}

running=() n=0
for source in "$tree"/kernels/cuda/*.cu; do
  n=$((n + 1))
  check "$source" >"$scratch/$(basename "$source").out" 2>&1 &
  running+=($!)
  if [ ${#running[@]} -ge 2 ]; then
    wait "${running[0]}" || wrong=1
    running=("${running[@]:1}")
  fi
done
for pid in "${running[@]}"; do wait "$pid" || wrong=1; done
cat "$scratch"/*.out
echo "$n sources, compiled for sm_80, sm_90 and sm_$newest"
[ "$n" -ge 8 ] && [ "$wrong" -eq 0 ]
