# Settings tried on the embedded model, how run takes them, and that they change nothing but speed.
exec 2>&1
tierpack repack "$SOURCE_DIR/models/pebble" --to p.tierpack -q >/dev/null
tierpack calibrate --tune p.tierpack --json -q >out.json
file=$XDG_STATE_HOME/tierpack/tuned.json
jq -c 'paths | select(length < 3) | map(tostring) | join(".")' out.json | sed 's/[0-9]/N/' | sort -u
jq -c '[.stages[] | [.trials[] | select(.chosen)] | length] | unique' out.json
jq -c '[.format, .version, (.entries | length)]' "$file"
jq -c '.entries[0] | {threads, chunk, isa}' "$file" >kept.json
jq -c '.best | {threads, chunk, isa}' out.json | cmp - kept.json && echo "kept as printed"
jq -c '.entries[0] | [.decode_tokens_s > 1, .prefill_tokens_s > 1]' "$file"

run() { tierpack run p.tierpack -p "Hello" --temp 0 --max-tokens 4 "$@" 2>&1; }
tuned() { run -v "$@" | sed -n 's/^as tuned on this machine (.*): //p; s/^.* chunks of \([0-9]*\), f16.*/  chunks of \1/p'; }
run >/dev/null
run | sed -n 's/^logits \([0-9a-f]*\).*/\1/p' >tuned.logits
echo "--- open settings are filled in, given ones are not"
jq '.entries[0].chunk = 3 | .entries[0].threads = 1 | .entries[0].isa = "reference"' "$file" >edited && mv edited "$file"
tuned
tuned --chunk 512
tuned --chunk 5 --threads 2
tuned --chunk 5 --threads 2 --isa reference
run | sed -n 's/^logits \([0-9a-f]*\).*/\1/p' | cmp - tuned.logits && echo "the same logits"
tierpack bench p.tierpack --lengths 8 --decode 1 --runs 1 --json -q | jq -c '.options | [.threads, .chunk, .isa]'
tierpack serve p.tierpack --port 0 -v 2>serve.txt &
pid=$!
for _ in $(seq 100); do grep -q 'chunks of 3, f16' serve.txt && break; sleep 0.1; done
sed -n 's/^as tuned on this machine (.*): /serve: /p' serve.txt
kill $pid
wait $pid || true
echo "--- kernels that do not run here"
jq '.entries[0].isa = "neon9"' "$file" >edited && mv edited "$file"
tuned
echo "--- a broken file"
echo '{' >"$file"
run -v | sed -n 's/^\(tuned settings are not used\).*/\1/p'
echo "--- refused"
try() { tierpack calibrate "$@" || echo "exit $?"; }
try --tune
try --tune none.tierpack
try --tune p.tierpack --out x
try --tune p.tierpack --corpus out.json
HOME='' XDG_STATE_HOME='' try --tune p.tierpack
