"""The real binary as a test's object: started on its own ports, watched, and stopped."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from wire import WAIT, Client

BINARY = os.path.abspath(os.environ.get("POSTERN", "build/gateway/postern"))

SANITIZER = re.compile(
    r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|UndefinedBehaviorSanitizer|: runtime error: "
    r"|Assertion .* failed")


def own_host():
    """A loopback address that no other test process uses: 127/8 has room for every pid. With
    SO_REUSEPORT two gateways on one port would share it without a word."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16) % 190}.{(pid >> 8) & 255}.{pid & 255}"


given = set()  # by free_address


def free_address(host):
    """Each caller has its host to itself, so a port that was free stays free; one that nobody
    listens on yet is free for the kernel too, which may name it twice."""
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
        if (host, port) not in given:
            given.add((host, port))
            return f"{host}:{port}"


def split(address):
    if address.startswith("unix:"):
        return address[5:]
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def until(condition, what, timeout=WAIT):
    """Polls until condition() is true and returns what it gave."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.01)


def parse_metrics(text):
    """[(name, {label: value}, number)], strict enough to notice a line that is no sample."""
    samples = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)', line)
        assert match, f"not a sample: {line!r}"
        labels = dict(re.findall(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', match[2] or ""))
        samples.append((match[1], labels, float(match[3])))
    return samples


class Gateway:
    """`config`: @name@ becomes an address of this gateway's own (the same one each time), or
    str() of what `names` has under that name. What the text leaves out is filled in: one
    worker, an admin listener, the access log in a file, and no warm connections, so that a
    scripted upstream sees the first one when the first request comes."""

    def __init__(self, tmp, config="", names=None, args=(), env=None, prefix=(), fill=True,
                 preexec=None, wait=True):
        self.tmp = str(tmp)
        self.host = own_host()
        self.names = dict(names or {})
        self.fill = fill
        self.file = os.path.join(self.tmp, "gateway.conf")
        self.access_log = os.path.join(self.tmp, "access.log")
        self.clients = []
        self.proc = None
        self.stopped = False
        self.expect_status = 0
        self.write(config)
        self.stderr_path = os.path.join(self.tmp, "stderr")
        self.stdout_path = os.path.join(self.tmp, "stdout")
        environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:abort_on_error=0",
                           UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
                           TSAN_OPTIONS="halt_on_error=0:exitcode=66:second_deadlock_stack=1:"
                           f"suppressions={os.path.dirname(os.path.abspath(__file__))}/tsan.supp")
        environment.pop("NOTIFY_SOCKET", None)
        environment.update(env or {})
        with open(self.stderr_path, "wb") as err, open(self.stdout_path, "wb") as out:
            self.proc = subprocess.Popen([*prefix, BINARY, "-c", self.file, *args],
                                         stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                         env=environment, cwd=self.tmp, preexec_fn=preexec)
        if wait:
            self.wait_ready()

    # configuration

    def render(self, config):
        def name(match):
            if match[1] not in self.names:
                self.names[match[1]] = free_address(self.host)
            return str(self.names[match[1]])

        if self.fill:
            for key, text in (("workers", "workers = 1\n"), ("drain_timeout", "drain_timeout = 3s\n"),
                              ("admin", 'admin { listen = "@admin@" }\n'),
                              ("access_log", f'access_log {{ path = "{self.access_log}" }}\n')):
                if not re.search(rf"^\s*{key}\b", config, re.M):
                    config = text + config
            config = re.sub(r"\bpool \{(?![^}]*\bwarm\b)", "pool { warm = 0 ", config)
            config = re.sub(r'(upstream "[^"]+" \{)(?!(?:(?!\nroute|\nupstream).)*\bpool \{)',
                            r"\1 pool { warm = 0 }", config, flags=re.S)
        return re.sub(r"@(\w+)@", name, config)

    def write(self, config):
        text = self.render(config)
        with open(self.file + ".new", "w") as file:
            file.write(text)
        os.rename(self.file + ".new", self.file)

    def address(self, name="http"):
        return split(str(self.names[name]))

    # life

    def wait_ready(self):
        def ready():
            if self.proc.poll() is not None:
                raise AssertionError(f"ended with {self.proc.returncode}: {self.stderr}")
            try:
                return self.admin("/readyz").status == 200
            except (OSError, AssertionError):
                return False

        until(ready, f"/readyz is 200; stderr: {self.stderr}", 30)

    def signal(self, number):
        self.proc.send_signal(number)

    def config_state(self):
        return json.loads(self.admin("/config").body)

    def reload(self, config=None, ok=True):
        """Rewrites the file, sends HUP and waits for the outcome, which it returns."""
        before = self.config_state()
        if config is not None:
            self.write(config)
        self.signal(signal.SIGHUP)

        def done():
            now = self.config_state()
            if now["last_reload"] == before["last_reload"] and \
                    now["generation"] == before["generation"]:
                return None
            return now

        state = until(done, "the reload's outcome shows in /config")
        assert state["last_reload"]["ok"] is ok, state
        assert (state["generation"] > before["generation"]) is ok, state
        return state

    def wait_exit(self, timeout=WAIT):
        try:
            return self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs; stderr: ...{self.stderr[-3000:]}") from None

    def finish(self):
        """Every test ends here: the process stops cleanly and no sanitizer said a word."""
        for client in self.clients:
            client.close()
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.wait_exit(30)
            except AssertionError:
                self.proc.kill()
                self.proc.wait()
                raise
        text = self.stderr
        assert not SANITIZER.search(text), text[-6000:]
        assert self.proc.returncode == self.expect_status, (self.proc.returncode, text[-3000:])

    # talking to it

    def client(self, name="http", **options):
        client = Client.to(self.address(name), **options)
        self.clients.append(client)
        return client

    def get(self, target="/", name="http", **options):
        """One request on a connection of its own."""
        client = self.client(name)
        response = client.get(target, **options)
        client.close()
        return response

    def admin(self, path, method="GET"):
        client = Client.to(self.address("admin"))
        try:
            client.send(f"{method} {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")
            return client.response(method)
        finally:
            client.close()

    def upstream(self, name, server=None):
        """The servers of one upstream as /upstreams tells them, or one of them."""
        for upstream in json.loads(self.admin("/upstreams").body):
            if upstream["name"] == name:
                if server is None:
                    return upstream["servers"]
                return next(s for s in upstream["servers"] if s["address"] == str(server))
        raise AssertionError(f"no upstream {name}")

    def metrics(self):
        return parse_metrics(self.admin("/metrics").body.decode())

    def metric(self, metric_name, **labels):
        """Sum over all samples that have these labels."""
        return sum(number for name, has, number in self.metrics()
                   if name == metric_name and labels.items() <= has.items())

    def wait_metric(self, number, metric_name, **labels):
        """Waits until the sum is that: a request is counted when its answer has left, which its
        client may know first."""
        until(lambda: self.metric(metric_name, **labels) == number,
              f"{metric_name} {labels} is {number}; it is {self.metric(metric_name, **labels)}")

    # what it wrote

    @property
    def stderr(self):
        with open(self.stderr_path, errors="replace") as file:
            return file.read()

    @property
    def stdout(self):
        with open(self.stdout_path, errors="replace") as file:
            return file.read()

    def raw_log(self, path=None):
        try:
            with open(path or self.access_log, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def log_lines(self, path=None):
        """Complete lines, parsed; a line that is not JSON in UTF-8 is a failure."""
        lines = self.raw_log(path).split(b"\n")[:-1]
        return [json.loads(line.decode("utf-8")) for line in lines]

    def wait_log(self, count=1, file=None, **members):
        """Waits for `count` lines with these members and returns them."""
        def found():
            lines = [line for line in self.log_lines(file)
                     if all(line.get(k) == v for k, v in members.items())]
            return lines if len(lines) >= count else None

        try:
            return until(found, "")
        except AssertionError:
            raise AssertionError(
                f"no {count} log lines with {members}; there are: {self.log_lines(file)[-10:]}"
            ) from None

    def wait_stderr(self, pattern):
        return until(lambda: re.search(pattern, self.stderr), f"{pattern!r} in: {self.stderr}")

    # what it costs

    def cpu_seconds(self):
        with open(f"/proc/{self.proc.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_kib(self):
        with open(f"/proc/{self.proc.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.proc.pid}/fd"))


def run(*args, timeout=30, **options):
    """The binary for one short run: (status, stdout and stderr together, stdout alone)."""
    done = subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, **options)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    assert not SANITIZER.search(err), err
    return done.returncode, out + err, out


def is_sanitized():
    """Whether the binary carries a sanitizer, whose own memory makes RSS meaningless."""
    nm = shutil.which("nm")
    if not nm:
        return "asan" in BINARY or "tsan" in BINARY
    out = subprocess.run([nm, "-D", BINARY], capture_output=True, text=True).stdout
    return bool(re.search(r"__(asan|tsan)_init", out)) or "__tsan_" in subprocess.run(
        [nm, BINARY], capture_output=True, text=True).stdout
