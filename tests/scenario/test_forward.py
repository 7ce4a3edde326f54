"""What changes in a head on its way to the backend, and what must not cross."""

import re

import pytest

from conftest import ONE
from wire2 import Client2

TRUST = ONE.replace("listen =", 'trusted_proxies = {"127.0.0.0/8"} listen =')
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def seen(gw, up, *fields, start="GET / HTTP/1.1", host="test"):
    """The head that the backend sees for such a request."""
    client = gw.client()
    client.send("\r\n".join([start, f"Host: {host}", *fields]) + "\r\n\r\n")
    conn = up.conns[0] if up.conns else up.accept()
    request = conn.expect()
    conn.respond()
    assert client.response().status == 200
    return request


def test_adds_who_asked_and_how(pair):
    gw, up = pair
    request = seen(gw, up, host="shop.example:8080")
    assert request.get("X-Forwarded-For") == "127.0.0.1"
    assert request.get("X-Forwarded-Proto") == "http"
    assert request.get("X-Forwarded-Host") == "shop.example:8080"
    assert request.get("Host") == "shop.example:8080"
    assert re.fullmatch(r"1\.1 \S+.*", request.get("Via"))
    assert re.fullmatch(r"[\x21-\x7e]{8,128}", request.get("X-Request-Id"))
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", request.get("traceparent"))


def test_drops_what_an_untrusted_client_claims(pair):
    gw, up = pair
    request = seen(gw, up, "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: https",
                   "X-Forwarded-Host: evil", "X-Request-Id: mine", "Forwarded: for=6.6.6.6")
    assert request.get("X-Forwarded-For") == "127.0.0.1"
    assert request.get("X-Forwarded-Proto") == "http"
    assert request.get("X-Forwarded-Host") == "test"
    assert request.get("X-Request-Id") != "mine"
    assert "6.6.6.6" not in (request.get("Forwarded") or "")


def test_believes_a_trusted_proxy(gateway, upstream):
    up = upstream()
    gw = gateway(TRUST, app=up)
    request = seen(gw, up, "X-Forwarded-For: 9.9.9.9, 8.8.8.8", "X-Forwarded-Proto: https",
                   "X-Forwarded-Host: outside.example", "X-Request-Id: from-the-edge-1")
    assert [part.strip() for part in request.get("X-Forwarded-For").split(",")] == \
        ["9.9.9.9", "8.8.8.8", "127.0.0.1"]
    assert request.get("X-Forwarded-Proto") == "https"
    assert request.get("X-Forwarded-Host") == "outside.example"
    assert request.get("X-Request-Id") == "from-the-edge-1"
    line = gw.wait_log()[0]
    assert line["client_ip"] == "8.8.8.8", "the last address that no trusted proxy vouches beyond"
    assert line["req_id"] == "from-the-edge-1"


def test_client_address_is_the_last_one_not_trusted(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("listen =", 'trusted_proxies = {"127.0.0.0/8", "10.0.0.0/8"} listen ='),
                 app=up)
    seen(gw, up, "X-Forwarded-For: 6.6.6.6, 5.5.5.5, 10.1.2.3")
    assert gw.wait_log()[0]["client_ip"] == "5.5.5.5"


def test_forwarded_as_rfc_7239_has_it(gateway, upstream):
    up = upstream()
    gw = gateway(TRUST.replace("listen =", "forwarded = rfc7239  listen ="), app=up)
    request = seen(gw, up, 'Forwarded: for="[2001:db8::1]";proto=https, for=8.8.8.8', host="h:80")
    assert request.get("Forwarded") == 'for="[2001:db8::1]";proto=https, for=8.8.8.8, ' \
        'for=127.0.0.1;host="h:80";proto=http'
    assert not any(name.startswith("x-forwarded") for name in request.names)
    assert gw.wait_log()[0]["client_ip"] == "8.8.8.8"


def test_forwarded_both_ways(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("listen =", "forwarded = both  listen ="), app=up)
    request = seen(gw, up, "Forwarded: for=6.6.6.6", "X-Forwarded-For: 6.6.6.6")
    assert request.get("Forwarded") == "for=127.0.0.1;host=test;proto=http"
    assert request.get("X-Forwarded-For") == "127.0.0.1"
    assert gw.wait_log()[0]["client_ip"] == "127.0.0.1"


def test_trusted_clients_of_a_unix_socket(gateway, upstream, tmp_path):
    up = upstream()
    path = f"unix:{tmp_path}/in.sock"
    gw = gateway(ONE.replace("listen =", 'trusted_proxies = {"unix:", "fd00::/8"}  listen ='),
                 app=up, http=path)
    request = seen(gw, up, "X-Forwarded-For: 2001:db8::5, fd00::7")
    assert request.get("X-Forwarded-For").startswith("2001:db8::5, fd00::7, ")
    assert gw.wait_log()[0]["client_ip"] == "2001:db8::5"


@pytest.mark.parametrize("option, host", [("pass", "shop.example"), ("inner.example:8080",) * 2,
                                          ("upstream", None)])
def test_host_passed_or_set(gateway, upstream, option, host):
    up = upstream()
    gw = gateway(ONE.replace('server "@app@"', f'host = "{option}" server "@app@"'), app=up)
    request = seen(gw, up, host="shop.example")
    assert request.get("Host") == (host or str(up))
    assert request.get("X-Forwarded-Host") == "shop.example"


def test_host_of_the_server_that_a_retry_goes_to(gateway, upstream):
    one, two = upstream(), upstream(unix=True)
    gw = gateway(ONE.replace('server "@app@" {}',
                             'host = upstream server "@one@" {} server "@two@" {}'), one=one, two=two)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
    conn = one.accept()
    assert conn.expect().get("Host") == str(one)
    conn.reset()
    conn = two.accept()
    assert conn.expect().get("Host") == "localhost"
    conn.respond()
    assert client.response().status == 200


def test_request_ids_differ_and_are_in_the_log(pair):
    gw, up = pair
    ids = {seen(gw, up).get("X-Request-Id") for _ in range(5)}
    assert len(ids) == 5
    assert {line["req_id"] for line in gw.wait_log(5)} == ids


def test_traceparent_is_kept(pair):
    gw, up = pair
    request = seen(gw, up, f"traceparent: {TRACE}", "tracestate: a=b")
    version, trace, parent, flags = request.get("traceparent").split("-")
    assert (version, trace, flags) == ("00", TRACE.split("-")[1], "01")
    assert request.get("tracestate") == "a=b"
    assert gw.wait_log()[0]["trace_id"] == TRACE.split("-")[1]


@pytest.mark.parametrize("broken", ["00-xyz-b7ad6b7169203331-01", "nonsense",
                                    "00-" + "0" * 32 + "-b7ad6b7169203331-01",
                                    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
def test_broken_traceparent_is_started_anew(pair, broken):
    gw, up = pair
    value = seen(gw, up, f"traceparent: {broken}").get("traceparent")
    assert value != broken
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", value)


def test_hop_by_hop_headers_do_not_cross(pair):
    gw, up = pair
    request = seen(gw, up, "Connection: keep-alive, X-Private", "X-Private: 1", "Keep-Alive: 5",
                   "Proxy-Connection: keep-alive", "Proxy-Authorization: Basic eA==", "TE: trailers",
                   "X-Public: 1")
    for name in ("Connection", "X-Private", "Keep-Alive", "Proxy-Connection",
                 "Proxy-Authorization"):
        assert not request.has(name), name
    assert request.get("X-Public") == "1"


def test_hop_by_hop_headers_of_the_answer_do_not_cross(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(fields=[("Connection", "X-Private"), ("X-Private", "1"), ("Keep-Alive", "timeout=5"),
                         ("X-Public", "1")])
    response = client.response()
    assert response.get("X-Public") == "1"
    for name in ("Connection", "X-Private", "Keep-Alive"):
        assert not response.has(name), name


@pytest.mark.parametrize("name", ["Host", "Content-Length", "Authorization", "X-Forwarded-For"])
def test_connection_cannot_name_a_protected_field(pair, name):
    gw, up = pair
    response = gw.get(fields=[("Connection", f"close, {name}"), ("Authorization", "x")])
    assert response.status == 400
    gw.wait_log(reason="bad_request.connection")
    up.expect_no_connection(0.1)


@pytest.mark.parametrize("name", ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-request-id", "forwarded"])
def test_nor_can_http2_say_what_only_the_gateway_may(pair, opened, name):
    gw, up = pair
    client = Client2(gw.address())
    opened.append(client)
    twins = {name, name.replace("-", "_"), name.replace("-", "."), name.replace("-", "_", 1)}
    stream = client.request("/", method="POST", end=False, headers=[(twin, "6.6.6.6") for twin in twins for _ in (1, 2)])
    client.body(stream, b"x", end=False)
    client.send(client.headers_frame([(twin, "6.6.6.6") for twin in twins], stream))
    conn = up.accept()
    request = conn.expect()
    assert "6.6.6.6" not in request.raw_head.decode() and not request.trailers
    conn.respond()
    assert client.response(stream).status == 200


def test_other_headers_keep_value_order_and_number(pair):
    gw, up = pair
    request = seen(gw, up, "Cookie: a=1", "X-A: 1", "x-b:  two words ", "X-A: 2", "Accept: */*",
                   "User-Agent: t/1", "Authorization: Bearer abc", "X-Utf: caf\xc3\xa9", "X-Empty:")
    assert request.all("X-A") == ["1", "2"]
    assert request.get("X-B") == "two words"
    assert request.get("Cookie") == "a=1"
    assert request.get("Authorization") == "Bearer abc"
    assert request.get("X-Utf") == "caf\xc3\xa9"
    assert request.get("X-Empty") == ""
    order = [n for n in request.names if n in ("cookie", "x-a", "x-b", "accept", "user-agent")]
    assert order == ["cookie", "x-a", "x-b", "x-a", "accept", "user-agent"]


def test_answers_keep_their_own_headers(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(status="299 Very Own Words",
                 fields=[("Server", "theirs/1"), ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                         ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
    response = client.response()
    assert response.phrase == "Very Own Words"
    assert response.get("Server") == "theirs/1"
    assert response.get("Date") == "Sun, 06 Nov 1994 08:49:37 GMT"
    assert response.all("Set-Cookie") == ["a=1", "b=2"]


def test_the_target_crosses_as_it_was_written(pair):
    gw, up = pair
    target = "/%7Euser/a%20b/./c/;x=1?q=%2F..%2f&u=%C3%A9&empty="
    assert seen(gw, up, start=f"GET {target} HTTP/1.1").target == target


@pytest.mark.parametrize("target", ["/a%2fb", "/a%5cb", "/a%00", "/a%0d%0aX", "/%2e%2e/etc",
                                    "/../etc", "/a%zz"])
def test_ambiguous_paths_are_refused(pair, target):
    gw, up = pair
    response = gw.get(target)
    assert response.status == 400
    gw.wait_log(reason="bad_request.path")
    up.expect_no_connection(0.1)


def test_an_answer_without_a_date_gets_one(pair):
    """RFC 9110 6.6.1; a backend's own stays as it is."""
    gw, up = pair
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert not client.response(interim=True).has("Date")
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", client.response().get("Date"))
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn.expect()
    own = "Sun, 06 Nov 1994 08:49:37 GMT"
    conn.respond(fields=[("Date", own)])
    assert client.response().get("Date") == own
