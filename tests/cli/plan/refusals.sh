# What does not fit says what would; what cannot be asked says why.
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack -q >/dev/null
refused() { tierpack plan pebble.tierpack --threads 1 "$@" 2>&1 || echo "exit $?"; }
refused --ram 20MiB
refused --ram 48MiB --kv f32
refused --ram 64MiB --context 4096 --chunk 1024
# Each of them would do.
for changed in "--ram 64MiB --context 4096 --chunk 512" "--ram 64MiB --context 512 --chunk 1024" "--ram 84MiB --context 4096 --chunk 1024"; do
  tierpack plan pebble.tierpack --threads 1 $changed | grep ' used'
done
refused --ram 1GiB --place 'exps=vram'
refused --ram 1GiB --vram 2MiB --device sim --place 'exps=vram'
refused --ram 1GiB --vram 402MiB --context 4096
refused --ram 40MiB --vram 1GiB --context 4096 --chunk 32
refused --ram 1GiB --place 'token_embd=disk'
refused --ram 1GiB --place 'per_layer=ram'
refused --ram 1GiB --place 'nothing=ram'
refused --ram 1GiB --place 'exps=gpu'
refused --ram 1GiB --context 5000
refused --ram much
refused --ram 1GiB --hardware pebble.tierpack/pack.json
refused --ram 1GiB --profile missing.json
tierpack plan missing.gguf 2>&1 || echo "exit $?"
# A profile of another model.
moe_gguf_tool other noise seed=1 >/dev/null
tierpack repack other --to other.tierpack -q --allow-nonfinite >/dev/null
tierpack calibrate pebble.tierpack --corpus "$SOURCE_DIR/models/pebble/corpus/code.txt" --out pebble.json -q >/dev/null
tierpack plan other --ram 1GiB --profile pebble.json 2>&1 | sed 's/[0-9a-f]\{64\}/SHA256/g' || echo "exit $?"
