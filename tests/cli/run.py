#!/usr/bin/env python3
"""Runs one command-line test: a shell script and the output it must have.

Usage: run.py --bin DIR --source DIR [--update] SCRIPT...

SCRIPT is NAME.sh; beside it lie NAME.stdout (what it must print) and, where the exit code is not 0, NAME.exit. It runs
under `sh -eu` in an empty directory of its own with DIR first on PATH, SOURCE_DIR naming the repository, HOME and the XDG
folders in that directory and LC_ALL=C; both directories are shown as SOURCE and WORK. stderr is shown when a test fails, and compared only if the script sends it to
stdout. --update writes what was seen as what is expected.
"""
import argparse
import difflib
import os
import subprocess
import sys
import tempfile

TIMEOUT_S = 300


def run_script(script, bin_dir, source_dir):
    """(exit code, stdout, stderr) of a script."""
    with tempfile.TemporaryDirectory(prefix="tierpack-cli-") as home:
        work = os.path.join(home, "work")
        os.mkdir(work)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "XDG_", "TIERPACK_"))}
        env.update(
            PATH=bin_dir + os.pathsep + env.get("PATH", ""), SOURCE_DIR=source_dir, LC_ALL="C", HOME=home,
            XDG_CACHE_HOME=os.path.join(home, "cache"), XDG_STATE_HOME=os.path.join(home, "state"),
            XDG_CONFIG_HOME=os.path.join(home, "config"), NO_COLOR="1")
        try:
            done = subprocess.run(["sh", "-eu", script], cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=TIMEOUT_S, check=False)
            code, streams = done.returncode, (done.stdout, done.stderr)
        except subprocess.TimeoutExpired as late:
            code, streams = "timeout", (late.stdout or b"", late.stderr or b"")
        names = ((os.path.realpath(work), "WORK"), (work, "WORK"), (source_dir, "SOURCE"))
        texts = []
        for stream in streams:
            text = stream.decode(errors="replace")
            for path, name in names:
                text = text.replace(path, name)
            texts.append(text)
        return code, texts[0], texts[1]


def read(path, missing):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return missing


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check(script, bin_dir, source_dir, update):
    base = script[: -len(".sh")]
    code, out, err = run_script(script, bin_dir, source_dir)
    if update:
        write(base + ".stdout", out)
        if code != 0:
            write(base + ".exit", f"{code}\n")
        elif os.path.exists(base + ".exit"):
            os.remove(base + ".exit")
        return True
    want_out = read(base + ".stdout", None)
    want_code = read(base + ".exit", "0").strip()
    if want_out is None:
        print(f"{script}: no {base}.stdout; write it with --update")
        return False
    if out == want_out and str(code) == want_code:
        return True
    print(f"{script}: exit code {code}, expected {want_code}")
    sys.stdout.writelines(difflib.unified_diff(want_out.splitlines(True), out.splitlines(True), "expected", "found"))
    print("--- stderr\n" + err)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--source", required=True, help="root of the repository")
    parser.add_argument("--update", action="store_true", help="write what was seen as what is expected")
    parser.add_argument("scripts", nargs="+")
    args = parser.parse_args()
    results = [check(os.path.abspath(s), os.path.abspath(args.bin), os.path.abspath(args.source), args.update)
               for s in args.scripts]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
