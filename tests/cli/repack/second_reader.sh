# A reader written from docs/pack_format.md alone agrees about every byte, of the embedded model, of odd sources and of
# checkpoints, whose rows a pack keeps in another order.
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack >/dev/null
python3 "$SOURCE_DIR/tests/formats/pack_reader.py" pebble.tierpack
cat "$SOURCE_DIR/models/pebble/SHA256SUMS"
seed=0
for odd in "shards=3 merged=1 dirty_padding=1" "alignment=512 shuffled=1 table_row=2016 trailing=777" "table_row=8192 table_rows=33" "table_row=0" "layers=6 hidden=512 ff=40 key_rows=17" "layers=5 ff=256 key_rows=15 merged=1 shards=2" "layers=4 hidden=512 ff=256 key_rows=16"; do
  seed=$((seed + 1))
  moe_gguf_tool "source$seed" noise seed=$seed $odd >/dev/null
  tierpack repack "source$seed" --allow-nonfinite --to "$seed.tierpack" >/dev/null
  python3 "$SOURCE_DIR/tests/formats/pack_reader.py" "$seed.tierpack" --restore "restored$seed" >/dev/null
  diff -r "source$seed" "restored$seed" && echo "the same: $odd"
done
for checkpoint in "qwen3moe nvfp4-modelopt" "qwen4exp nvfp4-ct" "gpt_oss mxfp4" "qwen3moe fp8-block" "qwen3next fp8-channel"; do
  rm -rf checkpoint restored
  python3 "$SOURCE_DIR/tests/support/hf_checkpoint.py" make checkpoint --arch "${checkpoint% *}" --scheme "${checkpoint#* }" --seed 3 --shards 3 >/dev/null
  tierpack repack checkpoint --to checkpoint.tierpack --force >/dev/null
  python3 "$SOURCE_DIR/tests/formats/pack_reader.py" checkpoint.tierpack --restore restored >/dev/null
  diff -r checkpoint restored && echo "the same: $checkpoint"
done
