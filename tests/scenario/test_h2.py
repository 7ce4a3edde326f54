"""HTTP/2 in front: requests, answers, and what goes over to HTTP/1."""

import threading

import pytest
from hyperframe.frame import SettingsFrame, WindowUpdateFrame

from backend import Backend
from conftest import HTTP, ONE
from gateway import own_host
from wire2 import INTERNAL_ERROR, NO_ERROR, Client2

OWN = 'route "own" { path = "/own"  respond { status = 200  body = "hello" } }\n'


@pytest.fixture
def h2(opened):
    def make(gw, name="http", **options):
        client = Client2(gw.address(name), **options)
        opened.append(client)
        return client
    return make


def take(up):
    """The next connection and the request on it."""
    conn = up.accept()
    return conn, conn.expect()


def send_what_fits(conn, data):
    """Until nobody takes more for a while; how much that was."""
    sent = 0
    conn.sock.settimeout(0.5)
    try:
        while sent < len(data):
            sent += conn.sock.send(data[sent:sent + 65536])
    except TimeoutError:
        pass
    conn.sock.settimeout(15)
    return sent


def test_request_and_answer(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request("/a/b?c=d", headers=[("user-agent", "tester"), ("x-one", "1"),
                                                 ("x-one", "2")])
    conn, request = take(up)
    assert request.start == "GET /a/b?c=d HTTP/1.1"
    assert request.get("Host") == "test.example"
    assert request.get("User-Agent") == "tester"
    assert request.all("X-One") == ["1", "2"]
    assert request.get("Via") == "2.0 postern"
    assert not request.has("Content-Length") and not request.has("Transfer-Encoding")
    conn.send("HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nX-Up: yes\r\nConnection: x-hop\r\n"
              "X-Hop: 1\r\nKeep-Alive: timeout=5\r\n\r\nhello")
    response = client.response(stream)
    assert response.status == 200 and response.body == b"hello"
    assert response.get("x-up") == "yes" and response.get("content-length") == "5"
    assert not {"connection", "keep-alive", "x-hop"} & {n for n, _ in response.final}
    line = gw.wait_log()[0]
    assert line["proto"] == "HTTP/2.0" and line["status"] == 200 and line["bytes_out"] == 5
    assert line["host"] == "test.example" and line["user_agent"] == "tester"


def test_many_requests_at_a_time(gateway, opened, h2):
    back = Backend(own_host(), answer=lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                   % (len(r.target), r.target.encode()))
    opened.append(back)
    gw = gateway(ONE, app=back)
    client = h2(gw)
    streams = {client.request(f"/{n}"): f"/{n}" for n in range(100)}
    for stream, target in streams.items():
        assert client.response(stream).body == target.encode()
    assert len(gw.wait_log(100)) == 100


def test_request_body_with_length(pair, h2):
    gw, up = pair
    client = h2(gw)
    body = bytes(range(256)) * 2000
    stream = client.request(method="POST", end=False,
                            headers=[("content-length", str(len(body)))])
    client.raw(WindowUpdateFrame(0, 1 << 20).serialize())
    sent = 0
    conn = up.accept()
    while sent < len(body):  # within the window that the gateway gives
        allowed = window_left(client, stream, sent)
        part = body[sent:sent + min(16384, allowed)]
        sent += len(part)
        client.send(client.data_frame(stream, part, end=sent == len(body)))
    request = conn.expect()
    assert request.get("Content-Length") == str(len(body)) and request.body == body
    conn.send("HTTP/1.1 204 No Content\r\n\r\n")
    assert client.response(stream).status == 204
    assert gw.wait_log()[0]["bytes_in"] == len(body)


def window_left(client, stream, sent):
    """Waits until the stream's window is open."""
    def left():
        grown = sum(f.window_increment for f in client.frames
                    if isinstance(f, WindowUpdateFrame) and f.stream_id == stream)
        return client.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, 0) + grown - sent
    client.until(lambda: left() > 0, "room in the stream's window")
    return left()


def test_request_body_without_length_is_chunked(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request(method="PUT", end=False)
    client.send(client.data_frame(stream, b"abc", end=False))
    client.send(client.data_frame(stream, b"def", end=True, pad=20))
    conn, request = take(up)
    assert request.is_chunked and request.body == b"abcdef"
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response(stream).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_bodiless_post_says_length_zero(pair, h2, method):
    gw, up = pair
    client = h2(gw)
    stream = client.request(method=method)
    conn, request = take(up)
    assert request.get("Content-Length") == "0"
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response(stream).status == 200


def test_trailers_both_ways(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request(method="POST", end=False, headers=[("te", "trailers")])
    client.send(client.data_frame(stream, b"body", end=False),
                client.headers_frame([("x-sum", "1"), ("content-length", "4"),
                                      ("authorization", "no")], stream))
    conn, request = take(up)
    assert request.body == b"body"
    assert [(n.lower(), v) for n, v in request.trailers] == [("x-sum", "1")]
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"
              "X-Up-Sum: 2\r\nHost: evil\r\n\r\n")
    response = client.response(stream)
    assert response.body == b"abc" and response.trailers == [("x-up-sum", "2")]
    assert "transfer-encoding" not in dict(response.final)


def test_cookies_are_joined(pair, h2):
    gw, up = pair
    client = h2(gw)
    client.request(headers=[("cookie", "a=1"), ("x-other", "y"), ("cookie", "b=2"),
                            ("cookie", "c=3")])
    _, request = take(up)
    assert request.all("Cookie") == ["a=1; b=2; c=3"] and request.get("X-Other") == "y"


@pytest.mark.parametrize("method, answer, status, body", [
    ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", 200, b""),
    ("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nETag: \"a\"\r\n\r\n", 304, b""),
    ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b""),
    ("GET", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", 200, b"until the end"),
])
def test_answers_without_body_and_until_close(pair, h2, method, answer, status, body):
    gw, up = pair
    client = h2(gw)
    stream = client.request(method=method)
    conn, _ = take(up)
    conn.send(answer)
    conn.close()
    response = client.response(stream)
    assert response.status == status and response.body == body
    if method == "HEAD":
        assert response.get("content-length") == "10"
    client.ping()  # the connection lives on


def test_interim_responses(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request()
    conn, _ = take(up)
    conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
              "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    response = client.response(stream)
    assert response.heads[0] == [(":status", "103"), ("link", "</a>")]
    assert response.status == 200 and response.body == b"ok"


def test_expect_100(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request(method="POST", end=False,
                            headers=[("expect", "100-continue"), ("content-length", "2")])
    client.until(lambda: client.stream(stream).heads, "100")
    assert client.stream(stream).heads == [[(":status", "100")]]
    client.body(stream, b"hi")
    conn, request = take(up)
    assert request.body == b"hi" and not request.has("Expect")
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response(stream).status == 200


def test_answer_before_the_requests_end(gateway, h2):
    gw = gateway(HTTP + OWN)
    client = h2(gw)
    stream = client.request("/own", method="POST", end=False)
    response = client.response(stream)
    assert response.status == 200 and response.body == b"hello"
    client.expect_reset(stream, NO_ERROR)
    client.body(stream, b"x" * 1000)  # what is under way is not an error
    assert client.get("/own").status == 200


def test_client_cancels(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request()
    conn, _ = take(up)
    client.reset(stream)
    conn.expect_closed()  # the backend hears of it
    line = gw.wait_log()[0]
    assert line["status"] == 499 and line["reason"] == "client.abort"


def test_client_disappears(pair, h2):
    gw, up = pair
    client = h2(gw)
    client.request()
    client.request()
    conns = [take(up)[0] for _ in range(2)]
    client.close()
    for conn in conns:
        conn.expect_closed()
    assert {line["reason"] for line in gw.wait_log(2)} == {"client.abort"}


def test_backend_breaks_off(pair, h2):
    gw, up = pair
    client = h2(gw)
    stream = client.request()
    conn, _ = take(up)
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    client.until(lambda: client.stream(stream).body == b"abc", "the beginning")
    conn.close()
    client.expect_reset(stream, INTERNAL_ERROR)
    assert gw.wait_log()[0]["reason"] == "upstream.reset"


def test_answers_of_our_own(gateway, h2):
    gw = gateway(HTTP + OWN)
    client = h2(gw)
    response = client.get("/none")
    assert response.status == 404 and response.get("content-type") == "application/problem+json"
    assert b'"reason":"route.none"' in response.body
    assert client.get("/own").body == b"hello"


def test_large_answer_is_paced_by_the_window(pair, h2):
    gw, up = pair
    client = h2(gw, window=False)
    stream = client.request()
    other = client.request("/other")
    conn, _ = take(up)
    other_conn, _ = take(up)
    size = 24 << 20  # more than the kernel holds
    conn.send(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")
    taken = send_what_fits(conn, b"x" * size)
    assert taken < size
    client.until(lambda: len(client.stream(stream).body) == 65535, "a window's worth")
    client.send(WindowUpdateFrame(0, 1 << 30))
    other_conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert client.response(other).body == b"ok"  # the other stream is not held up
    client.send(WindowUpdateFrame(stream, 1 << 30))
    threading.Thread(target=conn.send, args=(b"x" * (size - taken),), daemon=True).start()
    assert len(client.response(stream, timeout=60).body) == size


def test_slow_backend_stops_its_stream_only(pair, h2):
    gw, up = pair
    client = h2(gw)
    slow = client.request("/slow", method="POST", end=False)
    up.accept()  # and reads nothing
    client.ping()
    sent = 0
    while True:  # until the gateway gives no more window: bounded
        try:
            client.until(lambda: window_now(client, slow, sent) > 0, "room", timeout=0.5)
        except TimeoutError:
            break
        n = min(16384, window_now(client, slow, sent))
        client.send(client.data_frame(slow, b"x" * n, end=False))
        sent += n
        assert sent < 64 << 20
    fast = client.request("/fast", method="POST", end=False)
    client.body(fast, b"y" * 100000)
    conn, request = take(up)
    assert request.body == b"y" * 100000
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response(fast).status == 200


def window_now(client, stream, sent):
    grown = sum(f.window_increment for f in client.frames
                if isinstance(f, WindowUpdateFrame) and f.stream_id == stream)
    return client.settings.get(SettingsFrame.INITIAL_WINDOW_SIZE, 0) + grown - sent
