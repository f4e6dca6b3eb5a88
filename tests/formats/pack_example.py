#!/usr/bin/env python3
"""Holds the example of docs/pack_format.md against a pack made now, and its table of fields against the second reader's.

Usage: pack_example.py --bin DIR --source DIR [--update]. They stand between <!-- example --> and <!-- fields --> markers;
--update writes them anew.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pack_reader

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
        run(os.path.join(bin_dir, "tierpack"), "repack", "noise.gguf", "--allow-nonfinite", "--to", "p.tierpack")
        files = {}
        for name in os.listdir(os.path.join(work, "p.tierpack")):
            with open(os.path.join(work, "p.tierpack", name), "rb") as file:
                files[name] = file.read()
    text = files["pack.json"].decode()
    # The tool's version changes with every release and takes the seal along.
    text = re.sub(r'("tool": \{"name":"tierpack","version":)"[^"]*"', r'\1"…"', text)
    text = re.sub(r'"sha256": "[0-9a-f]{64}"\n\}\n$', '"sha256": "…"\n}\n', text)
    # So does the size of what another version of zstd compressed.
    text = re.sub(r'("name":"metadata.gguf.zst","bytes":)\d+,"sha256":"[0-9a-f]{64}"', r'\1…,"sha256":"…"', text)
    manifest = json.loads(text.replace('"bytes":…', '"bytes":0'))
    layer = manifest["experts"][0]
    table = manifest["rows"][0]
    lines = ["`pack.json` (long lines are cut here; the tool's version and the seal are left out):", ""]
    lines += ["    " + (line if len(line) <= 150 else line[:149] + "…") for line in text.splitlines()]
    lines += ["", "`records.bin`, the header and the first two records:", "", hexdump(files["records.bin"], 0, 120)]
    lines += ["", "`sources.bin`, the header and the first two pieces, bytes of `source.bin` and a tensor:", "", hexdump(files["sources.bin"], 0, 216)]
    record = int.from_bytes(files["records.bin"][24 + 48 * layer["first_record"]:][:8], "little")
    gate = layer["gate"]
    fields = pack_reader.BLOCKS[gate["type"]][1]
    size = next(iter(fields.values()))
    lines += ["", f"`experts.bin`, expert 0, gate ({gate['type']}): the first column of the first group begins with the field "
              f"`{next(iter(fields))}` of rows 0 to 15, {size} bytes each; at {16 * size} follow the units of the next:", "",
              hexdump(files["experts.bin"], record, 16 * size + 32)]
    lines += ["", f"The end of gate and, at {layer['up']['offset']}, the beginning of up:", "",
              hexdump(files["experts.bin"], record + layer["up"]["offset"] - 32, 48)]
    used = table["rows_per_page"] * table["row_bytes"]
    lines += ["", f"`rows.bin`, page 0: the end of its {table['rows_per_page']} rows of {table['row_bytes']} bytes (at {used}), zeros, checksum:", "",
              hexdump(files["rows.bin"], used - used % 16 - 16, 4096 - (used - used % 16 - 16))]
    return "\n".join(lines) + "\n"


def field_table():
    lines = ["| type | elements | bytes | fields in order: bytes, in units of |", "|---|---|---|---|"]
    for kind, (elements, fields) in pack_reader.BLOCKS.items():
        text = ", ".join(f"`{name}` {size}/{pack_reader.unit_of(size)}" for name, size in fields.items())
        lines.append(f"| {kind} | {elements} | {sum(fields.values())} | {text} |")
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
    fresh_page = page
    for marker, fresh in (("fields", field_table()), ("example", example(os.path.abspath(args.bin)))):
        before, rest = fresh_page.split(f"<!-- {marker} -->\n")
        found, after = rest.split(f"<!-- /{marker} -->")
        fresh_page = before + f"<!-- {marker} -->\n" + fresh + f"<!-- /{marker} -->" + after
        if found != fresh and not args.update:
            print(f"docs/pack_format.md: the {marker} are not what they should be; see pack_example.py --update. They are:\n{fresh}")
    if args.update:
        with open(path, "w", encoding="utf-8") as file:
            file.write(fresh_page)
        return 0
    return 0 if fresh_page == page else 1


if __name__ == "__main__":
    sys.exit(main())
