# What doctor prints for people and for programs, without the figures of this machine; what it refuses.
exec 2>&1
tierpack doctor --help
mkdir disk
echo "--- text"
tierpack doctor --dir disk --quick | sed '/^$/q' | sed -n 's/^\([A-Za-z][A-Za-z]*\) .*/\1/p' | uniq
echo "--- json"
tierpack doctor --dir disk --quick --json >out.json
wc -l <out.json
jq -r 'paths | select(.[0] != "findings" and .[0] != "gpus" and .[1] != "displays" and (.[1] != "isa" or length < 3)) | map(tostring) | join(".")' out.json
jq -r '.findings[] | select((.level != "warning" and .level != "note") or (.code | test("^[a-z_]+$") | not) or (.text | length) < 30)' out.json
jq -c '[.now.measured, .now.disk_not_measured, .disks[0].sequential_bytes_s, .kernels]' out.json
echo "--- files left: $(ls disk)"
echo "--- refused"
for arguments in "--dir none" "--dir out.json" "none.tierpack" "one two"; do
  # shellcheck disable=SC2086
  tierpack doctor $arguments || echo "exit $?"
done
echo "--- interrupted"
code=0
tierpack doctor --dir disk -q &
pid=$!
sleep 1
kill -TERM $pid
wait $pid || code=$?
echo "exit $code, files left: $(ls disk)"
