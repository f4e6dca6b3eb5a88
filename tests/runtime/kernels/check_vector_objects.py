#!/usr/bin/env python3
"""Object files with vector code must not define functions that other files share.

Usage: check_vector_objects.py OBJECT... . An inline function of a header, compiled with -mavx2 and not inlined, becomes a
weak symbol, and the linker may choose that copy for the whole program: an illegal instruction on older CPUs. Fails if an
avx*.o defines a weak function; prints them.
"""
import os
import subprocess
import sys


def weak_functions(path):
    lines = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in lines if len(line.split()) > 2 and line.split()[1] == "W"]


def main():
    objects = [path for path in sys.argv[1:] if os.path.basename(path).startswith("avx")]
    if not objects:
        print("no vector objects in this build")
        return 0
    found = [f"{os.path.basename(path)}: {line}" for path in objects for line in weak_functions(path)]
    print("\n".join(found) if found else f"{len(objects)} vector objects share no functions")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
