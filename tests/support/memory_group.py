"""Programs in memory control groups of version 1 or 2. Needs the right to make groups: root, mostly."""
import os
import re
import subprocess
import time


def size_of(text):
    found = re.fullmatch(r"([0-9.]+)\s*([KMG]?)(i?)B?", text)
    if not found:
        raise SystemExit(f"{text}: not a size")
    return int(float(found[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[found[2]])


class Group:
    """A memory control group of either version."""

    def __init__(self, limit):
        self.v1 = os.path.isdir("/sys/fs/cgroup/memory")
        self.path = ("/sys/fs/cgroup/memory" if self.v1 else "/sys/fs/cgroup") + f"/tierpack-bench-{os.getpid()}"
        os.mkdir(self.path)
        if self.v1:
            self.write("memory.limit_in_bytes", limit)
            self.write("memory.swappiness", 0)
        else:
            self.write("memory.max", limit)
            self.write("memory.swap.max", 0)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def read(self, name):
        with open(os.path.join(self.path, name)) as f:
            return f.read()

    def peak(self):
        return int(self.read("memory.max_usage_in_bytes" if self.v1 else "memory.peak"))

    def kills(self):
        text = self.read("memory.oom_control" if self.v1 else "memory.events")
        return int(re.search(r"oom_kill (\d+)", text)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for _ in range(50):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.1)


def available():
    """Whether groups can be made here."""
    try:
        with Group(1 << 30):
            return True
    except OSError:
        return False


def run_in(limit, argv, env=None):
    with Group(limit) as group:
        begin = time.monotonic()
        child = subprocess.Popen(
            ["sh", "-c", f'echo $$ > "{group.path}/cgroup.procs" && exec "$@"', "sh", *argv],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        out, err = child.communicate()
        return {"seconds": time.monotonic() - begin, "status": child.returncode, "out": out, "err": err[-400:],
                "peak_bytes": group.peak(), "kills": group.kills()}
