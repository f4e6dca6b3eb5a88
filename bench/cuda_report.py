#!/usr/bin/env python3
"""What the kernels of the GPU become: registers, spills, loads and tensor-core instructions, for each architecture.

Usage: cuda_report.py [--arch 86 --arch 90 ...] [--nvcc nvcc] [--jobs N] [--all] [FILE.cu ...]

Compiles the sources of runtime/kernels/cuda to PTX and assembles that with ptxas -v; no GPU is needed. Prints a Markdown table of
kernels, those of products one line for a family unless --all. Exits with 1 if a kernel spills registers or keeps a stack frame, if
a kernel that reads weights for one token has no loads of 16 bytes, or if one of quantised products with several tokens has no
int8 tensor-core instruction (of 16 x 8 x 16 or 32, sm_80 and up).
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "runtime", "kernels", "cuda")
# As in runtime/kernels/cuda/CMakeLists.txt.
OPTIONS = ["-std=c++20", "-O3", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", "-ftz=false", "--expt-relaxed-constexpr",
           "-Xcompiler=-Wall,-Wextra,-ffp-contract=off", "-Werror=all-warnings", "-I" + ROOT]

ONE_TOKEN = re.compile(r"one_token_kernel|plain_kernel<[^,]*, [^,]*, 1u?>")
TENSOR_CORES = re.compile(r"few_tokens_kernel|many_tokens_kernel")


def widest_load(body):
    widest = 0
    for kind in re.findall(r"\bld\.global(?:\.[a-zL:0-9]+)*?((?:\.v[248])?\.[busf]\d+)\s", body):
        vector, bits = re.fullmatch(r"(?:\.v(\d))?\.[busf](\d+)", kind).groups()
        widest = max(widest, int(vector or 1) * int(bits) // 8)
    return widest


def parse_ptx(text):
    kernels = {}
    for match in re.finditer(r"\.entry\s+(\w+)\s*\(", text):
        end = text.find("\n}", match.end())
        body = text[match.end():end]
        kernels[match.group(1)] = {"load": widest_load(body), "mma": len(re.findall(r"mma\.sync\S*m16n8k(?:16|32)\S*\.s8\.s8", body))}
    return kernels


def parse_assembler(text, kernels):
    pattern = (r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
               r"Used (\d+) registers")
    for name, stack, stores, loads, registers in re.findall(pattern, text, re.S):
        kernels[name].update(stack=int(stack), spills=int(stores) + int(loads), registers=int(registers))


def compile_one(source, arch, nvcc, folder):
    ptx = os.path.join(folder, "%s.%s.ptx" % (os.path.basename(source), arch))
    begin = time.monotonic()
    run = subprocess.run([nvcc, *OPTIONS, "-ptx", "-arch=compute_" + arch, source, "-o", ptx], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit("nvcc failed on %s for sm_%s:\n%s" % (source, arch, run.stderr))
    ptxas = os.path.join(os.path.dirname(shutil.which(nvcc)), "ptxas")
    run = subprocess.run([ptxas, "-v", "-arch=sm_" + arch, ptx, "-o", os.devnull], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit("ptxas failed on %s for sm_%s:\n%s" % (source, arch, run.stderr))
    with open(ptx) as file:
        kernels = parse_ptx(file.read())
    parse_assembler(run.stderr + run.stdout, kernels)
    return arch, kernels, time.monotonic() - begin


def demangled(names):
    run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    result = {}
    for name, plain in zip(names, run.stdout.splitlines()):
        plain = re.sub(r"\(unsigned int\)", "", plain).replace("(anonymous namespace)::", "").replace("tierpack::kernels::cuda::", "")
        plain = re.sub(r"^void ", "", plain)
        result[name] = plain[:plain.index("(")] if "(" in plain else plain
    return result


def problems_of(name, kernel, arch):
    if kernel["spills"] or kernel["stack"]:
        yield "spills %d bytes, stack frame of %d" % (kernel["spills"], kernel["stack"])
    if ONE_TOKEN.search(name) and kernel["load"] < 16:
        yield "no loads of 16 bytes"
    if TENSOR_CORES.search(name) and int(arch) >= 80 and kernel["mma"] == 0:
        yield "no int8 tensor-core instruction"


def numbers(values):
    low, high = min(values), max(values)
    return str(low) if low == high else "%d-%d" % (low, high)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", action="append", help="compute capability without its point; 86 if none is given")
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--all", action="store_true", help="one line for each instance of a template")
    parser.add_argument("sources", nargs="*")
    args = parser.parse_args()
    sources = args.sources or sorted(os.path.join(FOLDER, name) for name in os.listdir(FOLDER) if name.endswith(".cu"))
    archs = args.arch or ["86"]

    kernels = {arch: {} for arch in archs}
    seconds = dict.fromkeys(archs, 0.0)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(compile_one, source, arch, args.nvcc, folder) for arch in archs for source in sources]
        for run in runs:
            arch, found, took = run.result()
            kernels[arch].update(found)
            seconds[arch] += took

    problems = []
    print("| sm | kernel | instances | registers | spilled bytes | widest load | int8 mma |\n|---|---|---|---|---|---|---|")
    for arch in archs:
        names = demangled(sorted(kernels[arch]))
        families = {}
        for mangled, kernel in kernels[arch].items():
            name = names[mangled]
            problems += ["sm_%s: %s: %s" % (arch, name, what) for what in problems_of(name, kernel, arch)]
            families.setdefault(name if args.all or "Device" not in name else name[:name.index("<")], []).append(kernel)
        for family in sorted(families):
            members = families[family]
            columns = [numbers([kernel[key] for kernel in members]) for key in ("registers", "spills", "load", "mma")]
            print("| %s | %s | %d | %s |" % (arch, family, len(members), " | ".join(columns)))
    print("\nCompiled in " + ", ".join("%.0f s (sm_%s)" % (seconds[arch], arch) for arch in archs) + ", one after the other.")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
