"""retry { on, attempts, budget }: what is sent again, and what never is."""

import select
import threading

import pytest

from conftest import HTTP
from gateway import until
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


TWO = HTTP + '''upstream "app" { server "@a@" {} server "@b@" {} retry { %s } %s }
route "all" { path = "/{rest...}"  upstream = app }'''


def play(gw, *ups, client=None, request=GET):
    """Sends a request and says which upstream got it, with its connection."""
    client = client or gw.client()
    client.send(request)
    return client, *whose(*ups)


def whose(*ups):
    waiting = {up.sock: up for up in ups}
    ready, _, _ = select.select(list(waiting), [], [], 15)
    assert ready, "no upstream was asked"
    up = waiting[ready[0]]
    return up, up.accept()


@pytest.mark.parametrize("how", ["dead", "reset", "garbage", "silent"])
@pytest.mark.parametrize("body", [b"theirs", b"x" * 300_000, b""], ids=["short", "long", "none"])
def test_a_backends_own_error_is_told_when_the_retry_fails_too(gateway, upstream, how, body):
    a, b = upstream(), upstream()
    gw = gateway(TWO % ('on = {connect, reset, "503"}', "timeouts { response = 400ms }"), a=a, b=b)
    client, up, conn = play(gw, a, b)
    other = b if up is a else a
    if how == "dead":
        other.close()
    conn.expect()
    sender = threading.Thread(target=conn.respond, args=(body,),
                              kwargs={"status": "503 Service Unavailable", "fields": [("X-Own", "1")]})
    sender.start()
    if how != "dead":
        second = other.accept()
        second.expect()
        if how == "reset":
            second.reset()
        elif how == "garbage":
            second.send(b"SSH-2.0-x\r\n")
    response = client.response()
    sender.join()
    assert (response.status, response.body, response.get("X-Own")) == (503, body, "1")
    line = gw.wait_log()[0]
    assert line["status"] == line["upstream_status"] == 503 and line["attempts"] == 2
    assert line["server"] == str(up) and not line["reason"]
    assert not client.is_closed_by_peer(0.1), "its connection lives on"


def test_an_error_that_breaks_off_is_not_kept(gateway, upstream):
    a, b = upstream(), upstream()
    gw = gateway(TWO % ('on = {connect, reset, "503"}', ""), a=a, b=b)
    client, up, conn = play(gw, a, b)
    conn.expect()
    conn.send(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 10\r\n\r\nhalf")
    other = b if up is a else a
    second = other.accept()
    second.expect()
    conn.reset()
    until(lambda: gw.upstream("app", up)["active"] == 0, "its end was noticed")
    second.reset()
    assert client.response().status == 502
    gw.wait_log(reason="upstream.reset")


def test_the_kept_error_goes_when_the_retry_succeeds(gateway, upstream):
    """And its connection, complete or not, is accounted for."""
    a, b = upstream(), upstream()
    gw = gateway(TWO % ('on = {"503"} budget = 100%', ""), a=a, b=b)
    for i in range(20):
        client, up, conn = play(gw, a, b)
        conn.expect()
        if i % 2:
            conn.send(b"HTTP/1.1 503 Unavailable\r\nConnection: close\r\nContent-Length: 9\r\n\r\nhalf")
        else:
            conn.respond(b"bad", status="503 No", fields=[("Connection", "close")])
        second = (b if up is a else a).accept()
        second.expect()
        second.respond(b"good", fields=[("Connection", "close")])
        response = client.response()
        assert (response.status, response.body) == (200, b"good")
        client.close()
    for up in (a, b):
        until(lambda: gw.upstream("app", up)["active"] == gw.upstream("app", up)["idle"] == 0,
              "nothing is open")


def test_total_that_ends_during_a_retry_tells_the_backends_own_error(gateway, upstream):
    a, b = upstream(), upstream()
    gw = gateway(TWO % ('on = {"503"}', "timeouts { total = 500ms }"), a=a, b=b)
    client, up, conn = play(gw, a, b)
    conn.expect()
    conn.respond(b"theirs", status="503 No")
    (b if up is a else a).accept().expect()
    assert client.response().body == b"theirs"


def test_budget_that_refuses_lets_the_backends_own_error_pass_and_is_counted(gateway, backend):
    app = backend(answer=lambda request: b"HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\ntheirs")
    gw = gateway(config('on = {"503"}  attempts = 5  budget = 0%'), app=app)
    for _ in range(20):
        response = gw.get()
        assert response.status == 503 and response.body == b"theirs"
    tried = gw.metric("postern_upstream_retries_total", upstream="app")
    assert app.count == 20 + tried
    assert gw.metric("postern_upstream_retries_refused_total", upstream="app") > 0


def test_a_try_has_its_own_time(gateway, upstream):
    a, b = upstream(), upstream()
    gw = gateway(TWO % ("on = {timeout}  try_timeout = 300ms", ""), a=a, b=b)
    client, up, conn = play(gw, a, b)
    conn.expect()
    second = (b if up is a else a).accept()
    second.expect()
    conn.expect_closed()
    second.respond(b"in time")
    assert client.response().body == b"in time"
    assert gw.wait_log()[0]["attempts"] == 2


def test_the_last_try_has_its_time_too(gateway, upstream):
    up = upstream()
    gw = gateway(config("attempts = 1  on = {timeout}  try_timeout = 200ms"), app=up)
    client = gw.client()
    client.send(GET)
    for _ in range(2):
        up.accept().expect()
    assert client.response().status == 504
    assert gw.wait_log(reason="upstream.timeout_response")[0]["attempts"] == 2


def test_a_slow_upload_is_not_the_trys_fault(gateway, upstream):
    up = upstream()
    gw = gateway(config("on = {timeout}  try_timeout = 1s"), app=up)
    client = gw.client()
    client.send(b"PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n")
    client.send_slowly(b"ten bytes.", pause=0.13)
    conn = up.accept()
    assert conn.expect().body == b"ten bytes."
    conn.respond(b"once")
    assert client.response().body == b"once"
    up.expect_no_connection(0.1)


def test_an_answer_that_has_begun_may_take_longer_than_a_try(gateway, upstream):
    up = upstream()
    gw = gateway(config("on = {timeout}  try_timeout = 300ms"), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
    conn.send_slowly(b"slowly..", pause=0.1)
    assert client.response().body == b"slowly.."


@pytest.mark.parametrize("size, limit, again", [(1000, "64k", True), (65536, "64k", True),
                                                (65537, "64k", False), (1000, "999", False),
                                                (300_000, "1m", True), (1, "0", False),
                                                (0, "0", True)])
def test_so_much_of_a_body_is_kept_for_another_try(gateway, upstream, size, limit, again):
    up = upstream()
    gw = gateway(config(f"body_bytes = {limit}"), app=up)
    body = bytes(i % 251 for i in range(size))
    client = gw.client()
    client.send(b"PUT / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % size + body)
    conn = up.accept()
    assert conn.expect().body == body
    conn.reset()
    if again:
        conn = up.accept()
        assert conn.expect().body == body, "every byte of it, once more"
        conn.respond()
        assert client.response().status == 200
    else:
        assert client.response().status == 502
        up.expect_no_connection(0.1)


@pytest.mark.parametrize("allowed, method, tries", [("any", "POST", 2), ("any", "PATCH", 2),
                                                    ("never", "GET", 1), ("never", "POST", 1),
                                                    ("idempotent", "GET", 2),
                                                    ("idempotent", "POST", 1)])
def test_a_route_says_what_may_be_executed_twice(gateway, upstream, allowed, method, tries):
    up = upstream()
    gw = gateway(config("").replace("upstream = app", f"retry = {allowed}  upstream = app"), app=up)
    client = gw.client()
    client.send(f"{method} / HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nbody")
    for _ in range(tries):
        conn = up.accept()
        assert conn.expect().body == b"body"
        conn.close()
    assert client.response(method).status == 502
    up.expect_no_connection(0.1)
    assert gw.wait_log()[0]["attempts"] == tries


def test_never_means_not_even_what_was_not_sent(gateway, backend):
    from gateway import free_address, own_host
    gw = gateway((TWO % ("", "")).replace("upstream = app", "retry = never  upstream = app"),
                 a=free_address(own_host()), b=free_address(own_host()))
    assert gw.get().status == 502
    assert gw.wait_log()[0]["attempts"] == 1


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
