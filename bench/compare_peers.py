#!/usr/bin/env python3
"""Speed of tierpack beside llama.cpp and ik_llama.cpp on the same GGUF files.

  bench/compare_peers.py --tierpack build/tierpack --packs SCRATCH \\
      --llama-lib DIR --oracle DIR --ik BUILD_DIR MODEL.gguf...

Each engine is measured by a process of its own that loads the model, warms up and then measures: prefill of 512 tokens, and
128 tokens decoded after a prompt of 16, with 1 and 2 threads. The engines take turns, ROUNDS times; a figure is the median of
its rounds, and a ratio is the median of the ratios within a round, so that a change of the machine's mood between rounds
touches both sides. F16 KV cache everywhere, physical batches of 512, model files mapped by the peers, loaded by tierpack.

With --busy, decoding (32 tokens) is measured once more while another program spins on one core (normal priority; --busy pinned: it stays
on the last core, free: the scheduler places it), and the share of the quiet rate is printed.

What is absent is skipped, and the report says so. --json FILE writes every measurement. Only Python's own library is used.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

PREFILL, PROMPT, DECODE = 512, 16, 128
BUSY_DECODE = 32  # a peer that waits for descheduled threads needs long enough for these
TIMEOUT_S = 1800


class Failure(Exception):
    """An engine that cannot run a model; the message is its last line."""


def run(command):
    """(stdout, peak resident bytes) of a command; throws Failure."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        except OSError as problem:
            raise Failure(f"{command[0]}: {problem.strerror}") from None
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise Failure(f"{command[0]}: no result within {TIMEOUT_S} s")
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, problems = out.read(), err.read()
        if process.returncode != 0:
            lines = (problems or text).strip().splitlines() or ["nothing printed"]
            raise Failure(f"exit {process.returncode}: {lines[-1][:200]}")
        return text, usage.ru_maxrss * 1024


class Tierpack:
    name = "tierpack"

    def __init__(self, binary, packs, isa):
        self.binary, self.packs, self.isa = binary, packs, isa

    def version(self):
        return run([self.binary, "--version"])[0].strip() + (f" ({self.isa} kernels)" if self.isa else "")

    def prepare(self, model):
        """Repacks the model where no pack of it is there yet."""
        self.pack = os.path.join(self.packs, os.path.basename(model).removesuffix(".gguf") + ".tierpack")
        if not os.path.isdir(self.pack):
            print(f"repacking {os.path.basename(model)}", file=sys.stderr)
            run([self.binary, "repack", model, "--to", self.pack, "-q"])

    def bench(self, threads, lengths, decode):
        command = [self.binary, "bench", self.pack, "--json", "-q", "--threads", str(threads), "--lengths", lengths, "--decode", str(decode),
                   "--runs", "1", "--kv", "f16"]
        text, rss = run(command + (["--isa", self.isa] if self.isa else []))
        result = json.loads(text)
        return {length["tokens"]: length for length in result["lengths"]}, result, rss

    def measure(self, threads):
        lengths, result, _ = self.bench(threads, f"{PROMPT},{PREFILL}", DECODE)
        return {"prefill": lengths[PREFILL]["prefill"]["tokens_per_s"]["median"],
                "decode": lengths[PROMPT]["decode"]["tokens_per_s"]["median"],
                "read_share": lengths[PROMPT]["decode"]["share_of_read_bandwidth"]["median"],
                "rss": result["peak_resident_bytes"], "fingerprint": lengths[PREFILL]["fingerprint"]}

    def measure_decode(self, threads):
        return self.bench(threads, str(PROMPT), BUSY_DECODE)[0][PROMPT]["decode"]["tokens_per_s"]["median"]


class Llama:
    """llama.cpp's library through oracle, which prints a line for each repetition; the first is the warm-up."""
    name = "llama.cpp"
    LINE = re.compile(r"prefill \d+: ([\d.]+) tokens/s\s+decode \d+: ([\d.]+) tokens/s")

    def __init__(self, library, oracle):
        self.library = library
        self.oracle = os.path.join(oracle, "oracle") if os.path.isdir(oracle) else oracle

    def version(self):
        names = [name for name in sorted(os.listdir(self.library)) if name.startswith("libllama.")]
        return "llama.cpp " + (re.sub(r"^libllama\.|\.so$", "", names[0]) if names else "of unknown version")

    def prepare(self, model):
        self.model = model

    def bench(self, threads, prompt, decode):
        text, rss = run([self.oracle, "bench", self.model, "--lib", self.library, "--threads", str(threads), "--kv16", "--ubatch", "512",
                         "--pp", str(prompt), "--tg", str(decode), "--reps", "2"])
        lines = self.LINE.findall(text)
        if len(lines) != 2:
            raise Failure(f"unexpected output of oracle: {text[-200:]!r}")
        return float(lines[1][0]), float(lines[1][1]), rss

    def measure(self, threads):
        prefill, _, rss = self.bench(threads, PREFILL, 1)
        _, decode, rss_decode = self.bench(threads, PROMPT, DECODE)
        return {"prefill": prefill, "decode": decode, "rss": max(rss, rss_decode)}

    def measure_decode(self, threads):
        return self.bench(threads, PROMPT, BUSY_DECODE)[1]


class Ik:
    """ik_llama.cpp's llama-bench, which warms up by itself; -gp decodes after a prompt."""

    def __init__(self, build, repack):
        self.binary = os.path.join(build, "bin", "llama-bench")
        self.repack = repack
        self.name = "ik_llama.cpp, repacked" if repack else "ik_llama.cpp"
        self.build_number = None

    def version(self):
        return f"{self.name} {self.build_number or ''}".strip()

    def prepare(self, model):
        self.model = model

    def bench(self, threads, what):
        text, rss = run([self.binary, "-m", self.model, "-t", str(threads), "-ngl", "0", "-ctk", "f16", "-ctv", "f16", "-ub", "512", "-r", "1",
                         "-p", "0", "-n", "0", *what, "-o", "json", *(["-rtr", "1"] if self.repack else [])])
        rows = json.loads(text[text.index("["):])
        self.build_number = rows[0].get("build_commit")
        return rows, rss

    def measure(self, threads):
        rows, rss = self.bench(threads, ["-p", str(PREFILL), "-gp", f"{PROMPT},{DECODE}"])
        prefill = [row["avg_ts"] for row in rows if row["n_prompt"] == PREFILL and row["n_gen"] == 0]
        decode = [row["avg_ts"] for row in rows if row["n_gen"] == DECODE]
        if len(prefill) != 1 or len(decode) != 1:
            raise Failure("unexpected output of llama-bench")
        return {"prefill": prefill[0], "decode": decode[0], "rss": rss}

    def measure_decode(self, threads):
        return self.bench(threads, ["-gp", f"{PROMPT},{BUSY_DECODE}"])[0][0]["avg_ts"]


class Spinner:
    """Another program that keeps a core busy."""

    def __init__(self, placement):
        self.placement = placement

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        if self.placement == "pinned":
            os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def measure_model(engines, model, args):
    """{threads: {engine: [measurement or None per round]}} and what failed."""
    failed = {}
    for engine in engines:
        try:
            engine.prepare(model)
        except Failure as problem:
            failed[engine.name] = str(problem)
    rounds = {threads: {engine.name: [] for engine in engines} for threads in args.threads}
    for number in range(args.rounds):
        for threads in args.threads:
            for engine in engines:
                if engine.name in failed:
                    continue
                try:
                    result = engine.measure(threads)
                    if args.busy and threads == max(args.threads):
                        with Spinner(args.busy):
                            result["busy_decode"] = engine.measure_decode(threads)
                    rounds[threads][engine.name].append(result)
                except Failure as problem:
                    failed[engine.name] = str(problem)
                print(f"  {os.path.basename(model)} round {number + 1} {threads} threads {engine.name}: "
                      + (failed.get(engine.name) or ", ".join(f"{k} {v:.4g}" for k, v in result.items() if isinstance(v, float))), file=sys.stderr)
    return rounds, failed


def median_of(rounds, key):
    values = [r[key] for r in rounds if key in r]
    return statistics.median(values) if values else None


def ratio(ours, theirs, key):
    """Median over the rounds of ours / theirs."""
    values = [a[key] / b[key] for a, b in zip(ours, theirs) if key in a and key in b]
    return statistics.median(values) if values else None


def show(value, form="{:.1f}"):
    return "-" if value is None else form.format(value)


def print_model(model, rounds, failed, busy):
    print(f"\n### {os.path.basename(model)} ({os.path.getsize(model) / 1e9:.2f} GB)\n")
    heads = ["engine", "threads", "prefill 512, tokens/s", "ours is", "decode 128, tokens/s", "ours is", "peak RSS, GB"]
    if busy:
        heads += ["decode beside a busy core", "of the quiet rate"]
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for threads, engines in rounds.items():
        ours = engines.get("tierpack", [])
        for name, results in engines.items():
            if not results:
                continue
            cells = [name, str(threads)]
            for key in ("prefill", "decode"):
                cells += [show(median_of(results, key)), "" if name == "tierpack" else show(ratio(ours, results, key), "{:.2f} x")]
            cells.append(show(median_of(results, "rss") / 1e9, "{:.2f}"))
            if busy:
                cells += [show(median_of(results, "busy_decode")), show(
                    statistics.median([100 * r["busy_decode"] / r["decode"] for r in results if "busy_decode" in r])
                    if any("busy_decode" in r for r in results) else None, "{:.0f} %")]
            print("| " + " | ".join(cells) + " |")
        share = median_of(ours, "read_share")
        if share is not None:
            print(f"\ntierpack with {threads} threads reads weights at {100 * share:.0f} % of the read bandwidth measured in the same process.\n"
                  if threads == list(rounds)[-1] else "", end="")
    for name, problem in failed.items():
        print(f"\n{name} did not run it: {problem}")


def machine():
    cpu = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    return {"cpu": cpu, "cpus": len(os.sched_getaffinity(0)), "load_average": os.getloadavg()[0],
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


def find_engines(args):
    engines, absent = [Tierpack(args.tierpack, args.packs, args.isa)], []
    if not os.access(args.tierpack, os.X_OK):
        sys.exit(f"{args.tierpack}: no program there; build it first (make build)")
    if args.llama_lib and args.oracle:
        llama = Llama(args.llama_lib, args.oracle)
        missing = [path for path in (args.llama_lib, llama.oracle) if not os.path.exists(path)]
        if missing:
            absent.append(f"llama.cpp: there is no {missing[0]}")
        else:
            engines.append(llama)
    else:
        absent.append("llama.cpp: --llama-lib and --oracle were not given")
    if args.ik:
        for repack in (False, True) if args.ik_repack else (False,):
            ik = Ik(args.ik, repack)
            if os.access(ik.binary, os.X_OK):
                engines.append(ik)
            else:
                absent.append(f"{ik.name}: there is no {ik.binary}")
    else:
        absent.append("ik_llama.cpp: --ik was not given")
    return engines, absent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="GGUF files")
    parser.add_argument("--tierpack", default="build/tierpack", help="our program (default build/tierpack)")
    parser.add_argument("--packs", help="where packs of the models are, or are made and kept (default: beside each other in a scratch folder)")
    parser.add_argument("--isa", help="our kernels by name")
    parser.add_argument("--llama-lib", help="directory of llama.cpp's shared libraries")
    parser.add_argument("--oracle", help="the program that drives them, or its directory")
    parser.add_argument("--ik", help="build directory of ik_llama.cpp, with bin/llama-bench")
    parser.add_argument("--ik-repack", action="store_true", help="measure ik_llama.cpp with its run-time repacking (-rtr) as well")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine (default 3)")
    parser.add_argument("--busy", nargs="?", const="pinned", choices=["pinned", "free"], help="also decode while another program spins on a core")
    parser.add_argument("--json", help="write every measurement to this file")
    args = parser.parse_args()
    args.threads = [int(threads) for threads in args.threads.split(",")]
    if args.rounds < 1 or min(args.threads) < 1:
        parser.error("rounds and threads are at least 1")
    for model in args.models:
        if not os.path.isfile(model):
            parser.error(f"{model}: no such file")
    engines, absent = find_engines(args)
    for line in absent:
        print(f"skipped, {line}")

    with tempfile.TemporaryDirectory(prefix="tierpack-compare-") as scratch:
        args.packs = engines[0].packs = args.packs or scratch
        os.makedirs(args.packs, exist_ok=True)
        here = machine()
        print(f"{here['time']}: {here['cpu']}, {here['cpus']} CPUs, load average {here['load_average']:.2f}; {args.rounds} rounds, F16 KV cache"
              + (f"; the busy program is {'pinned to the last core' if args.busy == 'pinned' else 'not pinned'}" if args.busy else ""))
        record = {"machine": here, "rounds": args.rounds, "busy": args.busy, "skipped": absent, "models": {}}
        for model in args.models:
            rounds, failed = measure_model(engines, model, args)
            print_model(model, rounds, failed, args.busy)
            sys.stdout.flush()
            record["models"][os.path.basename(model)] = {"rounds": rounds, "failed": failed}
        record["versions"] = [engine.version() for engine in engines]
        print("\n" + "; ".join(record["versions"]))
        if args.json:
            with open(args.json + ".part", "w", encoding="utf-8") as file:
                json.dump(record, file, indent=1)
            os.replace(args.json + ".part", args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
