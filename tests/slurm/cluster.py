"""A Slurm cluster of one node on this machine, for tests: its own munge key, ports and folders, no privileges, no cgroups.

    with Cluster(directory) as cluster:
        job = cluster.sbatch("script.sh", "argument")
        state = cluster.wait(job, timeout_s=30)
"""
import ctypes
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import time

START_TIMEOUT_S = 30
CPUS = 16  # claimed, so that several tasks run at once on any machine
MEMORY_MIB = 65536
DAEMONS_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_programs():
    """Those of the programs a cluster needs that this machine does not have."""
    return [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "scontrol") if not shutil.which(name, path=DAEMONS_PATH)]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def end_with_parent():
    """Between fork and exec: the daemon ends when the test does, even if the test is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


class Cluster:
    def __init__(self, directory):
        self.dir = directory
        self.daemons = []
        self.env = {**os.environ, "SLURM_CONF": os.path.join(directory, "slurm.conf"), "PATH": DAEMONS_PATH}

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def path(self, name):
        return os.path.join(self.dir, name)

    def start(self):
        os.chmod(self.dir, 0o755)  # munge wants a socket that everyone can reach, in a folder that nobody else can write
        for name in ("state", "spool"):
            os.mkdir(self.path(name))
        with open(os.open(self.path("munge.key"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as key:
            key.write(os.urandom(1024))
        ctld_port, slurmd_port = free_ports(2)
        with open(self.path("slurm.conf"), "w", encoding="utf-8") as config:
            config.write(CONFIG.format(host=socket.gethostname().split(".")[0], user=pwd.getpwuid(os.geteuid()).pw_name, dir=self.dir,
                                       ctld_port=ctld_port, slurmd_port=slurmd_port, cpus=CPUS, memory=MEMORY_MIB))
        self.daemon("munged", "--foreground", *(f"--{what}={self.path('munge.' + end)}" for what, end in (
            ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("seed-file", "seed"), ("log-file", "log"))))
        self.until("munged listens", lambda: os.path.exists(self.path("munge.socket")))
        self.daemon("slurmctld", "-D", "-c")
        self.daemon("slurmd", "-D")
        self.until("the node is idle", lambda: "State=IDLE" in self.ask("scontrol", "show", "node"))

    def daemon(self, *command):
        with open(self.path(command[0] + ".out"), "wb") as out:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                 cwd=self.dir, preexec_fn=end_with_parent))

    def stop(self):
        if len(self.daemons) == 3:
            self.ask("scancel", "--full", "--signal=KILL", "--user", str(os.geteuid()))
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []

    def until(self, what, holds, timeout_s=START_TIMEOUT_S):
        end = time.monotonic() + timeout_s
        while not holds():
            for daemon in self.daemons:
                if daemon.poll() is not None:
                    raise RuntimeError(f"{daemon.args[0]} ended with status {daemon.returncode}, before {what}\n{self.logs()}")
            if time.monotonic() > end:
                raise RuntimeError(f"after {timeout_s} s it is not so that {what}\n{self.logs()}")
            time.sleep(0.1)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.dir)):
            if name.endswith((".log", ".out")):
                with open(self.path(name), encoding="utf-8", errors="replace") as log:
                    text += f"--- {name}\n" + "".join(log.readlines()[-20:])
        return text

    def ask(self, *command):
        return subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False).stdout

    def sbatch(self, *arguments, cwd, path):
        """The number of a new job, which runs in `cwd` with `path` first on PATH."""
        done = subprocess.run(["sbatch", "--parsable", *arguments], cwd=cwd, env={**self.env, "PATH": path + os.pathsep + DAEMONS_PATH},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"sbatch {' '.join(arguments)}: {done.stderr}{self.logs()}")
        return done.stdout.strip()

    def states(self, job):
        """The state of each task of a job, such as COMPLETED."""
        return re.findall(r"\bJobState=(\w+)", self.ask("scontrol", "show", "job", job))

    def wait(self, job, timeout_s):
        """States of the job's tasks once all have ended."""
        ended = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL"}
        self.until(f"job {job} has ended", lambda: (states := self.states(job)) and ended.issuperset(states), timeout_s)
        return self.states(job)
