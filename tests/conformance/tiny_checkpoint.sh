#!/bin/sh
# Holds packs made straight from the tiny model's safetensors checkpoints to those made from its GGUF.
#
# usage: tiny_checkpoint.sh TINY_MODEL_DIR TIERPACK
#
# - BF16: the same logits as the BF16 GGUF, bit for bit, once each -exp(A_log) is rounded as the GGUF's writer rounded it (one of 16 values differs
#   by one unit in the last place).
# - NVFP4: mean KL against BF16 of 1.3e-4 within 20 %, the reference's own figure; and with f32 activations the logits of its decoded weights to 1e-5.
# Needs python3-numpy.
set -eu
model=$1
tierpack=$2
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

$python "$here/tiny_model_compare.py" prompts "$model/ref" "$work"
"$tierpack" -q repack "$model/gguf/pebble-24M-A5M-BF16.gguf" --to "$work/gguf.tierpack" >/dev/null
cp -r "$model/hf-bf16" "$work/hf-bf16"
chmod -R u+w "$work/hf-bf16"
"$tierpack" -q repack "$work/hf-bf16" --to "$work/bf16.tierpack" >/dev/null
$python "$here/tiny_checkpoint_compare.py" round_like "$work/hf-bf16" "$model/gguf/pebble-24M-A5M-BF16.gguf"
"$tierpack" -q repack "$work/hf-bf16" --to "$work/rounded.tierpack" >/dev/null
"$tierpack" -q repack "$model/hf-nvfp4" --to "$work/nvfp4.tierpack" >/dev/null
"$tierpack" -q gguf "$work/nvfp4.tierpack" --to "$work/decoded.gguf" --dequantize F32 >/dev/null
"$tierpack" -q repack "$work/decoded.gguf" --to "$work/decoded.tierpack" >/dev/null
for prompt in story math code zh chat long; do
  for pack in gguf bf16 rounded nvfp4; do
    "$tierpack" -q eval "$work/$pack.tierpack" --tokens "$work/$prompt.ids" --kv f32 --logits-out "$work/$pack.$prompt.f32" >/dev/null
  done
  for pack in nvfp4 decoded; do
    "$tierpack" -q eval "$work/$pack.tierpack" --tokens "$work/$prompt.ids" --kv f32 --activations f32 --logits-out "$work/$pack.exact.$prompt.f32" >/dev/null
  done
done
$python "$here/tiny_checkpoint_compare.py" compare "$work"
