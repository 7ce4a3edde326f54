"""Operators take servers out and put them back."""

import json
import threading
from urllib.parse import quote

import pytest

from conftest import HTTP
from gateway import own_host, until
from nameserver import Nameserver
from test_health import served_by, states
from wire import Client

TWO = HTTP + '''
upstream "app" { server "@s0@" {}  server "@s1@" {}  pool { warm = 2 } }
route "all" { path = "/{rest...}"  upstream = app }
'''


def post(gw, path, method="POST", headers=""):
    client = Client.to(gw.address("admin"))
    try:
        client.send(f"{method} {path} HTTP/1.1\r\nHost: admin\r\n{headers}Connection: close\r\n\r\n")
        return client.response(method)
    finally:
        client.close()


def drain(gw, server, upstream="app", what="drain"):
    response = post(gw, f"/upstreams/{quote(upstream, safe='')}/{quote(str(server), safe='')}/{what}")
    assert response.status == 200, response.body
    return json.loads(response.body)


def ready(gw, server, upstream="app"):
    return drain(gw, server, upstream, "ready")


def test_drain_and_ready(gateway, backend):
    names = {"s0": backend("s0"), "s1": backend("s1")}
    gw = gateway("workers = 2\n" + TWO, **names)
    assert served_by(gw) == {"s0", "s1"}
    said = drain(gw, names["s1"])
    assert said["name"] == "app" and [s["state"] for s in said["servers"]] == ["up", "draining"]
    assert served_by(gw) == {"s0"}
    until(lambda: not names["s1"].open, "its idle connections are closed, and not opened anew")
    server = gw.upstream("app")[1]
    assert server["why"] == "drained by an operator" and server["idle"] == 0
    assert gw.metric("postern_upstream_server_up", server=str(names["s1"])) == 0
    gw.wait_stderr(r"is drained by an operator; 1 of 2 servers are left")
    drain(gw, names["s1"])  # twice is once
    ready(gw, names["s1"])
    until(lambda: states(gw) == ["up", "up"], "back")
    assert gw.upstream("app")[1]["idle"] == 2, "warm before the first request"
    assert served_by(gw) == {"s0", "s1"}
    ready(gw, names["s1"])
    gw.wait_stderr(r"is put back by an operator")


def test_what_it_has_is_finished(gateway, upstream, backend):
    up, other = upstream(), backend("s1")
    gw = gateway(TWO.replace("warm = 2", "warm = 0"), s0=up, s1=other)
    client = gw.client()
    client.send(b"GET /slow HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    drain(gw, up)
    assert served_by(gw) == {"s1"}
    conn.respond(b"finished")
    assert client.response().body == b"finished"
    conn.expect_closed()
    assert states(gw) == ["draining", "up"]


def test_all_drained(gateway, backend):
    names = {"s0": backend("s0"), "s1": backend("s1")}
    gw = gateway(TWO.replace("pool {", "panic = use_all pool {"), **names)
    for name in names.values():
        drain(gw, name)
    response = gw.get()
    assert response.status == 503
    assert response.body.count(b"is drained by an operator") == 2, "even in a panic"
    ready(gw, names["s0"])
    assert gw.get().status == 200


def test_stays_over_reloads(gateway, backend):
    names = {"s0": backend("s0"), "s1": backend("s1")}
    gw = gateway(TWO, **names)
    drain(gw, names["s1"])
    for text in (TWO, TWO.replace("warm = 2", "warm = 1"), TWO + 'upstream "x" { server "@s1@" {} }\n'):
        gw.reload(text)
        assert states(gw) == ["up", "draining"]
        assert served_by(gw) == {"s0"}
    assert gw.upstream("x")[0]["state"] == "up", "the same address elsewhere is another server"
    gw.reload(TWO.replace('server "@s1@" {}', ""))
    gw.reload(TWO)
    assert states(gw) == ["up", "up"], "what the file had no more comes as new"


def test_a_name_stands_for_all_its_addresses(gateway, backend, opened):
    first = backend("first")
    port = int(first.address.rsplit(":", 1)[1])
    host = own_host()
    ns = Nameserver(host)
    opened.append(ns)
    ns.say("app.test", [host])
    text = f'resolver = "{ns}"\n' + HTTP + f'''
upstream "app" {{ server "app.test:{port}" {{}}  server "@other@" {{}} }}
route "all" {{ path = "/{{rest...}}"  upstream = app }}
'''
    other = backend("other")
    gw = gateway(text, other=other)
    drain(gw, f"app.test:{port}")
    assert states(gw) == ["draining", "up"]
    head, last = host.rsplit(".", 1)
    second = f"{head}.{(int(last) + 1) % 250 + 1}"
    ns.say("app.test", [host, second])
    until(lambda: len(states(gw)) == 3, "the new address", 30)
    by_address = {s["address"]: s["state"] for s in gw.upstream("app")}
    assert by_address == {str(first): "draining", f"{second}:{port}": "draining", str(other): "up"}
    ready(gw, str(first))  # one of its addresses
    until(lambda: {s["address"]: s["state"] for s in gw.upstream("app")}[str(first)] == "up", "up")
    assert {s["address"]: s["state"] for s in gw.upstream("app")}[f"{second}:{port}"] == "draining"


def test_a_unix_socket_with_and_without_escapes(gateway, upstream):
    up = upstream(unix=True)
    gw = gateway(HTTP + 'upstream "a/b c" { server "@s0@" {} }\n'
                 'route "all" { path = "/{rest...}"  upstream = "a/b c" }', s0=up)
    drain(gw, up, "a/b c")
    assert gw.upstream("a/b c")[0]["state"] == "draining"
    assert post(gw, f"/upstreams/a%2Fb%20c/{up}/ready").status == 200
    until(lambda: gw.upstream("a/b c")[0]["state"] == "up", "up")


@pytest.mark.parametrize("path, status, part", [
    ("/upstreams/nobody/x/drain", 404, 'There is no such upstream; there are "app"'),
    ("/upstreams/app/10.9.9.9:1/drain", 404, 'Upstream "app" has no such server; it has 127.'),
    ("/upstreams/app/10.9.9.9:1/stop", 404, "POST /upstreams/NAME/SERVER/drain"),
    ("/upstreams/app/drain", 404, "POST /upstreams/NAME/SERVER/drain"),
    ("/upstreams/%00/x/drain", 404, "There is no such upstream"),
    ("/upstreams/%zz%/x/drain", 404, "There is no such upstream"),
    ('/upstreams/%22%0a<script>/x/drain', 404, "There is no such upstream"),
])
def test_unknown_ones(gateway, backend, path, status, part):
    gw = gateway(TWO, s0=backend("s0"), s1=backend("s1"))
    response = post(gw, path)
    assert response.status == status
    assert response.get("Content-Type") == "application/problem+json"
    assert part in json.loads(response.body)["detail"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_only_post(gateway, backend, method):
    s0 = backend("s0")
    gw = gateway(TWO, s0=s0, s1=backend("s1"))
    response = post(gw, f"/upstreams/app/{s0}/drain", method)
    assert response.status == 405 and response.get("Allow") == "POST"
    assert states(gw) == ["up", "up"]


def test_a_web_page_gives_no_orders(gateway, backend):
    s0 = backend("s0")
    gw = gateway(TWO, s0=s0, s1=backend("s1"))
    response = post(gw, f"/upstreams/app/{s0}/drain", headers="Origin: http://evil.example\r\n")
    assert response.status == 403
    assert states(gw) == ["up", "up"]


@pytest.mark.threads
def test_back_and_forth_under_load(gateway, backend):
    names = {"s0": backend("s0"), "s1": backend("s1")}
    gw = gateway("workers = 2\n" + TWO, **names)
    bad, stop = [], threading.Event()

    def load():
        client = gw.client()
        while not stop.is_set():
            response = client.get()
            if response.status != 200:
                bad.append(response.body)

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            drain(gw, names["s0"])
            ready(gw, names["s0"])
            drain(gw, names["s1"])
            ready(gw, names["s1"])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not bad, bad[:3]
    until(lambda: states(gw) == ["up", "up"], "all back")
