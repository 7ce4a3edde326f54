"""Whatever postern passes on is read alike by everybody: by servers of seven kinds behind it, and by
clients of four kinds before it.

Mutants (mutants.py), each from a seed, are sent to postern; the exact bytes that come out on the other
side go to nginx, HAProxy, h2o, nghttpx, node's http, Go's net/http and h11 as servers, with one more request behind
them, and each must have read what a strict parser reads, no more, no less, and then that last request.
A program may refuse a method that it does not know; it may not read anything else. nghttpx passes
targets on in a spelling of its own, and is compared in it. Answers go the other
way to curl, Python's http.client, node's http and h11: each gets the same answer, or knows that it has
none. Programs that are not there are left out, and named.

By hand: POSTERN=... /usr/bin/python3 -B tests/scenario/differential.py MUTANTS [SEED]
"""

import hashlib
import http.client
import io
import json
import os
import posixpath
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

import h11

from conftest import ONE
from conversation import as_h11_reads
from gateway import Gateway, free_address, own_host, split, until
from mutants import Maker
from recorder import Recorder
from wire import Client, Closed, Conn, Malformed, Request

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")
LAST = b"GET /last HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n"
WAIT = 10
NGINX = """daemon off; master_process off; worker_processes 1; pid {tmp}/pid; error_log {tmp}/error.log;
events {{ worker_connections 512; }}
http {{ access_log off; client_max_body_size 0; client_body_temp_path {tmp}/b; proxy_temp_path {tmp}/p; fastcgi_temp_path {tmp}/f;
uwsgi_temp_path {tmp}/u; scgi_temp_path {tmp}/s; underscores_in_headers on;
server {{ listen {listen}; location / {{ proxy_pass http://{echo}; proxy_http_version 1.1; proxy_set_header Connection ""; }} }} }}
"""
HAPROXY = """global
    log /dev/null local0
defaults
    mode http
    timeout connect 10s
    timeout client 10s
    timeout server 10s
    retries 0
listen all
    bind {listen}
    server echo {echo}
"""
H2O = """num-threads: 1
max-connections: 512
error-log: {tmp}/h2o.log
limit-request-body: 1073741824
listen:
  host: {host}
  port: {port}
hosts:
  default:
    paths:
      /:
        proxy.reverse.url: http://{echo}/
        proxy.preserve-host: ON
        proxy.timeout.keepalive: 0
"""
# What a program does not serve at all, which is no other reading.
METHODS_OF_ALL = {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"}


def digest(body):
    return hashlib.sha1(body).hexdigest()[:20]


def reading(request):
    return request.method, request.target, len(request.body), digest(request.body)


def normal(target):
    """As one that rewrites targets may have spelt it: compared with what was meant in the same spelling."""
    def decode(match):
        char = chr(int(match[1], 16))
        return char if re.fullmatch(r"[A-Za-z0-9._~-]", char) else match[0].upper()

    path, _, query = target.partition("?")
    path = re.sub("%([0-9a-fA-F]{2})", decode, path)
    last = re.search(r"/\.?\.?$", path)
    path = path if path == "*" else posixpath.normpath(re.sub("//+", "/", path)) + ("/" if last else "")
    spelt = re.sub("//+", "/", path) + ("?" + query if query else "")
    return re.sub('[^!#-;=?-Z_a-z~%\\[\\]]', lambda match: f"%{ord(match[0]):02X}", spelt)


class Echo(Recorder):
    """Says in X-Echo what came: the server behind nginx and HAProxy."""

    def __init__(self, host):
        super().__init__(host, self.echo)

    def echo(self, _):
        echo = "%s %s %d %s" % reading(self.seen[-1].request)
        return [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Echo: " + echo.encode("latin-1") + b"\r\n\r\n"]


class Program:
    """A server in a process of its own. `spelling`: what it makes of a target, where it does."""

    spelling = None

    def __init__(self, name, address, args, ready=None):
        self.name, self.address = name, split(address)
        self.proc = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        until(self.listens, f"{name} listens", 60)

    def listens(self):
        assert self.proc.poll() is None, f"{self.name} ended"
        try:
            socket.create_connection(self.address, 5).close()
            return True
        except OSError:
            return False

    def read(self, data, ended):
        """[(method, target, body bytes, digest)] in order, and whether it refused something."""
        sock = socket.create_connection(self.address, WAIT)
        out = b""
        try:
            sock.sendall(data)
            if ended:
                sock.shutdown(socket.SHUT_WR)
            while True:
                part = sock.recv(1 << 16)
                if not part:
                    break
                out += part
        except socket.timeout:
            return None, False
        except OSError:
            pass
        finally:
            sock.close()
        found = re.findall(rb"(?im)^x-echo: ?(\S+) (\S+) (\d+) ([0-9a-f]+)\r$", out)
        refused = bool(re.search(rb"(?m)^HTTP/1\.[01] [45]\d\d", out))
        return [(m.decode("latin-1"), t.decode("latin-1"), int(n), d.decode()) for m, t, n, d in found], refused

    def close(self):
        self.proc.kill()
        self.proc.wait()
        self.proc.stdout.close()


class H11Server:
    name, spelling = "h11", None

    def read(self, data, ended):
        found, fault = as_h11_reads(data, ended)
        return [(method, target, len(body), digest(body)) for method, target, body in found], fault

    def close(self):
        pass


def servers(tmp, echo, opened):
    """({name: server}, [why one is left out])."""
    made, missing = {"h11": H11Server()}, []
    host = own_host()

    def add(name, binary, args):
        path = shutil.which(binary) or next((p for p in (f"/usr/sbin/{binary}", f"/usr/local/go/bin/{binary}") if os.access(p, os.X_OK)), None)
        if not path:
            missing.append(f"{name} is not installed")
            return
        address = free_address(host)
        command = args(path, address)
        if command:
            made[name] = Program(name, address, command)
            opened.append(made[name])

    def file(name, text, **values):
        path = os.path.join(tmp, name)
        with open(path, "w") as out:
            out.write(text.format(tmp=tmp, echo=echo, **values))
        return path

    def go(path, address):
        binary = os.path.join(tmp, "echo-go")
        done = subprocess.run([path, "build", "-o", binary, os.path.join(PEERS, "echo.go")], capture_output=True, text=True, timeout=400, cwd=tmp,
                              env=dict(os.environ, GO111MODULE="off", GOFLAGS="", CGO_ENABLED="0"))
        if done.returncode:
            missing.append(f"go builds nothing here: {done.stderr[-300:]}")
            return None
        return [binary, address]

    add("nginx", "nginx", lambda path, address: [path, "-p", tmp, "-e", f"{tmp}/start.log", "-c", file("nginx.conf", NGINX, listen=address)])
    add("haproxy", "haproxy", lambda path, address: [path, "-db", "-f", file("haproxy.cfg", HAPROXY, listen=address)])
    add("h2o", "h2o", lambda path, address: [path, "-m", "worker", "-c", file("h2o.conf", H2O, host=address.split(":")[0], port=address.split(":")[1])])
    add("nghttpx", "nghttpx", lambda path, address: [path, "--conf=/dev/null", f"--frontend={address.replace(':', ',')};no-tls", f"--backend={str(echo).replace(':', ',')}",
                                                     "--workers=1", "--single-process", "--errorlog-file=/dev/null", "--accesslog-file="])
    if "nghttpx" in made:
        made["nghttpx"].spelling = normal
    add("node", "node", lambda path, address: [path, os.path.join(PEERS, "echo.js"), address])
    add("go", "go", go)
    return made, missing


def send_through(gw, data):
    """Everything is sent in one go and the connection's end waited for."""
    sock = socket.create_connection(gw.address(), WAIT)
    try:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass
    sock.close()


def compare_requests(gw, up, peers, seed, odd=0.12):
    """What one mutant became: (requests passed, faults)."""
    data = Maker(random.Random(seed), odd).requests()
    mark = up.mark()
    send_through(gw, data)
    settle(gw)
    faults, by_conn = [], {}
    for one in up.since(mark):
        if one.request.target != "/settle":
            by_conn.setdefault(one.conn, []).append(one)
    with up.lock:
        broken, up.faults = up.faults, []
    for kind, raw in broken:
        if kind != "cut":
            faults.append(f"seed {seed}: {kind}: {data!r} became {raw!r}")
            continue
        for name, peer in peers.items():  # an upload that broke off is a whole request to nobody
            found, _ = peer.read(raw, True)
            if found:
                faults.append(f"seed {seed}: {name} takes what was cut off for {found}: {data!r} became {raw!r}")
    for seen in by_conn.values():
        raw = b"".join(one.raw for one in seen)
        meant = [reading(one.request) for one in seen]
        last = [*meant, ("GET", "/last", 0, digest(b""))]
        for name, peer in peers.items():
            whole = last
            found, refused = peer.read(raw + LAST, False)
            if found == whole:
                continue
            if found and peer.spelling:
                found, whole = ([(m, peer.spelling(t), *rest) for m, t, *rest in some] for some in (found, whole))
                if found == whole:
                    continue
            served = next((i for i, m in enumerate(meant) if m[0] not in METHODS_OF_ALL), None)
            if refused and served is not None and found == whole[:min(len(found), served)]:
                continue  # some refuse it before they have answered what came before
            faults.append(f"seed {seed}: {name} reads {found}, postern meant {whole}: {data!r} became {raw!r}")
    return sum(len(seen) for seen in by_conn.values()), faults


def settle(gw):
    client = Client.to(gw.address())
    assert client.get("/settle").status == 200
    client.close()


# ---- the other direction

class Canned:
    """Answers each connection with the same bytes."""

    def __init__(self, host):
        self.data = b""
        self.sock = socket.create_server((host, 0))
        self.address = "%s:%d" % self.sock.getsockname()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            conn.settimeout(WAIT)
            try:
                got = b""
                while b"\r\n\r\n" not in got:
                    part = conn.recv(1 << 16)
                    if not part:
                        break
                    got += part
                conn.sendall(self.data)
                conn.shutdown(socket.SHUT_WR)
                while conn.recv(1 << 16):
                    pass
            except OSError:
                pass
            conn.close()

    def close(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.thread.join(WAIT)


class Replay(io.BytesIO):
    """As a socket for http.client, which closes what it has from it behind each head without a body."""

    def makefile(self, *_, **__):
        return self

    def close(self):
        pass


def by_strict(method, data):
    """What postern means: (status, size, digest) or None when there is no whole answer."""
    ours, theirs = socket.socketpair()
    threading.Thread(target=lambda: (theirs.sendall(data), theirs.close()), daemon=True).start()
    conn = Conn(ours, WAIT)
    conn.__class__ = Client
    try:
        response = conn.response(method)
        rest = conn.read_to_end()
    except Closed:
        return None
    finally:
        ours.close()
    assert not rest, f"bytes behind the answer: {rest!r}"
    return [response.status, len(response.body), digest(response.body)]


def by_h11(method, data):
    conn = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    conn.send(h11.Request(method=method, target="/", headers=[("Host", "test")]))
    conn.send(h11.EndOfMessage())
    conn.receive_data(data)
    conn.receive_data(b"")
    body, status = b"", None
    try:
        while True:
            event = conn.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return [status, len(body), digest(body)]
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.ProtocolError:
        return None


def by_http_client(method, data):
    replay = Replay(data)
    try:
        while True:
            response = http.client.HTTPResponse(replay, method=method)
            response.begin()
            if response.status >= 200:
                break
        body = response.read()
    except (http.client.HTTPException, ValueError, ConnectionError):
        return None
    return [response.status, len(body), digest(body)]


class Curl:
    def __init__(self, canned, tmp):
        self.canned, self.out = canned, os.path.join(tmp, "curl.out")

    def __call__(self, method, data):
        self.canned.data = data
        open(self.out, "wb").close()
        done = subprocess.run(["curl", "-sS", "--http1.1", "-m", str(WAIT), "-o", self.out, "-w", "%{http_code}", *(["-I"] if method == "HEAD" else []),
                               f"http://{self.canned.address}/"], capture_output=True, text=True)
        if done.returncode:
            return None
        with open(self.out, "rb") as file:
            body = file.read() if method != "HEAD" else b""
        return [int(done.stdout), len(body), digest(body)]


class Node:
    def __init__(self, canned):
        self.canned = canned
        self.proc = subprocess.Popen(["node", os.path.join(PEERS, "read.js")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, method, data):
        self.canned.data = data
        self.proc.stdin.write(f"{method} {self.canned.address}\n")
        self.proc.stdin.flush()
        return json.loads(self.proc.stdout.readline())

    def close(self):
        self.proc.stdin.close()
        self.proc.wait(WAIT)
        self.proc.stdout.close()


def clients(tmp, opened):
    made, missing = {"h11": by_h11, "http.client": by_http_client}, []
    canned = Canned(own_host())
    opened.append(canned)
    for name, make in (("curl", lambda: Curl(canned, tmp)), ("node", lambda: Node(canned))):
        if shutil.which(name):
            made[name] = make()
        else:
            missing.append(f"{name} is not installed")
    if "node" in made:
        opened.append(made["node"])
    return made, missing


class Mutant(Recorder):
    """A backend whose answer is set from outside; it closes behind it."""

    def __init__(self, host):
        self.data = b""
        super().__init__(host, lambda target: None if target == "/settle" else [self.data, "close"])


def compare_answers(gw, up, peers, seed, odd=0.12):
    """(whether it was passed, faults)."""
    pick = random.Random(seed)
    up.data = Maker(pick, odd).answer()
    method = pick.choice(["GET", "GET", "GET", "HEAD"])
    sock = socket.create_connection(gw.address(), WAIT)
    raw = b""
    try:
        sock.sendall(f"{method} /{seed} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
        while True:
            part = sock.recv(1 << 16)
            if not part:
                break
            raw += part
    except ConnectionError:
        pass
    sock.close()
    try:
        meant = by_strict(method, raw)
    except (Malformed, AssertionError) as error:
        return 0, [f"seed {seed}: {error}: {up.data!r} became {raw!r}"]
    faults = []
    for name, peer in peers.items():
        found = peer(method, raw)
        if found != meant:
            faults.append(f"seed {seed}: {name} reads {found} of {method}, postern meant {meant}: {up.data!r} became {raw!r}")
    return bool(meant) and meant[0] != 502, faults


def run(compare, gw, up, peers, count, seed):
    """(mutants that passed, faults)"""
    passed, faults = 0, []
    for i in range(count):
        more, found = compare(gw, up, peers, seed + i)
        passed += more > 0
        faults += found
        if len(faults) > 20:
            break
    return passed, faults


def main():
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 40)
    opened, status = [], 0
    with tempfile.TemporaryDirectory() as tmp:
        try:
            echo, up, answering = Echo(own_host()), Recorder(own_host()), Mutant(own_host())
            opened.extend((echo, up, answering))
            behind, missing = servers(tmp, echo, opened)
            before, more = clients(tmp, opened)
            for compare, backend, peers in ((compare_requests, up, behind), (compare_answers, answering, before)):
                folder = os.path.join(tmp, compare.__name__)
                os.mkdir(folder)
                gateway = Gateway(folder, ONE, {"app": backend})
                passed, faults = run(compare, gateway, backend, peers, count, seed)
                gateway.finish()
                print(f"{compare.__name__}: {count} mutants from seed {seed} on, {passed} passed on and read by {', '.join(sorted(peers))}: "
                      f"{len(faults)} disagreements", *faults, sep="\n")
                status |= bool(faults) or passed < count // 20
            print(*missing, *more, sep="\n")
        finally:
            for thing in reversed(opened):
                thing.close()
    return status


if __name__ == "__main__":
    sys.exit(main())
