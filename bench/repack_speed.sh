#!/bin/sh
# `tierpack repack` beside cp of the same model, both from a cold cache and until all is on the disk, interleaved.
# Usage: bench/repack_speed.sh BUILD_DIR [WORK_DIR] [GB] [ROUNDS] [REPACK_OPTION...]
# WORK_DIR must have room for three times GB (default 8). The model has random weights in the shape of Qwen3-30B-A3B, Q4_K. The cache is
# dropped as a whole where that is permitted, else the files' own pages are.
set -eu
build=$(cd "$1" && pwd)
work=${2:-$build/repack_speed}
size=${3:-8}
rounds=${4:-3}
shift $(($# < 4 ? $# : 4))
mkdir -p "$work"
trap 'rm -rf "$work/source" "$work/copy" "$work/m.tierpack" "$work/m.tierpack.part"' EXIT INT TERM
python3 - "$build/tierpack" "$work" "$size" "$rounds" "$@" <<'PY'
import os, shutil, statistics, struct, subprocess, sys, time
program, work, rounds, options = sys.argv[1], sys.argv[2], int(sys.argv[4]), sys.argv[5:]
source, copy, pack = (os.path.join(work, name) for name in ("source", "copy", "m.tierpack"))
HIDDEN, FF, EXPERTS, Q4_K, F32 = 2048, 768, 128, 12, 0
PIECE = 4 << 20

def row_bytes(kind, elements):
    return elements // 256 * 144 if kind == Q4_K else elements * 4

def write_model(path, layers):
    """A qwen3moe GGUF of random blocks; F32 tensors are zeros. Bytes in the file."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    key = lambda name, kind, raw: text(name) + struct.pack("<I", kind) + raw
    number = lambda name, n: key("qwen3moe." + name, 4, struct.pack("<I", n))
    keys = [key("general.architecture", 8, text("qwen3moe")), key("general.name", 8, text("noise"))]
    keys += [number(name, n) for name, n in (
        ("block_count", layers), ("context_length", 4096), ("embedding_length", HIDDEN), ("attention.head_count", 32),
        ("attention.head_count_kv", 4), ("attention.key_length", 128), ("expert_count", EXPERTS), ("expert_used_count", 8),
        ("expert_feed_forward_length", FF))]
    keys += [key("qwen3moe." + name, 6, struct.pack("<f", x)) for name, x in (("attention.layer_norm_rms_epsilon", 1e-6), ("rope.freq_base", 1e6))]
    keys += [key("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 4) + b"".join(map(text, "abcd")))]
    tensors = [("token_embd.weight", Q4_K, (HIDDEN, 4)), ("output.weight", Q4_K, (HIDDEN, 4)), ("output_norm.weight", F32, (HIDDEN,))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}.weight", kind, shape) for name, kind, shape in (
            ("attn_norm", F32, (HIDDEN,)), ("attn_q", Q4_K, (HIDDEN, 4096)), ("ffn_gate_inp", F32, (HIDDEN, EXPERTS)),
            ("ffn_down_exps", Q4_K, (FF, HIDDEN, EXPERTS)), ("ffn_gate_exps", Q4_K, (HIDDEN, FF, EXPERTS)), ("ffn_up_exps", Q4_K, (HIDDEN, FF, EXPERTS)))]
    head, data = struct.pack("<IIQQ", 0x46554747, 3, len(tensors), len(keys)) + b"".join(keys), 0
    sizes = []
    for name, kind, shape in tensors:
        rows = 1
        for n in shape[1:]:
            rows *= n
        sizes.append(row_bytes(kind, shape[0]) * rows)
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, data)
        data += sizes[-1]  # all are multiples of 32
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for (_, kind, _), left in zip(tensors, sizes):
            while left > 0:
                n = min(left, PIECE)
                out.write(os.urandom(n) if kind == Q4_K else bytes(n))
                left -= n
        os.fsync(out.fileno())
    return os.path.getsize(path)

def drop_cache(path):
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as control:
            control.write("3\n")
    except OSError:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

def run(*commands):
    """(seconds, CPU seconds, peak RSS in bytes of the first) of commands run one after the other."""
    start, cpu, peak = time.monotonic(), 0.0, 0
    for i, command in enumerate(commands):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        if status != 0:
            sys.exit(f"repack_speed: {' '.join(command)} ended with status {status}")
        cpu += usage.ru_utime + usage.ru_stime
        if i == 0:
            peak = usage.ru_maxrss * 1024
    return time.monotonic() - start, cpu, peak

os.makedirs(source, exist_ok=True)
model = os.path.join(source, "m.gguf")
layers = max(1, round(float(sys.argv[3]) * 1e9 / (3 * HIDDEN * FF * EXPERTS * 144 / 256)))
size = write_model(model, layers)
copies, packs, load = [], [], []
for _ in range(rounds):
    load.append(os.getloadavg()[0])
    drop_cache(model)
    copies.append(run(["cp", model, copy], ["sync", copy]))
    os.remove(copy)
    drop_cache(model)
    packs.append(run([program, "-q", "repack", source, "--to", pack, "--allow-nonfinite", *options]))
    shutil.rmtree(pack)
    print(f"round: cp and sync {size / copies[-1][0] / 1e9:.2f} GB/s, repack {size / packs[-1][0] / 1e9:.2f} GB/s", file=sys.stderr)
print(f"{size / 1e9:.2f} GB, {layers} layers, {len(os.sched_getaffinity(0))} cores, load {statistics.median(load):.1f}, medians of {rounds} interleaved "
      "rounds, cold cache, until synced")
speed = lambda runs: size / statistics.median(r[0] for r in runs) / 1e9
for name, runs in (("cp and sync", copies), ("repack", packs)):
    print(f"{name:<12} {speed(runs):5.2f} GB/s, {statistics.median(r[1] for r in runs) / (size / 1e9):.2f} CPU seconds a GB, "
          f"peak {max(r[2] for r in runs) >> 20} MiB")
print(f"repack is {speed(packs) / speed(copies):.2f} of cp")
PY
