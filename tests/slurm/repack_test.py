#!/usr/bin/env python3
"""A Slurm cluster of one node writes a pack in shares with scripts/repack_array.sbatch: it is the pack that one process writes.

Usage: repack_test.py ROOT BUILD_DIR
"""
import filecmp
import os
import subprocess
import sys
import tempfile

from cluster import Cluster, missing_programs

SHARES = 3
JOB_TIMEOUT_S = 60


def same_folder(one, two):
    names = sorted(os.listdir(one))
    return names == sorted(os.listdir(two)) and filecmp.cmpfiles(one, two, names, shallow=False)[0] == names


def submit(cluster, work, build, script, source, pack):
    """(job of the shares, job of the merge), submitted as docs/howto-repack.md prints it."""
    extra = (script, source, pack, "--allow-nonfinite")
    shares = cluster.sbatch(f"--array=1-{SHARES}", *extra, cwd=work, path=build)
    merge = cluster.sbatch(f"--dependency=afterok:{shares}", *extra, cwd=work, path=build)
    return shares, merge


def outputs(work):
    text = ""
    for name in sorted(os.listdir(work)):
        if name.startswith("slurm-"):
            with open(os.path.join(work, name), encoding="utf-8") as out:
                text += f"--- {name}\n{out.read()}"
    return text


def main():
    root, build = map(os.path.abspath, sys.argv[1:3])
    if missing := missing_programs():
        sys.exit(f"not on this machine: {', '.join(missing)}; scripts/setup.sh test installs them")
    if not os.path.ismount("/sys/fs/cgroup"):
        print("left out: Slurm's daemon does not start where /sys/fs/cgroup is not mounted")
        sys.exit(77)
    script = os.path.join(root, "scripts", "repack_array.sbatch")
    with tempfile.TemporaryDirectory(prefix="tierpack-slurm-") as scratch:
        os.chmod(scratch, 0o755)  # for munge, whose socket everyone must be able to reach
        home, work = os.path.join(scratch, "cluster"), os.path.join(scratch, "work")
        os.mkdir(home)
        os.mkdir(work)
        run = lambda *command: subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL)
        run(os.path.join(build, "moe_gguf_tool"), "source", "noise", "layers=3", "experts=32", "hidden=512", "ff=256", "shards=2")
        run(os.path.join(build, "tierpack"), "repack", "source", "--to", "whole.tierpack", "--allow-nonfinite")
        with Cluster(home) as cluster:
            shares, merge = submit(cluster, work, build, script, "source", "array.tierpack")
            found = cluster.wait(shares, JOB_TIMEOUT_S), cluster.wait(merge, JOB_TIMEOUT_S)
            if found != (["COMPLETED"] * SHARES, ["COMPLETED"]):
                sys.exit(f"shares and merge ended as {found}\n{outputs(work)}{cluster.logs()}")
            written = outputs(work)
            for share in range(1, SHARES + 1):
                if f"wrote part {share}/{SHARES} of" not in written:
                    sys.exit(f"no task says that it wrote share {share}\n{written}")
            if not same_folder(os.path.join(work, "whole.tierpack"), os.path.join(work, "array.tierpack")):
                sys.exit("the pack of the shares is not the pack of one process")

            # Shares that fail keep the merge from running.
            shares, merge = submit(cluster, work, build, script, "nothing", "no.tierpack")
            found = cluster.wait(shares, JOB_TIMEOUT_S)
            if found != ["FAILED"] * SHARES:
                sys.exit(f"shares of a source that is not there ended as {found}\n{outputs(work)}")
            cluster.until("the merge of failed shares is given up",
                          lambda: "Reason=DependencyNeverSatisfied" in cluster.ask("scontrol", "show", "job", merge), JOB_TIMEOUT_S)
            if os.path.exists(os.path.join(work, "no.tierpack")):
                sys.exit("failed shares left a pack")
    print(f"{SHARES} tasks and their merge wrote the pack that one process writes; failed tasks were not merged")


if __name__ == "__main__":
    main()
