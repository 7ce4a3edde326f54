"""Every timeout has its own reason."""

import socket
import threading
import time

import pytest

from conftest import ONE
from test_errors import check
from wire import Client, Closed

H = b"Host: test\r\n"


def listener(text):
    return ONE.replace("listen =", f"timeouts {{ {text} }} listen =")


def behind(text):
    return ONE.replace("server", f"timeouts {{ {text} }} server")


def test_head_too_slow(gateway, upstream):
    gw = gateway(listener("header = 300ms"), app=upstream())
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHos")
    check(gw, client.response(), 408, "client.timeout_head")
    client.expect_closed()


def test_head_that_drips_is_too_slow_too(gateway, upstream):
    gw = gateway(listener("header = 500ms"), app=upstream())
    client = gw.client()
    with pytest.raises((Closed, AssertionError)):
        client.send_slowly(b"GET / HTTP/1.1\r\nX: " + b"y" * 400, pause=0.02)
        client.send(b"\r\n" + H + b"\r\n")
        assert client.response().status == 200
    gw.wait_log(reason="client.timeout_head")


def test_body_too_slow(gateway, upstream):
    up = upstream()
    gw = gateway(listener("body = 300ms"), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 10\r\n\r\nhalf")
    conn = up.accept()
    conn.expect_head()
    check(gw, client.response(), 408, "client.timeout_body")
    client.expect_closed()
    conn.read_to_end()


def test_long_upload_that_keeps_moving_lives(gateway, upstream):
    up = upstream()
    gw = gateway(listener("body = 1s"), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 15\r\n\r\n")
    client.send_slowly(b"fifteen bytes..", pause=0.1)
    conn = up.accept()
    assert conn.expect().body == b"fifteen bytes.."
    conn.respond()
    assert client.response().status == 200


def test_idle_connection_ends_without_a_word(gateway, upstream):
    up = upstream()
    gw = gateway(listener("idle = 300ms"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    client.expect_closed()
    assert len(gw.wait_log()) == 1


def test_connection_that_never_says_a_word_ends(gateway, upstream):
    gw = gateway(listener("idle = 300ms  header = 300ms"), app=upstream())
    client = gw.client()
    data = client.read_to_end()
    assert data == b"" or data.startswith(b"HTTP/1.1 408 ")


def test_client_that_does_not_read(gateway, upstream):
    up = upstream()
    gw = gateway(listener("write = 500ms"), app=up)
    client = gw.client(receive_buffer=4096)
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    try:
        conn.respond(bytes(32 << 20))
    except (AssertionError, OSError):
        pass  # cut off, which is the point
    line = gw.wait_log(reason="client.timeout_write")[0]
    assert line["status"] in (200, 499)


RATE = "rate = 1k  rate_window = 400ms "


def test_body_that_drips_is_slower_than_the_rate(gateway, upstream):
    up = upstream()
    gw = gateway(listener(RATE), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n")
    conn = up.accept()
    conn.expect_head()
    with pytest.raises(AssertionError):
        client.send_slowly(b"1\r\nx\r\n" * 100, step=6, pause=0.05)
    gw.wait_log(reason="client.timeout_body", status=408)
    assert b"0\r\n\r\n" not in conn.read_to_end()


def test_body_as_fast_as_the_rate_lives(gateway, upstream):
    up = upstream()
    gw = gateway(listener(RATE), app=up)
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 6000\r\n\r\n")
    client.send_slowly(b"y" * 6000, step=200, pause=0.04)
    conn = up.accept()
    assert conn.expect().body == b"y" * 6000
    conn.respond()
    assert client.response().status == 200


def test_a_slow_backend_is_not_the_clients_fault(gateway, upstream):
    """While the upload is held back the rate does not count."""
    up = upstream()
    gw = gateway(listener(RATE + "} limits { body_bytes = 0"), app=up)
    client = gw.client()
    client.sock.settimeout(1.0)
    with pytest.raises(socket.timeout):
        client.send(b"POST / HTTP/1.1\r\n" + H + b"Content-Length: 64000000\r\n\r\n" + bytes(64000000))
    client.sock.settimeout(15)
    conn = up.accept()
    conn.respond(b"enough", fields=[("Connection", "close")])
    assert client.response().body == b"enough"


def test_answer_that_is_taken_slower_than_the_rate(gateway, upstream):
    up = upstream()
    gw = gateway(listener(RATE + "write = 10s"), app=up)
    client = gw.client(receive_buffer=4096)
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    sender = threading.Thread(target=send_until_cut, args=(conn,))
    sender.start()
    for _ in range(60):
        client.sock.recv(10)
        time.sleep(0.05)
        if gw.log_lines():
            break
    assert gw.wait_log(reason="client.timeout_write")
    sender.join(15)


def send_until_cut(conn):
    try:
        conn.respond(bytes(32 << 20))
    except (AssertionError, OSError):
        pass


def test_answer_that_is_taken_slowly_but_steadily_lives(gateway, upstream):
    """Longer than `write` between two bytes that the kernel takes, but the client reads."""
    up = upstream()
    gw = gateway(listener("write = 300ms  rate = 1k  rate_window = 300ms"), app=up)
    client = gw.client(receive_buffer=8192)
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    sender = threading.Thread(target=conn.respond, args=(bytes(5 << 20),))
    sender.start()
    response = client.head()
    taken = 0
    for _ in range(40):  # two seconds at 160 KiB/s
        taken += len(client.read_exact(8192))
        time.sleep(0.05)
    client.read_exact(response.length - taken)
    sender.join(15)


def test_connecting_takes_too_long(gateway):
    """A listen queue that is full answers nothing at all."""
    host = "127.0.0.1"
    full = socket.socket()
    full.bind((host, 0))
    full.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    gw = gateway(behind("connect = 300ms").replace("server", "retry { attempts = 0 } server"),
                 app="%s:%d" % full.getsockname())
    check(gw, gw.get(), 504, "upstream.timeout_connect")
    for thing in (full, *fillers):
        thing.close()


def test_backend_does_not_answer(gateway, upstream):
    up = upstream()
    gw = gateway(behind("response = 300ms"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    problem = check(gw, client.response(), 504, "upstream.timeout_response")
    assert problem["detail"] == f"Backend did not answer in time: upstream \"app\", server {up}."
    conn.expect_closed()
    up.expect_no_connection(0.2)  # a timeout is not retried unless asked for


def test_backend_stops_in_the_middle(gateway, upstream):
    up = upstream()
    gw = gateway(behind("idle = 300ms"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
    client.head()
    try:
        assert client.read_to_end() == b"some"
    except ConnectionResetError:
        pass
    assert gw.wait_log(reason="upstream.timeout_idle")[0]["upstream_status"] == 200
    conn.expect_closed()


def test_request_takes_too_long_in_all(gateway, upstream):
    up = upstream()
    gw = gateway(behind("total = 400ms  response = 20s"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    up.accept().expect()
    check(gw, client.response(), 504, "upstream.timeout_total")


def test_route_has_its_own_total(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("upstream = app", "timeout = 400ms  upstream = app"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    up.accept().expect()
    check(gw, client.response(), 504, "upstream.timeout_total")


def test_stream_that_keeps_moving_outlives_the_response_timeout(gateway, upstream):
    up = upstream()
    gw = gateway(behind("response = 500ms  idle = 1s"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")
    conn.send_slowly(b"twelve bytes", pause=0.08)
    assert client.response().body == b"twelve bytes"


def test_the_clients_connection_lives_on_after_a_504(gateway, upstream):
    up = upstream()
    gw = gateway(behind("response = 200ms"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    up.accept().expect()
    assert client.response().status == 504
    client.send(b"GET / HTTP/1.1\r\n" + H + b"\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond(b"in time")
    assert client.response().body == b"in time"


def test_admin_is_not_in_the_way_of_silent_clients(gateway, upstream):
    """A client that connects to the admin listener and says nothing stops nobody else."""
    gw = gateway(ONE, app=upstream())
    silent = Client.to(gw.address("admin"))
    assert gw.admin("/healthz").status == 200
    silent.close()
