# What of the embedded model sits where, as a pack and before it is one; how fast it would be on a machine described by a file.
hardware="--hardware $SOURCE_DIR/tests/data/hardware.json --threads 4"
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack -q >/dev/null
tierpack plan pebble.tierpack $hardware --ram 1GiB
echo
tierpack plan pebble.tierpack $hardware --ram 68MiB --vram 2MiB --device sim --context 2048 --explain
echo
# A GPU computes: dense weights, session and workspace in VRAM.
tierpack plan pebble.tierpack $hardware --ram 512MiB --vram 640MiB --context 2048 --explain
echo
# Routing counted on a text; more is known, and the hot experts get the slots.
tierpack calibrate pebble.tierpack --corpus "$SOURCE_DIR/models/pebble/corpus/code.txt" --out code.json -q >/dev/null
tierpack plan pebble.tierpack $hardware --ram 68MiB --context 1024 --profile code.json --place 'blk.[0-1].*exps=disk' --place 'blk.3.*exps=ram' --explain | grep -v 'code.json\|uses  \|decode  \|prefill  \|a token\|a chunk'
tierpack repack "$SOURCE_DIR/models/pebble" --to hot.tierpack --profile code.json -q >/dev/null
# The checkpoint says the same as its pack.
tierpack plan "$SOURCE_DIR/models/pebble" $hardware --ram 68MiB >source.txt
tierpack plan pebble.tierpack $hardware --ram 68MiB >pack.txt
diff source.txt pack.txt || true
tierpack plan hot.tierpack $hardware --ram 68MiB --json | jq -r '.hits.profile, (.hits.ram.share + .hits.disk.share), (.decode | keys | join(" ")), (.parts | map(.name) | join(", ")), .notes[]'
# Without --ram the machine's own memory; without a machine no rates.
tierpack plan pebble.tierpack $hardware | grep ' used'
tierpack plan pebble.tierpack --ram 1GiB --threads 4 | grep speed
