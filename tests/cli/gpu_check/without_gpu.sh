# bench/gpu_check.sh without a GPU and without a build: what it skips and why, what it keeps, what it refuses.
exec 2>&1
check() { "$SOURCE_DIR/bench/gpu_check.sh" "$@" | sed 's/ in [0-9]* s:/ in N s:/'; }
check --help
echo "--- without a GPU"
check --no-gpu --build build --only conformance,fingerprints,speed,sanitizer out
jq -c '.sections[] | [.section, .status, .why, .figures]' out/gpu_check.json
jq -c '[.format, .format_version, .gpu.name, .gpu.unavailable]' out/gpu_check.json
echo "--- what has passed is kept, unless it was another commit"
sed 's/"skipped"/"passed"/' out/sanitizer.json > passed.json
cp passed.json out/sanitizer.json
check --no-gpu --build build --only sanitizer out
check --no-gpu --build build --only sanitizer --again out
sed 's/"commit": "[^"]*"/"commit": "another"/' passed.json > out/sanitizer.json
check --no-gpu --build build --only sanitizer out
echo "--- refused"
for arguments in "--only speed,none" "--patience 0" "--jobs" "--fast" "one two"; do
  # shellcheck disable=SC2086
  "$SOURCE_DIR/bench/gpu_check.sh" $arguments || echo "exit $?"
done
ls
