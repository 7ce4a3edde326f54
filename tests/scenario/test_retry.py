"""retry { on, attempts, budget }: what is sent again, and what never is."""

import pytest

from conftest import HTTP
from wire import Closed

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx"


def config(retry, extra=""):
    return (HTTP + f'upstream "app" {{ server "@app@" {{}} retry {{ {retry} }} {extra} }}\n'
            'route "all" { path = "/{rest...}"  upstream = app }\n')


def test_reset_on_a_fresh_connection_is_retried(gateway, upstream):
    up = upstream()
    gw = gateway(config(""), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.reset()
    conn = up.accept()
    conn.expect()
    conn.respond(b"second try")
    assert client.response().body == b"second try"
    line = gw.wait_log()[0]
    assert line["attempts"] == 2 and line["status"] == 200 and not line["reason"]
    assert gw.metric("postern_upstream_retries_total", upstream="app") == 1


def test_reset_is_not_retried_when_not_asked_for(gateway, upstream):
    up = upstream()
    gw = gateway(config("on = {connect}"), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.close()
    assert client.response().status == 502
    up.expect_no_connection(0.2)


@pytest.mark.parametrize("attempts", [0, 1, 3])
def test_attempts_are_the_tries_after_the_first(gateway, upstream, attempts):
    up = upstream()
    gw = gateway(config(f"attempts = {attempts}  budget = 100%"), app=up)
    client = gw.client()
    client.send(GET)
    for _ in range(attempts + 1):
        conn = up.accept()
        conn.expect()
        conn.close()
    assert client.response().status == 502
    up.expect_no_connection(0.2)
    assert gw.wait_log()[0]["attempts"] == attempts + 1


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Service Unavailable",
                                    "504 Gateway Timeout"])
def test_statuses_are_retried_when_asked_for(gateway, upstream, status):
    up = upstream()
    gw = gateway(config(f'on = {{"{status[:3]}"}}'), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond(b"bad", status=status)
    try:
        conn.expect()  # on the same connection: it ended cleanly
    except (AssertionError, Closed):
        conn = up.accept()
        conn.expect()
    conn.respond(b"good")
    assert client.response().body == b"good"


def test_last_status_is_passed_on_when_tries_are_used_up(gateway, backend):
    app = backend(answer=lambda request:
                  b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\ntheirs")
    gw = gateway(config('on = {"503"}  attempts = 2  budget = 100%'), app=app)
    response = gw.get()
    assert response.status == 503 and response.body == b"theirs"
    assert app.count == 3


def test_statuses_are_not_retried_by_default(gateway, backend):
    app = backend(answer=lambda request:
                  b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    gw = gateway(config(""), app=app)
    assert gw.get().status == 503
    assert app.count == 1


def test_timeout_is_retried_when_asked_for(gateway, upstream):
    up = upstream()
    gw = gateway(config("on = {timeout}", "timeouts { response = 300ms }"), app=up)
    client = gw.client()
    client.send(GET)
    up.accept().expect()
    conn = up.accept()
    conn.expect()
    conn.respond(b"in time")
    assert client.response().body == b"in time"


@pytest.mark.parametrize("what", ["reset", "503", "timeout"])
def test_post_is_never_sent_twice(gateway, upstream, what):
    up = upstream()
    gw = gateway(config('on = {connect, reset, timeout, "502", "503", "504"}  attempts = 3  budget = 100%',
                        "timeouts { response = 400ms }"), app=up)
    client = gw.client()
    client.send(POST)
    conn = up.accept()
    conn.expect()
    if what == "reset":
        conn.reset()
    elif what == "503":
        conn.respond(b"", status="503 Service Unavailable")
    assert client.response().status in (502, 503, 504)
    up.expect_no_connection(0.3)
    assert gw.wait_log()[0]["attempts"] == 1


def test_post_that_never_left_may_try_again(gateway, upstream, backend):
    """Connecting failed: not one byte of it was sent."""
    from gateway import free_address, own_host
    app = backend()
    gw = gateway(HTTP + '''upstream "app" { server "@dead@" {} server "@app@" {} }
route "all" { path = "/{rest...}"  upstream = app }''', dead=free_address(own_host()), app=app)
    for _ in range(6):
        assert gw.get(method="POST", body=b"once").status == 200
    assert app.count == 6


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_idempotent_methods_are_retried(gateway, upstream, method):
    up = upstream()
    gw = gateway(config(""), app=up)
    client = gw.client()
    client.send(f"{method} / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.close()
    conn = up.accept()
    assert conn.expect().method == method
    conn.respond(b"")
    assert client.response(method).status == 200


def test_patch_is_not(gateway, upstream):
    up = upstream()
    gw = gateway(config(""), app=up)
    client = gw.client()
    client.send(b"PATCH / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.close()
    assert client.response("PATCH").status == 502
    up.expect_no_connection(0.2)


def test_budget_bounds_the_retries_of_many(gateway, backend):
    """With every backend connection failing, twenty clients at once must not double the load."""
    def fail(request):
        raise ValueError("closes the connection without an answer")

    app = backend(answer=fail)
    gw = gateway(config("attempts = 10  budget = 20%"), app=app)
    clients = [gw.client() for _ in range(20)]
    for client in clients:
        client.send(GET)
    for client in clients:
        assert client.response().status == 502
    assert 20 <= app.count < 20 + 100, "ten tries for each would be 220"
