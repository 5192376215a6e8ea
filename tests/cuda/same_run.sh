#!/usr/bin/env bash
# The short runs give the committed checksums. Usage: same_run.sh SHORT_RUN CHECKSUMS STINT [OPTION...]
set -u
short_run=$1 checksums=$2 stint=$3
shift 3
scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT
bash "$short_run" "$stint" "$scratch/run" "$@" >"$scratch/got" || exit 1
diff "$scratch/got" "$checksums" || {
  echo "the trained state differs from the committed run's (left: this run, $*)"
  exit 1
}
echo "$(wc -l <"$scratch/got") checksums as committed"
