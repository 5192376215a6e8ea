#!/usr/bin/env bash
# Every header compiles alone, with the project's warnings. The list is read from the tree, so that no header is left
# out. Usage: headers.sh TREE COMPILER [ARGUMENT...]
set -u
tree=$1
shift
compiler=("$@")
warnings=(-std=gnu11 -D_GNU_SOURCE -fsyntax-only -x c -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes
  -Wmissing-prototypes -Wconversion -Wno-sign-conversion -Wno-pragma-once-outside-header -Werror "-I$tree")
good=0 bad=0
while IFS= read -r header; do
  flags=()
  case $header in
    kernels/cpu/*) flags=(-mavx2 -mfma -mf16c -DSTINT_PATH=avx2) ;; # compiled once a vector path
  esac
  if ! "${compiler[@]}" "${warnings[@]}" "${flags[@]}" - <<<"#include \"$header\""; then
    echo "$header does not compile alone"
    bad=$((bad + 1))
    continue
  fi
  guard=STINT_$(tr 'a-z/.-' 'A-Z___' <<<"$header")
  if ! grep -q "^#ifndef $guard\$" "$tree/$header"; then
    echo "$header: its guard is not $guard"
    bad=$((bad + 1))
    continue
  fi
  good=$((good + 1))
done < <(cd "$tree" && find arena kernels plans engine tools -name '*.h' | sort)
echo "$good headers compile alone, $bad do not"
[ "$good" -ge 20 ] && [ "$bad" -eq 0 ]
