# What would be written, and nothing written.
# How far metadata.gguf.zst is compressed depends on the version of zstd.
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack --dry-run | sed '/^  other/s/[0-9.]* KiB/SIZE/'
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack --dry-run --json | grep -v seconds |
  sed -e '/gguf.zst/{n;s/[0-9][0-9]*/SIZE/;}' -e '/"pack_bytes"/s/[0-9][0-9]*/SIZE/'
ls
