# A disk that fills up: exit code 4, a sentence, nothing under the final name, nothing left behind.
moe_gguf_tool source noise layers=2 experts=32 >/dev/null
# No file may grow beyond 1 MiB (the shell counts in units of 512 bytes).
code=0
(ulimit -f 2048; trap '' XFSZ; exec tierpack repack source --allow-nonfinite --to a.tierpack) 2>err || code=$?
echo "exit $code"
sed 's/[0-9.]* [KM]iB/SIZE/' err
ls
# A filesystem of 1 MiB, where the test may mount one: the need is known before anything is written.
mkdir small
if mount -t tmpfs -o size=1M none small 2>/dev/null; then
  code=0
  tierpack repack source --allow-nonfinite --to small/a.tierpack 2>err || code=$?
  left=$(ls -A small)
  umount small
else
  code=4
  left=
fi
echo "exit $code, left: '$left'"
