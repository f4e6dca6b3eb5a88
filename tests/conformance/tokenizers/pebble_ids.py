#!/usr/bin/env python3
"""Makes tests/data/text/pebble_ids.json: texts and their ids by the reference tokenizer of the embedded model.

Usage: pebble_ids.py > tests/data/text/pebble_ids.json   (from the repository root; needs python3-regex)
The reference is models/pebble/make/tiny/bpe.py, the program that trained the vocabulary; ids are of texts in which
special tokens are parsed. Vocabulary and merges come from the embedded GGUF, read here by a reader of its own.
"""
import json
import os
import random
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MODEL = os.path.join(ROOT, "models/pebble/pebble-24M-A5M-MTP-Q4_K_M-00001-of-00002.gguf")
sys.path.insert(0, os.path.join(ROOT, "models/pebble/make"))
from gguf_metadata import read_metadata  # noqa: E402
from tiny import bpe  # noqa: E402


TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", "Hello, world!", "The capital of France is Paris.",
    "def add(a, b):\n    return a + b\n", "x" * 100, "ab " * 50, " " * 37 + "x", "x" + " " * 37, "\n\n\n  \n x",
    "1234567890", "3.14159 * 2 = 6.28318", "I'm you're he'S we'VE they'LL I'd 'tis", "'s't'm", "don't DON'T",
    "a\u00a0b\u3000c\u2028d\u0085e", "\u200bzero\u200dwidth\ufeff", "\u180e mongolian", "tab\tand\x0bvertical\x0cfeed",
    "\x00\x01\x1c\x1f\x7f", "é e\u0301 \u0301\u0302", "Zażółć gęślą jaźń", "你好，世界！天地玄黄", "こんにちは カタカナ",
    "안녕하세요", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดี", "😀😃 👩‍👩‍👧‍👦 🇩🇪 ❤️", "\U00010348 \U0001f600\U000e0001", "\U00031350\U0002ebf0 \U0001e4d0",
    "\u0cf3\u0ece\u2ffc\u31ef", "¼½¾ ²³ ①②③ Ⅷ", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<tool_call>\n<function=f>\n</function>\n</tool_call>", "<|im_start|><|im_start|>", "<|im_start<|im_end|>|>", "<think", "<thin<think>k>",
    "<|vision_start|><|image_pad|><|vision_end|>", "a<|endoftext|>b", "\r\r\n\n \r\n", "!!!???...---===", " !\n\n ?\r\n", "$100 €50 £20",
    "http://example.org/a?b=c&d=%20#e", "CamelCaseHTTPServer snake_case kebab-case", "\u017fo '\u017f ſ", "\u212a \u2126 ß ǅ",
]


def random_texts(seed, count):
    rng = random.Random(seed)
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0x09, 0x0D), (0xA0, 0x24F), (0x300, 0x36F), (0x400, 0x4FF), (0x5D0, 0x5EA),
              (0x900, 0x97F), (0x2000, 0x206F), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1FAFF)]
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 12)):
            low, high = rng.choice(ranges)
            out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(1, 8))))
            if rng.random() < 0.5:
                out.append(rng.choice([" ", "  ", "\n", "\r\n", "'s", "'T", "1", "42"]))
        yield "".join(out)


def main():
    found = read_metadata(MODEL)
    tokens = found["tokenizer.ggml.tokens"]
    merges = [m.split(" ") for m in found["tokenizer.ggml.merges"]]
    reference = bpe.Tokenizer(tokens, merges)
    assert found["tokenizer.ggml.pre"] == bpe.PRE
    cases = [{"text": t, "ids": reference.encode(t)} for t in TEXTS + list(random_texts(1, 200))]
    print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")


if __name__ == "__main__":
    main()
