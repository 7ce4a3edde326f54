"""Malformed requests: the status and the reason, the connection closed, no backend touched."""

import contextlib

import pytest

H = b"Host: test\r\n"
CASES = {
    # name: (bytes, status, reason)
    "no_version": (b"GET /\r\n" + H + b"\r\n", 400, "bad_request.line"),
    "two_blanks": (b"GET  / HTTP/1.1\r\n" + H + b"\r\n", 400, "bad_request."),
    "bad_method": (b"G(T / HTTP/1.1\r\n" + H + b"\r\n", 400, "bad_request.method"),
    "relative_target": (b"GET x HTTP/1.1\r\n" + H + b"\r\n", 400, "bad_request.target"),
    "fragment": (b"GET /a#b HTTP/1.1\r\n" + H + b"\r\n", 400, "bad_request.target"),
    "connect": (b"CONNECT a:1 HTTP/1.1\r\n" + H + b"\r\n", 400, "bad_request."),
    "bare_lf": (b"GET / HTTP/1.1\n" + H + b"\r\n", 400, "bad_request.line_ending"),
    "bare_cr": (b"GET / HTTP/1.1\r\nHost: te\rst\r\n\r\n", 400, "bad_request."),
    "nul": (b"GET / HTTP/1.1\r\n" + H + b"X: a\0b\r\n\r\n", 400, "bad_request.field_value"),
    "blank_before_colon": (b"GET / HTTP/1.1\r\nHost : test\r\n\r\n", 400, "bad_request.field_name"),
    "empty_name": (b"GET / HTTP/1.1\r\n" + H + b": x\r\n\r\n", 400, "bad_request.field_name"),
    "folding": (b"GET / HTTP/1.1\r\n" + H + b"X: a\r\n b\r\n\r\n", 400, "bad_request.folding"),
    "no_host": (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_request.host"),
    "two_hosts": (b"GET / HTTP/1.1\r\n" + H + H + b"\r\n", 400, "bad_request.host"),
    "bad_host": (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "bad_request.host"),
    "userinfo_in_host": (b"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", 400, "bad_request.host"),
    "length_and_coding": (b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 3\r\n"
                          b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_request.framing"),
    "two_lengths": (b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
                    400, "bad_request.content_length"),
    "length_list": (b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 3, 3\r\n\r\nabc", 400,
                    "bad_request.content_length"),
    "length_sign": (b"POST / HTTP/1.1\r\n" + H + b"Content-Length: +3\r\n\r\nabc", 400,
                    "bad_request.content_length"),
    "length_hex": (b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0x3\r\n\r\nabc", 400,
                   "bad_request.content_length"),
    "length_overflow": (b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 99999999999999999999\r\n\r\n",
                        400, "bad_request.content_length"),
    "unknown_coding": (b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: gzip\r\n\r\n", 501,
                       "bad_request.coding"),
    "coding_twice": (b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked, chunked\r\n\r\n",
                     None, "bad_request."),
    "coding_on_10": (b"POST / HTTP/1.0\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
                     "bad_request.transfer_encoding"),
    "version_20": (b"GET / HTTP/2.0\r\n" + H + b"\r\n", 505, "bad_request.version"),
    "version_12": (b"GET / HTTP/1.2\r\n" + H + b"\r\n", 505, "bad_request.version"),
    "not_http": (b"GET / HTXP/1.1\r\n" + H + b"\r\n", 400, "bad_request."),
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64), 400, "bad_request.tls"),
    "http2_preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r_", 400, "bad_request.http2"),
    "upgrade_malformed": (b"GET / HTTP/1.1\r\n" + H + b"Connection: upgrade\r\nUpgrade: a b\r\n\r\n",
                          400, "bad_request.upgrade"),
}


@pytest.mark.parametrize("name", CASES)
def test_malformed_request_is_refused(shared, name):
    gw, up = shared
    data, status, reason = CASES[name]
    client = gw.client()
    known = len(gw.log_lines())
    client.send(data)
    response = client.response()
    if status is None:
        assert response.status in (400, 501)
    else:
        assert response.status == status, response.body
    assert response.get("Content-Type") == "application/problem+json"
    assert response.get("Connection").lower() == "close"
    client.expect_closed()
    lines = gw.wait_log(known + 1)[known:]
    assert lines[0]["reason"].startswith(reason), lines[0]
    assert lines[0]["status"] == response.status
    up.expect_no_connection(0.02)


BODIES = {
    "not_hex": b"xyz\r\n",
    "minus": b"-1\r\n",
    "prefix": b"0x3\r\nabc\r\n",
    "bare_lf_behind_size": b"3\nabc\r\n0\r\n\r\n",
    "too_much_data": b"3\r\nabcd\r\n0\r\n\r\n",
    "overflow": b"ffffffffffffffff1\r\n",
    "endless_extension": b"3;" + b"x" * 4000 + b"\r\nabc\r\n",
}


@pytest.mark.parametrize("name", BODIES)
def test_malformed_chunk_is_refused(shared, name):
    gw, up = shared
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n" + BODIES[name])
    response = client.response()
    assert response.status == 400
    client.expect_closed()
    gw.wait_log(reason="bad_request.chunk")


def test_malformed_trailer_is_refused(shared):
    gw, up = shared
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
                b"0\r\nbad trailer\r\n\r\n")
    assert client.response().status == 400
    client.expect_closed()
    gw.wait_log(reason="bad_request.trailer")


def test_what_follows_a_malformed_request_is_never_read(shared):
    gw, up = shared
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost : test\r\n\r\nGET /smuggled HTTP/1.1\r\n" + H + b"\r\n")
    assert client.response().status == 400
    client.expect_closed()
    assert not [line for line in gw.log_lines() if line["path"] == "/smuggled"]


RUBBISH = {
    "noise": b"\x00\x01\x02 this is not HTTP at all\r\n\r\n",
    "http09": b"<html>hi</html>",
    "bad_status": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "status_99": b"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n",
    "bad_field": b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
    "two_lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok.",
    "length_and_coding": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
                         b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "bare_lf": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "gzip_coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx",
    "http2": b"HTTP/2.0 200 OK\r\n\r\n",
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_from_a_backend_is_502_and_its_connection_ends(pair, name):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(RUBBISH[name])
    if name in ("http09", "ssh"):
        with contextlib.suppress(OSError):  # it may have been refused by its first bytes
            conn.half_close()
    response = client.response()
    assert response.status == 502
    conn.expect_closed()
    assert gw.wait_log()[0]["reason"] == "upstream.protocol"
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")  # the client's own connection is fine
    conn = up.accept()
    conn.expect()
    conn.respond(b"healthy again")
    assert client.response().body == b"healthy again"


def test_endless_head_from_a_backend_is_502(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 0\r\n\r\n")
    conn = up.accept()
    conn.expect()
    try:
        conn.send(b"HTTP/1.1 200 OK\r\n" + b"X-Filler: %s\r\n" % (b"x" * 1000) * 2000)
    except AssertionError:
        pass  # closed while we were at it, as it should
    assert client.response().status == 502


def test_bytes_behind_an_answer_end_the_connection(pair):
    """They may be the start of a split answer: never given to the next client."""
    gw, up = pair
    client = gw.client()
    client.send(b"GET /1 HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"
              b"Content-Length: 6\r\n\r\nforged")
    assert client.response().body == b"ok"
    conn.expect_closed()
    client.send(b"GET /2 HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(b"real")
    assert client.response().body == b"real"


def test_answer_nobody_asked_for_ends_the_connection(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET /1 HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged")
    conn.expect_closed()
    client.send(b"GET /2 HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(b"real")
    assert client.response().body == b"real"
