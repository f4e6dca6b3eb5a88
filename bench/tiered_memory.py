#!/usr/bin/env python3
"""A model larger than memory: decoding in a memory control group, beside llama.cpp over the same file, interleaved.

  tiered_memory.py --bin build/tierpack --pack M.tierpack [--gguf M.gguf --peer PROGRAM --peer-lib DIR] \
      [--limit 4GiB] [--tokens 64] [--rounds 3] [--out FILE.json]

Each run begins with the model out of the page cache, in a group of its own with the limit and no swap, and counts
from the start of the process to its end. Reported: tokens/s after loading, hit rate, bytes read, the group's peak
memory and kills; and what (bytes missed per token, the disk's rate at the record size measured between the runs) allow.

--peer is a program that takes `bench MODEL --lib DIR --threads N --pp 1 --tg N --reps 1` and prints
"decode N: X tokens/s"; with NO_REPACK=1 in its environment it leaves weights as the file has them. Needs root.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/support"))
from memory_group import run_in, size_of  # noqa: E402


def forget(path):
    """Drops a file, or a directory's files, from the page cache."""
    files = [path] if os.path.isfile(path) else [os.path.join(path, f) for f in os.listdir(path)]
    for name in files:
        fd = os.open(name, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def ours(args, ids):
    forget(args.pack)
    run = run_in(args.limit_bytes, [args.bin, "eval", args.pack, "--tokens", ids, "--chunk", "1", "--threads", str(args.threads), "--json",
                                    *args.options])
    if run["status"] != 0:
        return {"failed": run["err"], **{k: run[k] for k in ("status", "kills", "peak_bytes", "seconds")}}
    result = json.loads(run["out"])
    experts = result["experts"]
    return {"tokens_s": result["tokens_per_second"], "hit_rate": experts["hit_rate"], "disk_bytes": experts["disk_bytes"],
            "stall_s": experts["stall_us"] / 1e6, "fingerprint": result["fingerprint"], "experts": experts,
            **{k: run[k] for k in ("seconds", "kills", "peak_bytes")}}


def peer(args, repack):
    forget(args.gguf)
    run = run_in(args.limit_bytes, [args.peer, "bench", args.gguf, "--lib", args.peer_lib, "--threads", str(args.threads), "--kv16",
                                    "--pp", "1", "--tg", str(args.tokens), "--reps", "1"], {} if repack else {"NO_REPACK": "1"})
    found = re.search(r"decode \d+: ([0-9.]+) tokens/s", run["out"])
    result = {k: run[k] for k in ("seconds", "kills", "peak_bytes", "status")}
    if found:
        result["tokens_s"] = float(found[1])
    else:
        result["failed"] = run["err"] or f"status {run['status']}"
    return result


def resident(args, ids):
    """The rate with every expert in RAM from the start."""
    out = subprocess.run([args.bin, "eval", args.pack, "--tokens", ids, "--chunk", "1", "--threads", str(args.threads), "--json", "--warm"],
                         capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["tokens_per_second"]


def disk(args):
    out = subprocess.run([args.bin, "doctor", args.pack, "--json"], capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"doctor failed: {out.stderr}")
    machine = json.loads(out.stdout)
    disks = machine.get("hardware", machine)["disks"]
    return disks[0]["record_bytes_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default="build/tierpack")
    parser.add_argument("--pack", required=True)
    parser.add_argument("--gguf")
    parser.add_argument("--peer")
    parser.add_argument("--peer-lib")
    parser.add_argument("--limit", default="4GiB")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out")
    parser.add_argument("options", nargs="*", help="more options of eval, after --")
    args = parser.parse_args()
    args.limit_bytes = size_of(args.limit)

    machine = json.loads(subprocess.run([args.bin, "plan", args.pack, "--ram", "1000GiB", "--json"], capture_output=True, text=True, check=True).stdout)
    args.record_bytes = sum(c["slot_bytes"] * c["experts"] for c in machine["expert_slots"]) / sum(c["experts"] for c in machine["expert_slots"])
    rounds = []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as ids:
        ids.write(" ".join(str(300 + i * 7919 % 3000) for i in range(args.tokens + 1)))
        ids.flush()
        args.resident_tokens_s = resident(args, ids.name)
        print(f"everything resident: {args.resident_tokens_s:.2f} tokens/s")
        for number in range(args.rounds):
            row = {"disk_bytes_s": disk(args), "tierpack": ours(args, ids.name)}
            if args.peer:
                row["llama.cpp, no repacking"] = peer(args, False)
                if number == 0:
                    row["llama.cpp, defaults"] = peer(args, True)
            rounds.append(row)
            for name, run in row.items():
                if isinstance(run, dict):
                    figure = f"{run['tokens_s']:.2f} tokens/s" if "tokens_s" in run else f"failed: {run['failed'].strip()[-120:]}"
                    more = f", hits {100 * run['hit_rate']:.1f} %, {run['disk_bytes'] / 1e9:.1f} GB read" if "hit_rate" in run else ""
                    print(f"round {number + 1}  {name:24} {figure}{more}, peak {run['peak_bytes'] / 2**30:.2f} GiB, kills {run['kills']}")
            mine = row["tierpack"]
            if "tokens_s" in mine:
                # Misses come at the disk's rate, or the computation with everything resident is slower than that.
                experts = mine["experts"]
                missed = (1 - experts["hit_rate"]) * experts["requests"] * args.record_bytes / (args.tokens + 1)
                mine["bound_tokens_s"] = bound = 1 / max(missed / row["disk_bytes_s"], 1 / args.resident_tokens_s)
                print(f"         {missed / 1e6:.0f} MB missed a token at {row['disk_bytes_s'] / 1e9:.2f} GB/s, {args.resident_tokens_s:.2f} tokens/s resident: "
                      f"{bound:.2f} tokens/s are possible, {100 * mine['tokens_s'] / bound:.0f} % reached")
            sys.stdout.flush()

    def median(name):
        values = [r[name]["tokens_s"] for r in rounds if name in r and "tokens_s" in r[name]]
        return statistics.median(values) if values else None

    summary = {name: median(name) for name in ("tierpack", "llama.cpp, no repacking", "llama.cpp, defaults")}
    shares = [r["tierpack"]["tokens_s"] / r["tierpack"]["bound_tokens_s"] for r in rounds if "bound_tokens_s" in r["tierpack"]]
    if shares:
        print(f"median of what the disk allows: {100 * statistics.median(shares):.0f} %")
    if summary["tierpack"] and summary["llama.cpp, no repacking"]:
        print(f"median beside llama.cpp without repacking: {summary['tierpack'] / summary['llama.cpp, no repacking']:.2f} x")
    if args.out:
        with open(args.out, "w") as f:
            json.dump({"arguments": vars(args), "rounds": rounds, "median_tokens_s": summary}, f, indent=1)


if __name__ == "__main__":
    main()
