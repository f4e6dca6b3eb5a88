#!/bin/sh
# Runs every fuzz target of a fuzz build for some seconds each, starting from its committed corpus; new inputs stay below
# the build folder. Usage: scripts/fuzz.sh BUILD_DIR SECONDS
set -eu
build=$1
seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)

found=0
for target in "$build"/*_fuzz; do
    [ -x "$target" ] || continue
    name=$(basename "$target")
    seeds=$root/tests/fuzz/corpus_${name%_fuzz}
    work=$build/corpus/$name
    mkdir -p "$work" "$seeds"
    echo "== $name, $seconds s"
    "$target" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=20 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="$build/" "$work" "$seeds"
    found=$((found + 1))
done
echo "$found fuzz targets ran without a finding"
[ "$found" -gt 0 ]
