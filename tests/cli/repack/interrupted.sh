# Ctrl-C at any moment: exit code 130 and no pack, or the whole pack. What was copied is kept, and the same command goes on with it.
moe_gguf_tool source noise layers=2 experts=64 hidden=512 ff=256 >/dev/null
tierpack repack source --allow-nonfinite --to whole.tierpack >/dev/null
for delay in 0.00 0.01 0.02 0.03 0.05 0.08 0.13; do
  tierpack repack source --allow-nonfinite --to a.tierpack >/dev/null 2>&1 &
  pid=$!
  sleep $delay
  kill -INT $pid 2>/dev/null || true
  code=0
  wait $pid || code=$?
  case $code in
    0) diff -r whole.tierpack a.tierpack && rm -r a.tierpack ;;
    # Before the handlers are installed a signal simply ends the process.
    2 | 130) ;;
    *) echo "exit code $code" ;;
  esac
  if [ -e a.tierpack ]; then echo "left behind:"; ls; fi
done
tierpack repack source --allow-nonfinite --to a.tierpack >/dev/null
diff -r whole.tierpack a.tierpack && echo "the pack is whole"
if [ -e a.tierpack.part ]; then echo "left behind:"; ls; fi
rm -r a.tierpack

# Stopped while it copies, it leaves what it copied in a.tierpack.part.
tries=0 copied=0
while [ $tries -lt 30 ] && [ "$copied" -le 40 ]; do
  tries=$((tries + 1))
  rm -rf a.tierpack
  tierpack repack source --allow-nonfinite --to a.tierpack >/dev/null 2>&1 &
  pid=$!
  while [ ! -s a.tierpack.part/part-00001-of-00001.journal ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
  sleep 0.0$((tries % 10))
  kill -INT $pid 2>/dev/null || true
  wait $pid || true
  # 40 bytes of head, 64 for each piece.
  copied=$(stat -c %s a.tierpack.part/part-00001-of-00001.journal 2>/dev/null || echo 0)
done
tierpack repack source --allow-nonfinite --to a.tierpack | grep -o 'of the source were copied by an earlier run'
diff -r whole.tierpack a.tierpack && echo "the pack is whole"
