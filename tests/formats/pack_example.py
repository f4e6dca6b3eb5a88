#!/usr/bin/env python3
"""Holds the example of docs/pack_format.md against a pack made now.

Usage: pack_example.py --bin DIR --source DIR [--update]. The example stands between <!-- example --> markers; --update
writes it anew.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

MODEL = "seed=1 layers=1 experts=2 hidden=32 ff=32 table_row=32 table_rows=300".split()


def hexdump(data, offset, size):
    lines = []
    for at in range(offset, offset + size, 16):
        row = data[at: min(at + 16, offset + size)]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        lines.append(f"    {at:08x}  {' '.join(f'{b:02x}' for b in row):<47}  {text}")
    return "\n".join(lines)


def example(bin_dir):
    with tempfile.TemporaryDirectory() as work:
        run = lambda *words: subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=work)
        run(os.path.join(bin_dir, "moe_gguf_tool"), ".", "noise", *MODEL)
        run(os.path.join(bin_dir, "tierpack"), "repack", "noise.gguf", "--to", "p.tierpack")
        files = {}
        for name in os.listdir(os.path.join(work, "p.tierpack")):
            with open(os.path.join(work, "p.tierpack", name), "rb") as file:
                files[name] = file.read()
    text = files["pack.json"].decode()
    # The tool's version changes with every release and takes the seal along.
    text = re.sub(r'("tool": \{"name":"tierpack","version":)"[^"]*"', r'\1"…"', text)
    text = re.sub(r'"sha256": "[0-9a-f]{64}"\n\}\n$', '"sha256": "…"\n}\n', text)
    manifest = json.loads(text)
    layer = manifest["experts"][0]
    table = manifest["rows"][0]
    lines = ["`pack.json` (long lines are cut here; the tool's version and the seal are left out):", ""]
    lines += ["    " + (line if len(line) <= 150 else line[:149] + "…") for line in text.splitlines()]
    lines += ["", "`records.bin`, the header and the first two records:", "", hexdump(files["records.bin"], 0, 120)]
    record = int.from_bytes(files["records.bin"][24 + 48 * layer["first_record"]:][:8], "little")
    lines += ["", f"`experts.bin`, expert 0: the end of gate and, at {layer['up']['offset']}, the beginning of up:", "",
              hexdump(files["experts.bin"], record + layer["up"]["offset"] - 32, 48)]
    used = table["rows_per_page"] * table["row_bytes"]
    lines += ["", f"`rows.bin`, page 0: the end of its {table['rows_per_page']} rows of {table['row_bytes']} bytes (at {used}), zeros, checksum:", "",
              hexdump(files["rows.bin"], used - used % 16 - 16, 4096 - (used - used % 16 - 16))]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    path = os.path.join(args.source, "docs", "pack_format.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, rest = page.split("<!-- example -->\n")
    found, after = rest.split("<!-- /example -->")
    fresh = example(os.path.abspath(args.bin))
    if args.update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(before + "<!-- example -->\n" + fresh + "<!-- /example -->" + after)
        return 0
    if found != fresh:
        print("docs/pack_format.md does not show what the program writes; see pack_example.py --update. It writes:\n" + fresh)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
