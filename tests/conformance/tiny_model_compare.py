#!/usr/bin/env python3
"""Compares runs of `tierpack eval` with the tiny model's torch reference; called by tiny_model.sh.

  tiny_model_compare.py prompts REF WORK    write WORK/PROMPT.ids and .i32 (for llama.cpp): prompt and greedy continuation
  tiny_model_compare.py compare REF WORK    compare WORK/MODEL.PROMPT.{f32,routes}; exit 1 when a bound is broken
"""
import os
import sys

import numpy as np

PROMPTS = ["story", "math", "code", "zh", "chat", "long"]
BF16_LOGITS_MAX = 2e-3  # largest difference from torch that still is the same model
FULL_BLOCKS = [2, 5]    # rows of *.attended.npy


def ref(folder, prompt, what):
    return np.load(os.path.join(folder, f"{prompt}.{what}.npy"))


def prompts(folder, work):
    for p in PROMPTS:
        ids = np.concatenate([ref(folder, p, "ids"), ref(folder, p, "greedy_torch")])
        with open(os.path.join(work, p + ".ids"), "w") as f:
            f.write(" ".join(map(str, ids)) + "\n")
        ids.astype("<i4").tofile(os.path.join(work, p + ".i32"))


def logits(path, vocab):
    return np.fromfile(path, "<f4").reshape(-1, vocab)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kl(reference, run):
    p, q = log_softmax(reference), log_softmax(run)
    return (np.exp(p) * (p - q)).sum(-1)


def routes(path):
    """-> {(block, position): expert ids}, {(block, position): set of attended positions}"""
    experts, attended = {}, {}
    for line in open(path):
        kind, block, position, *rest = line.split()
        key = (int(block), int(position))
        if kind == "route":
            experts[key] = [int(pair.split(":")[0]) for pair in rest]
        else:
            seen = set()
            for span in rest[0].split(","):
                first, last = map(int, span.split("-"))
                seen.update(range(first, last + 1))
            attended[key] = seen
    return experts, attended


def compare(folder, work):
    bad = []
    print(f"{'BF16':8} {'rows':>5} {'max diff':>9} {'greedy':>7} {'router sets':>12} {'router order':>13} {'attended':>10}")
    for p in PROMPTS:
        torch = ref(folder, p, "logits_torch")
        greedy = ref(folder, p, "greedy_torch")
        n, vocab = torch.shape
        run = logits(os.path.join(work, f"BF16.{p}.f32"), vocab)
        diff = float(np.abs(run[:n] - torch).max())
        same = int((run[n - 1:n - 1 + len(greedy)].argmax(-1) == greedy).sum())
        experts, attended = routes(os.path.join(work, f"BF16.{p}.routes"))
        want = ref(folder, p, "experts")
        total = want.shape[0] * want.shape[1]
        sets = sum(set(experts[b, t]) == set(want[b, t].tolist()) for b in range(want.shape[0]) for t in range(want.shape[1]))
        order = sum(experts[b, t] == want[b, t].tolist() for b in range(want.shape[0]) for t in range(want.shape[1]))
        bits = np.unpackbits(ref(folder, p, "attended"), axis=-1, bitorder="little")
        seen = sum(attended[b, t] == set(np.flatnonzero(bits[i, t]).tolist())
                   for i, b in enumerate(FULL_BLOCKS) for t in range(bits.shape[1]))
        queries = bits.shape[0] * bits.shape[1]
        print(f"{p:8} {n:5} {diff:9.2e} {same:4}/{len(greedy)} {sets:6}/{total} {order:6}/{total} {seen:5}/{queries}")
        if diff > BF16_LOGITS_MAX or same != len(greedy) or sets != total or seen != queries:
            bad.append(f"BF16 {p}")
    for model in ("Q8_0", "Q4_K_M"):
        print(f"\n{model:8} {'rows':>5} {'mean KL':>9} {'top-1':>7} {'llama.cpp':>10} {'top-1':>7}   KL of the prompt's rows against torch")
        sums = np.zeros(3)
        for p in PROMPTS:
            torch = ref(folder, p, "logits_torch")
            n, vocab = torch.shape
            ours = logits(os.path.join(work, f"{model}.{p}.f32"), vocab)[:n]
            ours_kl = kl(torch, ours)
            text = f"{p:8} {n:5} {ours_kl.mean():9.3e} {100 * (ours.argmax(-1) == torch.argmax(-1)).mean():6.2f}%"
            path = os.path.join(work, f"{model}.{p}.llama.f32")
            if os.path.exists(path):
                llama = logits(path, vocab)[:n]
                llama_kl = kl(torch, llama)
                text += f" {llama_kl.mean():10.3e} {100 * (llama.argmax(-1) == torch.argmax(-1)).mean():6.2f}%"
                sums += [n, ours_kl.sum(), llama_kl.sum()]
            print(text)
        if sums[0]:
            print(f"{'all':8} {int(sums[0]):5} {sums[1] / sums[0]:9.3e} {'':7} {sums[2] / sums[0]:10.3e}")
            if sums[1] > sums[2]:
                bad.append(f"{model}: mean KL above llama.cpp's")
    for line in bad:
        print("FAILED:", line)
    return 1 if bad else 0


if __name__ == "__main__":
    action, ref_folder, work_folder = sys.argv[1:4]
    sys.exit(prompts(ref_folder, work_folder) or 0 if action == "prompts" else compare(ref_folder, work_folder))
