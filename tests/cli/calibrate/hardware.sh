# A machine measured with a pack, and the file that it gives.
exec 2>&1
tierpack repack "$SOURCE_DIR/models/pebble" --to p.tierpack -q >/dev/null
tierpack calibrate p.tierpack --hardware --json -q >out.json
file=$XDG_STATE_HOME/tierpack/hardware.json
jq -c '[.format, .version, (.disks | length), (.disks[0] | .record_bytes, .sequential_bytes_s > 1e6, .record_bytes_s > 1e6, .record_latency_us > 1, .page_reads_s > 10, .page_latency_us > 1),
  .memory.read_bytes_s > 1e8]' "$file"
jq -c '[.kernels[] | [.dtype, .decode_bytes_s > 1e6, .prefill_madds_s > 1e6]]' "$file"
jq -c '.now.measured, .now.disk_not_measured' out.json
jq -c 'del(.now, .findings)' out.json >printed.json
jq -c 'del(.format, .version)' "$file" | cmp - printed.json && echo "printed as written"
echo "--- files of the pack"
ls p.tierpack
tierpack verify p.tierpack -q >/dev/null && echo "verified"
echo "--- a disk that was measured earlier is kept"
jq '.disks[0].path = "/elsewhere"' "$file" >edited.json
tierpack calibrate --hardware --out edited.json --dir . -q >text.txt
jq -c '[.disks[].path] | length, .[1]' edited.json
grep -c '^kernels' text.txt
tail -n 1 text.txt
echo "--- a file that is none is written anew"
echo '{' >edited.json
tierpack calibrate --hardware --out edited.json --json -q 2>&1 >/dev/null | sed 's/JSON: .*;/JSON;/'
jq -r .format edited.json
echo "--- refused"
try() { tierpack calibrate "$@" || echo "exit $?"; }
try --hardware --tune p.tierpack
try --hardware --corpus out.json
try --hardware none.tierpack
try --hardware --dir none
try --hardware --out p.tierpack
try p.tierpack --corpus out.json
try --out x
try p.tierpack --corpus out.json --out x --dir .
