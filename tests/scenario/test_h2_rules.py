"""RFC 9113 and RFC 7541 by their sections, as h2spec has them: what breaks a rule gets the
error that the rule names. With h2spec on PATH, h2spec itself."""

import shutil
import struct
import subprocess

import pytest

from backend import Backend
from conftest import HTTP, ONE
from gateway import own_host, until
from test_h2 import OWN, h2  # noqa: F401
from wire2 import (COMPRESSION_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, PREFACE,
                   PROTOCOL_ERROR, REFUSED_STREAM, STREAM_CLOSED)

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK, PADDED, PRIO = 1, 4, 1, 8, 0x20


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    from gateway import Gateway
    from wire import Upstream
    up = Upstream(own_host())
    thing = Gateway(tmp_path_factory.mktemp("own"), ONE + OWN, {"app": up})
    yield thing
    up.close()
    thing.finish()


def frame(kind, flags, stream, payload=b"", length=None):
    n = len(payload) if length is None else length
    return struct.pack(">I", n)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(ident, value):
    return struct.pack(">HI", ident, value)


def block(client, path="/own", extra=(), **more):
    return client.block_of([*client.fields(path, **more), *extra])


def head(client, stream, flags=END_HEADERS | END_STREAM, **more):
    return frame(HEADERS, flags, stream, block(client, **more))


# ---- connection errors: name -> (what is sent behind the preface, error codes)

def half_open(c):
    return head(c, 1, END_HEADERS, path="/")


CONNECTION = {
    "4.2 frame larger than allowed": (lambda c: half_open(c) + frame(DATA, 1, 1, bytes(16385)),
                                      FRAME_SIZE_ERROR),
    "4.3 header block that is no HPACK": (lambda c: frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff"),
                                          COMPRESSION_ERROR),
    "4.3 PRIORITY within a header block": (
        lambda c: frame(HEADERS, END_STREAM, 1, block(c)) + frame(PRIORITY, 0, 1, bytes(5)),
        PROTOCOL_ERROR),
    "4.3 another stream's frame within": (
        lambda c: frame(HEADERS, END_STREAM, 1, block(c)) + head(c, 3), PROTOCOL_ERROR),
    "5.1 DATA on an idle stream": (lambda c: frame(DATA, 1, 1, b"x"), PROTOCOL_ERROR),
    "5.1 RST_STREAM on an idle stream": (lambda c: frame(RST, 0, 1, bytes(4)), PROTOCOL_ERROR),
    "5.1 WINDOW_UPDATE on an idle stream": (lambda c: frame(WINDOW, 0, 1, b"\0\0\0\x64"),
                                            PROTOCOL_ERROR),
    "5.1 CONTINUATION on an idle stream": (lambda c: frame(CONTINUATION, 4, 1, block(c)),
                                           PROTOCOL_ERROR),
    "5.1.1 even stream": (lambda c: head(c, 2), PROTOCOL_ERROR),
    "5.1.1 smaller stream than before": (lambda c: head(c, 5) + head(c, 3), PROTOCOL_ERROR),
    "6.1 DATA on stream 0": (lambda c: frame(DATA, 1, 0, b"x"), PROTOCOL_ERROR),
    "6.1 padding as long as the frame": (
        lambda c: half_open(c) + frame(DATA, PADDED | 1, 1, b"\x04xxx"), PROTOCOL_ERROR),
    "6.2 HEADERS on stream 0": (lambda c: head(c, 0), PROTOCOL_ERROR),
    "6.2 padding longer than the frame": (
        lambda c: frame(HEADERS, 5 | PADDED, 1, b"\xff" + block(c)), PROTOCOL_ERROR),
    "6.3 PRIORITY on stream 0": (lambda c: frame(PRIORITY, 0, 0, bytes(5)), PROTOCOL_ERROR),
    "6.4 RST_STREAM on stream 0": (lambda c: frame(RST, 0, 0, bytes(4)), PROTOCOL_ERROR),
    "6.4 RST_STREAM of another length": (lambda c: half_open(c) + frame(RST, 0, 1, bytes(3)),
                                         FRAME_SIZE_ERROR),
    "6.5 SETTINGS ACK with content": (lambda c: frame(SETTINGS, ACK, 0, b"\0"), FRAME_SIZE_ERROR),
    "6.5 SETTINGS on a stream": (lambda c: frame(SETTINGS, 0, 1), PROTOCOL_ERROR),
    "6.5 SETTINGS of an odd length": (lambda c: frame(SETTINGS, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    "6.5.2 ENABLE_PUSH of 2": (lambda c: frame(SETTINGS, 0, 0, setting(2, 2)), PROTOCOL_ERROR),
    "6.5.2 INITIAL_WINDOW_SIZE over 2^31-1": (
        lambda c: frame(SETTINGS, 0, 0, setting(4, 1 << 31)), FLOW_CONTROL_ERROR),
    "6.5.2 MAX_FRAME_SIZE below 16384": (lambda c: frame(SETTINGS, 0, 0, setting(5, 16383)),
                                         PROTOCOL_ERROR),
    "6.5.2 MAX_FRAME_SIZE over 2^24-1": (lambda c: frame(SETTINGS, 0, 0, setting(5, 1 << 24)),
                                         PROTOCOL_ERROR),
    "6.7 PING on a stream": (lambda c: frame(PING, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "6.7 PING of another length": (lambda c: frame(PING, 0, 0, bytes(6)), FRAME_SIZE_ERROR),
    "6.8 GOAWAY on a stream": (lambda c: frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL_ERROR),
    "6.9 WINDOW_UPDATE of 0 on the connection": (lambda c: frame(WINDOW, 0, 0, bytes(4)),
                                                 PROTOCOL_ERROR),
    "6.9 WINDOW_UPDATE of another length": (lambda c: frame(WINDOW, 0, 0, bytes(3)),
                                            FRAME_SIZE_ERROR),
    "6.9.1 connection window over 2^31-1": (
        lambda c: frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 2, FLOW_CONTROL_ERROR),
    "6.10 CONTINUATION behind END_HEADERS": (
        lambda c: head(c, 1) + frame(CONTINUATION, 4, 1, b""), PROTOCOL_ERROR),
    "6.10 CONTINUATION on stream 0": (
        lambda c: frame(HEADERS, END_STREAM, 1, block(c)) + frame(CONTINUATION, 4, 0, b""),
        PROTOCOL_ERROR),
    "6.10 CONTINUATION behind DATA": (
        lambda c: half_open(c) + frame(DATA, 0, 1, b"x") + frame(CONTINUATION, 4, 1, b""),
        PROTOCOL_ERROR),
    "8.4 PUSH_PROMISE from a client": (lambda c: frame(PUSH, 4, 1, b"\0\0\0\2" + block(c)),
                                       PROTOCOL_ERROR),
    "HPACK 2.3.3 index beyond the tables": (lambda c: frame(HEADERS, 5, 1, b"\xff\x80\x01"),
                                            COMPRESSION_ERROR),
    "HPACK 4.2 size update behind a field": (
        lambda c: frame(HEADERS, 5, 1, block(c) + b"\x3f\x01"), COMPRESSION_ERROR),
    "HPACK 5.2 Huffman padding of a byte": (
        lambda c: frame(HEADERS, 5, 1, block(c) + b"\x00\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff"),
        COMPRESSION_ERROR),
    "HPACK 5.2 Huffman padding of zeros": (
        lambda c: frame(HEADERS, 5, 1, block(c) + b"\x00\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90"),
        COMPRESSION_ERROR),
    "HPACK 5.2 Huffman EOS": (
        lambda c: frame(HEADERS, 5, 1, block(c) + b"\x00\x85\xf2\xb2\x4a\x84\xff\x87\x49\x51\xff\xff\xff\xfa\x7f"),
        COMPRESSION_ERROR),
    "HPACK 6.1 index 0": (lambda c: frame(HEADERS, 5, 1, block(c) + b"\x80"), COMPRESSION_ERROR),
    "HPACK 6.3 table larger than allowed": (
        lambda c: frame(HEADERS, 5, 1, b"\x3f\xe1\xff\x03" + block(c)), COMPRESSION_ERROR),
}


@pytest.mark.parametrize("name", CONNECTION)
def test_connection_errors(own, h2, name):  # noqa: F811
    make, code = CONNECTION[name]
    client = h2(own)
    client.raw(make(client))
    client.expect_goaway(code)


@pytest.mark.parametrize("what, code", [
    (lambda c: frame(DATA, 0, 1, b"x"), STREAM_CLOSED),
    (lambda c: head(c, 1), STREAM_CLOSED),
])
def test_frames_on_a_stream_that_the_client_has_ended(own, h2, what, code):  # noqa: F811
    client = h2(own)
    assert client.get("/own").status == 200
    client.raw(what(client))
    client.expect_goaway(code)


@pytest.mark.parametrize("what", [lambda c: frame(DATA, 1, 1, b"x"), lambda c: head(c, 1)])
def test_frames_on_a_stream_that_the_client_has_reset(own, h2, what):  # noqa: F811
    client = h2(own)
    client.raw(half_open(client) + frame(RST, 0, 1, bytes(4)) + what(client))
    client.expect_goaway(STREAM_CLOSED)


def test_half_closed_stream(own, h2):  # noqa: F811
    client = h2(own)
    client.raw(head(client, 1, path="/") + frame(DATA, 1, 1, b"x"))
    client.until(lambda: client.stream(1).reset is not None or client.goaway, "an error")
    assert (client.goaway.error_code if client.goaway else client.stream(1).reset) == STREAM_CLOSED


# ---- stream errors

STREAM = {
    "6.3 PRIORITY of another length": (lambda c: half_open(c) + frame(PRIORITY, 0, 1, bytes(4)),
                                       FRAME_SIZE_ERROR),
    "6.9 WINDOW_UPDATE of 0": (lambda c: half_open(c) + frame(WINDOW, 0, 1, bytes(4)),
                               PROTOCOL_ERROR),
    "6.9.1 window over 2^31-1": (
        lambda c: half_open(c) + frame(WINDOW, 0, 1, b"\x7f\xff\xff\xff") * 2, FLOW_CONTROL_ERROR),
    "6.9.2 a stream's window over 2^31-1 by SETTINGS": (
        lambda c: half_open(c) + frame(WINDOW, 0, 1, b"\x7f\xff\0\0") +
        frame(SETTINGS, 0, 0, setting(4, 0x7fffffff)), FLOW_CONTROL_ERROR),
    "8.1 second HEADERS without END_STREAM": (
        lambda c: half_open(c) + frame(HEADERS, END_HEADERS, 1, c.block_of([("a", "b")])),
        PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", STREAM)
def test_stream_errors(own, h2, name):  # noqa: F811
    make, code = STREAM[name]
    client = h2(own)
    client.raw(make(client))
    client.until(lambda: client.stream(1).reset is not None or client.goaway, "an error")
    assert (client.goaway.error_code if client.goaway else client.stream(1).reset) == code


GOOD = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/own")]


def without(name):
    return [(n, v) for n, v in GOOD if n != name]


# Fields that are refused: reset with PROTOCOL_ERROR, or a 400 with this reason.
FIELDS = {
    "8.2.1 capitals": ([*GOOD, ("X-Test", "1")], "bad_request.fields"),
    "8.2.2 connection": ([*GOOD, ("connection", "close")], "bad_request.fields"),
    "8.2.2 keep-alive": ([*GOOD, ("keep-alive", "5")], "bad_request.fields"),
    "8.2.2 proxy-connection": ([*GOOD, ("proxy-connection", "close")], "bad_request.fields"),
    "8.2.2 transfer-encoding": ([*GOOD, ("transfer-encoding", "chunked")], "bad_request.fields"),
    "8.2.2 upgrade": ([*GOOD, ("upgrade", "h2c")], "bad_request.fields"),
    "8.2.2 te": ([*GOOD, ("te", "trailers, deflate")], "bad_request.fields"),
    "http2-settings": ([*GOOD, ("http2-settings", "AAA")], "bad_request.connection"),
    "8.3 unknown pseudo-header": ([(":test", "1"), *GOOD], "bad_request.fields"),
    "8.3 a response's pseudo-header": ([(":status", "200"), *GOOD], "bad_request.fields"),
    "8.3 behind a regular field": ([("x", "1"), *GOOD], "bad_request.fields"),
    "8.3.1 no method": (without(":method"), "bad_request.fields"),
    "8.3.1 no scheme": (without(":scheme"), "bad_request.fields"),
    "8.3.1 no path": (without(":path"), "bad_request.fields"),
    "8.3.1 no authority": (without(":authority"), "bad_request."),
    "8.3.1 empty path": ([*without(":path"), (":path", "")], "bad_request.fields"),
    "8.3.1 two methods": ([(":method", "GET"), *GOOD], "bad_request.fields"),
    "8.3.1 two schemes": ([(":scheme", "http"), *GOOD], "bad_request.fields"),
    "8.3.1 two paths": ([(":path", "/"), *GOOD], "bad_request.fields"),
    "8.3.1 two authorities": ([(":authority", "a"), *GOOD], "bad_request.fields"),
    "path that does not begin with a slash": ([*without(":path"), (":path", "own")],
                                              "bad_request."),
    "path with a space": ([*without(":path"), (":path", "/own HTTP/1.1\r\nX: y")], "bad_request."),
    "path with a fragment": ([*without(":path"), (":path", "/own#a")], "bad_request.target"),
    "path with a byte over 126": ([*without(":path"), (":path", b"/\xc3\xa4")],
                                  "bad_request.target"),
    "asterisk with GET": ([*without(":path"), (":path", "*")], "bad_request."),
    "method with a space": ([*without(":method"), (":method", "GET /x HTTP/1.1")], "bad_request."),
    "long method": ([*without(":method"), (":method", "G" * 33)], "bad_request.method"),
    "CONNECT": ([(":method", "CONNECT"), (":authority", "a:1")], "bad_request.method"),
    "scheme with a space": ([*without(":scheme"), (":scheme", "http x")], "bad_request."),
    "another scheme": ([*without(":scheme"), (":scheme", "ftp")], "bad_request.target"),
    "authority with userinfo": ([*without(":authority"), (":authority", "u@a")], "bad_request."),
    "authority with a slash": ([*without(":authority"), (":authority", "a/b")], "bad_request."),
    "authority with CR LF": ([*without(":authority"), (":authority", "a\r\nX: y")], "bad_request."),
    "host that is another": ([*GOOD, ("host", "b")], "bad_request.host"),
    "two hosts": ([*without(":authority"), ("host", "a"), ("host", "a")], "bad_request."),
    "name with a space": ([*GOOD, ("a b", "1")], "bad_request.field_name"),
    "name with a colon": ([*GOOD, ("a:b", "1")], "bad_request."),
    "name with CR LF": ([*GOOD, ("a\r\nb", "1")], "bad_request.field_name"),
    "name with NUL": ([*GOOD, ("a\0b", "1")], "bad_request.field_name"),
    "empty name": ([*GOOD, ("", "1")], "bad_request."),
    "value with CR LF": ([*GOOD, ("a", "1\r\nb: 2")], "bad_request.field_value"),
    "value with LF": ([*GOOD, ("a", "1\nb: 2")], "bad_request.field_value"),
    "value with NUL": ([*GOOD, ("a", "1\0")], "bad_request.field_value"),
    "value with DEL": ([*GOOD, ("a", "1\x7f")], "bad_request.field_value"),
    "value with a blank in front": ([*GOOD, ("a", " 1")], "bad_request.field_value"),
    "value with a blank behind": ([*GOOD, ("a", "1 ")], "bad_request.field_value"),
    "content-length with a sign": ([*GOOD, ("content-length", "+0")], "bad_request."),
    "content-length that is empty": ([*GOOD, ("content-length", "")], "bad_request."),
    "content-length twice": ([*GOOD, ("content-length", "0"), ("content-length", "0")],
                             "bad_request."),
    "content-length without a body": ([*GOOD, ("content-length", "3")], "bad_request."),
    "unknown expectation": ([*GOOD, ("expect", "miracle")], "client.expect"),
    "too many fields": ([*GOOD, *[("a", str(n)) for n in range(101)]],
                        "client.headers_too_large"),
    "too large": ([*GOOD, *[("a", "x" * 3000) for _ in range(11)]], "client.headers_too_large"),
    "path too long": ([*without(":path"), (":path", "/" + "x" * 8200)],
                      "client.target_too_long"),
}


@pytest.mark.parametrize("name", FIELDS)
def test_malformed_requests(own, h2, name):  # noqa: F811
    fields, reason = FIELDS[name]
    client = h2(own)
    known = len(own.log_lines())
    stream = client.take_id()
    data = client.block_of(fields)
    parts = [data[i:i + 16000] for i in range(0, len(data), 16000)]
    client.raw(frame(HEADERS, END_STREAM | (END_HEADERS if len(parts) == 1 else 0), stream,
                     parts[0]))
    for i, part in enumerate(parts[1:], 2):
        client.raw(frame(CONTINUATION, END_HEADERS if i == len(parts) else 0, stream, part))
    answer = client.response(stream)
    if answer.final:
        assert answer.status in (400, 414, 417, 431), answer.final
        assert f'"reason":"{reason}'.encode() in answer.body
    else:
        assert answer.reset == PROTOCOL_ERROR
    # Lines of other tests may still be on their way into the same file.
    line = until(lambda: [x for x in own.log_lines()[known:] if (x["reason"] or "").startswith(reason)], "a line")[0]
    assert line["status"] in (400, 414, 417, 431, 499)
    assert client.get("/own").status == 200  # the connection is none the worse


@pytest.mark.parametrize("body, ended", [(b"abc", True), (b"abcdef", True), (b"abcdef", False)])
def test_content_length_against_data(pair, h2, body, ended):  # noqa: F811
    gw, up = pair
    client = h2(gw)
    stream = client.request(method="POST", end=False, headers=[("content-length", "5")])
    conn = up.accept()
    client.send(client.data_frame(stream, body[:3], end=False))
    conn.expect_head()
    client.send(client.data_frame(stream, body[3:], end=ended))
    client.expect_reset(stream, PROTOCOL_ERROR)
    assert not conn.read_to_end().endswith(b"0\r\n\r\n")  # the backend has not got a whole one
    assert gw.wait_log()[0]["reason"] == "bad_request.content_length"


def test_protocol_errors_show_in_the_log(pair, h2):  # noqa: F811
    gw, up = pair
    client = h2(gw)
    client.request()
    conn = up.accept()
    conn.expect()
    client.raw(frame(DATA, 1, 0, b"x"))
    client.expect_goaway(PROTOCOL_ERROR)
    conn.expect_closed()
    assert gw.wait_log()[0]["reason"] == "bad_request.frames"


# ---- what is allowed

ALLOWED = {
    "4.1 unknown frame": lambda c: frame(0x1f, 0xff, 0, b"whatever"),
    "5.5 unknown frame on a stream": lambda c: frame(0x1f, 0, 1, b"x"),
    "6.5.2 unknown setting": lambda c: frame(SETTINGS, 0, 0, setting(0x99, 7)),
    "6.7 PING ACK that nobody asked for": lambda c: frame(PING, ACK, 0, bytes(8)),
    "5.1 PRIORITY on an idle stream": lambda c: frame(PRIORITY, 0, 77, b"\0\0\0\0\x0f"),
    "RFC 9218 PRIORITY_UPDATE": lambda c: frame(0x10, 0, 0, b"\0\0\0\1u=1, i"),
    "6.9.2 smaller and larger windows": lambda c: frame(SETTINGS, 0, 0, setting(4, 0)) +
    frame(SETTINGS, 0, 0, setting(4, 65535)),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_to_be_ignored_is(own, h2, name):  # noqa: F811
    client = h2(own)
    client.raw(ALLOWED[name](client))
    assert client.get("/own").body == b"hello"


def test_header_block_in_pieces_padded_and_with_priority(own, h2):  # noqa: F811
    client = h2(own)
    data = client.block_of(client.fields("/own"))
    client.raw(frame(HEADERS, END_STREAM | PADDED | PRIO, 1,
                     b"\x03" + b"\0\0\0\0\x07" + data[:4] + bytes(3)))
    for at in range(4, 8):
        client.raw(frame(CONTINUATION, 0, 1, data[at:at + 1]))
    client.raw(frame(CONTINUATION, END_HEADERS, 1, data[8:]))
    assert client.response(1).status == 200


def test_more_requests_than_allowed_are_refused(gateway, upstream, h2):  # noqa: F811
    up = upstream()
    gw = gateway(ONE.replace('{"@http@"}', '{"@http@"}  limits { streams = 2 }'), app=up)
    client = h2(gw)
    client.acks = False  # it may not know yet
    streams = [client.request() for _ in range(3)]
    client.expect_reset(streams[2], REFUSED_STREAM)
    assert client.settings[3] == 2
    for _ in range(2):
        conn = up.accept()
        conn.expect()
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert [client.response(s).status for s in streams[:2]] == [200, 200]


def test_more_requests_than_agreed_to_end_the_connection(gateway, upstream, h2):  # noqa: F811
    up = upstream()
    gw = gateway(ONE.replace('{"@http@"}', '{"@http@"}  limits { streams = 2 }'), app=up)
    client = h2(gw)
    client.ping()
    for _ in range(3):
        client.request()
    client.expect_goaway(PROTOCOL_ERROR)
    assert {x["reason"] for x in gw.wait_log(2)} == {"bad_request.frames"}


def test_wrong_preface(own):
    client = own.client()
    client.send(PREFACE[:-1] + b"_")
    response = client.response()
    assert response.status == 400 and b"bad_request.http2" in response.body
    client.expect_closed()


def test_preface_byte_by_byte(own, h2):  # noqa: F811
    client = h2(own, preface=False)
    for byte in PREFACE + frame(SETTINGS, 0, 0) + head(client, 1):
        client.raw(bytes([byte]))
    assert client.response(1).status == 200


def test_http2_off(gateway):
    gw = gateway(HTTP.replace("listen =", "http2 = false  listen =") + OWN)
    client = gw.client()
    client.send(PREFACE)
    assert client.response().status == 400
    client.expect_closed()


def test_h2spec(gateway, opened):
    """A backend that reads each request to its end, so that no answer comes before it."""
    h2spec = shutil.which("h2spec")
    if not h2spec:
        pytest.skip("h2spec is not on PATH")
    back = Backend(own_host())
    opened.append(back)
    gw = gateway(ONE, app=back)
    host, port = gw.address()
    done = subprocess.run([h2spec, "-S", "-h", host, "-p", str(port), "-o", "5"],
                          capture_output=True, text=True, timeout=600)
    failed = {line.strip() for line in done.stdout.splitlines() if "\u00d7" in line}
    # A listener that speaks HTTP/1 as well answers a wrong preface in HTTP/1.
    assert not [f for f in failed if "Sends invalid connection preface" not in f], done.stdout
