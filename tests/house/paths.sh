#!/usr/bin/env bash
# No path of somebody's machine stands in the tree. (A bracket in each pattern keeps this file out of its own net.)
set -u
cd "$1" || exit 1
pattern='/[w]ork/|/[h]ome/[a-z]|/[r]oot/|/[t]mp/[a-z]+/|/[f]arm'
files=$(find . \( -name .git -o -name 'build*' -o -name runs -o -name __pycache__ \) -prune -o -type f -print | wc -l)
found=$(grep -rnIE --exclude-dir=.git --exclude-dir='build*' --exclude-dir=runs --exclude-dir=__pycache__ "$pattern" .)
if [ -n "$found" ]; then
  echo "paths of a machine in the tree:"
  echo "$found"
  exit 1
fi
echo "$files files, no path of a machine"
[ "$files" -ge 50 ]
