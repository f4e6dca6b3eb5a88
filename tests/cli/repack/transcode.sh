# Tensors coded anew: what is said about it, that it is the same in parts and with any number of threads, and that nothing pretends it could be undone.
try() {
  code=0
  "$@" || code=$?
  echo "  exit $code"
}
exec 2>&1
model=$SOURCE_DIR/models/pebble
try tierpack repack "$model" --to a.tierpack --transcode 'ffn_(gate|up)_exps=Q8_0' --transcode 'attn_q\.=Q6_K' | sed '/^  other/s/[0-9.]* KiB/SIZE/'
tierpack verify a.tierpack --deep
for jobs in 1 3; do
  tierpack repack "$model" --to b.tierpack --transcode 'ffn_(gate|up)_exps=Q8_0' --transcode 'attn_q\.=Q6_K' --jobs $jobs >/dev/null
  diff -r a.tierpack b.tierpack && rm -r b.tierpack
done
for part in 3/3 1/3 2/3; do
  tierpack repack "$model" --to b.tierpack --transcode 'ffn_(gate|up)_exps=Q8_0' --transcode 'attn_q\.=Q6_K' --part $part >/dev/null
done
tierpack repack "$model" --to b.tierpack --transcode 'ffn_(gate|up)_exps=Q8_0' --transcode 'attn_q\.=Q6_K' --merge >/dev/null
diff -r a.tierpack b.tierpack && echo "the same in parts"
tierpack run a.tierpack -p "What is the capital of France?" --temp 0 --max-tokens 2 >/dev/null 2>&1 && echo "it runs"
try tierpack unpack a.tierpack --to out
try tierpack repack a.tierpack --to c.tierpack
try tierpack repack "$model" --to c.tierpack --transcode 'nothing=Q8_0'
try tierpack repack "$model" --to c.tierpack --transcode 'exps=Q2_K'
try tierpack repack "$model" --to c.tierpack --transcode 'exps'
try tierpack repack "$model" --to c.tierpack --transcode '(exps=Q8_0'
try tierpack repack "$model" --to c.tierpack --transcode 'ffn_down_exps=Q4_K'
try tierpack repack "$model" --to c.tierpack --transcode 'per_layer_token_embd=Q8_0'
try tierpack repack "$model" --to c.tierpack --transcode 'exps=Q8_0' --in-place
# A pack as one GGUF, and that GGUF as a pack.
tierpack repack "$model" --to p.tierpack >/dev/null
try tierpack gguf p.tierpack --to p.gguf
try tierpack gguf p.tierpack --to p.gguf
tierpack repack p.gguf --to q.tierpack >/dev/null
cmp p.tierpack/experts.bin q.tierpack/experts.bin && cmp p.tierpack/rows.bin q.tierpack/rows.bin && echo "the same records"
tierpack inspect p.tierpack --svg p.svg >/dev/null
grep -c '<rect' p.svg
ls
