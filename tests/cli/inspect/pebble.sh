# A source, from its headers.
cp "$SOURCE_DIR"/models/pebble/*.gguf .
tierpack inspect pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf --tensors | sed 's/ *$//'
tierpack inspect . --json | grep -c '"record_bytes"'
