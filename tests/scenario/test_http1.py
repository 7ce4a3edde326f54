"""HTTP/1.1 on both sides: framing, persistence, and bodies that cross unchanged."""

import hashlib
import os
import socket
import threading

import pytest

from conftest import HTTP, ONE
from wire import WAIT

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def test_passes_a_request_and_its_answer(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET /a/b?c=d&e HTTP/1.1\r\nHost: test\r\nX-One: 1\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.start == "GET /a/b?c=d&e HTTP/1.1"
    assert request.get("X-One") == "1"
    assert request.get("Host") == "test"
    assert request.length is None and not request.is_chunked
    conn.respond(b"hello", fields=[("X-Two", "2")])
    response = client.response()
    assert response.start == "HTTP/1.1 200 OK"
    assert response.body == b"hello" and response.length == 5
    assert response.get("X-Two") == "2"


def test_keeps_both_connections_alive(pair):
    gw, up = pair
    client = gw.client()
    conn = None
    for i in range(5):
        client.send(b"GET /%d HTTP/1.1\r\nHost: test\r\n\r\n" % i)
        conn = conn or up.accept()
        assert conn.expect().target == f"/{i}"
        conn.respond(b"%d" % i)
        assert client.response().body == b"%d" % i
    up.expect_no_connection(0.1)


def test_answers_pipelined_requests_in_order(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: test\r\n\r\n" % i for i in range(8)))
    conn = up.accept()
    for i in range(8):
        assert conn.expect().target == f"/{i}"
        conn.respond(b"answer %d" % i)
    assert [client.response().body for _ in range(8)] == [b"answer %d" % i for i in range(8)]


def test_pipelined_bodies_do_not_run_into_the_next_request(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST /1 HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nabcd"
                b"POST /2 HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"3\r\nefg\r\n0\r\n\r\nGET /3 HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    seen = []
    for _ in range(3):
        request = conn.expect()
        seen.append((request.target, request.body))
        conn.respond()
        client.response()
    assert seen == [("/1", b"abcd"), ("/2", b"efg"), ("/3", b"")]


def test_head_arriving_byte_by_byte(pair):
    gw, up = pair
    client = gw.client()
    client.send_slowly(b"POST /slow HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nxyz")
    conn = up.accept()
    request = conn.expect()
    assert (request.target, request.body) == ("/slow", b"xyz")
    conn.send_slowly(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert client.response().body == b"abc"


def test_an_empty_line_before_a_request_is_stepped_over(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"\r\n" + GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    assert client.response().status == 200


def test_each_request_may_have_its_empty_line(pair):
    gw, up = pair
    client = gw.client()
    conn = None
    for i in range(3):
        client.send(b"\r\nGET /%d HTTP/1.1\r\nHost: test\r\n\r\n" % i)
        conn = conn or up.accept()
        assert conn.expect().target == f"/{i}"
        conn.respond()
        assert client.response().status == 200


def test_http10_client_gets_a_closed_connection(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.version == "HTTP/1.1"
    assert request.has("Host")
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    response = client.head()
    assert not response.has("Transfer-Encoding"), "a 1.0 client knows no chunks"
    client.read_body(response)
    assert response.body == b"hello"
    client.expect_closed()


def test_http10_keep_alive(pair):
    gw, up = pair
    client = gw.client()
    conn = None
    for _ in range(2):
        client.send(b"GET / HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n")
        conn = conn or up.accept()
        conn.expect()
        conn.respond(b"hi")
        response = client.response()
        assert response.body == b"hi"
        assert (response.get("Connection") or "").lower() == "keep-alive"


def test_connection_close_from_the_client(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
    conn = up.accept()
    assert not conn.expect().has("Connection"), "hop-by-hop"
    conn.respond()
    response = client.response()
    assert response.get("Connection").lower() == "close"
    client.expect_closed()


def test_connection_close_from_the_backend_stays_there(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond(fields=[("Connection", "close")])
    conn.close()
    response = client.response()
    assert not response.has("Connection")
    client.send(GET)  # the client's connection lives on; the backend's is another
    conn = up.accept()
    conn.expect()
    conn.respond(b"second")
    assert client.response().body == b"second"


def test_answer_that_ends_with_its_connection_is_chunked_for_the_client(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
    conn.close()
    response = client.response()
    assert response.is_chunked and response.body == b"until the end"
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    assert client.response().status == 200


def test_http10_backend(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.0 200 OK\r\n\r\nold")
    conn.close()
    response = client.response()
    assert response.version == "HTTP/1.1" and response.body == b"old"


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385, 300000])
def test_bodies_of_any_size_cross_unchanged_with_length(pair, size):
    gw, up = pair
    body = os.urandom(size)
    client = gw.client()
    client.send(b"POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % size + body)
    conn = up.accept()
    request = conn.expect()
    assert request.length == size and request.body == body
    conn.respond(body[::-1])
    response = client.response()
    assert response.length == size and response.body == body[::-1]


@pytest.mark.parametrize("sizes", [[], [1], [5, 1, 16384], [70000, 3, 70000], [1] * 200])
def test_bodies_of_any_size_cross_unchanged_in_chunks(pair, sizes):
    gw, up = pair
    parts = [os.urandom(n) for n in sizes]
    coded = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    client = gw.client()
    client.send(b"PUT /x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n" + coded)
    conn = up.accept()
    request = conn.expect()
    assert request.is_chunked and request.body == b"".join(parts)
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + coded)
    response = client.response()
    assert response.is_chunked and response.body == b"".join(parts)


def test_chunk_extensions_do_not_cross(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"PUT / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"3;name=value\r\nabc\r\n0;last\r\n\r\n")
    conn = up.accept()
    assert conn.expect().body == b"abc"  # read_chunked refuses an extension
    conn.respond()
    client.response()


def test_body_arrives_at_the_backend_while_it_is_sent(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"5\r\nfirst\r\n")
    conn = up.accept()
    head = conn.expect_head()
    assert head.is_chunked
    assert b"first" in conn.read_until(b"first\r\n")
    client.send(b"6\r\nsecond\r\n")
    assert b"second" in conn.read_until(b"second\r\n")
    client.send(b"0\r\n\r\n")
    assert conn.read_until(b"0\r\n\r\n").endswith(b"0\r\n\r\n")
    conn.respond()
    assert client.response().status == 200


@pytest.mark.undisturbed
def test_answer_arrives_at_the_client_while_it_is_sent(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n")
    assert client.head().status == 200, "the head does not wait for the body"
    for i in range(3):
        conn.send(b"7\r\nevent %d\r\n" % i)
        client.read_until(b"event %d\r\n" % i)
    conn.send(b"0\r\n\r\n")
    client.read_until(b"0\r\n\r\n")


def test_answer_before_the_request_body_is_complete(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf.")
    conn = up.accept()
    assert conn.expect_head().length == 10
    conn.read_exact(5)
    conn.respond(b"too early", status="403 Forbidden")
    response = client.response()
    assert (response.status, response.body) == (403, b"too early")


FIVE = 5 << 20


def test_five_mebibytes_to_a_slow_backend(pair):
    gw, up = pair
    body = os.urandom(FIVE)
    before = gw.rss_kib()
    client = gw.client()
    head = b"POST /big HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n" % FIVE
    sender = threading.Thread(target=client.send, args=(head + body,))
    sender.start()
    conn = up.accept()
    conn.expect_head()
    got = hashlib.sha256()
    for _ in range(64):
        got.update(conn.read_exact(FIVE // 64))
    sender.join(WAIT)
    assert got.digest() == hashlib.sha256(body).digest()
    conn.respond(b"done")
    assert client.response().body == b"done"
    assert gw.rss_kib() - before < 4096, "the body was held, not passed on"


def test_five_mebibytes_to_a_slow_client(pair):
    gw, up = pair
    body = os.urandom(FIVE)
    before = gw.rss_kib()
    client = gw.client(receive_buffer=16384)
    client.send(GET)
    conn = up.accept()
    conn.expect()
    sender = threading.Thread(target=conn.respond, args=(body,))
    sender.start()
    response = client.head()
    got = hashlib.sha256()
    for _ in range(64):
        got.update(client.read_exact(FIVE // 64))
    sender.join(WAIT)
    assert response.length == FIVE
    assert got.digest() == hashlib.sha256(body).digest()
    assert gw.rss_kib() - before < 4096, "the body was held, not passed on"


def test_a_client_that_does_not_read_stops_the_backend(pair):
    """What is buffered is bounded: the backend's writes block after the sockets' own buffers."""
    gw, up = pair
    client = gw.client(receive_buffer=8192)
    client.send(GET)
    conn = up.accept()
    conn.expect()
    before = gw.rss_kib()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    conn.sock.settimeout(1.0)
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    sent = 0
    try:
        while sent < 64 << 20:
            sent += conn.sock.send(chunk)
    except socket.timeout:
        pass
    assert sent < 64 << 20, "64 MiB went into a gateway whose client reads nothing"
    assert gw.rss_kib() - before < 4096


def test_expect_continue(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n"
                b"Expect: 100-continue\r\n\r\n")
    conn = None
    # Either the gateway says 100 itself, or it passes the expectation on and the backend does.
    client.sock.settimeout(1)
    try:
        first = client.head()
    except AssertionError:
        conn = up.accept()
        assert conn.expect_head().get("Expect").lower() == "100-continue"
        conn.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        client.sock.settimeout(WAIT)
        first = client.head()
    client.sock.settimeout(WAIT)
    assert first.status == 100
    client.send(b"body")
    if conn is None:
        conn = up.accept()
        conn.expect_head()
    assert conn.read_exact(4) == b"body"
    conn.respond(b"fine")
    response = client.response(interim=True)
    assert response.status == 200 and response.body == b"fine", "exactly one 100"


def test_expect_continue_refused_by_the_backend(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n"
                b"Expect: 100-continue\r\n\r\n")
    conn = up.accept()
    conn.expect_head()
    conn.respond(b"no", status="401 Unauthorized")
    assert client.response().status == 401


def test_unknown_expectation_is_417(pair):
    gw, up = pair
    response = gw.get(fields=[("Expect", "200-maybe")])
    assert response.status == 417
    assert gw.wait_log(reason="client.expect")[0]["status"] == 417
    up.expect_no_connection(0.1)


def test_interim_answers_are_passed_on(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
    hints = client.head()
    assert hints.status == 103 and hints.get("Link") == "</a.css>; rel=preload"
    assert not hints.has("Content-Length") and not hints.has("Transfer-Encoding")
    conn.send(b"HTTP/1.1 102 Processing\r\n\r\n")
    assert client.head().status == 102
    conn.respond(b"final")
    assert client.response(interim=True).body == b"final"


def test_http10_clients_get_no_interim_answers(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.0\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    conn.respond(b"final")
    assert client.response(interim=True).status == 200


def test_head_has_a_length_and_no_body(pair):
    gw, up = pair
    client = gw.client()
    for _ in range(2):
        client.send(b"HEAD / HTTP/1.1\r\nHost: test\r\n\r\n")
        conn = up.conns[0] if up.conns else up.accept()
        assert conn.expect().method == "HEAD"
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
        response = client.response("HEAD")
        assert response.length == 12345 and response.body == b""


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_answers_without_body(pair, status):
    gw, up = pair
    client = gw.client()
    conn = None
    for _ in range(2):
        client.send(GET)
        conn = conn or up.accept()
        conn.expect()
        conn.send(f"HTTP/1.1 {status}\r\nETag: \"x\"\r\n\r\n")
        response = client.response()
        assert response.start == f"HTTP/1.1 {status}" and response.get("ETag") == '"x"'
        assert not response.has("Transfer-Encoding")


def test_304_keeps_its_length_for_information(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n")
    response = client.response()
    assert response.status == 304 and response.length == 99
    client.send(GET)
    conn.expect()
    conn.respond(b"next")
    assert client.response().body == b"next"


def test_trailers_cross_both_ways(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n"
                b"Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.body == b"abc" and request.trailers == [("X-Sum", "1")]
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
              b"2\r\nok\r\n0\r\nX-Back: 2\r\n\r\n")
    response = client.response()
    assert response.body == b"ok" and response.trailers == [("X-Back", "2")]


def test_trailers_cannot_smuggle_framing_or_routing(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"3\r\nabc\r\n0\r\nHost: evil\r\nContent-Length: 5\r\nAuthorization: x\r\n"
                b"X-Fine: 1\r\n\r\n")
    conn = up.accept()
    assert conn.expect().trailers == [("X-Fine", "1")]
    conn.respond()
    client.response()


def open_tunnel(gw, up, protocol="websocket"):
    client = gw.client()
    client.send(f"GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\n"
                f"Upgrade: {protocol}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.get("Upgrade") == protocol
    assert request.get("Connection").lower() == "upgrade"
    assert request.has("Sec-WebSocket-Key")
    conn.send(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
              f"Upgrade: {protocol}\r\nSec-WebSocket-Accept: x\r\n\r\n")
    response = client.response()
    assert response.status == 101 and response.get("Upgrade") == protocol
    assert response.get("Connection").lower() == "upgrade"
    return client, conn


def test_upgrade_makes_a_tunnel(pair):
    gw, up = pair
    client, conn = open_tunnel(gw, up)
    data = os.urandom(200000)
    for a, b in ((client, conn), (conn, client)):
        sender = threading.Thread(target=a.send, args=(data,))
        sender.start()
        assert b.read_exact(len(data)) == data
        sender.join(WAIT)
    client.send(b"\0\xff not HTTP \r\n\r\n")
    assert conn.read_exact(16) == b"\0\xff not HTTP \r\n\r\n"
    client.close()
    conn.expect_closed()
    conn.close()
    assert gw.wait_log(status=101)[0]["path"] == "/chat"


def test_tunnel_bytes_right_behind_the_101(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
              b"server speaks first")
    assert client.head().status == 101
    assert client.read_exact(19) == b"server speaks first"


def test_half_close_in_a_tunnel(pair):
    gw, up = pair
    client, conn = open_tunnel(gw, up)
    client.send(b"last words")
    client.half_close()
    assert conn.read_exact(10) == b"last words"
    conn.expect_closed()
    conn.send(b"the answer still comes")
    conn.close()
    assert client.read_to_end() == b"the answer still comes"


def test_upgrade_refused_by_the_backend(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(b"no", status="400 Bad Request")
    assert client.response().body == b"no"
    client.send(GET)
    conn.expect()
    conn.respond(b"next")
    assert client.response().body == b"next"


def test_101_that_nobody_asked_for_is_an_error(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
    assert client.response().status == 502
    conn.expect_closed()
    gw.wait_log(reason="upstream.protocol")


def test_client_that_half_closes_still_gets_its_answer(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    client.half_close()
    conn = up.accept()
    conn.expect()
    conn.respond(b"still here")
    assert client.response().body == b"still here"
    client.expect_closed()


def test_client_that_resets_ends_the_backend_connection(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    client.reset()
    conn.expect_closed()
    line = gw.wait_log(reason="client.abort")[0]
    assert line["status"] == 499


def test_client_that_leaves_during_the_answer(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000))
    client.head()
    client.reset()
    conn.expect_closed()
    line = gw.wait_log(reason="client.abort")[0]
    assert line["upstream_status"] == 200


def test_backend_that_breaks_off_its_answer_breaks_the_clients(pair):
    """The status line is out: all that is left is to make the loss visible."""
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
    assert client.head().length == 100
    conn.close()
    try:
        assert client.read_to_end() == b"only this"
    except ConnectionResetError:
        pass
    gw.wait_log(reason="upstream.reset")


def test_broken_off_chunks_never_look_complete(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
    client.head()
    client.read_until(b"hello\r\n")
    conn.close()
    try:
        rest = client.read_to_end()
    except ConnectionResetError:
        rest = b""
    assert b"0\r\n\r\n" not in rest


def test_unix_upstream(gateway, upstream):
    up = upstream(unix=True)
    gw = gateway(ONE, app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond(b"over a unix socket")
    assert client.response().body == b"over a unix socket"
    assert gw.wait_log()[0]["server"] == str(up)


def test_unix_listener(gateway, upstream, tmp_path):
    up = upstream()
    gw = gateway(ONE, app=up, http=f"unix:{tmp_path}/front.sock")
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond(b"from a unix socket")
    assert client.response().body == b"from a unix socket"


def test_several_addresses_and_ipv6(gateway, upstream):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            six = f"[::1]:{probe.getsockname()[1]}"
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    up = upstream()
    gw = gateway('listener "http" { listen = {"@http@", "@six@"} }\n' + ONE.replace(HTTP, ""),
                 app=up, six=six)
    for name in ("http", "six"):
        client = gw.client(name)
        client.send(GET)
        conn = up.conns[0] if up.conns else up.accept()
        request = conn.expect()
        conn.respond(name.encode())
        assert client.response().body == name.encode()
    assert request.get("X-Forwarded-For") == "::1"


def test_absolute_target_names_the_host(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET http://real.example/x?y HTTP/1.1\r\nHost: real.example\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.target == "/x?y" and request.get("Host") == "real.example"
    conn.respond()
    client.response()


def test_absolute_target_takes_the_place_of_another_host(pair):
    """RFC 9112 3.2.2: routing and the backend go by the same name."""
    gw, up = pair
    client = gw.client()
    client.send(b"GET http://real.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.get("Host") == request.get("X-Forwarded-Host") == "real.example"
    conn.respond()
    client.response()


def test_unknown_methods_pass(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"BREW /pot HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    assert conn.expect().method == "BREW"
    conn.respond()
    assert client.response().status == 200


def test_options_asterisk(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n")
    # The catch-all pattern is "/{rest...}": whether it takes "*" or not, nothing crashes.
    conn = None
    try:
        conn = up.accept(1)
    except AssertionError:
        pass
    if conn:
        assert conn.expect().target == "*"
        conn.respond()
    assert client.response().status in (200, 404)


def test_requests_per_connection(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("listen =", "limits { requests_per_connection = 2 } listen ="), app=up)
    client = gw.client()
    conn = None
    for last in (False, True):
        client.send(GET)
        conn = conn or up.accept()
        conn.expect()
        conn.respond()
        response = client.response()
        assert ((response.get("Connection") or "").lower() == "close") is last
    client.expect_closed()


def test_connection_limit_of_a_listener(gateway, upstream):
    """Beyond the limit a client waits or is turned away; within it nobody notices."""
    up = upstream()
    gw = gateway(ONE.replace("listen =", "limits { connections = 2 } listen ="), app=up)
    first = gw.client()
    first.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    first.response()
    second = gw.client()
    second.send(GET)
    conn.expect()
    conn.respond()
    second.response()
    third = gw.client()
    try:
        third.send(GET)
    except AssertionError:
        pass
    up.expect_no_connection(0.3)
    first.close()
    second.close()
