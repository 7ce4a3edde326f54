"""Answers that come while a body is still on its way: our own, and a backend's."""

import json
import os
import threading

import pytest

from conftest import HTTP, ONE
from wire import Closed

H = b"Host: test\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"
OWN = HTTP + '''
upstream "app" { server "@app@" {} }
route "no"    { path = "/no/{rest...}"  respond { status = 401 } }
route "small" { path = "/small"  upstream = app  body_bytes = 1k }
route "get"   { path = "/get"  methods = GET  upstream = app }
route "up"    { path = "/up"  upstream = app }
'''

# target, status: each refused before one byte of its body came
REFUSED = {"respond": ("/no/1", 401), "route": ("/nothing", 404), "method": ("/get", 405), "limit": ("/small", 413),
           "path": ("/a%00", 400)}


def post(target, length, more=b""):
    return b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n%s\r\n" % (target.encode(), H, length, more)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("size", [len(SMUGGLED), 60000, 12 << 20])
def test_the_rest_of_a_refused_body_is_never_a_request(gateway, upstream, name, size):
    target, status = REFUSED[name]
    up = upstream()
    gw = gateway(OWN.replace("listen =", "limits { body_bytes = 0 } listen ="), app=up)
    client = gw.client()
    body = (SMUGGLED * (size // len(SMUGGLED) + 1))[:size]

    def send():
        try:
            client.send(post(target, max(size, 1025)) + body)
        except (Closed, OSError):
            pass

    sender = threading.Thread(target=send)
    sender.start()
    response = client.response()
    sender.join(15)
    assert response.status == status
    if response.get("Connection") == "close":
        client.expect_closed()
    elif size > 1024:
        client.send(b"GET /no/2 HTTP/1.1\r\n" + H + b"\r\n")
        assert client.response().status == 401
    client.close()
    gw.get("/no/last")
    gw.wait_log(path="/no/last")
    assert {line["path"] for line in gw.log_lines()} <= {target, "/no/2", "/no/last"}
    up.expect_no_connection(0.05)


@pytest.mark.parametrize("body", [b"", b"5\r\nabcde\r\n", b"5\r\nabcde\r\n0\r\n\r\n" + SMUGGLED])
def test_the_rest_of_a_refused_chunked_body_is_never_a_request(gateway, upstream, body):
    gw = gateway(OWN, app=upstream())
    client = gw.client()
    client.send(b"POST /no/1 HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    response = client.response()
    assert response.status == 401 and response.get("Connection") == "close"
    client.expect_closed()
    gw.get("/no/last")
    gw.wait_log(path="/no/last")
    assert {line["path"] for line in gw.log_lines()} == {"/no/1", "/no/last"}


def test_a_refused_expectation_is_not_answered_with_100(gateway, upstream):
    gw = gateway(OWN, app=upstream())
    client = gw.client()
    client.send(post("/no/1", 100, b"Expect: 100-continue\r\n"))
    response = client.head()
    assert response.status == 401, "no 100 before it"
    assert response.get("Connection") == "close", "who waits for 100 may send the body or not"
    client.read_body(response)
    client.expect_closed()


def early(conn, body=b"no", status="403 Forbidden", fields=()):
    conn.expect_head()
    conn.respond(body, status=status, fields=fields)


@pytest.mark.parametrize("then", ["stays", "closes", "resets"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_an_early_answer_stops_the_upload(gateway, upstream, framing, then):
    """The client gets it, the backend no more of the body, and neither connection is used for
    something else."""
    up = upstream()
    gw = gateway(ONE.replace("listen =", "limits { body_bytes = 0 } listen ="), app=up)
    client = gw.client()
    part = os.urandom(50000)
    if framing == "length":
        client.send(post("/up", 64 << 20) + part)
    else:
        client.send(b"POST /up HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
                    b"%x\r\n%s\r\n" % (len(part), part))
    conn = up.accept()
    early(conn)
    if then == "closes":
        conn.read_until(part[-20:])
        conn.close()
    elif then == "resets":
        conn.reset()
    response = client.response()
    assert (response.status, response.body) == (403, b"no")
    assert response.get("Connection") == "close"
    client.expect_closed()
    if then == "stays":
        rest = conn.read_to_end()
        assert not rest.endswith(b"0\r\n\r\n"), "what was cut must not look complete"
    other = gw.client()
    other.send(b"GET /next HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    assert conn.expect().target == "/next"
    conn.respond(b"mine")
    assert other.response().body == b"mine"


def test_an_early_answer_while_the_client_sends_at_full_speed(gateway, upstream):
    up = upstream()
    gw = gateway(ONE, app=up)
    client = gw.client()
    size = 8 << 20

    def send():
        try:
            client.send(post("/up", size) + bytes(size))
        except (Closed, OSError):
            pass

    sender = threading.Thread(target=send)
    sender.start()
    conn = up.accept()
    early(conn, status="413 Content Too Large")
    response = client.response()
    sender.join(15)
    assert (response.status, response.body) == (413, b"no")


def test_a_streamed_early_answer_is_whole(gateway, upstream):
    """The answer's head comes early, its body in pieces, while the upload goes on."""
    up = upstream()
    gw = gateway(ONE, app=up)
    client = gw.client()
    client.send(b"POST /up HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
    conn = up.accept()
    assert conn.expect_head().is_chunked
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nONE\r\n")
    head = client.head()
    assert head.status == 200
    client.read_until(b"ONE\r\n")
    client.send(b"3\r\ntwo\r\n")
    conn.read_until(b"two\r\n")
    conn.send(b"3\r\nTWO\r\n")
    client.read_until(b"TWO\r\n")
    client.send(b"0\r\n\r\n")
    conn.read_until(b"0\r\n\r\n")
    conn.send(b"0\r\n\r\n")
    client.read_until(b"0\r\n\r\n")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n",
                                    b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nok"])
def test_a_declined_upgrade_leaves_a_clean_connection(gateway, upstream, answer):
    """200 is no tunnel, and 101 to what nobody asked for is none either."""
    up = upstream()
    gw = gateway(ONE, app=up)
    client = gw.client()
    client.send(b"GET /ws HTTP/1.1\r\n" + H + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n" + SMUGGLED)
    conn = up.accept()
    conn.expect()
    conn.send(answer)
    response = client.response()
    assert response.status == (502 if b" 101 " in answer else int(answer[9:12]))
    if response.status == 502:
        conn.expect_closed()
        conn = up.accept()
    assert conn.expect().target == "/smuggled", "a request like any other, read as one"
    conn.respond(b"second")
    assert client.response().body == b"second"


def test_the_problem_says_limit_and_actual_of_a_chunked_body(gateway, upstream):
    up = upstream()
    gw = gateway(OWN, app=up)
    client = gw.client()
    client.send(b"POST /small HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
                b"800\r\n" + bytes(2048) + b"\r\n")
    problem = json.loads(client.response().body)
    assert (problem["status"], problem["limit"]) == (413, 1024) and problem["actual"] > 1024
    client.expect_closed()
