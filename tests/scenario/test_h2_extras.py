"""HTTP/2 with real clients, priorities (RFC 9218) and websockets (RFC 8441)."""

import base64
import hashlib
import shutil
import subprocess

import pytest
from hyperframe.frame import DataFrame, WindowUpdateFrame

from backend import Backend
from backend2 import Conn2
from conftest import HTTP, ONE
from gateway import own_host
from test_h2 import OWN, h2, take  # noqa: F401
from test_h2_rules import END_STREAM, HEADERS, frame
from wire2 import CANCEL, PROTOCOL_ERROR

WS = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"),
      (":authority", "test.example"), (":path", "/chat"), ("sec-websocket-version", "13"),
      ("origin", "http://test.example")]


def upgrade(gw, up, h2):  # noqa: F811
    client = h2(gw)
    client.ping()
    assert client.settings[8] == 1
    stream = client.request(fields=WS, end=False)
    conn, request = take(up)
    assert request.start == "GET /chat HTTP/1.1"
    assert request.get("Upgrade") == "websocket"
    assert request.get("Connection").lower() == "upgrade"
    assert request.get("Sec-WebSocket-Version") == "13"
    assert not request.has("Content-Length") and not request.has("Transfer-Encoding")
    key = request.get("Sec-WebSocket-Key")
    assert len(base64.b64decode(key)) == 16
    return client, stream, conn, key


def switch(client, stream, conn, key):
    magic = (key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()
    accept = base64.b64encode(hashlib.sha1(magic).digest()).decode()
    conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
              f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: talk\r\n\r\n")
    head = client.head(stream)
    assert head.status == 200 and head.get("sec-websocket-protocol") == "talk"
    assert not {"connection", "upgrade", "sec-websocket-accept", "content-length"} & \
        {n for n, _ in head.final}


def test_websocket(pair, h2):  # noqa: F811
    gw, up = pair
    client, stream, conn, key = upgrade(gw, up, h2)
    switch(client, stream, conn, key)
    client.body(stream, b"to the backend", end=False)
    assert conn.read_exact(14) == b"to the backend"
    conn.send(b"to the client")
    client.until(lambda: client.stream(stream).body == b"to the client", "its bytes")
    client.body(stream, b"bye")  # with END_STREAM
    assert conn.read_to_end() == b"bye"
    conn.send(b"!")
    conn.close()
    assert client.response(stream).body == b"to the client!"
    assert client.stream(stream).ended
    line = gw.wait_log()[0]
    assert line["status"] == 101 and line["reason"] is None


def test_websocket_is_refused(pair, h2):  # noqa: F811
    gw, up = pair
    client, stream, conn, _ = upgrade(gw, up, h2)
    conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
    response = client.response(stream)
    assert response.status == 403 and response.body == b"no"


def test_websocket_that_the_client_resets(pair, h2):  # noqa: F811
    gw, up = pair
    client, stream, conn, key = upgrade(gw, up, h2)
    switch(client, stream, conn, key)
    client.reset(stream)
    conn.expect_closed()
    assert gw.wait_log()[0]["reason"] == "client.abort"


def test_websocket_bytes_before_the_answer(pair, h2):  # noqa: F811
    gw, up = pair
    client, stream, conn, _ = upgrade(gw, up, h2)
    client.body(stream, b"GET /smuggled HTTP/1.1\r\n\r\n", end=False)
    client.expect_reset(stream, PROTOCOL_ERROR)
    conn.expect_closed()


@pytest.mark.parametrize("fields", [
    [*WS[:1], (":protocol", "h2c"), *WS[2:]],
    [(":method", "GET"), *WS[1:]],
])
def test_other_protocols(pair, h2, fields):  # noqa: F811
    gw, _ = pair
    client = h2(gw)
    stream = client.request(fields=fields, end=False)
    answer = client.response(stream)
    assert answer.status == 400 if answer.final else answer.reset == PROTOCOL_ERROR


# ---- priorities

def sizes(requests, h2, gw, change=None):  # noqa: F811
    """The order in which the bodies of these requests come, when all wait for a window."""
    client = h2(gw, settings={4: (1 << 31) - 1}, window=False)
    streams = [client.request("/", headers=[("priority", p)] if p else []) for p in requests]
    for stream in streams:
        client.head(stream)
    client.until(lambda: sum(len(s.body) for s in client.streams.values()) == 65535, "the window")
    gw.wait_metric(0, "postern_upstream_connections", state="active") # all of all bodies is here
    if change:
        client.raw(change(streams))
    client.ping()
    before = len(client.frames)
    client.send(WindowUpdateFrame(0, (1 << 31) - 1 - 65535))
    for stream in streams:
        client.response(stream)
    return [streams.index(f.stream_id) for f in client.frames[before:]
            if isinstance(f, DataFrame) and f.data]


@pytest.fixture
def bodies(gateway, opened):
    body = b"x" * 100000
    back = Backend(own_host(), answer=lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(body), body))
    opened.append(back)
    return gateway(ONE, app=back)


def test_urgent_answers_come_first(bodies, h2):  # noqa: F811
    order = sizes(["u=5", "u=0", None, "u=2"], h2, bodies)
    ends = {i: max(k for k, v in enumerate(order) if v == i) for i in range(4)}
    assert sorted(ends, key=ends.get)[-1] == 0  # u=5 is the last
    starts = [order.index(i) for i in (3, 2, 0)]
    assert starts == sorted(starts)  # u=2, the default (3), u=5


def test_incremental_answers_share(bodies, h2):  # noqa: F811
    order = sizes(["u=3, i", "u=3, i"], h2, bodies)
    turns = sum(a != b for a, b in zip(order, order[1:]))
    assert turns > 3, order
    order = sizes(["u=3", "u=3"], h2, bodies)
    assert sum(a != b for a, b in zip(order, order[1:])) <= 2, order


def test_priority_update(bodies, h2):  # noqa: F811
    def hurry(streams):
        return frame(0x10, 0, 0, streams[1].to_bytes(4, "big") + b"u=0")
    order = sizes(["u=2", "u=5"], h2, bodies, hurry)
    assert order.index(1) == 0, order


# ---- real clients

def test_curl(gateway, opened):
    back = Backend(own_host())
    opened.append(back)
    gw = gateway(ONE, app=back)
    host, port = gw.address()
    done = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--data-binary", "@-",
                           "-w", "%{http_version} %{http_code}", f"http://{host}:{port}/"],
                          input="x" * 200000, capture_output=True, text=True, timeout=60)
    assert done.stdout == "backend2 200", done
    assert back.requests == [("POST", "/", 200000)]


def test_curl_without_prior_knowledge(gateway):
    """An offer of h2c by Upgrade is not taken; the answer comes by HTTP/1."""
    gw = gateway(HTTP + OWN)
    host, port = gw.address()
    done = subprocess.run(["curl", "-sS", "--http2", "-w", "%{http_version}",
                           f"http://{host}:{port}/own"], capture_output=True, text=True, timeout=60)
    assert done.stdout == "hello1.1", done


@pytest.mark.skipif(not shutil.which("nghttp"), reason="nghttp is not on PATH")
def test_nghttp(gateway):
    gw = gateway(HTTP + OWN)
    host, port = gw.address()
    done = subprocess.run(["nghttp", "-v", "-m", "5", f"http://{host}:{port}/own"],
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.count(":status: 200") == 5, done.stdout


@pytest.mark.skipif(not shutil.which("h2load"), reason="h2load is not on PATH")
def test_h2load(gateway):
    gw = gateway("workers = 2\n" + HTTP + OWN)
    host, port = gw.address()
    done = subprocess.run(["h2load", "-n", "3000", "-c", "10", "-m", "32",
                           f"http://{host}:{port}/own"], capture_output=True, text=True, timeout=120)
    assert "3000 succeeded, 0 failed" in done.stdout, done.stdout


def test_an_http1_client_is_shown_the_phrase_that_http2_does_not_have(gateway, backend):
    behind = gateway(ONE, app=backend())
    gw = gateway(ONE.replace("{} }", "{} protocol = h2 }", 1), app="%s:%d" % behind.address())
    client = gw.client()
    assert client.get("/").start == "HTTP/1.1 200 OK"
    assert client.get("/%2f").start == "HTTP/1.1 400 Bad Request"


# ---- heads that take several frames, on several connections at a time

def test_large_heads_of_many_connections(gateway, backend, h2):  # noqa: F811
    """None may get another's bytes, also when a client reads slowly and its frames leave one by
    one."""
    def answer(request):
        tag = request.target[1:]
        fields = "".join(f"X-{i}: {tag * 700}\r\n" for i in range(10))
        return f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {len(tag)}\r\n\r\n{tag}".encode()

    gw = gateway("workers = 1\n" + ONE, app=backend("app", answer))
    clients = [h2(gw, rcvbuf=4096) for _ in range(4)]
    streams = [[client.request(f"/{n}{k}{n}{k}") for k in range(8)]
               for n, client in enumerate(clients)]
    for k in range(8):
        for n, client in enumerate(clients):
            tag = f"{n}{k}{n}{k}"
            response = client.response(streams[n][k])
            assert response.status == 200 and response.body == tag.encode()
            assert all(response.get(f"x-{i}") == tag * 700 for i in range(10))


def test_requests_that_come_together_open_a_connection_for_the_first(gateway, upstream, h2):  # noqa: F811
    """All wait for one connection; who has it opened does not find one that was there."""
    up = upstream()
    gw = gateway(HTTP + '''upstream "app" { server "@app@" {} protocol = h2  pool { requests = 2 } }
route "all" { path = "/{rest...}"  upstream = app }''', app=up)
    client = h2(gw)
    streams = [client.take_id() for _ in range(3)]
    client.send(*(client.headers_frame(client.fields(f"/{stream}"), stream) for stream in streams))
    for count in (2, 1):
        back = Conn2(up.accept())
        for _ in range(count):
            back.answer(back.whole_request())
    assert [client.response(stream).status for stream in streams] == [200] * 3
    server = gw.upstream("app", up)
    assert (server["requests"], server["opened"], server["reused"]) == (3, 2, 1)
