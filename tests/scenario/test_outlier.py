"""Passive ejection: servers that fail requests get none for a while."""

import re

import pytest

from conftest import HTTP
from gateway import until
from test_health import served_by, states, wait_states

BAD = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"


class Moody:
    def __init__(self, name):
        self.name = name
        self.answer = None

    def __call__(self, request):
        if self.answer is not None:
            return self.answer
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
            len(self.name), self.name.encode())


def config(count, outlier, extra="", top="workers = 2\n"):
    lines = "".join(f'server "@s{i}@" {{}}\n' for i in range(count))
    return top + HTTP + f'''
upstream "app" {{ {lines} outlier {{ {outlier} }} {extra} }}
route "all" {{ path = "/{{rest...}}"  upstream = app }}
'''


def make(backend, count):
    moody = [Moody(f"s{i}") for i in range(count)]
    return moody, {f"s{i}": backend(f"s{i}", moody[i]) for i in range(count)}


def ask(gw, count):
    """Statuses; over connections of both workers."""
    clients = [gw.client() for _ in range(4)]
    statuses = [clients[i % 4].get(f"/{i}").status for i in range(count)]
    for client in clients:
        client.close()
    return statuses


@pytest.mark.threads
def test_failures_in_a_row_eject_and_time_brings_back(gateway, backend):
    moody, names = make(backend, 3)
    gw = gateway(config(3, "failures = 5  eject = 2s"), **names)
    ask(gw, 30)
    moody[1].answer = BAD
    statuses = ask(gw, 60)
    assert statuses.count(503) == 5, "the fifth was the last, over all workers"
    assert states(gw)[1] == "ejected"
    assert gw.upstream("app")[1]["why"] == "5 failures in a row, the last: status 503"
    gw.wait_stderr(rf'warn upstream "app": server {names["s1"]} is ejected for 2000 ms: 5 failures '
                   r"in a row, the last: status 503; 2 of 3 servers are left")
    assert gw.metric("postern_upstream_ejections_total", server=str(names["s1"])) == 1
    assert gw.metric("postern_upstream_server_up", server=str(names["s1"])) == 0
    moody[1].answer = None
    wait_states(gw, "up", "up", "up")
    assert served_by(gw) == {"s0", "s1", "s2"}
    gw.wait_stderr(rf'info upstream "app": server {names["s1"]} is back: its time is over')


@pytest.mark.threads
def test_clients_are_told_when_the_first_returns(gateway, backend):
    moody, names = make(backend, 2)
    gw = gateway(config(2, "failures = 1  eject = 20s  max_ejected = 100%"), **names)
    for one in moody:
        one.answer = BAD
    assert ask(gw, 2) == [503] * 2, "their own word"
    until(lambda: states(gw) == ["ejected"] * 2, "both are ejected")
    refused = gw.get("/x")
    assert refused.status == 503 and 10 <= int(refused.get("Retry-After")) <= 20


def test_the_time_grows(gateway, backend):
    moody, names = make(backend, 2)
    moody[1].answer = BAD
    gw = gateway(config(2, "failures = 1  eject = 100ms  max_eject = 300ms"), **names)
    client = gw.client()

    def often():
        client.get()
        return gw.stderr.count("is ejected") >= 4

    until(often, "four ejections")
    times = [int(ms) for ms in re.findall(r"is ejected for (\d+) ms", gw.stderr)]
    assert times[:4] == [100, 200, 300, 300]


@pytest.mark.parametrize("share, most", [("50%", 2), ("74%", 2), ("75%", 3), ("100%", 4), ("24%", 0)])
def test_no_more_than_allowed_are_ejected(gateway, backend, share, most):
    moody, names = make(backend, 4)
    for one in moody:
        one.answer = BAD
    gw = gateway(config(4, f"failures = 2  eject = 60s  max_ejected = {share}"), **names)
    ask(gw, 80)
    assert states(gw).count("ejected") == most
    assert gw.metric("postern_upstream_ejections_total") == most
    if most == 4:
        response = gw.get()
        assert response.status == 503 and b"is ejected, its requests failed" in response.body
    else:
        assert gw.get().status == 503 and gw.upstream("app")[0]["requests"] >= 2


def test_a_share_of_failures(gateway, backend):
    moody, names = make(backend, 2)
    turn = []

    def every_third(request):
        turn.append(request)
        return BAD if len(turn) % 3 == 0 else Moody("s1")(request)

    names["s1"].answer = every_third
    gw = gateway(config(2, "failures = 0  share = 30%  requests = 30  window = 10m  eject = 60s"),
                 **names)
    ask(gw, 50)  # 25 each: too few to say anything
    assert states(gw) == ["up", "up"]
    ask(gw, 40)
    assert states(gw) == ["up", "ejected"]
    assert re.fullmatch(r"1\d of 3\d requests failed, the last: status 503",
                        gw.upstream("app")[1]["why"])


def test_less_than_the_share_is_fine(gateway, backend):
    moody, names = make(backend, 2)
    turn = []

    def every_third(request):
        turn.append(request)
        return BAD if len(turn) % 3 == 0 else Moody("s1")(request)

    names["s1"].answer = every_third
    gw = gateway(config(2, "share = 40%  requests = 10  window = 10m  eject = 60s"), **names)
    ask(gw, 100)
    assert states(gw) == ["up", "up"], "and no five failures stood in a row"


@pytest.mark.parametrize("answer, on, ejected", [
    (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "", False),
    (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "on = 500", True),
    (b"HTTP/1.1 507 No\r\nContent-Length: 0\r\n\r\n", "on = 5xx", True),
    (b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n", "", True),
    (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "on = {5xx, reset}", False),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nonly", "on = reset", True),
    (b"rubbish\r\n\r\n", "on = protocol", True),
    (b"rubbish\r\n\r\n", "on = connect", False),
])
def test_what_counts(gateway, backend, answer, on, ejected):
    moody, names = make(backend, 2)
    moody[1].answer = answer
    if b"only" in answer:  # and then it hangs up
        class Cut(type(names["s1"])):
            def serve(self, sock):
                request = sock.recv(4096)
                if request:
                    self.requests.append(request)
                    sock.sendall(answer)
                self.open.discard(sock)
                sock.close()
        names["s1"].__class__ = Cut
    gw = gateway(config(2, f"failures = 3  eject = 60s {on}", "retry { attempts = 0 }"), **names)
    for _ in range(12):
        client = gw.client()
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        client.read_to_end()
    assert states(gw) == ["up", "ejected" if ejected else "up"]


def test_a_dead_server_is_ejected_and_nobody_notices(gateway, backend):
    moody, names = make(backend, 3)
    gw = gateway(config(3, "failures = 2  eject = 60s"), **names)
    ask(gw, 12)
    names["s2"].stop()
    assert ask(gw, 60) == [200] * 60
    until(lambda: states(gw)[2] in ("ejected", "down"), "out")


def test_silence_counts_by_the_routes_own_timeout(gateway, upstream, backend):
    moody, names = make(backend, 1)
    silent = upstream()
    gw = gateway(config(1, "failures = 2  eject = 60s", 'server "@silent@" {}')
                 .replace("upstream = app", "upstream = app  timeout = 100ms"), silent=silent, **names)
    statuses = ask(gw, 12)
    assert statuses.count(504) == 2
    assert states(gw) == ["up", "ejected"]


def test_the_client_is_not_the_server(gateway, upstream):
    """Clients that leave and connections that are closed while idle speak against nobody."""
    up = upstream()
    gw = gateway(config(1, "failures = 1  max_ejected = 100%  eject = 60s", top="workers = 1\n"), s0=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    client.reset()
    conn.expect_closed()
    gw.wait_log(status=499)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(b"ok")
    assert client.response().status == 200
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn.expect()
    conn.close()  # the keep-alive race: repaired
    conn = up.accept()
    conn.expect()
    conn.respond(b"ok")
    assert client.response().status == 200
    assert states(gw) == ["up"]


def test_an_ejection_survives_reloads_and_ends_with_the_option(gateway, backend):
    moody, names = make(backend, 2)
    moody[1].answer = BAD
    text = config(2, "failures = 2  eject = 600s")
    gw = gateway(text, **names)
    ask(gw, 12)
    assert states(gw) == ["up", "ejected"]
    gw.reload(text.replace('"@s0@" {}', '"@s0@" { weight = 2 }'))
    gw.reload(text.replace("failures = 2", "failures = 3"))
    assert states(gw) == ["up", "ejected"]
    gw.reload(text.replace("outlier { failures = 2  eject = 600s }", ""))
    wait_states(gw, "up", "up")
    gw.reload(text)
    ask(gw, 12)
    assert states(gw) == ["up", "ejected"], "its place is free again"
