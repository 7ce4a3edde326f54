"""Backends that misbehave: the right reason, and nothing is left behind however often."""

import threading

import pytest

from conftest import ONE
from gateway import until
from wire import Closed

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
TIMES = 25
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def config(text):
    return ONE.replace("server", f"retry {{ attempts = 0 }} {text} server", 1)


def silence(conn):
    conn.expect()


def answer_drop_by_drop(conn):
    """A head that never ends, byte by byte: each byte is no progress."""
    conn.expect()
    conn.send_slowly(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000, pause=0.02)


def body_drop_by_drop(conn):
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n")
    conn.send_slowly(b"y" * 20, pause=0.005)


def reset_in_the_head(conn):
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-")
    conn.reset()


def reset_in_the_body(conn):
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
    conn.reset()


def close_in_a_chunk(conn):
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nhalf")
    conn.close()


def stop_in_the_body(conn):
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")


def close_at_once(conn):
    conn.close()


def reset_at_once(conn):
    conn.reset()


def garbage(conn):
    conn.expect()
    conn.send(b"220 mail.example ESMTP\r\n")


def two_answers(conn):
    """The second is nobody's: the connection must not serve anybody else."""
    conn.expect()
    conn.send(OK + OK)


QUICK = "timeouts { response = 150ms  idle = 150ms }"
BAD = {
    silence: ("upstream.timeout_response", 504),
    answer_drop_by_drop: ("upstream.timeout_response", 504),
    body_drop_by_drop: ("", 200),
    reset_in_the_head: ("upstream.reset", 502),
    reset_in_the_body: ("upstream.reset", 200),
    close_in_a_chunk: ("upstream.reset", 200),
    stop_in_the_body: ("upstream.timeout_idle", 200),
    close_at_once: ("upstream.reset", 502),
    reset_at_once: ("upstream.reset upstream.connect", 502),  # it may come before we know of the connection
    garbage: ("upstream.protocol", 502),
    two_answers: ("", 200),
}


@pytest.mark.parametrize("how", BAD, ids=lambda how: how.__name__)
def test_it_has_its_reason_and_leaves_nothing_behind(gateway, upstream, how):
    reason, status = BAD[how]
    up = upstream()
    gw = gateway(config(QUICK if reason else ""), app=up)

    def one():
        client = gw.client()
        client.send(GET)
        conn = up.accept()

        def play():
            try:
                how(conn)
            except (Closed, OSError):
                pass

        player = threading.Thread(target=play)
        player.start()
        response = client.head()
        assert response.status == status
        try:
            client.read_body(response)
        except (Closed, AssertionError):
            assert reason
        player.join(15)
        client.close()
        conn.close()

    one()
    until(lambda: gw.upstream("app", up)["active"] == 0, "nothing is under way")
    before = gw.descriptors()
    for _ in range(TIMES):
        one()
    lines = gw.wait_log(TIMES + 1, status=status)
    assert len(lines) == TIMES + 1 and {line["reason"] or "" for line in lines} <= set(reason.split() or [""])

    def clean():
        server = gw.upstream("app", up)
        return server["active"] == server["idle"] == 0 and gw.descriptors() <= before

    until(clean, f"no connection and no descriptor is left: {before}")
    for conn in up.conns:
        conn.close()


def test_a_backend_that_takes_nothing_of_an_upload(gateway, upstream):
    """What is sent stands in the kernel's buffers: the client is told, and is not to blame."""
    up = upstream()
    gw = gateway(config("timeouts { response = 300ms }"), app=up)
    before = gw.descriptors()
    for i in range(5):
        client = gw.client()
        client.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9000000\r\n\r\n")
        conn = up.accept()
        conn.expect_head()
        client.sock.setblocking(False)
        block = b"x" * 65536

        def sent_all_that_fits():
            try:
                while client.sock.send(block):
                    pass
            except BlockingIOError:
                return gw.metric("postern_responses_total", reason="upstream.timeout_response") > i
            except (BrokenPipeError, ConnectionResetError):
                return True
            return False

        until(sent_all_that_fits, "it has had enough")
        client.close()
        conn.close()
    lines = gw.wait_log(5, status=504)
    assert {line["reason"] for line in lines} == {"upstream.timeout_response"}
    until(lambda: gw.upstream("app", up)["active"] == 0 and gw.descriptors() <= before, "nothing is left")


def test_a_backend_that_never_accepts_leaves_nothing_behind(gateway, upstream):
    """Connections that stand in its queue only: they are open as far as anybody can see."""
    up = upstream(backlog=64)
    gw = gateway(config(QUICK), app=up)
    assert gw.get().status == 504
    until(lambda: gw.upstream("app", up)["active"] == 0, "nothing is under way")
    before = gw.descriptors()
    for _ in range(10):
        assert gw.get().status == 504
    assert gw.wait_log(11, reason="upstream.timeout_response")
    until(lambda: gw.upstream("app", up)["active"] == 0 and gw.descriptors() <= before,
          "no descriptor is left")
