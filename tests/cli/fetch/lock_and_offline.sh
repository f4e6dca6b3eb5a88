# A lock reproduces bit for bit from anywhere, offline checks it, and damage is found with exit code 3.
mkdir -p hub/o/m
printf 'weights of a kind' >hub/o/m/model.gguf
printf '{"hidden_size": 64}\n' >hub/o/m/config.json
. "$SOURCE_DIR/tests/cli/fetch/common.sh"
tierpack fetch hf:o/m --endpoint $hub --to out 2>/dev/null | plain
jq -c '[.source, (.revision | length)], (.files[] | [.path, .size, .hash_origin, (.sha256 | length)])' out/tierpack.lock.json
tierpack fetch out/tierpack.lock.json --to copy 2>/dev/null | plain
diff -r out copy && echo same
kill $hub_pid
tierpack fetch copy/tierpack.lock.json --offline 2>/dev/null | plain
printf 'weights of a bind' >copy/model.gguf
code=0
tierpack fetch copy/tierpack.lock.json --offline 2>err || code=$?
echo "exit $code"
grep -c 'exists with other content' err
cat copy/model.gguf; echo
