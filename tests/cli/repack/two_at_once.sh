# Two processes and one target: one writes, the other is turned away or finds the pack there.
moe_gguf_tool source noise layers=2 experts=64 hidden=512 ff=256 >/dev/null
for round in 1 2 3 4 5; do
  tierpack repack source --allow-nonfinite --to a.tierpack >out1 2>err1 &
  first=$!
  tierpack repack source --allow-nonfinite --to a.tierpack >out2 2>err2 &
  second=$!
  code1=0
  code2=0
  wait $first || code1=$?
  wait $second || code2=$?
  case "$code1 $code2" in
    "0 0" | "0 2" | "2 0") ;;
    *) echo "exit codes $code1 and $code2"; cat err1 err2 ;;
  esac
  tierpack verify a.tierpack >/dev/null || echo "round $round: the pack is damaged"
  rm -r a.tierpack
  [ ! -e a.tierpack.part ] || echo "round $round: a part is left"
done
echo done
