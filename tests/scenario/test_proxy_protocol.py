"""The PROXY protocol, in from a load balancer and out to servers."""

import socket
import struct
import time

import pytest

from conftest import HTTP, ONE
from gateway import until

IN = ONE.replace("listen =", "proxy_protocol = true  timeouts { header = 500ms } listen =")
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V1 = b"PROXY TCP4 192.0.2.7 198.51.100.9 4711 443\r\n"
REQUEST = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def v2(command, family, block=b""):
    return SIGNATURE + bytes([0x20 | command, family]) + struct.pack("!H", len(block)) + block


V2_TCP4 = v2(1, 0x11, socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.9") +
             struct.pack("!HH", 4711, 443))
V2_TCP6 = v2(1, 0x21, socket.inet_pton(socket.AF_INET6, "2001:db8::7") +
             socket.inet_pton(socket.AF_INET6, "2001:db8::9") + struct.pack("!HH", 4711, 443))
V2_TLV = v2(1, 0x11, V2_TCP4[16:] + b"\x02\0\x03one\x04\0\0")
V2_UNIX = v2(1, 0x31, b"/run/a".ljust(108, b"\0") + b"/run/b".ljust(108, b"\0"))


@pytest.fixture
def served(gateway, upstream):
    up = upstream()
    return gateway(IN, app=up), up


def ask(gw, up, header, step=None):
    """What the upstream sees when a connection begins with that header."""
    client = gw.client()
    if step:
        client.send_slowly(header + REQUEST, step, 0.002)
    else:
        client.send(header + REQUEST)
    conn = up.conns[0] if up.conns else up.accept()
    request = conn.expect()
    conn.respond()
    assert client.response().status == 200
    return request, client


@pytest.mark.parametrize("header, address", [
    (V1, "192.0.2.7"),
    (b"PROXY TCP6 2001:db8::7 2001:db8::9 4711 443\r\n", "2001:db8::7"),
    (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    (V2_TCP4, "192.0.2.7"), (V2_TCP6, "2001:db8::7"), (V2_TLV, "192.0.2.7"), (V2_UNIX, "unix:"),
    (v2(0, 0), "127.0.0.1"), (v2(0, 0x11, V2_TCP4[16:]), "127.0.0.1"), (v2(1, 0, b"xyz"), "127.0.0.1"),
])
def test_says_who_the_client_is(served, header, address):
    gw, up = served
    request, client = ask(gw, up, header)
    assert request.get("X-Forwarded-For") == address
    assert gw.wait_log()[0]["client_ip"] == address
    client.send(REQUEST)  # keep-alive: the header stood once
    assert up.conns[0].expect().get("X-Forwarded-For") == address
    up.conns[0].respond()
    assert client.response().status == 200


@pytest.mark.parametrize("header", [V1, V2_TLV])
def test_in_pieces(served, header):
    gw, up = served
    assert ask(gw, up, header, 1)[0].get("X-Forwarded-For") == "192.0.2.7"


def test_trusted_proxies_are_those_behind_it(gateway, upstream):
    up = upstream()
    gw = gateway(IN.replace("listen =", 'trusted_proxies = {"192.0.2.0/24"} listen ='), app=up)
    client = gw.client()
    client.send(V1 + b"GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 203.0.113.5\r\n\r\n")
    conn = up.accept()
    assert conn.expect().get("X-Forwarded-For") == "203.0.113.5, 192.0.2.7"
    conn.respond()
    assert client.response().status == 200
    assert gw.wait_log()[0]["client_ip"] == "203.0.113.5"


@pytest.mark.parametrize("start, why", [
    (REQUEST, "malformed at byte 0"),
    (b"PROXY TCP4 192.0.2.7 198.51.100.9 4711 443\n", "malformed at byte 42"),
    (b"PROXY TCP4 192.0.2.7 x 4711 443\r\n" + REQUEST, "malformed at byte 21"),
    (v2(1, 0x12, V2_TCP4[16:]) + REQUEST, "malformed at byte 13"),
    (v2(1, 0x11, V2_TCP4[16:] + b"\x02\0\x09x"), "malformed at byte 28"),
    (v2(1, 0x11, b"x" * 5000), "malformed at byte 14"),
    (b"PROXY TCP4 01.2.3.4 5.6.7.8 1 2\r\n", "malformed at byte 11"),
    (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n", "malformed at byte 29"),
    (b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n", "malformed at byte 11"),
    (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n", "malformed at byte 30"),
    (b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n", "malformed at byte 6"),
    (b"PROXY UNKNOWN " + b"x" * 100 + b"\r\n", "malformed at byte 105"),
    (b"proxy TCP4 1.2.3.4 5.6.7.8 1 2\r\n", "malformed at byte 0"),
    (v2(2, 0x11, V2_TCP4[16:]), "malformed at byte 12"),
    (v2(1, 0x21, V2_TCP4[16:]), "malformed at byte 14"),
    (v2(1, 0x41, V2_TCP4[16:]), "malformed at byte 13"),
    (b"PROXY TCP4", "not there in time"),
    (b"", "not there in time"),
])
def test_without_a_good_header_it_is_closed(served, start, why):
    gw, up = served
    client = gw.client()
    client.send(start)
    client.expect_closed()
    gw.wait_stderr(rf'info closed a connection from 127\.0\.0\.1:\d+ to listener "http": '
                   rf"its PROXY header is {why}")
    up.expect_no_connection(0.05)
    until(lambda: gw.metric("postern_downstream_connections") == 0, "it is not counted any more")
    assert ask(gw, up, V1)[0].method == "GET"


def test_who_leaves_first_is_told_too(served):
    gw, _ = served
    client = gw.client()
    client.send(b"PROXY ")
    client.close()
    gw.wait_stderr("its PROXY header is missing, it was closed before")


def test_waiting_costs_no_cpu_and_no_drain(served):
    gw, up = served
    ask(gw, up, V1)
    client = gw.client()
    client.send(V1[:20])
    before = gw.cpu_seconds()
    time.sleep(0.2)
    assert gw.cpu_seconds() - before < 0.1
    gw.signal(15)
    client.expect_closed()
    gw.wait_exit()


def test_over_a_reload_that_takes_the_listener_away(gateway, upstream):
    up = upstream()
    text = IN.replace("500ms", "20s") + 'listener "stays" { listen = {"@stays@"} }\n'
    gw = gateway(text, app=up)
    client = gw.client()
    client.send(V1[:20])
    until(lambda: gw.metric("postern_downstream_connections", listener="http") == 1, "it waits")
    gw.reload(ONE.replace("@http@", "@stays@").replace('"http"', '"stays"'))
    client.send(V1[20:] + REQUEST)
    conn = up.accept()
    assert conn.expect().get("X-Forwarded-For") == "192.0.2.7"
    conn.respond()
    assert client.response().get("Connection") == "close"
    client.expect_closed()


# and out

OUT = HTTP + '''
upstream "app" { proxy_protocol = VERSION  pool { connections = 8 }  server "@app@" {} }
route "all" { path = "/{rest...}"  upstream = app }
'''


def test_out_v1(gateway, upstream):
    up = upstream()
    gw = gateway(OUT.replace("VERSION", "v1"), app=up)
    client = gw.client()
    client.send(REQUEST)
    conn = up.accept()
    host, port = client.sock.getsockname()
    to, to_port = gw.address()
    assert conn.read_until(b"\r\n") == f"PROXY TCP4 {host} {to} {port} {to_port}\r\n".encode()
    conn.expect()
    conn.respond()
    assert client.response().status == 200
    conn.expect_closed()


def test_out_v2(gateway, upstream):
    up = upstream()
    gw = gateway(OUT.replace("VERSION", "v2"), app=up)
    client = gw.client()
    client.send(REQUEST)
    conn = up.accept()
    host, port = client.sock.getsockname()
    to, to_port = gw.address()
    assert conn.read_exact(28) == v2(1, 0x11, socket.inet_aton(host) + socket.inet_aton(to) +
                                     struct.pack("!HH", port, to_port))
    assert conn.expect().target == "/"
    conn.respond()
    assert client.response().status == 200


def test_out_no_connection_serves_two_requests(gateway, upstream):
    """They might be two clients', and the header names one."""
    up = upstream()
    gw = gateway(OUT.replace("VERSION", "v1"), app=up)
    client = gw.client()
    for i in range(3):
        client.send(REQUEST)
        conn = up.accept()
        assert conn.read_until(b"\r\n").startswith(b"PROXY TCP4 127.0.0.1 ")
        conn.expect()
        conn.respond()
        assert client.response().status == 200
        conn.expect_closed()
    assert gw.upstream("app", up)["idle"] == 0
    assert gw.upstream("app", up)["opened"] == 3


def test_out_says_what_came_in(gateway, upstream):
    up = upstream()
    gw = gateway(OUT.replace("VERSION", "v1").replace("listen =", "proxy_protocol = true  listen ="),
                 app=up)
    client = gw.client()
    client.send(V1 + REQUEST)
    conn = up.accept()
    assert conn.read_until(b"\r\n") == V1
    conn.expect()
    conn.respond()
    assert client.response().status == 200


def test_out_a_retry_says_it_again(gateway, upstream):
    up = upstream()
    gw = gateway(OUT.replace("VERSION", "v1"), app=up)
    client = gw.client()
    client.send(REQUEST)
    conn = up.accept()
    conn.read_until(b"\r\n\r\n")
    conn.reset()
    conn = up.accept()
    assert conn.read_until(b"\r\n").startswith(b"PROXY TCP4 ")
    conn.expect()
    conn.respond()
    assert client.response().status == 200


def test_out_from_a_unix_socket(gateway, upstream, tmp_path):
    up = upstream()
    gw = gateway(OUT.replace("VERSION", "v1").replace("@http@", f"unix:{tmp_path}/in.sock"), app=up,
                 http=f"unix:{tmp_path}/in.sock")
    client = gw.client()
    client.send(REQUEST)
    conn = up.accept()
    assert conn.read_until(b"\r\n") == b"PROXY UNKNOWN\r\n"
    conn.expect()
    conn.respond()
    assert client.response().status == 200
