"""WebSockets to backends that speak HTTP/2 (RFC 8441), from clients of both versions."""

import base64
import hashlib
import os
import threading

import pytest
from hyperframe.frame import WindowUpdateFrame

from backend2 import Backend2
from conftest import HTTP
from gateway import own_host
from test_errors import check
from test_h2 import h2  # noqa: F401
from wire import WAIT
from wire2 import CANCEL, INTERNAL_ERROR

CONNECT = {8: 1}  # SETTINGS_ENABLE_CONNECT_PROTOCOL
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
ASK = ("GET /chat?x=1 HTTP/1.1\r\nHost: test.example\r\nConnection: Upgrade\r\n"
       f"Upgrade: websocket\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n"
       "Sec-WebSocket-Protocol: talk\r\n\r\n")


def conf(more="", timeouts=""):
    return HTTP + f'''
upstream "app" {{ server "@app@" {{}} protocol = h2  pool {{ warm = 0 }} {more}
  timeouts {{ {timeouts} }} }}
route "all" {{ path = "/{{rest...}}"  upstream = app }}
'''


@pytest.fixture
def pair2(gateway, opened):
    def make(settings=CONNECT, **options):
        up = Backend2(own_host(), settings)
        opened.append(up)
        return gateway(conf(**options), app=up), up

    return make


def taken(up):
    """The next extended CONNECT: (connection, stream, fields)."""
    conn = up.accept()
    stream, fields = conn.asked(body=False)
    assert fields[":method"] == "CONNECT" and fields[":protocol"] == "websocket"
    assert not conn.stream(stream).ended
    return conn, stream, fields


def upgraded(gw, up):
    """A client of HTTP/1 and a backend, with a tunnel between them."""
    client = gw.client()
    client.send(ASK)
    conn, stream, fields = taken(up)
    assert fields[":path"] == "/chat?x=1" and fields[":scheme"] == "http"
    assert fields[":authority"] == "test.example"
    assert fields["sec-websocket-version"] == "13" and fields["sec-websocket-protocol"] == "talk"
    assert not {"host", "connection", "upgrade", "sec-websocket-key", "te", "content-length",
                "transfer-encoding"} & fields.keys()
    conn.head(stream, 200, [("sec-websocket-protocol", "talk")])
    response = client.response()
    assert response.status == 101 and response.get("Upgrade") == "websocket"
    assert response.get("Connection").lower() == "upgrade"
    digest = hashlib.sha1((KEY + GUID).encode()).digest()
    assert response.get("Sec-WebSocket-Accept") == base64.b64encode(digest).decode()
    assert response.get("Sec-WebSocket-Protocol") == "talk"
    assert not response.has("Content-Length") and not response.has("Transfer-Encoding")
    return client, conn, stream


def test_from_http1(pair2):
    gw, up = pair2()
    client, conn, stream = upgraded(gw, up)
    client.send(b"\x81\x02hi")
    conn.until(lambda: conn.stream(stream).body == b"\x81\x02hi", "the client's bytes")
    conn.body(stream, b"\x81\x03you", end=False)
    assert client.read_exact(5) == b"\x81\x03you"
    client.half_close()
    conn.until(lambda: conn.stream(stream).ended, "END_STREAM")
    conn.body(stream, b"last")
    assert client.read_to_end() == b"last"
    line = gw.wait_log()[0]
    assert line["status"] == 101 and line["reason"] is None and line["proto"] == "HTTP/1.1"
    assert line["upstream_status"] == 101
    conn.ping()
    assert conn.stream(stream).reset is None


def test_the_backend_ends_first(pair2):
    gw, up = pair2()
    client, conn, stream = upgraded(gw, up)
    conn.body(stream, b"bye")
    assert client.read_to_end() == b"bye"
    client.send(b"still here")
    client.half_close()
    conn.until(lambda: conn.stream(stream).ended, "END_STREAM")
    assert conn.stream(stream).body == b"still here"
    conn.ping()
    assert conn.stream(stream).reset is None
    assert gw.wait_log()[0]["reason"] is None


class Window:
    """What the gateway lets the backend send on a stream."""

    def __init__(self, conn, stream):
        self.conn, self.stream, self.taken = conn, stream, 0

    def given(self):
        return self.conn.settings[4] + sum(
            frame.window_increment for frame in self.conn.frames
            if isinstance(frame, WindowUpdateFrame) and frame.stream_id == self.stream)

    def take(self, n):
        self.taken += n
        self.conn.until(lambda: self.given() >= self.taken, "a window")


def test_much_in_both_directions(pair2):
    """More than any window or buffer holds."""
    gw, up = pair2()
    client, conn, stream = upgraded(gw, up)
    data = os.urandom(1 << 20)
    sender = threading.Thread(target=client.send, args=(data,))
    sender.start()
    conn.until(lambda: len(conn.stream(stream).body) == len(data), "all of it")
    assert conn.stream(stream).body == data
    sender.join(WAIT)
    window = Window(conn, stream)
    got = b""
    for at in range(0, len(data), 16384):
        window.take(16384)
        conn.send(conn.data_frame(stream, data[at:at + 16384], False))
        got += client.read_exact(16384)
    assert got == data


def test_from_http2(pair2, h2):  # noqa: F811
    gw, up = pair2()
    client = h2(gw)
    stream = client.request(fields=[(":method", "CONNECT"), (":protocol", "websocket"),
                                    (":scheme", "http"), (":authority", "test.example"),
                                    (":path", "/chat"), ("sec-websocket-version", "13")],
                            end=False)
    conn, inner, fields = taken(up)
    assert fields[":path"] == "/chat" and "sec-websocket-key" not in fields
    conn.head(inner, 200)
    head = client.head(stream)
    assert head.status == 200 and head.get("sec-websocket-accept") is None
    client.body(stream, b"there", end=False)
    conn.until(lambda: conn.stream(inner).body == b"there", "bytes")
    conn.body(inner, b"back", end=False)
    client.until(lambda: client.stream(stream).body == b"back", "bytes")
    client.body(stream, b"")
    conn.until(lambda: conn.stream(inner).ended, "END_STREAM")
    conn.body(inner, b"!")
    assert client.response(stream).body == b"back!"
    assert gw.wait_log()[0]["status"] == 101


def test_the_client_leaves(pair2):
    gw, up = pair2()
    client, conn, stream = upgraded(gw, up)
    client.reset()
    conn.expect_reset(stream, CANCEL)
    conn.ping()  # the connection lives on
    assert gw.wait_log()[0]["reason"] == "client.abort"
    other = gw.client()
    other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    number, _ = conn.asked()
    conn.answer(number, b"ok")
    assert other.response().body == b"ok"


@pytest.mark.parametrize("how", ["reset", "close"])
def test_the_backend_leaves(pair2, how):
    gw, up = pair2()
    client, conn, stream = upgraded(gw, up)
    if how == "reset":
        conn.reset(stream, INTERNAL_ERROR)
    else:
        conn.close()
    client.expect_closed()
    assert gw.wait_log()[0]["reason"] == "upstream.reset"


def test_settings_that_come_late(pair2):
    """Whether extended CONNECT is taken is known when the server has spoken, and not before."""
    gw, up = pair2()
    client = gw.client()
    client.send(ASK)
    conn = up.accept(settings=None)
    conn.until(lambda: conn.settings, "SETTINGS")
    assert not conn.streams
    conn.hello(CONNECT)
    stream, fields = conn.asked(body=False)
    assert fields[":protocol"] == "websocket"
    conn.head(stream, 200)
    assert client.response().status == 101


@pytest.mark.parametrize("settings", [{}, {8: 0}])
def test_a_server_that_takes_none(pair2, settings):
    gw, up = pair2(settings)
    client = gw.client()
    client.send(ASK)
    conn = up.accept()
    conn.ping()
    check(gw, client.response(), 502, "upstream.websocket")
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")  # the connections live on
    number, fields = conn.asked()
    assert fields[":method"] == "GET"
    conn.answer(number, b"ok")
    assert client.response().body == b"ok"
    assert gw.wait_log(reason="upstream.websocket")[0]["status"] == 502
    assert gw.metric("postern_upstream_server_up") == 1


@pytest.mark.parametrize("status", [403, 404, 301])
def test_it_is_refused(pair2, status):
    gw, up = pair2()
    client = gw.client()
    client.send(ASK)
    conn, stream, _ = taken(up)
    conn.answer(stream, b"no", status)
    response = client.response()
    assert response.status == status and response.body == b"no"
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    number, _ = conn.asked()
    conn.answer(number, b"ok")
    assert client.response().body == b"ok"


def test_without_a_key(pair2):
    gw, up = pair2()
    client = gw.client()
    client.send(ASK.replace(f"Sec-WebSocket-Key: {KEY}\r\n", ""))
    up.accept().ping()
    check(gw, client.response(), 400, "bad_request.upgrade")


def test_other_upgrades_are_not_asked_for(pair2):
    gw, up = pair2()
    client = gw.client()
    client.send(ASK.replace("websocket", "tea"))
    conn = up.accept()
    number, fields = conn.asked()
    assert fields[":method"] == "GET" and ":protocol" not in fields
    conn.answer(number, b"plain")
    assert client.response().body == b"plain"


def test_nobody_says_anything(pair2):
    gw, up = pair2(timeouts="idle = 200ms")
    client, conn, stream = upgraded(gw, up)
    client.expect_closed()
    conn.expect_reset(stream, CANCEL)
    assert gw.wait_log()[0]["reason"] == "upstream.timeout_idle"


def test_a_tunnel_of_http1_has_the_same_limit(gateway, upstream):
    up = upstream()
    gw = gateway(conf(timeouts="idle = 200ms").replace("protocol = h2", ""), app=up)
    client = gw.client()
    client.send(ASK)
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
              "Upgrade: websocket\r\n\r\n")
    assert client.response().status == 101
    for _ in range(8):  # who talks stays
        client.send(b"x")
        assert conn.read_exact(1) == b"x"
        conn.send(b"y")
        assert client.read_exact(1) == b"y"
    client.expect_closed()
    conn.expect_closed()
    assert gw.wait_log()[0]["reason"] == "upstream.timeout_idle"
