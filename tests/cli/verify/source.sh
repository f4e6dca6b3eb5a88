# A source directory: whole, then damaged in every way a directory can be.
mkdir m
cp "$SOURCE_DIR"/models/pebble/*.gguf "$SOURCE_DIR/models/pebble/SHA256SUMS" m
tierpack verify m
tierpack verify m --json | sed 's/"seconds": .*/"seconds": S/'
echo x >>m/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf
tierpack verify m || echo "exit $?"
rm m/pebble-24M-A5M-MTP-Q4_K_M-00002-of-00002.gguf
tierpack verify m || echo "exit $?"
rm m/SHA256SUMS
tierpack verify m || echo "exit $?"
tierpack verify nothing 2>&1 || echo "exit $?"
