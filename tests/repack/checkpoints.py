#!/usr/bin/env python3
"""Random checkpoints of every architecture and scheme: packed, proved, compared with an independent reader, unpacked.

Usage: checkpoints.py --bin DIR [--quick] [ARCH:SCHEME[:OPTION...] ...]. The reader and writer are tests/support/hf_checkpoint.py.
"""
import argparse
import filecmp
import os
import subprocess
import sys
import tempfile

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
CASES = """
qwen3moe:bf16 qwen3moe:f16:--shards=3 qwen3moe:f32 qwen3moe:fp8-block:--shards=2 qwen3moe:fp8-channel qwen3moe:fp8-tensor
qwen3moe:fp8-pb-wo qwen3moe:nvfp4-modelopt:--shards=4 qwen3moe:nvfp4-ct:--shards=3
qwen3next:bf16:--shards=2 qwen3next:nvfp4-modelopt
qwen35moe:bf16 qwen35moe:nvfp4-modelopt:--shards=3 qwen35moe:f32:--experts-layout=fused
qwen4exp:bf16:--shards=3 qwen4exp:bf16:--experts-layout=unfused:--table=f8 qwen4exp:nvfp4-modelopt:--shards=2 qwen4exp:nvfp4-ct
deepseek:bf16 deepseek:fp8-block:--shards=3:--nope-dim=128:--v-dim=128:--kv-lora=128
gpt_oss:mxfp4:--shards=2
glm4moe:bf16 glm4moe:nvfp4-ct
""".split()


def run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def check(bin_dir, case, seed):
    arch, scheme, *options = case.split(":")
    tierpack = os.path.join(bin_dir, "tierpack")
    maker = os.path.join(SUPPORT, "hf_checkpoint.py")
    with tempfile.TemporaryDirectory() as work:
        source, pack, back, values = (os.path.join(work, name) for name in ("source", "p.tierpack", "back", "values"))
        run(sys.executable, maker, "make", source, "--arch", arch, "--scheme", scheme, "--seed", str(seed), *options)
        run(tierpack, "repack", source, "--to", pack)
        run(tierpack, "verify", "--deep", pack)
        run(sys.executable, maker, "decode", source, "--out", values)
        found = run(os.path.join(bin_dir, "pack_values_tool"), pack, values)
        run(tierpack, "unpack", pack, "--to", back)
        names = sorted(os.listdir(source))
        if sorted(os.listdir(back)) != names:
            raise RuntimeError(f"{sorted(os.listdir(back))} came back of {names}")
        _, wrong, missing = filecmp.cmpfiles(source, back, names, shallow=False)
        if wrong or missing:
            raise RuntimeError(f"came back otherwise: {wrong} {missing}")
        # Out of the pack, and with any number of threads, the same pack comes again.
        for again, jobs in ((source, "1"), (pack, "2")):
            other = os.path.join(work, "other.tierpack")
            run(tierpack, "repack", again, "--to", other, "--jobs", jobs, "--force")
            for name in sorted(os.listdir(pack)):
                if not filecmp.cmp(os.path.join(pack, name), os.path.join(other, name), shallow=False):
                    raise RuntimeError(f"{name} is another from {again} with --jobs {jobs}")
        return found.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("cases", nargs="*", default=CASES)
    args = parser.parse_args()
    failed = 0
    for number, case in enumerate(args.cases or CASES):
        try:
            print(f"{case}: {check(args.bin, case, args.seed + number)}", flush=True)
        except RuntimeError as error:
            failed += 1
            print(f"{case}: FAILED\n{error}", flush=True)
    print(f"{len(args.cases or CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
