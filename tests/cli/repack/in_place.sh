# --in-place: each shard is deleted once the pack can give it back; killed at random moments, the same command finishes it.
moe_gguf_tool model noise layers=3 experts=32 hidden=512 ff=256 shards=4 >/dev/null
tierpack repack model --allow-nonfinite --to whole.tierpack >/dev/null

cp -r model source
tierpack repack source --allow-nonfinite --to a.tierpack --in-place >out
grep -o 'freed  *[0-9.]* MiB  of shards that the pack gives back' out
echo "left of the source: '$(ls source)'"
diff -r whole.tierpack a.tierpack && echo "the same pack"
tierpack unpack a.tierpack --to restored >/dev/null
diff -r model restored && echo "the same shards"
rm -r restored

# What is there, at any moment, is enough: whole shards, or a pack that has its name.
kills=0 rounds=0 resumed=0
while [ $rounds -lt 20 ]; do
  rm -rf source a.tierpack
  cp -r model source
  tries=0
  while :; do
    rounds=$((rounds + 1))
    tries=$((tries + 1))
    code=0
    if [ $tries -gt 12 ]; then
      # Often enough: on a busy machine it may never get to the end in a short time.
      tierpack repack source --allow-nonfinite --to a.tierpack --in-place >out 2>err || code=$?
    else
      delay=$(awk -v seed="$$$rounds" 'BEGIN { srand(seed); printf "%.4f", 0.01 + rand() * 0.3 }')
      tierpack repack source --allow-nonfinite --to a.tierpack --in-place >out 2>err &
      pid=$!
      sleep "$delay"
      kill -9 $pid 2>/dev/null || true
      wait $pid 2>/dev/null || code=$?
    fi
    if [ $code = 0 ]; then break; fi
    [ $code = 137 ] || { echo "round $rounds: exit code $code"; cat err; exit 1; }
    kills=$((kills + 1))
    # Killed after the pack has its name, before it could say so or clear up: nothing of the source is left to go on with.
    if [ -e a.tierpack ]; then
      rm -f a.tierpack/in-place.* a.tierpack/*.journal
      break
    fi
    for shard in source/*.gguf; do
      [ ! -e "$shard" ] || cmp "$shard" "model/${shard#source/}" || echo "round $rounds: a shard was changed"
    done
  done
  if grep -q resumed out; then resumed=$((resumed + 1)); fi
  diff -r whole.tierpack a.tierpack || echo "round $rounds: another pack"
  [ -z "$(ls source)" ] || echo "round $rounds: left of the source: $(ls source)"
done
[ $kills -gt 0 ] && echo "killed and finished"
tierpack unpack a.tierpack --to restored >/dev/null
diff -r model restored && echo "the same shards"

# Deleting a link frees nothing.
try() {
  code=0
  "$@" 2>&1 || code=$?
  echo "exit $code"
}
mkdir links hard
for shard in model/*.gguf; do
  ln -s "../$shard" links/
  ln "$shard" hard/
done
try tierpack repack links --allow-nonfinite --to b.tierpack --in-place
try tierpack repack hard --allow-nonfinite --to b.tierpack --in-place
try tierpack repack a.tierpack --to b.tierpack --in-place
ls model | wc -l
[ ! -e b.tierpack ] && [ ! -e b.tierpack.part ] && echo "nothing was written"
