#!/usr/bin/env bash
# No path of somebody's machine stands in the tree. (A bracket in each pattern keeps this file out of its own net.)
set -u
cd "$1" || exit 1
pattern='/[w]ork/|/[h]ome/[a-z]|/[r]oot/|/[t]mp/[a-z]+/|/[f]arm'
# every file but git's own, what a person's runs left, and build folders, whatever their name
files=$(find . \( -name .git -o -name runs -o -name __pycache__ -o -exec test -e '{}/build.ninja' \; \) -prune -o -type f -print |
  grep -v '^\./build.*\.log$')
found=$(tr '\n' '\0' <<<"$files" | xargs -0 grep -nIE "$pattern")
if [ -n "$found" ]; then
  echo "paths of a machine in the tree:"
  echo "$found"
  exit 1
fi
n=$(grep -c . <<<"$files")
echo "$n files, no path of a machine"
[ "$n" -ge 50 ]
