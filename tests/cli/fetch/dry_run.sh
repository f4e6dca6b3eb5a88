# What would be fetched, as a table and as JSON; what does not fit; mistakes.
mkdir -p hub/o/m/sub
printf 'weights of a kind' >hub/o/m/sub/model.gguf
printf '{"hidden_size": 64}\n' >hub/o/m/config.json
. "$SOURCE_DIR/tests/cli/fetch/common.sh"
tierpack fetch hf:o/m --endpoint $hub --to out --dry-run | plain
tierpack fetch hf:o/m --endpoint $hub --to out --dry-run --json | jq -c 'del(.free_bytes)'
ls
tierpack -q fetch hf:o/m --endpoint $hub --to out --include '*.json'
tierpack fetch hf:o/m --endpoint $hub --to out --dry-run | plain
# Mistakes, each with a sentence and exit code 2.
for mistake in "hf:o/m --to out --include *.gguff" "hf:o/m" "nonsense --to out" "hf:o/m --to out --connections 0" \
  "hf:o/m --to out --limit-rate 0" "hf:o/m --to out --hf-cache x" "https://a:b@host/x --to out"; do
  code=0
  tierpack fetch $mistake --endpoint $hub 2>&1 | plain || true
  tierpack fetch $mistake --endpoint $hub >/dev/null 2>&1 || code=$?
  echo "exit $code"
done
