"""HTTP/2 clients at war: each flood ends its connection with ENHANCE_YOUR_CALM within a
thousand frames, is counted, and costs little meanwhile."""

import struct

import pytest

from backend import Backend
from conftest import HTTP, ONE
from gateway import own_host, until
from test_h2 import OWN, h2  # noqa: F401
from test_h2_rules import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING,
                           PRIORITY, RST, SETTINGS, WINDOW, block, frame, setting)
from wire import Closed
from wire2 import ENHANCE_YOUR_CALM, NO_ERROR

QUICK = HTTP.replace("listen =", "timeouts { header = 1s  body = 1s  idle = 1s  write = 1s  rate = 0 }  listen =")


@pytest.fixture
def warred(gateway, opened):
    back = Backend(own_host())
    opened.append(back)
    return gateway(ONE + OWN, app=back), back


def reset_at_once(c, stream):
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block(c, path="/")) + \
        frame(RST, 0, stream, bytes(4))


def made(c, stream, fault):
    return frame(HEADERS, END_HEADERS, stream, block(c, path="/")) + fault(c, stream)


# kind -> what one round is (the client, an odd stream of its own)
FLOODS = {
    "reset": reset_at_once,
    "fault by window overflow": lambda c, s: made(
        c, s, lambda c, s: frame(WINDOW, 0, s, b"\x7f\xff\xff\xff") * 2),
    "fault by second HEADERS": lambda c, s: made(
        c, s, lambda c, s: frame(HEADERS, END_HEADERS, s, c.block_of([("a", "b")]))),
    "fault by too much DATA": lambda c, s: frame(
        HEADERS, END_HEADERS, s, block(c, path="/", method="POST",
                                       extra=[("content-length", "1")])) +
    frame(DATA, 0, s, b"abc"),
    "fault by fields": lambda c, s: frame(
        HEADERS, END_HEADERS | END_STREAM, s, block(c, extra=[("connection", "x")])),
    "ping": lambda c, s: frame(PING, 0, 0, bytes(8)),
    "settings": lambda c, s: frame(SETTINGS, 0, 0),
    "priority": lambda c, s: frame(PRIORITY, 0, s + 2, b"\0\0\0\1\x05"),
    "priority by PRIORITY_UPDATE": lambda c, s: frame(
        0x10, 0, 0, struct.pack(">I", s) + b"u=1"),
    "window_update": lambda c, s: frame(WINDOW, 0, 0, b"\0\0\0\1"),
    "unknown": lambda c, s: frame(0xfa, 0, 0),
}


@pytest.mark.parametrize("name", FLOODS)
def test_flood(warred, h2, name):  # noqa: F811
    gw, back = warred
    client = h2(gw)
    client.ping()
    kind = name.split(" ")[0]
    before = gw.rss_kib()
    stream = client.take_id()
    try:
        for n in range(1000):
            client.raw(FLOODS[name](client, stream))
            stream += 2
            if n % 20 == 0:
                client.ping()  # what it has done so far has had its effect
    except Closed:
        pass
    client.expect_goaway(ENHANCE_YOUR_CALM)
    gw.wait_metric(1, "postern_http2_floods_total", listener="http", kind=kind)
    assert gw.rss_kib() - before < 32 << 10
    assert back.count <= 2 * 128
    assert h2(gw).get("/own").status == 200


def test_empty_data(warred, h2):  # noqa: F811
    gw, _ = warred
    for empty in (frame(DATA, 0, 1), frame(DATA, 8, 1, b"\x03\0\0\0")):
        client = h2(gw)
        client.request(method="POST", end=False)
        for _ in range(1000):
            client.raw(empty)
        client.expect_goaway(ENHANCE_YOUR_CALM)
    gw.wait_metric(2, "postern_http2_floods_total", kind="empty_data")
    assert gw.wait_log(2, reason="client.flood")


def test_continuation(warred, h2):  # noqa: F811
    gw, _ = warred
    client = h2(gw)
    client.raw(frame(HEADERS, END_STREAM, 1, block(client)))
    for _ in range(1000):
        client.raw(frame(CONTINUATION, 0, 1, client.block_of([("a", "b")])))
    client.expect_goaway(ENHANCE_YOUR_CALM)
    gw.wait_metric(1, "postern_http2_floods_total", kind="continuation")


def test_acks_that_nobody_reads(warred, h2):  # noqa: F811
    gw, _ = warred
    client = h2(gw, rcvbuf=4096)
    before = gw.rss_kib()
    client.sock.settimeout(2)
    try:
        for _ in range(100000):
            client.sock.sendall(frame(PING, 0, 0, bytes(8)) * 100)
    except OSError:
        pass  # it has been sent away
    until(lambda: gw.metric("postern_http2_floods_total"), "it was counted")
    assert gw.rss_kib() - before < 32 << 10


def test_hpack_bomb(warred, h2):  # noqa: F811
    """One entry of 4,000 bytes in the table, and 8,000 times its index."""
    gw, _ = warred
    client = h2(gw)
    before = gw.rss_kib()
    first = client.block_of([*client.fields("/own"), ("x-bomb", "b" * 4000)])
    client.raw(frame(HEADERS, END_STREAM, 1, first + b"\xbe" * 8000) +
               frame(CONTINUATION, END_HEADERS, 1, b"\xbe" * 8000))
    client.expect_goaway(ENHANCE_YOUR_CALM)
    gw.wait_metric(1, "postern_http2_floods_total", kind="hpack")
    assert gw.rss_kib() - before < 4 << 10


def test_honest_resets_are_free(warred, h2):  # noqa: F811
    """Behind each whole answer, as some clients do."""
    gw, _ = warred
    client = h2(gw)
    for _ in range(500):
        stream = client.request("/own")
        assert client.response(stream).status == 200
        client.reset(stream, NO_ERROR)
    client.ping()
    assert not client.goaway
    assert gw.metric("postern_http2_floods_total") == 0


def test_honest_download_may_update_its_windows(gateway, opened, h2):  # noqa: F811
    body = b"x" * (24 << 20)
    back = Backend(own_host(), answer=lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(body), body))
    opened.append(back)
    gw = gateway(ONE, app=back)
    client = h2(gw)
    assert client.get("/").body == body
    assert sum(f.type == WINDOW for f in client.frames) >= 1 and not client.goaway


def test_streams_whose_windows_stay_shut(gateway, opened, h2):  # noqa: F811
    """Much is asked for and nothing taken: little is held, and it ends in time."""
    body = b"x" * (8 << 20)
    back = Backend(own_host(), answer=lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(body), body))
    opened.append(back)
    gw = gateway(ONE.replace(HTTP, QUICK), app=back)
    client = h2(gw, settings={4: 0}, window=False)
    before = gw.rss_kib()
    streams = [client.request() for _ in range(100)]
    for stream in streams:
        client.head(stream)
    assert gw.rss_kib() - before < 32 << 10
    for stream in streams:
        client.until(lambda: client.stream(stream).reset is not None, "its end")
    assert {x["reason"] for x in gw.wait_log(100)} == {"client.timeout_write"}


def test_reader_that_stalls(gateway, opened, h2):  # noqa: F811
    body = b"x" * (32 << 20)
    back = Backend(own_host(), answer=lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(body), body))
    opened.append(back)
    gw = gateway(ONE.replace(HTTP, QUICK), app=back)
    client = h2(gw, settings={4: (1 << 31) - 1}, window=False, rcvbuf=4096)
    client.raw(frame(WINDOW, 0, 0, b"\x7f\xff\0\0"))
    for _ in range(10):
        client.request()
    assert {x["reason"] for x in gw.wait_log(10)} == {"client.timeout_write"}


def test_window_of_a_byte(gateway, opened, h2):  # noqa: F811
    back = Backend(own_host(), answer=lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\n" +
                   b"y" * 600)
    opened.append(back)
    gw = gateway(ONE, app=back)
    client = h2(gw, settings={4: 1}, window=False)
    stream = client.request()
    client.until(lambda: client.stream(stream).body, "the first byte")
    for _ in range(599):  # each byte that comes pays for the next
        had = len(client.stream(stream).body)
        client.raw(frame(WINDOW, 0, stream, b"\0\0\0\1"))
        client.until(lambda: len(client.stream(stream).body) > had, "a byte")
    assert client.response(stream).body == b"y" * 600


# ---- what takes too long

def test_head_that_drips(gateway, h2):  # noqa: F811
    gw = gateway(QUICK + OWN)
    client = h2(gw)
    client.ping()
    client.raw(frame(HEADERS, END_STREAM, 1, block(client)))
    client.expect_goaway(NO_ERROR)
    line = gw.wait_log()[0]
    assert line["status"] == 408 and line["reason"] == "client.timeout_head"


def test_body_that_stops(gateway, upstream, h2):  # noqa: F811
    up = upstream()
    gw = gateway(ONE.replace(HTTP, QUICK), app=up)
    client = h2(gw)
    stream = client.request(method="POST", end=False)
    client.body(stream, b"abc", end=False)
    response = client.response(stream)
    assert response.status == 408 and b"client.timeout_body" in response.body
    client.expect_reset(stream, NO_ERROR)


def test_idle_connection_is_told_goodbye(gateway, h2):  # noqa: F811
    gw = gateway(QUICK + OWN)
    client = h2(gw)
    assert client.get("/own").status == 200
    client.expect_goaway(NO_ERROR)
    client.close()
    until(lambda: gw.metric("postern_downstream_connections") == 0, "nothing is left of it")


def test_body_too_large(gateway, upstream, h2):  # noqa: F811
    up = upstream()
    gw = gateway(ONE.replace("listen =", "limits { body_bytes = 10 }  listen ="), app=up)
    client = h2(gw)
    response = client.get("/", method="POST", end=False, headers=[("content-length", "11")])
    assert response.status == 413
    stream = client.request(method="POST", end=False)
    client.body(stream, b"x" * 11, end=False)
    response = client.response(stream)
    assert response.status == 413 and b'"limit":10,"actual":11' in response.body


# ---- the last request

def test_requests_per_connection(gateway, h2):  # noqa: F811
    gw = gateway(HTTP.replace("listen =", "limits { requests_per_connection = 3 }  listen =") + OWN)
    client = h2(gw)
    for _ in range(3):
        assert client.get("/own").status == 200
    client.expect_goaway(NO_ERROR)
    assert client.goaway.last_stream_id == 5


def drains(gw, up, client, act):
    """A request under way when it begins, and one sent before the notice was seen."""
    first = client.request("/first")
    conn = up.accept()
    conn.expect()
    act()
    client.until(lambda: client.goaway, "the notice")
    assert client.goaway.last_stream_id == (1 << 31) - 1
    return first, conn


@pytest.mark.parametrize("how", ["stop", "reload"])
def test_drain_loses_no_stream(gateway, upstream, h2, how):  # noqa: F811
    up = upstream()
    gw = gateway(ONE, app=up)
    client = h2(gw)
    client.acks = False
    first, conn = drains(gw, up, client, lambda: gw.signal(15) if how == "stop" else gw.reload(
        ONE.replace("@http@", "@other@")))
    second = client.request("/second")  # it has not heard of the last one yet
    conn2 = up.accept()
    conn2.expect()
    client.acks = True
    for c in (conn2, conn):
        c.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert client.response(second).body == b"ok" and client.response(first).body == b"ok"
    client.expect_goaway(NO_ERROR)
    assert client.goaway.last_stream_id == second
    if how == "stop":
        assert gw.wait_exit() == 0


def test_drain_that_takes_too_long(gateway, upstream, h2):  # noqa: F811
    up = upstream()
    gw = gateway("drain_timeout = 300ms\n" + ONE, app=up)
    client = h2(gw)
    stream = client.request()
    up.accept().expect()
    gw.signal(15)
    response = client.response(stream)
    assert response.status == 503 and b'"reason":"draining"' in response.body
    client.read_all()
    assert gw.wait_exit() == 0


def test_proxy_header_in_front(gateway, upstream, h2):  # noqa: F811
    up = upstream()
    gw = gateway(ONE.replace("listen =", "proxy_protocol = true  listen ="), app=up)
    client = h2(gw, before=b"PROXY TCP4 203.0.113.9 192.0.2.1 1000 80\r\n")
    client.request()
    assert up.accept().expect().get("X-Forwarded-For") == "203.0.113.9"
