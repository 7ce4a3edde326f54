"""What the gateway says when it refuses: status, form, reason; alike in body, log and metric."""

import json
import socket

import pytest

from conftest import HTTP, ONE
from gateway import free_address, own_host

H = b"Host: test\r\n"


def check(gw, response, status, reason, **members):
    """Body, access log and metric tell the same story."""
    assert response.status == status, response.body
    assert response.get("Content-Type") == "application/problem+json"
    problem = json.loads(response.body)
    assert {"type", "title", "status", "detail", "instance", "reason"} <= problem.keys()
    assert problem["status"] == status and problem["reason"] == reason
    for name in ("type", "title", "detail", "instance"):
        assert isinstance(problem[name], str) and problem[name]
    for name, value in members.items():
        assert problem[name] == value, problem
    line = gw.wait_log(reason=reason)[-1]
    assert line["status"] == status and line["req_id"] == problem["instance"]
    assert gw.metric("postern_responses_total", reason=reason) >= 1
    if status == 503:
        assert int(response.get("Retry-After")) >= 0
    return problem


def test_no_route(gateway, upstream):
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                 'route "a" { path = "/only"  upstream = app }', app=upstream())
    check(gw, gw.get("/other"), 404, "route.none")


def test_an_id_of_a_trusted_proxy_cannot_write_the_answer(gateway):
    """It may hold any printable byte, and stands in all three forms of an error."""
    gw = gateway(HTTP.replace("listen =", 'trusted_proxies = {"127.0.0.0/8"} listen =') +
                 'route "a" { path = "/only"  respond { } }')
    wild = '"},{"x":"\\<script>&\''
    problem = check(gw, gw.get("/other", fields=[("X-Request-Id", wild)]), 404, "route.none")
    assert problem["instance"] == wild
    page = gw.get("/other", fields=[("X-Request-Id", wild), ("Accept", "text/html")])
    assert b"<script>" not in page.body and b"&lt;script&gt;&amp;&#39;" in page.body


def test_wrong_method_names_the_right_ones(gateway, upstream):
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                 'route "a" { path = "/x"  methods = {GET, PUT}  upstream = app }', app=upstream())
    response = gw.get("/x", method="DELETE")
    check(gw, response, 405, "route.method")
    assert {m.strip() for m in response.get("Allow").split(",")} == {"GET", "PUT"}


def test_body_too_large_by_its_length(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("upstream = app", "body_bytes = 100  upstream = app"), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 101\r\n\r\n")
    check(gw, client.response(), 413, "client.body_too_large", limit=100, actual=101)
    up.expect_no_connection(0.1)


def test_body_within_the_limit(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("upstream = app", "body_bytes = 100  upstream = app"), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 100\r\n\r\n" + bytes(100))
    conn = up.accept()
    assert conn.expect().body == bytes(100)
    conn.respond()
    assert client.response().status == 200


def test_body_too_large_in_chunks(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("listen =", "limits { body_bytes = 1k } listen ="), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n"
                b"400\r\n" + bytes(1024) + b"\r\n")
    conn = up.accept()
    conn.expect_head()
    client.send(b"1\r\nx\r\n0\r\n\r\n")
    check(gw, client.response(), 413, "client.body_too_large", limit=1024)
    assert b"\r\n0\r\n\r\n" not in conn.read_to_end(), "a cut body must not look complete"


def test_body_too_large_is_known_before_100_continue(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("upstream = app", "body_bytes = 10  upstream = app"), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 11\r\nExpect: 100-continue\r\n\r\n")
    assert client.head().status == 413


def test_target_too_long(gateway, upstream):
    gw = gateway(ONE.replace("listen =", "limits { target_bytes = 100 } listen ="), app=upstream())
    check(gw, gw.get("/" + "x" * 100), 414, "client.target_too_long", limit=100, actual=101)


def test_target_as_long_as_allowed(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("listen =", "limits { target_bytes = 100 } listen ="), app=up)
    client = gw.client()
    client.send(b"GET /" + b"x" * 99 + b" HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond()
    assert client.response().status == 200


def test_headers_too_large_name_the_header(gateway, upstream):
    gw = gateway(ONE.replace("listen =", "limits { header_bytes = 1k } listen ="), app=upstream())
    response = gw.get(fields=[("X-Small", "1"), ("X-Huge", "y" * 2000)])
    problem = check(gw, response, 431, "client.headers_too_large", limit=1024)
    assert "x-huge" in json.dumps(problem).lower()


def test_too_many_headers(gateway, upstream):
    gw = gateway(ONE.replace("listen =", "limits { headers = 5 } listen ="), app=upstream())
    response = gw.get(fields=[(f"X-{i}", "1") for i in range(10)])
    check(gw, response, 431, "client.headers_too_large", limit=5)


def test_connect_refused(gateway):
    gw = gateway(ONE, app=free_address(own_host()))
    check(gw, gw.get(method="POST", body=b"x"), 502, "upstream.connect")


def test_backend_closes_without_an_answer(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 1\r\n\r\nx")
    conn = up.accept()
    conn.expect()
    conn.close()
    check(gw, client.response(), 502, "upstream.reset")
    up.expect_no_connection(0.2)


def test_backend_resets(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 1\r\n\r\nx")
    conn = up.accept()
    conn.expect()
    conn.reset()
    check(gw, client.response(), 502, "upstream.reset")


def test_more_than_the_connections_allowed_wait_for_one(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("server", "pool { connections = 1 } timeouts { queue = 10s } server"),
                 app=up)
    first, second = gw.client(), gw.client()
    first.send(b"GET /1 HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    second.send(b"GET /2 HTTP/1.1\r\n" + H + b"\r\n")
    up.expect_no_connection(0.2)
    conn.respond(b"one")
    assert first.response().body == b"one"
    assert conn.expect().target == "/2"
    conn.respond(b"two")
    assert second.response().body == b"two"


def test_who_waits_too_long_for_a_connection_is_told(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("server", "pool { connections = 1 } timeouts { queue = 300ms } server"),
                 app=up)
    first, second = gw.client(), gw.client()
    first.send(b"GET /1 HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    second.send(b"GET /2 HTTP/1.1\r\n" + H + b"\r\n")
    check(gw, second.response(), 503, "upstream.overflow")
    conn.respond(b"one")
    assert first.response().body == b"one"
    second.send(b"GET /3 HTTP/1.1\r\n" + H + b"\r\n")
    conn.expect()
    conn.respond(b"three")
    assert second.response().body == b"three"


def test_malformed_request_in_all_three_places(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    check(gw, client.response(), 400, "bad_request.host")


@pytest.mark.parametrize("accept, kind", [
    (None, "application/problem+json"), ("*/*", "application/problem+json"),
    ("application/json", "application/problem+json"), ("text/html", "text/html"),
    ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
    ("text/plain", "text/plain"),
    ("application/problem+json, text/html;q=0.5", "application/problem+json"),
])
def test_the_form_follows_accept(gateway, upstream, accept, kind):
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                 'route "a" { path = "/only"  upstream = app }', app=upstream())
    response = gw.get("/<b>x</b>", fields=[("Accept", accept)] if accept else [])
    assert response.status == 404
    assert response.get("Content-Type").split(";")[0] == kind
    assert b"route.none" in response.body
    if kind == "text/html":
        assert b"<b>x" not in response.body, "nothing of the request stands in the page unescaped"


@pytest.mark.parametrize("request_line, more, reason", [
    (b"GET / HTTP/1.9", b"", "bad_request.version"),
    (b"GET /" + b"a" * 10000 + b" HTTP/1.1", b"", "client.target_too_long"),
    (b"GET / HTTP/1.1", b"Bad Name: x\r\n", "bad_request.field_name"),
    (b"GET / HTTP/1.1", b"Host: b\r\n", "bad_request.host"),
    (b"GET / HTTP/1.1", b"X: " + b"a" * 40000 + b"\r\n", "client.headers_too_large"),
])
def test_the_form_follows_accept_where_the_head_is_refused(pair, request_line, more, reason):
    gw, up = pair
    for accept, kind in ((b"text/html", "text/html; charset=utf-8"),
                         (b"text/plain", "text/plain; charset=utf-8"),
                         (b"*/*", "application/problem+json")):
        client = gw.client()
        client.send(request_line + b"\r\n" + H + b"accept: " + accept + b"\r\n" + more + b"\r\n")
        response = client.response()
        assert response.get("Content-Type") == kind and reason.encode() in response.body
        client.expect_closed()


def test_head_gets_the_head_of_an_error(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"HEAD / HTTP/1.1\r\n" + H + b"Expect: nonsense\r\n\r\n")
    response = client.response("HEAD")
    assert response.status == 417
    client.sock.settimeout(0.3)
    try:
        assert client.sock.recv(100) == b""
    except socket.timeout:
        pass


def test_an_error_keeps_the_clients_connection_where_it_can(gateway):
    gw = gateway(ONE, app=free_address(own_host()))
    client = gw.client()
    for _ in range(3):
        assert client.get("/").status == 502


def test_refused_body_does_not_become_the_next_request(gateway, upstream):
    """An early answer either reads the rest of the body away or ends the connection."""
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                 'route "a" { path = "/only"  upstream = app }', app=upstream())
    client = gw.client()
    body = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"
    client.send(b"POST /none HTTP/1.1\r\n" + H + b"Content-Length: %d\r\n\r\n" % len(body))
    assert client.response().status == 404
    try:
        client.send(body + b"GET /next HTTP/1.1\r\n" + H + b"\r\n")
        client.response()
    except (AssertionError, OSError):
        pass
    gw.get("/last")
    gw.wait_log(path="/last")
    assert not [line for line in gw.log_lines() if line["path"] == "/smuggled"]


def test_backend_errors_pass_unchanged(pair):
    gw, up = pair
    client = gw.client()
    for status in ("500 Internal Server Error", "503 Service Unavailable", "404 Not Found"):
        client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
        conn = up.conns[0] if up.conns else up.accept()
        conn.expect()
        conn.respond(b"their words", status=status, fields=[("Content-Type", "text/x")])
        response = client.response()
        assert response.start == f"HTTP/1.1 {status}"
        assert response.body == b"their words" and response.get("Content-Type") == "text/x"


def test_a_respond_without_content_names_no_type(gateway, upstream):
    gw = gateway(ONE + 'route "no" { path = "/no" respond { status = 204 } }\n'
                 'route "same" { path = "/same" respond { status = 304 } }\n'
                 'route "some" { path = "/some" respond { body = "x" } }\n', app=upstream())
    assert not gw.get("/no").has("Content-Type") and not gw.get("/same").has("Content-Type")
    assert gw.get("/some").get("Content-Type") == "text/plain"
