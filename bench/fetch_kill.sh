#!/bin/sh
# `tierpack fetch` killed with SIGKILL at random moments and started again, against the test hub: it must always complete,
# never publish a wrong byte, and download at most one journal window (two seconds) again.
# Usage: bench/fetch_kill.sh BUILD_DIR [KILLS] [WORK_DIR] [SEED]
set -eu
build=$(cd "$1" && pwd)
kills=${2:-200}
work=${3:-$(mktemp -d)}
seed=${4:-1}
mkdir -p "$work/hub/o/m"
head -c 41943040 /dev/urandom >"$work/hub/o/m/big.bin"
head -c 3000001 /dev/urandom >"$work/hub/o/m/model.bin"
"$build/hub_server" --root "$work/hub" --port 0 --print-port >"$work/port" &
hub=$!
trap 'kill $hub 2>/dev/null; rm -rf "$work/out" "$work/hub" "$work/port"' EXIT INT TERM
while [ ! -s "$work/port" ]; do sleep 0.1; done
python3 - "$build/tierpack" "$work" "$(cat "$work/port")" "$kills" "$seed" <<'PY'
import filecmp, glob, json, os, random, shutil, subprocess, sys, time
program, work, port, kills, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
RATE = 12 << 20   # bytes a second
WINDOW = 2.0      # seconds of the journal
SLACK = 1.0       # for a checkpoint's own flush, on a busy machine
out = work + "/out"
random.seed(seed)

def start():
    return subprocess.Popen([program, "fetch", "hf:o/m", "--endpoint", f"http://127.0.0.1:{port}", "--to", out, "--range-size", "512K",
                             "--limit-rate", str(RATE), "--retry-wait", "0.01", "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

def on_disk():
    """Bytes of unfinished downloads that have reached the file system, by file."""
    return {name: sum(os.stat(p).st_blocks * 512 for p in glob.glob(f"{out}/.tierpack/{name}-*.part")) for name in ("big.bin", "model.bin")}

def names_are_right():
    for name in ("big.bin", "model.bin"):
        path = f"{out}/{name}"
        if os.path.exists(path) and not filecmp.cmp(path, f"{work}/hub/o/m/{name}", shallow=False):
            sys.exit(f"fetch_kill: {name} has wrong content under its final name")

killed = finished = completions = 0
lost = []        # bytes on the disk that the next run did not take over
downloaded = resumed = 0
before = {}
while killed < kills:
    process = start()
    complete = killed > 0 and random.random() < 0.25
    if not complete:
        time.sleep(random.uniform(0, 4))
        process.kill()
    events = [json.loads(line) for line in process.stdout if line.endswith("}\n")]
    code = process.wait()
    names_are_right()
    for event in events:
        if event["event"] == "file_start" and before.get(event["path"], 0) > 0:
            lost.append(max(0, before[event["path"]] - event["resumed_bytes"]))
    before = on_disk()
    if code == -9:
        killed += 1
        continue
    if code != 0:
        sys.exit(f"fetch_kill: the run ended with status {code}")
    finished += 1
    completions += complete
    if not (os.path.exists(out + "/big.bin") and os.path.exists(out + "/model.bin")) or os.path.exists(out + "/.tierpack"):
        sys.exit("fetch_kill: success was reported, but files are missing or the state directory is left")
    summary = events[-1]
    downloaded += summary["downloaded_bytes"]
    resumed += summary["resumed_bytes"]
    shutil.rmtree(out)
    before = {}
code = start().wait() if os.path.exists(out) else 0
names_are_right()
worst = max(lost, default=0)
print(f"{killed} kills, {finished} runs completed in between ({resumed >> 20} MiB of theirs taken over from killed runs, {downloaded >> 20} MiB "
      f"downloaded), last run's status {code}; no wrong byte under a final name")
print(f"downloaded again after a kill: median {sorted(lost)[len(lost) // 2] / 2**20 if lost else 0:.1f} MiB, most {worst / 2**20:.1f} MiB; "
      f"one window of {WINDOW:.0f} s is {RATE * WINDOW / 2**20:.0f} MiB")
sys.exit(0 if code == 0 and worst <= RATE * (WINDOW + SLACK) else 1)
PY
