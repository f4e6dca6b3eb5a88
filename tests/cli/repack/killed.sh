# kill -9 at random moments, then again: the pack is whole or absent, and the next run makes it the same as one that was
# never disturbed. unpack the same. What the killed run had copied is not copied again, and the next run says so.
moe_gguf_tool source noise layers=2 experts=64 hidden=512 ff=256 shards=2 >/dev/null
tierpack repack source --allow-nonfinite --to whole.tierpack >/dev/null
rounds=30
round=0
while [ $round -lt $rounds ]; do
  round=$((round + 1))
  delay=$(awk -v seed="$$$round" 'BEGIN { srand(seed); printf "%.4f", rand() * 0.15 }')
  tierpack repack source --allow-nonfinite --to a.tierpack >/dev/null 2>&1 &
  pid=$!
  sleep "$delay"
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  if [ -e a.tierpack ]; then
    diff -r whole.tierpack a.tierpack || echo "round $round: a pack that is not whole has its final name"
    rm -r a.tierpack
  fi
  tierpack unpack whole.tierpack --to out >/dev/null 2>&1 &
  pid=$!
  sleep "$delay"
  kill -9 $pid 2>/dev/null || true
  wait $pid 2>/dev/null || true
  for shard in out/*.gguf; do
    [ -e "$shard" ] || continue
    cmp "$shard" "source/$(basename "$shard")" || echo "round $round: a shard that is not whole has its final name"
    if [ $((round % 2)) = 0 ]; then rm "$shard"; fi
  done
done
# 40 bytes of head, 64 for each piece whose copy is on the disk.
copied=$(stat -c %s a.tierpack.part/part-00001-of-00001.journal 2>/dev/null || echo 0)
tierpack repack source --allow-nonfinite --to a.tierpack >out.txt
if [ "$copied" -gt 40 ] && ! grep -q 'resumed .* of the source were copied by an earlier run' out.txt; then
  echo "$copied bytes of journal, and yet:"
  cat out.txt
fi
rm out.txt
diff -r whole.tierpack a.tierpack && echo "the pack is whole"
tierpack unpack whole.tierpack --to out >/dev/null
diff -r source out && echo "the shards are whole"
ls
