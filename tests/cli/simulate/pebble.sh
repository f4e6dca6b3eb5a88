# Recording a text's experts, and replaying the recording; what is refused, and how it says so.
try() {
  code=0
  "$@" >out.txt 2>&1 || code=$?
  cat out.txt
  echo "  exit $code"
}
exec 2>&1
tierpack repack "$SOURCE_DIR/models/pebble" --to p.tierpack -q >/dev/null
head -c 3000 "$SOURCE_DIR/models/pebble/corpus/story.txt" >story.txt
head -c 3000 "$SOURCE_DIR/models/pebble/corpus/math.txt" >math.txt
tail -c 6000 "$SOURCE_DIR/models/pebble/corpus/story.txt" >profiled.txt
tierpack calibrate p.tierpack --corpus profiled.txt --out story.json -q >/dev/null
try tierpack trace p.tierpack --corpus story.txt --out story.trace -q --threads 1
tierpack trace p.tierpack --corpus story.txt --out again.trace -q --threads 2 --context 4096 >/dev/null
cmp story.trace again.trace && echo "threads do not matter"
tierpack trace p.tierpack --corpus math.txt --corpus story.txt --prompt 100 --out two.trace -q --json |
  python3 -c 'import json, sys; r = json.load(sys.stdin); print(r["texts"], r["layers"], r["experts"], r["used"], r["prompt"])'
tierpack trace p.tierpack --corpus math.txt --out math.trace -q >/dev/null

echo "--- a table"
try tierpack simulate story.trace --capacity 1MiB --capacity 50% --profile story.json --policy adaptive --policy lfu --policy belady --disk-rate 2GB
echo "--- a change of work"
try tierpack simulate story.trace math.trace --capacity 25% --profile story.json --policy adaptive
echo "--- JSON and a plot"
tierpack simulate story.trace --capacity 10% --capacity 25% --capacity 50% --capacity 100% --profile story.json --svg hits.svg --json >out.json
python3 - <<'END'
import json
import xml.etree.ElementTree as xml

out = json.load(open("out.json"))
rates = {}
for run in out["runs"]:
    rates.setdefault(run["policy"], []).append(run["hit_rate"])
    assert run["bytes_read"] % 1 == 0 and len(run["recordings"]) == 1
    assert sum(w["hits"] for w in run["recordings"][0]["windows"]) == run["hits"]
print(" ".join(rates))
print("belady is the bound:", all(r <= b for rs in rates.values() for r, b in zip(rs, rates["belady"])))
print("adaptive is above lru and lfu:", all(a >= max(b, c) for a, b, c in zip(rates["adaptive"], rates["lru"], rates["lfu"])))
print("everything fits:", all(r[-1] == 1 for r in rates.values()))
names = [e.text for e in xml.parse("hits.svg").getroot().iter() if e.tag.endswith("text")]
print("plotted:", all(policy in names for policy in rates))
END
echo "--- refusals"
try tierpack simulate story.trace
try tierpack simulate story.trace --capacity 120%
try tierpack simulate story.trace --capacity much
try tierpack simulate story.trace --capacity 25% --policy clock
try tierpack simulate story.json --capacity 25%
head -c 5000 story.trace >short.trace
try tierpack simulate short.trace --capacity 25%
sed 's/"routing_id": "../"routing_id": "00/' story.json >other.json
cmp -s story.json other.json || try tierpack simulate story.trace --capacity 25% --profile other.json | sed 's/[0-9a-f]\{64\}/ID/g'
: >empty.txt
try tierpack trace p.tierpack --corpus empty.txt --out empty.trace -q
ls empty.trace* 2>/dev/null || echo "nothing was written"
