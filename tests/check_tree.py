#!/usr/bin/env python3
"""Guards the layers: include direction between folders, unique file names, root-relative includes, getenv in one place.

Usage: check_tree.py ROOT. Prints each violation and exits 1 if there is one; prints the largest files for information.
"""
import os
import re
import subprocess
import sys

# folder -> folders it may include (itself always)
ALLOWED = {
    "base": set(),
    "formats": {"base"},
    "fetch": {"base", "formats"},
    "verify": {"base", "formats"},
    "repack": {"base", "formats", "verify"},
    "runtime": {"base", "formats"},
    "calibrate": {"base", "formats", "runtime"},
}
# inside runtime/: folder -> folders of runtime it may include ("" is runtime/ itself)
RUNTIME = {
    "device": set(),
    "kernels": {"device"},
    "experts": {"device"},
    "hardware": {"", "device", "kernels"},
    "text": set(),
    "model": {"", "device", "kernels", "experts", "text"},
    "planning": {"kernels", "experts", "model"},
    "server": {"", "text"},
    "": {"device", "text", "experts", "model", "kernels", "planning", "hardware"},
}
# single exceptions: (including folder, header) with the reason
EXCEPTIONS = {
    ("calibrate", "runtime/device/device.h"),
    ("calibrate", "runtime/hardware/machine_report.h"),
    ("runtime", "tests/support/cuda_on_cpu/cuda_on_cpu.h"),  # kernels compiled as C++
}
SOURCE = re.compile(r"\.(h|cpp|cu|cuh)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def tracked(root):
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True).stdout
        files = out.splitlines()
    except (OSError, subprocess.CalledProcessError):
        files = [os.path.relpath(os.path.join(d, f), root) for d, _, fs in os.walk(root) for f in fs]
    return sorted(f for f in files if SOURCE.search(f) and os.path.exists(os.path.join(root, f)) and not f.startswith("build"))


def violations(root):
    names = {}
    for path in tracked(root):
        top = path.split("/")[0] if "/" in path else "."
        text = open(os.path.join(root, path), encoding="utf-8").read()
        if top in ALLOWED:
            other = names.setdefault(os.path.basename(path), path)
            if other != path:
                yield f"{path}: the file name is already used by {other}"
            if re.search(r"\bgetenv\s*\(", text) and top != "fetch" and path != "base/user_directories.cpp":
                yield f"{path}: getenv outside fetch/ and base/user_directories.cpp; options belong on the command line"
        for header in INCLUDE.findall(text):
            if not os.path.exists(os.path.join(root, header)):
                if top in ALLOWED or top in (".", "tests", "bench"):
                    yield f'{path}: "{header}" is not a path from the repository root'
                continue
            to = header.split("/")[0]
            if top not in ALLOWED or to == top and top != "runtime" or (top, header) in EXCEPTIONS:
                continue
            if to != top and to not in ALLOWED[top]:
                yield f"{path}: {top}/ must not include {to}/ ({header})"
            if top == "calibrate" and to == "runtime" and header != "runtime/engine.h" and not header.startswith("runtime/text/"):
                yield f"{path}: calibrate/ sees only runtime/engine.h and runtime/text/ ({header})"
            if top == "runtime" and to == "runtime":
                here = path.split("/")[1] if path.count("/") >= 2 else ""
                there = header.split("/")[1] if header.count("/") >= 2 else ""
                if here != there and there not in RUNTIME.get(here, set()):
                    yield f"{path}: runtime/{here} must not include runtime/{there} ({header})"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    found = list(violations(root))
    for line in found:
        print(line)
    sizes = sorted(((sum(1 for _ in open(os.path.join(root, f), encoding="utf-8")), f) for f in tracked(root)), reverse=True)
    print("largest files: " + ", ".join(f"{f} ({n})" for n, f in sizes[:5]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
