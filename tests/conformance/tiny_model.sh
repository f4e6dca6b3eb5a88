#!/bin/sh
# Holds the forward pass of qwen4exp to the torch reference of the tiny model, and its quantised files to llama.cpp.
#
# usage: tiny_model.sh TINY_MODEL_DIR TIERPACK [ORACLE LLAMA_LIB_DIR]
#
# TINY_MODEL_DIR holds gguf/ and ref/ (see its README.md). With ORACLE (a program that prints llama.cpp's logits) and the
# directory of llama.cpp's libraries, the quantised files are also compared with llama.cpp on the same file. Needs
# python3-numpy. Extra options for `tierpack eval` in EVAL_OPTIONS.
set -eu
model=$1
tierpack=$2
oracle=${3:-}
libraries=${4:-}
here=$(cd "$(dirname "$0")" && pwd)
python=/usr/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

$python "$here/tiny_model_compare.py" prompts "$model/ref" "$work"
for file in BF16:pebble-24M-A5M-BF16.gguf Q8_0:pebble-24M-A5M-Q8_0.gguf \
    Q4_K_M:pebble-24M-A5M-Q4_K_M-00001-of-00002.gguf; do
  name=${file%%:*}
  gguf=$model/gguf/${file#*:}
  "$tierpack" -q repack "$gguf" --to "$work/$name.tierpack" >/dev/null
  for prompt in story math code zh chat long; do
    # The prompt with its greedy continuation: every row of one timeline is compared.
    # shellcheck disable=SC2086
    "$tierpack" -q eval "$work/$name.tierpack" --tokens "$work/$prompt.ids" --kv f32 \
      --logits-out "$work/$name.$prompt.f32" --routes-out "$work/$name.$prompt.routes" ${EVAL_OPTIONS:-} >/dev/null
    if [ -n "$oracle" ] && [ "$name" != BF16 ]; then
      LLAMA_LIB_DIR=$libraries "$oracle" logits "$gguf" "$work/$prompt.i32" "$work/$name.$prompt.llama.f32" --noflash \
        >/dev/null 2>&1
    fi
  done
done
$python "$here/tiny_model_compare.py" compare "$model/ref" "$work"
