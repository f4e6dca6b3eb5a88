#!/usr/bin/env python3
"""Hit rates of the expert cache's policies on real routing: the embedded model over texts that its profile has not seen.

Usage: cache_policies.py --tierpack build/tierpack --work DIR [--source CHECKPOINT]

Makes texts of five kinds with models/pebble/make/tiny/corpus.py (deterministic), one to profile and another to trace of each
kind, and prints Markdown tables: mean hit rates by capacity, how fast policies come back after a change of kind, and hit
rates on made-up routing (synthetic_routing.py).
"""
import argparse
import json
import os
import subprocess
import sys

import synthetic_routing

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = ("story", "math", "code", "zh", "chat")
POLICIES = ("adaptive", "lru", "lfu", "lfru", "static", "foresight", "belady")
CAPACITIES = (10, 15, 25, 35, 50, 75, 100)
TEXT_BYTES = 60_000


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def prepare(tierpack, work, source):
    """Pack, profiles and recordings; what is there already is kept."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.join(ROOT, "models", "pebble", "make"))
    from tiny import corpus
    os.makedirs(work, exist_ok=True)
    pack = os.path.join(work, "model.tierpack")
    if not os.path.exists(pack):
        run(tierpack, "repack", source, "--to", pack, "-q")
    for kind in KINDS:
        for use in ("profile", "trace"):
            text = os.path.join(work, f"{kind}-{use}.txt")
            if not os.path.exists(text):
                with open(text, "w", encoding="utf-8") as file:
                    file.write("<|endoftext|>".join(corpus.documents(kind, f"cache-{use}", TEXT_BYTES)))
        profile = os.path.join(work, f"{kind}.profile.json")
        if not os.path.exists(profile):
            run(tierpack, "calibrate", pack, "--corpus", os.path.join(work, f"{kind}-profile.txt"), "--out", profile, "-q")
        trace = os.path.join(work, f"{kind}.trace")
        if not os.path.exists(trace):
            run(tierpack, "trace", pack, "--corpus", os.path.join(work, f"{kind}-trace.txt"), "--out", trace, "-q")


def simulate(tierpack, work, traces, profile, capacities, policies=()):
    command = [tierpack, "simulate", *(os.path.join(work, f"{kind}.trace") for kind in traces), "--json"]
    if profile:
        command += ["--profile", os.path.join(work, f"{profile}.profile.json")]
    for capacity in capacities:
        command += ["--capacity", f"{capacity}%"]
    for policy in policies:
        command += ["--policy", policy]
    return json.loads(run(*command))["runs"]


def capacity_table(tierpack, work, seeded):
    rates = {}
    for kind in KINDS:
        for at, result in enumerate(simulate(tierpack, work, [kind], kind if seeded else None, CAPACITIES)):
            rates.setdefault((CAPACITIES[at // len(POLICIES)], result["policy"]), []).append(result["hit_rate"])
    mean = {key: 100 * sum(values) / len(values) for key, values in rates.items()}
    print("| experts held | " + " | ".join(POLICIES) + " | adaptive / belady | adaptive / foresight | least lead over lru, lfu |")
    print("|---" * (len(POLICIES) + 4) + "|")
    for capacity in CAPACITIES:
        lead = min(a - max(b, c) for a, b, c in zip(*(rates[(capacity, p)] for p in ("adaptive", "lru", "lfu"))))
        row = [f"{capacity} %"] + [f"{mean[(capacity, policy)]:.1f}" for policy in POLICIES]
        row += [f"{100 * mean[(capacity, 'adaptive')] / mean[(capacity, known)]:.0f} %" for known in ("belady", "foresight")]
        print("| " + " | ".join(row) + f" | {100 * lead:+.2f} |")


def recovery_table(tierpack, work):
    print("| policy | " + " | ".join(f"{64 * i + 1}-{64 * i + 64}" for i in range(6)) + " | second half |")
    print("|---" * 8 + "|")
    shares = {}
    for at, kind in enumerate(KINDS):
        following = KINDS[(at + 1) % len(KINDS)]
        runs = simulate(tierpack, work, [kind, following], kind, [25])
        windows = {r["policy"]: r["recordings"][1]["windows"] for r in runs}
        for policy, mine in windows.items():
            part = [m["hits"] / b["hits"] for m, b in zip(mine[:6], windows["belady"][:6])]
            half = len(mine) // 2
            part.append(sum(w["hits"] for w in mine[half:]) / sum(w["hits"] for w in windows["belady"][half:]))
            shares.setdefault(policy, []).append(part)
    for policy in ("adaptive", "lru", "lfu", "lfru", "static"):
        row = [sum(column) / len(KINDS) for column in zip(*shares[policy])]
        print(f"| {policy} | " + " | ".join(f"{100 * value:.0f} %" for value in row) + " |")


def synthetic_table(tierpack, work):
    policies = ("adaptive", "lru", "lfu", "lfru", "belady")
    print("| routing | " + " | ".join(policies) + " |")
    print("|---" * (len(policies) + 1) + "|")
    for at, (name, options) in enumerate(synthetic_routing.KINDS.items()):
        synthetic_routing.Routing(**options).write(os.path.join(work, f"made-up-{at}.trace"),
                                                   os.path.join(work, f"made-up-{at}.profile.json"))
        runs = simulate(tierpack, work, [f"made-up-{at}"], f"made-up-{at}", [25], policies)
        print(f"| {name} | " + " | ".join(f"{100 * r['hit_rate']:.1f}" for r in runs) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tierpack", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--source", default=os.path.join(ROOT, "models", "pebble"))
    options = parser.parse_args()
    prepare(options.tierpack, options.work, options.source)
    for seeded in (True, False):
        print(f"\nHits, % of requests, mean of five kinds of text, {'seeded' if seeded else 'begun cold'}\n")
        capacity_table(options.tierpack, options.work, seeded)
    print("\nHits as a part of belady's after a change of kind, by token, 25 % of the experts, seeded for the kind before\n")
    recovery_table(options.tierpack, options.work)
    print("\nMade-up routing: hits, % of requests, 25 % of the experts, seeded\n")
    synthetic_table(options.tierpack, options.work)


if __name__ == "__main__":
    main()
