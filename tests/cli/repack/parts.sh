# A pack in shares: five processes under make, then the merge. It is the pack that one process writes.
moe_gguf_tool source noise layers=2 experts=32 hidden=512 ff=256 shards=2 >/dev/null
tierpack repack source --allow-nonfinite --to whole.tierpack >/dev/null
try() {
  code=0
  "$@" >out 2>err || code=$?
  sed '/^  /d' out
  cat err
  echo "exit $code"
}
recipe() {
  make -s -j4 -f "$SOURCE_DIR/scripts/repack_parts.mk" SRC=source PACK=parts.tierpack PARTS=5 FLAGS=--allow-nonfinite >make.out
}
recipe
grep '^wrote part' make.out | sort
diff -r whole.tierpack parts.tierpack && echo "the same pack"
recipe
grep -c 'already is the pack of this source' make.out
rm -r parts.tierpack

share() {
  try tierpack repack source --allow-nonfinite --to a.tierpack "$@"
}
echo "-- shares that are missing"
share --merge
share --part 3/3
share --part 1/3
share --merge
[ ! -e a.tierpack ] && [ -e a.tierpack.part ] && echo "no pack, the shares are kept"

echo "-- one share run twice, and by two at once"
share --part 1/3
tierpack repack source --allow-nonfinite --to a.tierpack --part 2/3 >/dev/null 2>err1 &
first=$!
tierpack repack source --allow-nonfinite --to a.tierpack --part 2/3 >/dev/null 2>err2 &
second=$!
code1=0 code2=0
wait $first || code1=$?
wait $second || code2=$?
case "$code1 $code2" in
  "0 0" | "0 2" | "2 0") ;;
  *) echo "exit codes $code1 and $code2"; cat err1 err2 ;;
esac

echo "-- other jobs in the same place"
share --part 1/4
moe_gguf_tool other noise layers=2 experts=32 hidden=512 ff=256 shards=2 seed=9 >/dev/null
try tierpack repack other --allow-nonfinite --to a.tierpack --part 3/3
try tierpack repack other --allow-nonfinite --to a.tierpack --merge
awk 'BEGIN { print "layer,expert,count"; for (l = 0; l < 2; l++) for (e = 0; e < 32; e++) print l "," e "," e * e }' >counts.csv
tierpack calibrate whole.tierpack --import-counts counts.csv --out hot.json >/dev/null 2>&1
share --merge --profile hot.json
share --merge
diff -r whole.tierpack a.tierpack && echo "the same pack"

echo "-- with a profile"
tierpack repack source --allow-nonfinite --to whole-hot.tierpack --profile hot.json >/dev/null
tierpack repack source --allow-nonfinite --to hot.tierpack --profile hot.json --part 2/2 >/dev/null
tierpack repack source --allow-nonfinite --to hot.tierpack --profile hot.json --part 1/2 >/dev/null
tierpack repack source --allow-nonfinite --to hot.tierpack --profile hot.json --merge >/dev/null
diff -r whole-hot.tierpack hot.tierpack && echo "the same pack"

echo "-- what is no share"
for part in 0/3 4/3 1 1/0 x/3 1/3x; do share --part $part; done
