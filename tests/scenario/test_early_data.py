"""TLS 1.3 early data (0-RTT): off unless asked for, then marked for backends (RFC 8470)."""

import os
import shutil
import subprocess

import pytest
from hpack import Encoder
from hyperframe.frame import HeadersFrame, SettingsFrame

from gateway import run
from tls import Authority
from wire import WAIT
from wire2 import PREFACE

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

UPSTREAM = 'upstream "app" { server "@app@" {} pool { warm = 0 } }\n'


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca")).issue("localhost", "127.0.0.1")


def conf(local, early="early_data = true", more="", route=""):
    return (f'listener "https" {{ listen = {{"@https@"}} tls {{ {local.section()} {early} }} '
            f'{more} }}\n{UPSTREAM}route "all" {{ upstream = app {route} }}\n'
            'route "fixed" { path = "/fixed"  respond { body = "hello" } }\n')


class Early:
    """openssl s_client: a first visit for a session, then one with early data."""

    def __init__(self, gw, tmp_path):
        self.at = "{}:{}".format(*gw.address("https"))
        self.session, self.data = tmp_path / "session", tmp_path / "early"
        self.procs = []

    def start(self, *args, alpn="http/1.1"):
        proc = subprocess.Popen(
            ["openssl", "s_client", "-connect", self.at, "-tls1_3", "-servername", "localhost",
             "-alpn", alpn, "-ign_eof", *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.procs.append(proc)
        return proc

    def visit(self, path="/fixed"):
        proc = self.start("-sess_out", self.session)
        out, _ = proc.communicate(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n".encode(), timeout=WAIT)
        assert b"HTTP/1.1 200" in out
        return out

    def send(self, request, **options):
        self.data.write_bytes(request if isinstance(request, bytes) else request.encode())
        return self.start("-sess_in", self.session, "-early_data", self.data, **options)

    def close(self):
        for proc in self.procs:
            proc.kill()
            proc.wait(WAIT)
            proc.stdout.close()
            if not proc.stdin.closed:
                proc.stdin.close()


@pytest.fixture
def early(opened, tmp_path):
    def make(gw):
        thing = Early(gw, tmp_path)
        opened.append(thing)
        return thing

    return make


def ask(path="/early", method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n"


def test_it_goes_to_the_backend_with_a_mark(gateway, upstream, local, early):
    up = upstream()
    gw = gateway(conf(local), app=up)
    client = early(gw)
    client.visit()
    proc = client.send(ask())
    conn = up.accept()
    request = conn.expect()
    assert request.target == "/early" and request.get("Early-Data") == "1"
    conn.respond(b"well, early")
    out, _ = proc.communicate(timeout=WAIT)
    assert b"Early data was accepted" in out and b"well, early" in out
    assert b"Reused, TLSv1.3" in out
    assert gw.metric("postern_tls_handshakes_total", outcome="resumed") == 1


def frames(path):
    """A whole connection of HTTP/2 so far: the preface, and a request."""
    fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"),
              (":path", path)]
    head = HeadersFrame(1, Encoder().encode(fields), flags=["END_HEADERS", "END_STREAM"])
    return PREFACE + SettingsFrame(0).serialize() + head.serialize()


def read_until(proc, words):
    out = b""
    while words not in out:
        more = os.read(proc.stdout.fileno(), 65536)
        assert more, out
        out += more
    return out


def test_over_http2(gateway, upstream, local, early):
    up = upstream()
    gw = gateway(conf(local), app=up)
    client = early(gw)
    proc = client.start("-sess_out", client.session, alpn="h2")
    proc.stdin.write(frames("/fixed"))
    proc.stdin.flush()
    read_until(proc, b"hello")
    proc = client.send(frames("/early"), alpn="h2")
    conn = up.accept()
    assert conn.expect().get("Early-Data") == "1"
    conn.respond(b"well, early")
    assert b"Early data was accepted" in read_until(proc, b"well, early")


def test_what_comes_behind_the_handshake_has_no_mark(gateway, upstream, local, early):
    up = upstream()
    gw = gateway(conf(local), app=up)
    client = early(gw)
    client.visit()
    proc = client.send("GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n")
    conn = up.accept()
    assert conn.expect().get("Early-Data") == "1"
    conn.respond(b"one")
    proc.stdin.write(ask("/second").encode())
    proc.stdin.flush()
    request = conn.expect()
    assert request.target == "/second" and not request.has("Early-Data")
    conn.respond(b"two")
    out, _ = proc.communicate(timeout=WAIT)
    assert b"one" in out and b"two" in out


def test_a_large_answer_to_an_early_request(gateway, upstream, local, early):
    """It begins before the client's handshake is done, and goes on behind it."""
    up = upstream()
    gw = gateway(conf(local), app=up)
    client = early(gw)
    client.visit()
    proc = client.send(ask())
    conn = up.accept()
    conn.expect()
    conn.respond(b"x" * 3000000 + b"the end")
    out, _ = proc.communicate(timeout=WAIT)
    assert b"Early data was accepted" in out and b"the end" in out


def test_425_of_a_backend_passes(gateway, upstream, local, early):
    up = upstream()
    gw = gateway(conf(local), app=up)
    client = early(gw)
    client.visit()
    proc = client.send(ask())
    conn = up.accept()
    conn.expect()
    conn.respond(b"later", status="425 Too Early")
    out, _ = proc.communicate(timeout=WAIT)
    assert b"HTTP/1.1 425 Too Early" in out and b"later" in out


@pytest.mark.parametrize("request_text", [
    ask(method="POST", more="Content-Length: 0\r\n"),
    ask(method="DELETE"),
    ask(method="PURGE"),
    ask().replace("Connection: close", "Connection: upgrade\r\nUpgrade: websocket"),
])
def test_what_does_harm_is_refused(gateway, upstream, local, early, request_text):
    gw = gateway(conf(local), app=upstream())
    client = early(gw)
    client.visit()
    proc = client.send(request_text)
    proc.stdin.close()
    line = gw.wait_log(reason="client.too_early")[0]
    assert line["status"] == 425 and line["upstream"] is None


def test_plugins_do_not_see_it(gateway, upstream, local, early):
    up = upstream()
    gw = gateway(conf(local, route='rate_limit { rate = "100/s" }'), app=up)
    client = early(gw)
    client.visit()
    out, _ = client.send(ask()).communicate(timeout=WAIT)
    assert b"HTTP/1.1 425" in out and b"client.too_early" in out
    assert b"RateLimit" not in out  # it was not even counted


@pytest.mark.parametrize("options", ["", "early_data = false"])
def test_off_unless_asked_for(gateway, upstream, local, early, options):
    up = upstream()
    gw = gateway(conf(local, early=options), app=up)
    client = early(gw)
    out = client.visit()
    assert b"Max Early Data: 0" in out
    proc = client.start("-sess_in", client.session)
    proc.stdin.write(ask().encode())
    proc.stdin.flush()
    conn = up.accept()
    assert not conn.expect().has("Early-Data")
    conn.respond(b"well")
    assert b"well" in proc.communicate(timeout=WAIT)[0]


def test_who_offers_none_is_served_as_ever(gateway, upstream, local, early):
    up = upstream()
    gw = gateway(conf(local), app=up)
    client = early(gw)
    assert b"Max Early Data: 16384" in client.visit()
    proc = client.start("-sess_in", client.session)
    proc.stdin.write(ask(method="POST", more="Content-Length: 2\r\n").encode() + b"ok")
    proc.stdin.flush()
    conn = up.accept()
    request = conn.expect()
    assert request.body == b"ok" and not request.has("Early-Data")
    conn.respond(b"well")
    assert b"well" in proc.communicate(timeout=WAIT)[0]


def test_too_much_of_it(gateway, upstream, local, early):
    """More than the session allows: the connection ends, the next one is served."""
    gw = gateway(conf(local), app=upstream())
    client = early(gw)
    client.visit()
    proc = client.send(ask(more="X: " + "x" * 40000 + "\r\n"))
    proc.communicate(timeout=WAIT)
    client.visit()


def test_faults(tmp_path):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "https" { listen = {"127.0.0.1:1"} tls {\nearly_data = maybe\n} }\n'
                    'route "all" { respond { body = "x" } }\n')
    status, out, _ = run("-t", "-c", str(file))
    assert status == 1 and f"{file}:2: tls.early_data is maybe" in out, out


