"""Active health probes: who gets requests, and when."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from conftest import HTTP
from gateway import free_address, own_host, run, until
from tls import Authority, TlsUpstream, server_context

PROBES = 'health { path = "/healthz"  interval = 20ms  timeout = 2s  rise = 2  fall = 2 }'


class Sick:
    """What a backend says to probes; anything else gets its name."""

    def __init__(self, name, healthz=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"):
        self.name = name
        self.healthz = healthz
        self.probes = []

    def __call__(self, request):
        if request.target.startswith("/healthz"):
            self.probes.append(request)
            return self.healthz
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
            len(self.name), self.name.encode())


BAD = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def config(count, options=PROBES, servers="", extra=""):
    lines = "".join(f'server "@s{i}@" {{}}\n' for i in range(count))
    return HTTP + extra + f'''
upstream "app" {{ {lines} {servers} {options} pool {{ warm = 1 }} }}
route "all" {{ path = "/{{rest...}}"  upstream = app }}
'''


def make(backend, count):
    sick = [Sick(f"s{i}") for i in range(count)]
    backends = [backend(f"s{i}", sick[i]) for i in range(count)]
    return sick, {f"s{i}": backends[i] for i in range(count)}


def states(gw):
    return [server["state"] for server in gw.upstream("app")]


def wait_states(gw, *expected):
    until(lambda: states(gw) == list(expected), f"states {expected}, now {states(gw)}")


def served_by(gw, count=12):
    client = gw.client()
    names = [client.get().body.decode() for _ in range(count)]
    client.close()
    return set(names)


@pytest.mark.threads
def test_goes_down_and_comes_back(gateway, backend):
    sick, names = make(backend, 3)
    gw = gateway("workers = 2\n" + config(3), **names)
    assert states(gw) == ["up"] * 3
    assert served_by(gw) == {"s0", "s1", "s2"}
    sick[1].healthz = BAD
    wait_states(gw, "up", "down", "up")
    assert served_by(gw) == {"s0", "s2"}
    server = gw.upstream("app")[1]
    assert server["why"] == "2 probes in a row failed, the last: status 503, expected 200-399"
    assert gw.metric("postern_upstream_server_up", server=str(names["s1"])) == 0
    assert gw.metric("postern_upstream_server_up") == 2
    gw.wait_stderr(rf'warn upstream "app": server {names["s1"]} is down: 2 probes in a row failed, '
                   r"the last: status 503, expected 200-399; 2 of 3 servers are left")
    sick[1].healthz = GOOD
    wait_states(gw, "up", "up", "up")
    assert served_by(gw) == {"s0", "s1", "s2"}
    gw.wait_stderr(rf'info upstream "app": server {names["s1"]} is up: 2 probes in a row went well')
    assert gw.metric("postern_upstream_probes_total", result="status", server=str(names["s1"])) >= 2
    assert gw.metric("postern_upstream_probes_total", result="ok") >= 5
    assert len(gw.stderr.splitlines()) < 12, "one line for each change, and none for each probe"


def test_a_probe_looks_like_one(gateway, backend):
    sick, names = make(backend, 1)
    gateway(config(1, 'health { path = "/healthz?deep=1"  interval = 20ms }'), **names)
    until(lambda: sick[0].probes, "a probe")
    probe = sick[0].probes[0]
    assert (probe.method, probe.target) == ("GET", "/healthz?deep=1")
    assert probe.get("Host") == str(names["s0"])
    assert probe.get("User-Agent") == "postern-health"
    assert probe.get("Connection") == "close"


@pytest.mark.parametrize("options, host", [
    ('host = "inner.example:80"', "inner.example:80"),
    ("", "fixed.example"),
])
def test_the_host_of_probes(gateway, backend, options, host):
    sick, names = make(backend, 1)
    gateway(config(1, f'host = "fixed.example" health {{ path = "/healthz"  {options} }}'), **names)
    until(lambda: sick[0].probes, "a probe")
    assert sick[0].probes[0].get("Host") == host


@pytest.mark.parametrize("answer, why", [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot ready", 'its body (9 bytes) lacks "all well"'),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70000,
     'its body (65536 bytes were looked at) lacks "all well"'),
    (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "status 404, expected 200, 204-206"),
    (b"SSH-2.0-OpenSSH\r\n", "what it answers is not HTTP/1 (byte 0)"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nal", "its answer was not complete within 300 ms"),
    (b"", "no answer within 300 ms"),
])
def test_what_a_probe_finds(gateway, backend, answer, why):
    """The first probe decides, and is there before the first request."""
    sick, names = make(backend, 2)
    sick[1].healthz = answer
    gw = gateway(config(2, 'health { path = "/healthz"  interval = 30s  timeout = 300ms '
                        'body = "all well"  status = {200, "204-206"} }'), **names)
    sick[0].healthz = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhere all is all well"
    assert gw.upstream("app")[1]["why"] == "its first probe failed: " + why


def test_a_body_is_found_over_pieces(gateway, upstream):
    up = upstream()
    results = []

    def serve():
        conn = up.accept()
        conn.expect()
        conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b"aab", b"aaba", b"abaab", b"aac"):
            conn.send(b"%x\r\n%s\r\n" % (len(piece), piece))
        conn.send(b"0\r\n\r\n")
        results.append(True)

    thread = threading.Thread(target=serve)
    thread.start()
    gw = gateway(config(1, 'health { path = "/healthz"  interval = 30s  timeout = 5s '
                        'body = "aabaabaac" }').replace("warm = 1", "warm = 0"), s0=up)
    thread.join()
    assert results and states(gw) == ["up"]


def test_tcp_only(gateway, backend):
    address = free_address(own_host())
    up = backend("s0")
    gw = gateway(config(1, 'health { interval = 20ms  rise = 1  fall = 1  timeout = 2s }',
                        'server "@late@" {}'), s0=up, late=address)
    wait_states(gw, "up", "down")
    assert "cannot connect: Connection refused" in gw.upstream("app")[1]["why"]
    assert up.count == 0, "it is not asked anything"
    late = backend("late", port=int(address.rsplit(":", 1)[1]))
    wait_states(gw, "up", "up")
    assert served_by(gw) == {"s0", "late"}
    late.stop()
    wait_states(gw, "up", "down")


def test_unix_sockets_and_proxy_headers(gateway, upstream):
    up = upstream(unix=True)
    seen = []

    def serve():
        conn = up.accept()
        seen.append(conn.read_until(b"\r\n\r\n"))
        conn.send(GOOD)

    thread = threading.Thread(target=serve)
    thread.start()
    gw = gateway(HTTP + '''upstream "app" { server "@s0@" {}  proxy_protocol = v1
        health { path = "/healthz"  interval = 30s  timeout = 5s } }
        route "all" { path = "/{rest...}"  upstream = app }''', s0=up)
    thread.join()
    assert states(gw) == ["up"]
    assert seen[0].startswith(b"PROXY UNKNOWN\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n")


def test_all_out_fails_with_the_reason_of_each(gateway, backend):
    sick, names = make(backend, 2)
    for one in sick:
        one.healthz = BAD
    gw = gateway(config(2), **names)
    response = gw.get("/x")
    assert response.status == 503 and response.get("Retry-After") == "1"
    problem = json.loads(response.body)
    assert problem["reason"] == "upstream.none"
    for name in names.values():
        assert f"{name} is down, its health probes fail" in problem["detail"]
    assert names["s0"].requests.count(("GET", "/x", 0)) == 0
    gw.wait_log(status=503, reason="upstream.none")
    sick[0].healthz = GOOD
    wait_states(gw, "up", "down")
    assert gw.get("/x").status == 200


def test_clients_are_told_when_it_may_be_well_again(gateway, backend):
    """Two probes that go well, three seconds apart; of one that is drained nobody knows."""
    sick, names = make(backend, 1)
    sick[0].healthz = BAD
    gw = gateway(config(1, PROBES.replace("20ms", "3s")), **names)
    assert 3 <= int(gw.get("/x").get("Retry-After")) <= 6
    assert gw.admin(f"/upstreams/app/{names['s0']}/drain", "POST").status == 200
    assert gw.get("/x").get("Retry-After") == "1"


def test_all_out_uses_all_when_told_so(gateway, backend):
    sick, names = make(backend, 2)
    for one in sick:
        one.healthz = BAD
    gw = gateway(config(2, PROBES + "panic = use_all"), **names)
    wait_states(gw, "down", "down")
    assert served_by(gw) == {"s0", "s1"}


def test_backups_serve_while_no_primary_is_well(gateway, backend):
    sick, names = make(backend, 2)
    gw = gateway(config(1, servers='server "@s1@" { backup = true }'), **names)
    assert served_by(gw) == {"s0"}
    sick[0].healthz = BAD
    wait_states(gw, "down", "up")
    assert served_by(gw) == {"s1"}
    sick[0].healthz = GOOD
    wait_states(gw, "up", "up")
    assert served_by(gw) == {"s0"}


@pytest.mark.parametrize("balance", ["round_robin", "least_requests", "two_choices", "hash"])
def test_every_balance_steps_over(gateway, backend, balance):
    sick, names = make(backend, 3)
    sick[2].healthz = BAD
    gw = gateway(config(3, PROBES + f"balance = {balance} hash_on = path"), **names)
    client = gw.client()
    assert {client.get(f"/{i}").body for i in range(30)} == {b"s0", b"s1"}


def test_state_survives_reloads(gateway, backend):
    sick, names = make(backend, 2)
    sick[1].healthz = BAD
    text = config(2)
    gw = gateway(text, **names)
    assert states(gw) == ["up", "down"]
    opened = names["s0"].opened
    others = [text.replace("interval = 20ms", "interval = 30s"),  # only how it is watched
              text.replace("interval = 20ms", "interval = 30s") + "\n",
              text.replace("interval = 20ms", "interval = 30s").replace('"@s1@" {}',
                                                                        '"@s1@" { weight = 3 }')]
    for other in others:
        gw.reload(other)
        assert states(gw) == ["up", "down"]
        assert served_by(gw) == {"s0"}
    assert names["s0"].opened - opened < 12, "pools are kept when only the probes change"
    sick[1].healthz = GOOD
    gw.reload(text)  # probed again at once, and often
    wait_states(gw, "up", "up")
    sick[1].healthz = BAD
    wait_states(gw, "up", "down")
    gw.reload(text.replace(PROBES, ""))
    wait_states(gw, "up", "up")
    gw.wait_stderr("is up: it is not probed any more")


def test_a_new_server_is_probed_before_it_gets_requests(gateway, backend):
    sick, names = make(backend, 2)
    sick[1].healthz = BAD
    gw = gateway(config(1), **names)
    gw.reload(config(2))
    assert states(gw) == ["up", "down"]
    assert served_by(gw) == {"s0"}
    assert ("GET", "/", 0) not in names["s1"].requests


def test_a_silent_server_delays_the_start_by_its_timeout_only(gateway, upstream):
    up = upstream()
    gw = gateway(config(1, 'health { path = "/healthz"  interval = 30s  timeout = 200ms }')
                 .replace("warm = 1", "warm = 0"), s0=up)
    assert states(gw) == ["down"]
    assert "no answer within 200 ms" in gw.upstream("app")[0]["why"]


def test_a_recovered_server_is_warm_before_it_gets_requests(gateway, backend):
    sick, names = make(backend, 2)
    gw = gateway(config(2).replace("warm = 1", "warm = 4"), **names)
    sick[1].healthz = BAD
    wait_states(gw, "up", "down")
    before = gw.upstream("app")[1]["reused"]
    fresh = gw.upstream("app")[1]["opened"]
    sick[1].healthz = GOOD
    wait_states(gw, "up", "up")
    server = gw.upstream("app")[1]
    assert server["idle"] == 4 and server["opened"] == fresh + 4
    assert served_by(gw) == {"s0", "s1"}
    server = gw.upstream("app")[1]
    assert server["opened"] == fresh + 4, "the first requests opened none"
    assert server["reused"] > before


def test_slow_start(gateway, backend):
    """Shares right behind its return and long after: the exact curve is a unit test's."""
    sick, names = make(backend, 2)
    gw = gateway(config(2, PROBES + "slow_start = 60s"), **names)
    client = gw.client()
    assert [client.get().body for _ in range(40)].count(b"s1") == 20, "not at the start"
    sick[1].healthz = BAD
    wait_states(gw, "up", "down")
    sick[1].healthz = GOOD
    wait_states(gw, "up", "up")
    share = [client.get().body for _ in range(200)].count(b"s1")
    assert 1 <= share <= 60, f"a tenth of its turns and a little more: {share} of 200"


def test_no_descriptor_is_left_behind(gateway, backend):
    sick, names = make(backend, 2)
    sick[1].healthz = b""  # each probe times out
    gw = gateway(config(2, 'health { path = "/healthz"  interval = 10ms  timeout = 20ms }'), **names)
    wait_states(gw, "up", "down")
    until(lambda: gw.metric("postern_upstream_probes_total", result="timeout") > 5, "probes")
    before = gw.descriptors()
    done = gw.metric("postern_upstream_probes_total")
    until(lambda: gw.metric("postern_upstream_probes_total") > done + 40, "more probes")
    assert gw.descriptors() <= before + 4


@pytest.mark.parametrize("line, expected", [
    ('health { path = "healthz" }', "health.path is healthz, expected a path"),
    ('health { path = "/a b" }', "health.path is /a b, expected a path"),
    ('health { path = "/a#b" }', "health.path is /a#b, expected a path"),
    ('health { path = "" }', "health.path is empty, expected a path"),
    ('health { type = http }', "health has no path"),
    ('health { type = tcp  path = "/x" }', "health.path has no effect with type = tcp"),
    ('health { status = 200 }', "health.status has no effect without health.path"),
    ('health { path = "/x"  status = "99" }', 'health.status has "99", expected a status'),
    ('health { path = "/x"  interval = 1ms }', "health.interval is 1ms, expected a time"),
    ('health { path = "/x"  rise = 0 }', "health.rise is 0, expected 1 to 1000"),
    ('health { path = "/x" } health {}', "health"),
    ('outlier { max_ejected = 101% }', "outlier.max_ejected is 101%, expected a share"),
    ('outlier { failures = 0 }', "outlier has neither failures nor share"),
    ('outlier { eject = 5m  max_eject = 1m }', "outlier.max_eject is 1m, expected a time"),
    ('outlier { on = {} }', "outlier.on is empty"),
    ('panic = maybe', "upstream.panic is maybe, expected fail or use_all"),
    ('server "127.0.0.1:1" {}', 'server "127.0.0.1:1" stands twice'),
])
def test_faults(tmp_path, line, expected):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\nupstream "app" { '
                    f'server "127.0.0.1:1" {{}}\n{line}\n}}\n')
    status, out, _ = run("-t", "-c", str(file))
    assert status == 1 and f"{file}:3: " in out and expected in out, out


def test_a_stopped_process_is_found(gateway, backend, tmp_path):
    """SIGSTOP: the kernel still accepts for it."""
    program = ("import http.server, sys\n"
               "class H(http.server.BaseHTTPRequestHandler):\n"
               "    protocol_version = 'HTTP/1.1'\n"
               "    def log_message(self, *a): pass\n"
               "    def do_GET(self):\n"
               "        self.send_response(200); self.send_header('Content-Length', '4')\n"
               "        self.end_headers(); self.wfile.write(b'real')\n"
               "s = http.server.ThreadingHTTPServer((sys.argv[1], 0), H)\n"
               "print(s.server_address[1], flush=True)\n"
               "s.serve_forever()\n")
    proc = subprocess.Popen([sys.executable, "-c", program, own_host()], stdout=subprocess.PIPE)
    try:
        real = f"{own_host()}:{int(proc.stdout.readline())}"
        sick, names = make(backend, 1)
        gw = gateway(config(1, PROBES.replace("2s", "500ms"), 'server "@real@" {}'), real=real,
                     **names)
        assert states(gw) == ["up", "up"]
        proc.send_signal(signal.SIGSTOP)
        wait_states(gw, "up", "down")
        assert served_by(gw) == {"s0"}
        proc.send_signal(signal.SIGCONT)
        wait_states(gw, "up", "up")
        assert served_by(gw) == {"s0", "real"}
    finally:
        os.kill(proc.pid, signal.SIGCONT)
        proc.kill()
        proc.wait()
        proc.stdout.close()


@pytest.mark.parametrize("trusted", [True, False])
def test_probes_speak_tls_as_requests_do(gateway, opened, tmp_path, trusted):
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    up = TlsUpstream(own_host(), server_context(authority.issue("localhost")))
    opened.append(up)
    seen = []

    def serve():
        if not trusted:
            up.accept_failing()
            return
        conn = up.accept()
        seen.append(conn.expect())
        conn.send(GOOD)

    thread = threading.Thread(target=serve)
    thread.start()
    ca = authority.pem if trusted else Authority(tmp_path / "other").pem
    gw = gateway(config(1, f'tls {{ ca = "{ca}"  server_name = localhost }} '
                        'health { path = "/healthz"  interval = 30s  timeout = 5s }')
                 .replace("warm = 1", "warm = 0"), s0=up)
    thread.join()
    if trusted:
        assert states(gw) == ["up"] and up.names == ["localhost"]
        assert seen[0].target == "/healthz"
    else:
        assert states(gw) == ["down"]
        assert "its first probe failed: TLS failed: " in gw.upstream("app")[0]["why"]
