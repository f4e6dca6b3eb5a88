# What would be written, and nothing written.
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack --dry-run
tierpack repack "$SOURCE_DIR/models/pebble" --to pebble.tierpack --dry-run --json | grep -v seconds
ls
