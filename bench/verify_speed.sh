#!/bin/sh
# Speed of `tierpack verify` on files that are in the page cache, against the SHA-256 of OpenSSL on as many cores: both are
# run in turn, several times, and the medians compared.
# Usage: bench/verify_speed.sh BUILD_DIR [WORK_DIR] [FILES] [FILE_MIB] [ROUNDS]
# All files together must fit in free memory, or the disk is measured. "x openssl" is verify's bytes per second, divided by
# cores x openssl's on one core: by wall time, which other work on the machine falsifies, and by CPU time, which it hardly does.
set -eu
build=$(cd "$1" && pwd)
work=${2:-$build/verify_speed}
files=${3:-16}
size=${4:-1024}
rounds=${5:-5}
mkdir -p "$work/m"
trap 'rm -rf "$work/m"' EXIT INT TERM
: >"$work/m/SHA256SUMS"
for i in $(seq -w 1 "$files"); do
    openssl enc -aes-128-ctr -pass "pass:$i" -nosalt -in /dev/zero 2>/dev/null | head -c $((size << 20)) >"$work/m/part-$i.bin" || true
    (cd "$work/m" && sha256sum "part-$i.bin" >>SHA256SUMS)
done
python3 - "$build/tierpack" "$work/m" "$files" "$size" "$rounds" <<'PY'
import os, re, statistics, subprocess, sys, time
program, directory, files, size, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
cores = len(os.sched_getaffinity(0))
total = files * size * 2**20

def openssl():
    # By CPU time, as openssl counts without -elapsed; the last line has thousands of bytes a second.
    text = subprocess.run(["openssl", "speed", "-evp", "sha256", "-bytes", "1048576", "-seconds", "2"],
                          capture_output=True, text=True).stdout
    return float(re.search(r"([\d.]+)k\s*$", text.strip()).group(1)) * 1000

def verify(path, expected_bytes):
    start = time.monotonic()
    process = subprocess.Popen([program, "-q", "verify", path], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"verify_speed: verify ended with status {status}")
    return expected_bytes / (time.monotonic() - start), expected_bytes / (usage.ru_utime + usage.ru_stime), usage.ru_maxrss

verify(directory, total)  # everything into the page cache
one = os.path.join(directory, sorted(os.listdir(directory))[1])
ours, alone, theirs, load = [], [], [], []
for _ in range(rounds):
    theirs.append(openssl())
    load.append(os.getloadavg()[0])
    ours.append(verify(directory, total))
    alone.append(verify(one, size * 2**20))
base = statistics.median(theirs)
print(f"{files} files of {size} MiB, {cores} cores, load {statistics.median(load):.1f}, medians of {rounds} interleaved rounds")
print(f"openssl speed -evp sha256, one core   {base / 1e9:6.2f} GB/s")
for name, runs, width in (("verify, all files", ours, min(cores, files)), ("verify, one file", alone, 1)):
    wall, cpu = statistics.median(r[0] for r in runs), statistics.median(r[1] for r in runs)
    print(f"{name:<37} {wall / 1e9:6.2f} GB/s wall, {cpu / 1e9:.2f} GB per CPU second, peak {max(r[2] for r in runs) // 1024} MiB; "
          f"x openssl on {width} core{'s' if width > 1 else ''}: {wall / base / width:.2f} wall, {cpu / base:.2f} CPU")
PY
