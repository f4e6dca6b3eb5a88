# A pack gives back its source, leaves files that are right alone, and never overwrites others.
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack | sed '/^  other/s/[0-9.]* KiB/SIZE/'
tierpack unpack pebble.tierpack --to out
tierpack unpack pebble.tierpack --to out
(cd out && sha256sum -c "$SOURCE_DIR/models/pebble/SHA256SUMS")
echo mine >out/pebble-24M-A5M-MTP-Q4_K_M-00002-of-00002.gguf
tierpack unpack pebble.tierpack --to out 2>&1 || echo "exit $?"
cat out/pebble-24M-A5M-MTP-Q4_K_M-00002-of-00002.gguf
ls out
