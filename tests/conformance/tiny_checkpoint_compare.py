#!/usr/bin/env python3
"""The figures of tiny_checkpoint.sh.

  round_like HF_DIR GGUF   changes each A_log by the few units in the last place after which -exp(A_log) is the GGUF's value
  compare WORK             compares logits files; exit code 1 when a limit is passed
"""
import json
import os
import struct
import sys

import numpy as np

PROMPTS = ["story", "math", "code", "zh", "chat", "long"]
VOCAB = 4096


def gguf_tensors(path):
    """name -> f32 values of the F32 tensors."""
    data = open(path, "rb").read()
    at = [8]

    def take(form):
        value = struct.unpack_from("<" + form, data, at[0])
        at[0] += struct.calcsize("<" + form)
        return value[0]

    def string():
        size = take("Q")
        at[0] += size
        return data[at[0] - size: at[0]].decode()

    forms = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            item = take("I")
            return [value(item) for _ in range(take("Q"))]
        return take(forms[kind])

    tensors, keys = take("Q"), take("Q")
    metadata = {}
    for _ in range(keys):
        key = string()
        metadata[key] = value(take("I"))
    found = []
    for _ in range(tensors):
        name = string()
        shape = [take("Q") for _ in range(take("I"))]
        found.append((name, shape, take("I"), take("Q")))
    start = -(-at[0] // 32) * 32
    return metadata, {name: np.frombuffer(data, "<f4", int(np.prod(shape)), start + offset) for name, shape, kind, offset in found if kind == 0}


def round_like(directory, path):
    metadata, tensors = gguf_tensors(path)
    heads, groups = metadata["qwen4exp.ssm.time_step_rank"], metadata["qwen4exp.ssm.group_count"]
    order = [g * (heads // groups) + j for j in range(heads // groups) for g in range(groups)]  # old head of each new one
    index = json.load(open(os.path.join(directory, "model.safetensors.index.json")))["weight_map"]
    changed = 0
    for name, file in index.items():
        if not name.endswith("A_log"):
            continue
        layer = name.split("layers.")[1].split(".")[0]
        want = tensors[f"blk.{layer}.ssm_a"]
        with open(os.path.join(directory, file), "r+b") as shard:
            size = struct.unpack("<Q", shard.read(8))[0]
            entry = json.loads(shard.read(size))[name]
            shard.seek(8 + size + entry["data_offsets"][0])
            values = np.frombuffer(shard.read(4 * heads), "<f4").copy()
            for new, old in enumerate(order):
                steps = sorted(range(-8, 9), key=abs)
                for step in steps:
                    x = (values[old: old + 1].view("<i4") + step).view("<f4")
                    if np.float32(-np.exp(np.float64(x[0]))) == want[new]:
                        changed += step != 0
                        values[old] = x[0]
                        break
                else:
                    raise ValueError(f"{name}: no value near {values[old]} gives {want[new]}")
            shard.seek(8 + size + entry["data_offsets"][0])
            shard.write(values.tobytes())
    print(f"{changed} values of A_log changed")


def logits(work, name):
    return np.fromfile(os.path.join(work, name + ".f32"), "<f4").astype(np.float64)


def kl(a, b, vocab):
    def log_softmax(x):
        x = x.reshape(-1, vocab)
        x = x - x.max(axis=1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    p, q = log_softmax(a), log_softmax(b)
    return (np.exp(p) * (p - q)).sum(axis=1)


def compare(work):
    wrong = 0
    vocab = None
    divergences = []
    for prompt in PROMPTS:
        tokens = len(open(os.path.join(work, prompt + ".ids")).read().split())
        base = logits(work, f"gguf.{prompt}")
        vocab = len(base) // tokens
        near = np.abs(base - logits(work, f"bf16.{prompt}")).max()
        same = np.array_equal(base, logits(work, f"rounded.{prompt}"))
        exact = np.abs(logits(work, f"nvfp4.exact.{prompt}") - logits(work, f"decoded.exact.{prompt}")).max()
        divergences.append(kl(base, logits(work, f"nvfp4.{prompt}"), vocab))
        print(f"{prompt}: safetensors BF16 {near:.1e} from the GGUF, {'equal' if same else 'DIFFERENT'} with its rounding of A_log; "
              f"NVFP4 {exact:.1e} from its decoded weights")
        wrong += near > 1e-4 or not same or exact > 1e-5
    mean = np.concatenate(divergences).mean()
    print(f"NVFP4: mean KL {mean:.3e} against BF16 (reference 1.3e-4)")
    wrong += not 0.8 * 1.3e-4 <= mean <= 1.2 * 1.3e-4
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "round_like":
        round_like(*sys.argv[2:])
    else:
        sys.exit(compare(sys.argv[2]))
