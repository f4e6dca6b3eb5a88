# A pack, in natural order and ordered by a profile: coverage and order are shown.
tierpack repack "$SOURCE_DIR/models/pebble" --to natural.tierpack >/dev/null
routing=$(tierpack inspect natural.tierpack --json | sed -n 's/.*"routing_id": "\(.*\)".*/\1/p')
python3 - "$routing" <<'PY'
import json, sys
layer = {"counts": [(e * 37) % 64 ** 2 // 8 for e in range(32)], "weights": [0.5] * 32}
json.dump({"format": "tierpack-profile", "version": 1,
           "model": {"architecture": "qwen4exp", "routing_id": sys.argv[1], "layers": 6, "experts": 32, "used": 4},
           "tool": {"name": "tierpack", "version": "test"},
           "corpora": [{"name": "noise", "sha256": "0" * 64, "tokens": 1000}], "layers": [layer] * 6}, open("p.json", "w"))
PY
tierpack repack natural.tierpack --to hot.tierpack --profile p.json | sed '/^  other/s/[0-9.]* KiB/SIZE/'
tierpack inspect hot.tierpack | sed 's/ *$//'
tierpack verify hot.tierpack --deep --against "$SOURCE_DIR/models/pebble/SHA256SUMS"
