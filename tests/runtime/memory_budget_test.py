#!/usr/bin/env python3
"""Budgets are hard: models in memory control groups as large as --ram, without swap, from start to end.

Usage: memory_budget_test.py TIERPACK SOURCE_GGUF. Exits 77 where no control group can be made.
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from memory_group import available, run_in  # noqa: E402

MIB = 1 << 20
failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("FAILED:", message)


def main():
    program, source = sys.argv[1:3]
    if not available():
        print("no memory control group can be made here")
        return 77
    with tempfile.TemporaryDirectory() as work:
        pack = os.path.join(work, "model.tierpack")
        subprocess.run([program, "-q", "repack", source, "--to", pack], check=True, stdout=subprocess.DEVNULL)
        ids = os.path.join(work, "ids.txt")
        with open(ids, "w") as f:
            f.write(" ".join(str(5 + i * 7919 % 3000) for i in range(300)))
        command = [program, "-q", "eval", pack, "--tokens", ids, "--json"]
        plan = json.loads(subprocess.run([program, "plan", pack, "--ram", "1GiB", "--context", "300", "--json"], check=True,
                                         capture_output=True, text=True).stdout)
        most = sum(part["bytes"] for part in plan["parts"])
        experts = sum(part["bytes"] for part in plan["parts"] if part["name"] == "expert cache")
        whole = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        for share in (0.25, 0.5, 0.75, 1.0):
            for extra in ([], ["--chunk", "1"], ["--io", "buffered"], ["--io", "pread", "--chunk", "16"]):
                limit = int(most - (1 - share) * experts) + 4095 & ~4095
                run = run_in(limit, [*command, "--ram", str(limit), *extra])
                what = f"{limit / MIB:.1f} MiB {' '.join(extra)}"
                print(f"{what}: status {run['status']}, peak {run['peak_bytes'] / MIB:.1f} MiB, kills {run['kills']}")
                expect(run["status"] == 0 and run["kills"] == 0, f"{what}: {run['err']}")
                if run["status"] != 0:
                    continue
                result = json.loads(run["out"])
                expect(result["fingerprint"] == whole["fingerprint"], f"{what}: another answer")
                expect(run["peak_bytes"] <= limit, f"{what}: peak {run['peak_bytes']}")
                if share < 1 and "--chunk" not in extra:  # smaller chunks leave room for every expert
                    expect(result["experts"]["disk_reads"] > 0, f"{what}: nothing was read from disk")

        # Without --ram the limit of the group is the budget.
        limit = int(most - 0.5 * experts) + (64 + 16) * MIB
        run = run_in(limit, command)
        print(f"by itself in {limit / MIB:.1f} MiB: status {run['status']}, peak {run['peak_bytes'] / MIB:.1f} MiB, kills {run['kills']}")
        expect(run["status"] == 0 and run["kills"] == 0, f"without --ram: {run['err']}")
        # What cannot fit is refused before it is tried.
        run = run_in(24 * MIB, command)
        expect(run["status"] == 4 and run["kills"] == 0, f"24 MiB: status {run['status']}, kills {run['kills']}: {run['err']}")
        expect("would fit" in run["err"], f"24 MiB: {run['err']}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
