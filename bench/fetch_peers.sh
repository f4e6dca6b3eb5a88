#!/bin/sh
# Loopback throughput of `tierpack fetch` (which hashes while it downloads) against curl (no hash) and aria2c -x8 followed by
# sha256sum: one file, one server, interleaved, medians of wall time, CPU seconds and peak memory.
# Usage: bench/fetch_peers.sh BUILD_DIR [WORK_DIR] [SIZE_MIB] [ROUNDS]
# WORK_DIR should be able to hold the file twice; on tmpfs the network and the hash are measured, on a disk the disk as well.
set -eu
build=$(cd "$1" && pwd)
work=${2:-$(mktemp -d)}
size=${3:-8192}
rounds=${4:-5}
for tool in curl aria2c sha256sum openssl python3; do
    command -v $tool >/dev/null || { echo "fetch_peers: $tool is missing" >&2; exit 2; }
done
mkdir -p "$work/hub/bench/big"
source=$work/hub/bench/big/big.bin
if [ ! -f "$source" ] || [ "$(stat -c %s "$source")" != $((size << 20)) ]; then
    openssl enc -aes-128-ctr -pass pass:tierpack -nosalt -in /dev/zero 2>/dev/null | head -c $((size << 20)) >"$source" || true
fi
"$build/hub_server" --root "$work/hub" --port 0 --print-port >"$work/port" &
hub=$!
trap 'kill $hub 2>/dev/null; rm -rf "$work/out"' EXIT INT TERM
while [ ! -s "$work/port" ]; do sleep 0.1; done
port=$(cat "$work/port")
# The hub hashes the file once, before anything is measured.
curl -s "http://127.0.0.1:$port/api/models/bench/big" >/dev/null

python3 - "$build" "$work" "$port" "$rounds" "$size" <<'PY'
import os, shutil, statistics, subprocess, sys, time
build, work, port, rounds, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
url = f"http://127.0.0.1:{port}/files/bench/big/big.bin"
out = work + "/out"
peers = {
    "curl": [["curl", "-s", "-o", out + "/big.bin", url]],
    "aria2c -x8 + sha256sum": [["aria2c", "-q", "-x8", "-s8", "--file-allocation=none", "-d", out, "-o", "big.bin", url],
                               ["sha256sum", out + "/big.bin"]],
    "tierpack fetch": [[build + "/tierpack", "-q", "fetch", "hf:bench/big", "--endpoint", f"http://127.0.0.1:{port}", "--to", out]],
    "tierpack fetch -16": [[build + "/tierpack", "-q", "fetch", "hf:bench/big", "--endpoint", f"http://127.0.0.1:{port}", "--to", out, "--connections", "16"]],
}
results = {name: [] for name in peers}
for _ in range(rounds):
    for name, commands in peers.items():
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        os.sync()
        start, cpu, rss = time.monotonic(), 0.0, 0
        for command in commands:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            if status != 0:
                sys.exit(f"fetch_peers: {name} failed with status {status}")
            cpu += usage.ru_utime + usage.ru_stime
            rss = max(rss, usage.ru_maxrss)
        results[name].append((time.monotonic() - start, cpu, rss))
base = statistics.median(r[0] for r in results["curl"])
print(f"{size} MiB over loopback, {os.cpu_count()} CPUs, medians of {rounds} interleaved rounds")
print(f"{'':26}{'wall s':>8}{'GB/s':>7}{'CPU s':>7}{'peak MiB':>10}{'x curl':>8}")
for name, runs in results.items():
    wall, cpu, rss = (statistics.median(r[i] for r in runs) for i in range(3))
    print(f"{name:26}{wall:8.2f}{size * 1048576 / 1e9 / wall:7.2f}{cpu:7.2f}{rss / 1024:10.0f}{wall / base:8.2f}")
PY
