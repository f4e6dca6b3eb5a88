#!/usr/bin/env python3
"""Turns a Hugging Face tokenizer.json (byte-level BPE) into a GGUF that holds the vocabulary alone.

Usage: tokenizer_json_to_gguf.py TOKENIZER.json PRE OUT.gguf     PRE: the value of tokenizer.ggml.pre, e.g. qwen2
"""
import json
import struct
import sys


def string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def string_array(values):
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(string, values))


def main():
    source, pre, out = sys.argv[1:]
    data = json.load(open(source, encoding="utf-8"))
    vocab = data["model"]["vocab"]
    added = {token["id"]: token for token in data["added_tokens"]}
    size = max([*vocab.values(), *added]) + 1
    tokens = ["[PAD%d]" % i for i in range(size)]
    types = [5] * size
    for text, i in vocab.items():
        tokens[i], types[i] = text, 1
    for i, token in added.items():
        control = token["special"] or token["content"].startswith(("<|", "<｜"))
        tokens[i], types[i] = token["content"], 3 if control else 4
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    entries = [
        ("general.architecture", struct.pack("<I", 8) + string("vocabulary")),
        ("tokenizer.ggml.model", struct.pack("<I", 8) + string("gpt2")),
        ("tokenizer.ggml.pre", struct.pack("<I", 8) + string(pre)),
        ("tokenizer.ggml.tokens", string_array(tokens)),
        ("tokenizer.ggml.token_type", struct.pack("<IIQ", 9, 5, size) + struct.pack("<%di" % size, *types)),
        ("tokenizer.ggml.merges", string_array(merges)),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(string(k) + v for k, v in entries)
    with open(out, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
    print("%s: %d tokens, %d merges, %d added" % (out, size, len(merges), len(added)))


if __name__ == "__main__":
    main()
