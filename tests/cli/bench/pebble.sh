# What the command prints for machines and for people, without the figures.
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack -q > /dev/null
tierpack bench pebble.tierpack --lengths 24,1K --decode 3 --runs 1 --threads 1 --json --report report -q > out.json
cmp out.json report/report.json
python3 - <<'END'
import json

def keys(value, path):
    if isinstance(value, dict):
        for key, inner in value.items():
            keys(inner, path + "." + key if path else key)
    elif isinstance(value, list):
        print(f"{path}[{len(value)}]")
        if value:
            keys(value[-1], path + "[-1]")
    else:
        print(path, type(value).__name__.replace("float", "number").replace("int", "number"))

out = json.load(open("out.json"))
keys(out, "")
END
ls report
# Threads change the speed alone.
tierpack bench pebble.tierpack --lengths 24,1K --decode 3 --runs 1 --threads 2 --chunk 100 --json -q > again.json
python3 -c 'import json; print(len({tuple(l["fingerprint"] for l in json.load(open(f))["lengths"]) for f in ("out.json", "again.json")}), "set of fingerprints")'
tierpack bench pebble.tierpack --lengths 24 --decode 3 --runs 1 --threads 2 -q | grep -o 'decode tokens/s\|two requests\|peak memory'
tierpack bench pebble.tierpack --lengths 1K,none 2>&1 || echo "exit $?"
tierpack bench pebble.tierpack --lengths 4K 2>&1 || echo "exit $?"
tierpack bench pebble.tierpack --report report 2>&1 || echo "exit $?"
