# A fetched directory damaged and repaired from the hub it came from: what is said, what is touched, what it ends with.
mkdir -p hub/o/m
cp "$SOURCE_DIR"/models/pebble/*.gguf hub/o/m
echo '{"hidden_size": 64}' >hub/o/m/config.json
hub_server --root hub --port 0 --print-port >port &
hub=$!
trap 'kill $hub 2>/dev/null || true' EXIT
while [ ! -s port ]; do sleep 0.1; done
url="http://127.0.0.1:$(cat port)"
plainly() {  # the port and the commit differ from run to run
  sed -e "s,$url,HUB," -e 's/@[0-9a-f]\{40\}/@COMMIT/'
}
check() {
  code=0
  "$@" >out 2>&1 || code=$?
  plainly <out | grep -v '^  fetched' || true
  plainly <out | grep '^  fetched' | sort  # files that arrive together arrive in any order
  echo "exit $code"
}
first=m/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf
second=m/pebble-24M-A5M-MTP-Q4_K_M-00002-of-00002.gguf
tierpack -q fetch hf:o/m --endpoint "$url" --to m
echo "== as fetched, the hub asked again"
check tierpack verify m --against hub
echo "== damaged"
printf 'x' | dd of=$second bs=1 seek=300000 conv=notrunc 2>/dev/null
rm m/config.json
before=$(stat -c '%i %y' $first)
check tierpack verify m
check tierpack verify m --repair --dry-run
check tierpack verify m --repair
[ "$before" = "$(stat -c '%i %y' $first)" ] && echo "the good file was left alone"
cmp $second hub/o/m/${second#m/} && ls -A m
echo "== one file by its name, options before it"
printf 'x' | dd of=$second bs=1 seek=300000 conv=notrunc 2>/dev/null
check tierpack -q verify --include '*.gguf' --repair $second
echo "== the hub is away"
kill $hub
wait $hub 2>/dev/null || true
printf 'x' | dd of=$second bs=1 seek=300000 conv=notrunc 2>/dev/null
code=0
tierpack -q verify m --repair --retries 0 >out 2>/dev/null || code=$?
grep -c 'not repaired .* is kept as m/.tierpack/' out
echo "exit $code"
echo "== nonsense"
check tierpack verify m --dry-run
check tierpack verify m --against nothing-like-that
