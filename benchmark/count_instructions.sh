#!/bin/bash
# Prints the instructions an operation, by callgrind:
#   count_instructions.sh PROGRAM {tree,baby,hash,tiny} {seq8,rnd8,uniq16x100} n
# PROGRAM is benchmark/instructions.cc, compiled.
set -euo pipefail
[ $# -eq 4 ] || { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/hako-instructions.XXXXXX")
trap 'rm -rf "$dir"' EXIT
valgrind --tool=callgrind --callgrind-out-file="$dir/out" --zero-before=PhaseBegin --dump-before=PhaseEnd "$@" > "$dir/phases" 2> "$dir/log" ||
  { cat "$dir/log" >&2; exit 1; }
part=0
while read -r phase n; do
  part=$((part + 1))
  awk -v phase="$phase" -v n="$n" '/^(summary|totals):/ { printf "%s %.1f\n", phase, $2 / n; exit }' "$dir/out.$part"
done < "$dir/phases"
