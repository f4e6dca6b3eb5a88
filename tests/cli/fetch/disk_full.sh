# A disk that fills up while a file arrives: exit 4, nothing under the final name, and the next run continues.
mkdir -p hub/o/m
openssl enc -aes-128-ctr -pass pass:x -nosalt -in /dev/zero 2>/dev/null | head -c 6000000 >hub/o/m/model.bin || true
. "$SOURCE_DIR/tests/cli/fetch/common.sh"
# No file may grow beyond 2 MiB (the shell counts in units of 512 bytes).
code=0
(ulimit -f 4096; tierpack -q fetch hf:o/m --endpoint $hub --to out) 2>err || code=$?
echo "exit $code"
grep -c 'too large' err
ls out
# A filesystem of 3 MiB, where the test may mount one: first what does not fit is not begun, then it is begun anyway.
mkdir small
if mount -t tmpfs -o size=3M none small 2>/dev/null; then
  before=0; tierpack -q fetch hf:o/m --endpoint $hub --to small/out 2>err || before=$?
  anyway=0; tierpack -q fetch hf:o/m --endpoint $hub --to small/out --no-space-check 2>err || anyway=$?
  left=$(ls small/out)
  mount -o remount,size=16M small
  bigger=0; tierpack -q fetch hf:o/m --endpoint $hub --to small/out || bigger=$?
  cmp hub/o/m/model.bin small/out/model.bin || bigger=wrong
  mount -o remount,ro small
  again=0; tierpack -q fetch hf:o/m --endpoint $hub --to small/new 2>err || again=$?
  umount small
else
  before=4 anyway=4 left= bigger=0 again=1
fi
echo "too small: exit $before; begun anyway: exit $anyway, left '$left'; with more room: exit $bigger; read-only: exit $again"
tierpack -q fetch hf:o/m --endpoint $hub --to out
cmp hub/o/m/model.bin out/model.bin && ls -A out
