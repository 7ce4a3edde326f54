"""How long the client still waits: told to servers, and believed from trusted proxies."""

import pytest

from conftest import ONE
from test_errors import check

NAME = "X-Request-Deadline-Ms"


def config(upstream="", route="", trusted=True):
    text = ONE.replace("server", f"{upstream} server", 1).replace("upstream = app", f"{route} upstream = app")
    return text.replace("listen =", 'trusted_proxies = {"127.0.0.0/8"}  listen =') if trusted else text


def ask(gw, up, *fields, answer=True):
    client = gw.client()
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    client.send(f"GET / HTTP/1.1\r\nHost: t\r\n{lines}\r\n")
    conn = up.accept()
    request = conn.expect()
    if answer:
        conn.respond(fields=[("Connection", "close")])
        assert client.response().status == 200
    return request


def left_of(request):
    return int(request.get(NAME))


@pytest.mark.parametrize("options, route, most", [
    ("timeouts { total = 60s } tell_deadline = true", "", 60000),
    ("tell_deadline = true", "timeout = 50s", 50000),
    ("timeouts { total = 60s } tell_deadline = true", "timeout = 40s", 40000),
])
def test_servers_are_told_how_much_is_left(gateway, upstream, options, route, most):
    up = upstream()
    gw = gateway(config(options, route), app=up)
    assert most - 30000 < left_of(ask(gw, up)) <= most


@pytest.mark.parametrize("options", ["tell_deadline = true", "timeouts { total = 60s }"])
def test_nothing_is_said_unasked_or_without_a_limit(gateway, upstream, options):
    up = upstream()
    gw = gateway(config(options), app=up)
    assert not ask(gw, up).has(NAME)


def test_each_try_has_less(gateway, upstream):
    up = upstream()
    gw = gateway(config("timeouts { total = 60s  response = 300ms } tell_deadline = true "
                        "retry { on = {timeout} }"), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    first = left_of(up.accept().expect())
    conn = up.accept()
    second = left_of(conn.expect())
    conn.respond()
    assert client.response().status == 200 and second <= first - 300


def test_a_trusted_proxys_word_shortens_the_time(gateway, upstream):
    up = upstream()
    gw = gateway(config("timeouts { total = 60s } tell_deadline = true"), app=up)
    assert left_of(ask(gw, up, (NAME, "30000"))) <= 30000
    assert left_of(ask(gw, up, (NAME, "90000"))) > 30000, "it never lengthens it"
    assert left_of(ask(gw, up, ("X-Forwarded-For", "192.0.2.1"))) > 30000


def test_and_ends_the_request(gateway, upstream):
    up = upstream()
    gw = gateway(config(), app=up)
    client = gw.client()
    client.send(f"GET / HTTP/1.1\r\nHost: t\r\n{NAME}: 300\r\n\r\n")
    up.accept().expect()
    check(gw, client.response(), 504, "upstream.timeout_total")


def test_who_waits_no_more_is_not_served(gateway, upstream):
    up = upstream()
    gw = gateway(config(), app=up)
    client = gw.client()
    client.send(f"GET / HTTP/1.1\r\nHost: t\r\n{NAME}: 0\r\n\r\n")
    check(gw, client.response(), 504, "upstream.timeout_total")
    up.expect_no_connection(0.1)


@pytest.mark.parametrize("value", ["", "-1", "1e3", "99999999999999999999", "5, 6", "soon"])
def test_what_is_no_number_is_not_believed(gateway, upstream, value):
    up = upstream()
    gw = gateway(config("timeouts { total = 60s } tell_deadline = true"), app=up)
    assert left_of(ask(gw, up, (NAME, value))) > 30000


@pytest.mark.parametrize("name", [NAME, "X_Request_Deadline_Ms", "x-request.deadline-ms"])
@pytest.mark.parametrize("options", ["", "timeouts { total = 60s } tell_deadline = true"])
def test_a_strangers_word_is_dropped(gateway, upstream, name, options):
    up = upstream()
    gw = gateway(config(options, trusted=False), app=up)
    request = ask(gw, up, (name, "1"))
    assert all("deadline" not in field or value != "1"
               for field, value in zip(request.names, [v for _, v in request.fields]))


def test_a_route_may_say_something_else(gateway, upstream):
    up = upstream()
    gw = gateway(config("timeouts { total = 60s  response = 300ms } tell_deadline = true "
                        "retry { on = {timeout} }",
                        f'request_headers {{ set = "{NAME}: 7" }}'), app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    assert left_of(up.accept().expect()) == 7
    assert left_of(up.accept().expect()) == 7, "at the second try too"
