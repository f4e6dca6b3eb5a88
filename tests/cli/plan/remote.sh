# A GGUF and a safetensors checkpoint on a hub are planned from their headers: a small part of their bytes is asked for.
mkdir -p hub/o
ln -s "$SOURCE_DIR/models/pebble" hub/o/pebble
python3 "$SOURCE_DIR/tests/support/hf_checkpoint.py" make hub/o/checkpoint --arch qwen3moe --scheme bf16 --seed 1 --shards 3 --hidden 512 >/dev/null
. "$SOURCE_DIR/tests/cli/fetch/common.sh"
export HF_ENDPOINT=$hub
tierpack plan hf:o/pebble --ram 62MiB --threads 1
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack -q >/dev/null
tierpack plan hf:o/pebble --ram 62MiB --threads 1 --json >remote.json
tierpack plan pebble.tierpack --ram 62MiB --threads 1 --json >pack.json
jq -S 'del(.pack_bytes, .parts)' remote.json >a
jq -S 'del(.pack_bytes, .parts)' pack.json | diff a - && echo "the pack's plan"
tierpack plan $hub/files/o/pebble/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf --ram 62MiB --threads 1 --json | jq -S 'del(.pack_bytes, .parts)' | diff a - && echo "the same by URL"
tierpack plan hf:o/checkpoint --ram 100MiB --threads 1 | plain
tierpack plan hub/o/checkpoint --ram 100MiB --threads 1 | tail -n +2 >local
tierpack plan hf:o/checkpoint --ram 100MiB --threads 1 | tail -n +2 | diff local - && echo "the same from disk"
ls
