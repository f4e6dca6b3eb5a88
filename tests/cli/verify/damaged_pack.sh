# A pack with a bad byte in each of its files: exit code 3, and the report says where.
tierpack repack "$SOURCE_DIR/models/pebble" --to good.tierpack >/dev/null
tierpack verify good.tierpack --deep
flip() {  # file, offset
  printf '%b' "\\0$(printf '%o' $(($(od -An -tu1 -j "$2" -N 1 "$1") ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
for place in dense.bin:70000 experts.bin:1000000 rows.bin:8192 source.bin:99 metadata.gguf.zst:5000 records.bin:3000 sources.bin:300 pack.json:1200; do
  rm -rf bad.tierpack
  cp -r good.tierpack bad.tierpack
  flip "bad.tierpack/${place%:*}" "${place#*:}"
  echo "== $place"
  code=0
  tierpack verify bad.tierpack >out || code=$?
  # What another version of zstd compressed has another SHA-256, and so has pack.json, which says it.
  sed '/metadata.gguf.zst: has\|its text has/s/[0-9a-f]\{64\}/SHA/g' out
  echo "exit $code"
done
rm bad.tierpack/pack.json
tierpack verify bad.tierpack || echo "exit $?"
