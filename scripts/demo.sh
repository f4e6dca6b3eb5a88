#!/bin/sh
# From a hub to an answer: starts a small hub on loopback that serves models/pebble, then runs the real commands against
# it and shows what they print. Usage: scripts/demo.sh BUILD_DIR
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
work=$build/demo
PATH=$build:$PATH
rm -rf "$work"
mkdir -p "$work"
cd "$work"

pids=
cleanup() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
}
trap cleanup EXIT INT TERM

step() { printf '\n\033[1m%s\033[0m\n' "$1"; }
show() {
    printf '$ %s\n' "$*"
    "$@"
}
# Waits for FILE to match PATTERN; prints the first capture.
await() {
    for _ in $(seq 100); do
        found=$(sed -n "s/$2/\\1/p" "$1" 2>/dev/null | head -n 1)
        if [ -n "$found" ]; then echo "$found"; return; fi
        sleep 0.1
    done
    echo "demo: $1 did not show '$2' within 10 s" >&2
    cat "$1" >&2
    exit 1
}

began=$(date +%s)
mkdir -p hub/tierpack
ln -s "$root/models/pebble" hub/tierpack/pebble-24M-A5M
hub_server --root hub --port 0 --print-port >hub.log 2>&1 &
pids="$pids $!"
port=$(await hub.log '^\([0-9][0-9]*\)$')
hub=http://127.0.0.1:$port

step "1. fetch: a model from a hub, every byte proved (here the hub is a program on this machine)"
show tierpack fetch hf:tierpack/pebble-24M-A5M --endpoint "$hub" --include '*.gguf' --to pebble

step "2. verify: the files against the lock that fetch wrote"
show tierpack verify pebble

step "3. repack: one record per expert, checked on every first use"
show tierpack repack pebble --to pebble.tierpack

step "4. calibrate: which experts a text uses, then a pack with the hottest first"
show tierpack calibrate pebble.tierpack --corpus "$root/models/pebble/corpus/chat.txt" --out chat.profile.json
show tierpack repack pebble --profile chat.profile.json --to pebble-chat.tierpack
show tierpack verify pebble-chat.tierpack --deep

step "5. run: the answer is the same from both packs, bit for bit"
question='What is the capital of France?'
show tierpack run pebble.tierpack -p "$question" --temp 0
show tierpack run pebble-chat.tierpack -p "$question" --temp 0

step "6. serve: an OpenAI-compatible server"
echo '$ tierpack serve pebble-chat.tierpack --port 0 &'
tierpack serve pebble-chat.tierpack --port 0 2>serve.log &
pids="$pids $!"
address=$(await serve.log '.*listening on \(http:[^ ]*\).*')
for _ in $(seq 100); do
    curl -s "$address/health" | grep -q ready && break
    sleep 0.1
done
cat >request.json <<'JSON'
{"messages": [{"role": "user", "content": "What is the opposite of \"hot\"?"}], "temperature": 0, "max_tokens": 32}
JSON
show curl -sS "$address/v1/chat/completions" -H 'Content-Type: application/json' -d @request.json
echo

step "7. unpack: packs are reversible"
show tierpack unpack pebble-chat.tierpack --to restored
(cd restored && sha256sum -c "$root/models/pebble/SHA256SUMS")

ended=$(date +%s)
printf '\nThe whole way took %d s. Next:\n' $((ended - began))
cat <<TEXT
  build/tierpack run build/demo/pebble-chat.tierpack            talk to it
  build/tierpack serve build/demo/pebble-chat.tierpack          http://127.0.0.1:8080/v1
  build/tierpack fetch --help                                   a real model: hf:ORG/NAME
  README.md and docs/                                           everything else
TEXT
