#!/usr/bin/env bash
# The house has four floors; a folder includes only from the floors below it, and the tools from engine/stint.h alone.
# Reads every quoted #include under the tree named by $1 and names each arrow that climbs.
set -u
tree=$1
read_includes() { # folder -> lines "file:line:header"
  grep -rnE --include='*.[ch]' --include='*.cu' --include='*.cuh' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$tree/$1" |
    sed -E 's/^([^:]+:[0-9]+):[^"]*"([^"]+)".*/\1:\2/'
}

seen=0 wrong=0
check() { # folder, pattern of the headers that it may include
  local line
  while IFS= read -r line; do
    seen=$((seen + 1))
    if ! [[ ${line##*:} =~ $2 ]]; then
      echo "${line#"$tree"/} climbs a floor: $1/ may include only $2"
      wrong=$((wrong + 1))
    fi
  done < <(read_includes "$1")
}

check arena '^arena/'
# (the emulator stands in for CUDA's own headers where a host compiler reads the device sources)
check kernels '^(kernels/|tests/cuemu/cuemu\.h$)'
check plans '^(plans|arena|kernels)/'
check engine '^(engine|plans|arena|kernels)/'
check tools '^(engine/stint\.h$|tools/)'
echo "$seen includes read, $wrong of them wrong"
[ "$seen" -ge 100 ] && [ "$wrong" -eq 0 ]
