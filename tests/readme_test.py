#!/usr/bin/env python3
"""Runs every command that README.md prints, as printed, in order, against a hub on loopback.

Usage: readme_test.py ROOT BUILD_DIR. The ```sh blocks are run by one bash per block in a scratch folder that sees build/ and
models/ of the tree. `make` lines are not run (CI runs those targets themselves), but their targets must exist.
"""
import os
import re
import subprocess
import sys
import tempfile


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    text = open(os.path.join(root, "README.md"), encoding="utf-8").read()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S)
    makefile = open(os.path.join(root, "Makefile"), encoding="utf-8").read()
    if len(blocks) < 3:
        sys.exit(f"README.md has only {len(blocks)} blocks of commands")

    with tempfile.TemporaryDirectory(prefix="tierpack-readme-") as scratch:
        os.symlink(build, os.path.join(scratch, "build"))
        os.symlink(os.path.join(root, "models"), os.path.join(scratch, "models"))
        hub_root = os.path.join(scratch, "hub", "tierpack")
        os.makedirs(hub_root)
        os.symlink(os.path.join(root, "models", "pebble"), os.path.join(hub_root, "pebble-24M-A5M"))
        hub = subprocess.Popen([os.path.join(build, "hub_server"), "--root", os.path.dirname(hub_root), "--port", "0", "--print-port"],
                               stdout=subprocess.PIPE, text=True)
        try:
            port = hub.stdout.readline().strip()
            env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{port}", "HOME": scratch}
            env.pop("HF_TOKEN", None)
            count = 0
            for block in blocks:
                commands = []
                for line in block.splitlines(keepends=True):
                    if line.startswith("make "):
                        target = line.split()[1]
                        if not re.search(rf"^(.* )?{re.escape(target)}( .*)?:", makefile, re.M):
                            sys.exit(f"README.md prints '{line.strip()}', but the Makefile has no such target")
                    else:
                        commands.append(line)
                if not commands:
                    continue
                count += 1
                script = "set -e; set -o pipefail\nset -v\n" + "".join(commands)
                run = subprocess.run(["bash", "-c", script], cwd=scratch, env=env, capture_output=True, text=True, timeout=600)
                print(run.stdout)
                print(run.stderr, file=sys.stderr)
                if run.returncode != 0:
                    sys.exit(f"README.md: block {count} failed with exit code {run.returncode}")
            print(f"{count} blocks of README.md ran as printed")
        finally:
            hub.kill()


if __name__ == "__main__":
    main()
