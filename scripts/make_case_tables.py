#!/usr/bin/env python3
"""Prints runtime/text/case_tables.cpp: upper, lower and title case of every character that has one.

Usage: make_case_tables.py > runtime/text/case_tables.cpp, or make_case_tables.py --check FILE.
The mappings are Unicode 14's (UnicodeData and SpecialCasing), as the str methods of Python 3.11 give them. --check by a
Python with other tables exits 77: it cannot tell.
"""
import sys
import unicodedata


def ranges(mapping):
    """Runs (first, last, step, delta) of characters whose mapping is one character."""
    out = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        mapped = mapping(chr(code))
        if len(mapped) != 1 or ord(mapped) == code:
            continue
        delta = ord(mapped) - code
        last = out[-1] if out else None
        if last and last[3] == delta and (code - last[1] == last[2] or last[0] == last[1] and code - last[1] <= 2):
            last[2] = code - last[1]
            last[1] = code
        else:
            out.append([code, code, 1, delta])
    return out


def specials(mapping):
    """Characters whose mapping is several characters."""
    return [(c, mapping(chr(c))) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and len(mapping(chr(c))) > 1]


def rows(items, width=118):
    line = "   "
    for item in items:
        if len(line) + 1 + len(item) > width:
            yield line
            line = "   "
        line += " " + item
    yield line


def table(name, items, kind):
    return [f"const {kind} {name}[] = {{", *rows(items), "};", f"const size_t {name}Size = std::size({name});", ""]


def source():
    out = ["// Made by scripts/make_case_tables.py; do not edit.", '#include "runtime/text/case_tables.h"', "", "#include <iterator>",
           "", "namespace tierpack::text {", ""]
    for name, mapping in (("Upper", str.upper), ("Lower", str.lower), ("Title", str.title)):
        out += table(f"k{name}Ranges", [f"{{0x{a:X}, 0x{b:X}, {s}, {d}}}," for a, b, s, d in ranges(mapping)], "CaseRange")
        out += table(f"k{name}Specials",
                     [f"{{0x{c:X}, {{{', '.join(f'0x{ord(x):X}' for x in m)}}}}}," for c, m in specials(mapping)], "CaseSpecial")
    out += ["}  // namespace tierpack::text"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--check":
        if unicodedata.unidata_version != "14.0.0":
            print("this Python has Unicode", unicodedata.unidata_version)
            sys.exit(77)
        sys.exit(0 if open(sys.argv[2]).read() == source() else f"{sys.argv[2]} is not what {sys.argv[0]} prints")
    sys.stdout.write(source())
