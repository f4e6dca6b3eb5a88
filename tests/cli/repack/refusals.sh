# What repack refuses, and how it says so.
try() {
  code=0
  "$@" || code=$?
  echo "  exit $code"
}
exec 2>&1
try tierpack repack nothing --to a.tierpack
try tierpack repack "$SOURCE_DIR/models/pebble"
try tierpack repack "$SOURCE_DIR/docs" --to a.tierpack
try tierpack repack "$SOURCE_DIR/models/pebble" --to a.tierpack --memory 1M
try tierpack repack "$SOURCE_DIR/models/pebble" --to a.tierpack --profile nothing.json
mkdir precious
echo x >precious/file
try tierpack repack "$SOURCE_DIR/models/pebble" --to precious
try tierpack repack "$SOURCE_DIR/models/pebble" --to precious --force
# A source whose sums say something else.
cp "$SOURCE_DIR"/models/pebble/*.gguf .
sed 's/^6/7/' "$SOURCE_DIR/models/pebble/SHA256SUMS" >SHA256SUMS
try tierpack repack . --to a.tierpack
# A shard cut short.
rm SHA256SUMS
truncate -s 500000 ./*-00002-of-00002.gguf
try tierpack repack . --to a.tierpack
# A shard missing.
rm ./*-00002-of-00002.gguf
try tierpack repack . --to a.tierpack
ls
