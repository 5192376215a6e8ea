#!/usr/bin/env bash
# The shared library shows stint_* and nothing else, and shows all that engine/stint.h and arena/status.h declare.
# Usage: exports.sh TREE LIBRARY
set -u
shown=$(nm -D --defined-only "$2" | awk '{print $3}' | sed 's/@.*//' | sort)
strangers=$(grep -vE '^(stint_[a-z_0-9]+|__asan_.*|__ubsan_.*|__odr_asan.*|_init|_fini)$' <<<"$shown")
declared=$(tr '\n' ' ' <"$1/engine/stint.h" | cat - <(tr '\n' ' ' <"$1/arena/status.h") |
  grep -oE 'STINT_API [^;{]*' | grep -oE 'stint_[a-z_0-9]+\(' | tr -d '(' | sort -u)
missing=$(comm -13 <(sort -u <<<"$shown") <(printf '%s\n' "$declared"))
[ -n "$strangers" ] && echo "shown, but not public: $strangers"
[ -n "$missing" ] && echo "declared, but not shown: $missing"
echo "$(grep -c . <<<"$declared") functions declared"
[ -z "$strangers" ] && [ -z "$missing" ] && [ "$(grep -c . <<<"$declared")" -ge 20 ]
