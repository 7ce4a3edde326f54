"""Connections to backends: warm before the first request, reused, and never reused wrongly."""

import threading

import pytest

from conftest import ONE
from gateway import free_address, own_host, until

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx"


def pool(text, extra=""):
    return ONE.replace("server", f"pool {{ {text} }} {extra} server")


def turn(client, conn, answer=b"ok", request=GET):
    client.send(request)
    conn.expect()
    conn.respond(answer)
    response = client.response()
    assert response.status == 200 and response.body == answer


@pytest.mark.parametrize("workers, warm", [(1, 3), (2, 4), (2, 3)])
def test_exactly_the_warm_connections_stand_before_the_first_request(gateway, backend, workers, warm):
    app = backend()
    gw = gateway(f"workers = {workers}\n" + pool(f"warm = {warm}"), app=app)
    until(lambda: app.opened >= warm, "the backend's thread has taken them from its queue")
    assert app.opened == warm
    assert gw.get().status == 200
    assert app.opened == warm, "the first request opened none"
    server = gw.upstream("app", app)
    assert server["opened"] == warm and server["requests"] == 1


def test_concurrent_first_requests_use_the_warm_connections(gateway, upstream):
    up = upstream()
    gw = gateway(pool("warm = 3"), app=up)
    conns = [up.accept() for _ in range(3)]
    clients = [gw.client() for _ in range(3)]
    for client in clients:
        client.send(GET)
    for conn in conns:
        conn.expect()
        conn.respond()
    assert [client.response().status for client in clients] == [200] * 3
    up.expect_no_connection(0.1)


def test_warm_connections_are_refilled(gateway, upstream):
    up = upstream()
    gw = gateway(pool("warm = 2"), app=up)
    first, second = up.accept(), up.accept()
    first.close()
    third = up.accept()
    until(lambda: gw.upstream("app", up)["idle"] == 2, "two are idle again")
    second.close()
    third.close()
    up.accept()
    up.accept()
    until(lambda: gw.upstream("app", up)["idle"] == 2, "two are idle again")


def test_a_dead_backend_does_not_keep_the_gateway_from_starting(gateway):
    gw = gateway(pool("warm = 2"), app=free_address(own_host()))
    assert gw.admin("/readyz").status == 200
    assert gw.get().status == 502


def test_a_backend_that_comes_later_is_warmed_without_a_storm(gateway, backend):
    address = free_address(own_host())
    gw = gateway(pool("warm = 2"), app=address)
    before = gw.cpu_seconds()
    threading.Event().wait(1.0)
    assert gw.cpu_seconds() - before < 0.5, "connecting again and again without a pause"
    app = backend(port=int(address.rsplit(":", 1)[1]))
    until(lambda: gw.upstream("app", address)["idle"] == 2, "warm once it is there", 30)
    until(lambda: app.opened >= 2, "both are accepted")
    assert app.opened == 2


def test_the_floor_is_held_after_a_burst_and_after_a_failure(gateway, backend):
    app = backend()
    gw = gateway(pool("warm = 3  idle = 5"), app=app)
    clients = [gw.client() for _ in range(20)]
    for client in clients:
        client.send(GET)
    for client in clients:
        assert client.response().status == 200

    def settled(low, high):
        server = gw.upstream("app", app)
        return server["active"] == 0 and low <= server["idle"] <= high == max(high, len(app.open)) \
            and len(app.open) == server["idle"]

    until(lambda: settled(3, 5), "no more than may be idle stay, no fewer than the floor")
    port = app.port
    app.stop()
    until(lambda: gw.upstream("app", app)["idle"] == 0, "all are gone")
    again = backend(port=port)
    until(lambda: gw.upstream("app", app)["idle"] == 3, "the floor stands again", 30)
    until(lambda: again.opened == 3, "the backend's thread has taken them from its queue")


@pytest.mark.threads
@pytest.mark.parametrize("change", [
    "timeouts { response = 9s }", "retry { attempts = 3 }", "balance = least_requests",
    "breaker { pending = 9 }", 'server "@more@" { weight = 3 }', "hash_bound = 150%",
    "outlier { failures = 3 }", "slow_start = 5s  panic = use_all", 'sticky_cookie { name = "s" }',
    "host = upstream  tell_deadline = true"])
def test_a_reload_that_changes_something_else_keeps_the_connections(gateway, backend, change):
    app, more = backend(), backend("more")
    config = "workers = 2\n" + pool("warm = 4", "@CHANGE@").replace("@CHANGE@", "%s")
    gw = gateway(config % "", app=app, more=more)
    until(lambda: app.opened == 4, "warm")
    assert gw.get().status == 200
    gw.reload(config % change)
    for _ in range(8):
        assert gw.get().status == 200
    assert app.opened == 4, "nothing was opened anew"
    assert gw.upstream("app", app)["idle"] == 4


def test_health_checks_that_a_reload_brings_keep_the_connections(gateway, backend):
    """Probes connect by themselves; what asks for / is the connection of before."""
    asked_by = set()  # each connection has a thread of its own

    def note(request):
        if request.target == "/":
            asked_by.add(threading.current_thread())
        return b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    app = backend(answer=note)
    gw = gateway(pool("warm = 1"), app=app)
    assert gw.get().status == 200
    for options in ('health { path = "/up" interval = 20ms }', 'health { interval = 50ms type = tcp }', ""):
        gw.reload(pool("warm = 1", options))
        for _ in range(5):
            assert gw.get().status == 200
    assert len(asked_by) == 1, "one connection served them all"


@pytest.mark.threads
def test_a_reload_that_makes_connections_different_opens_others(gateway, backend):
    app = backend()
    config = "workers = 2\n" + pool("warm = 4")
    gw = gateway(config, app=app)
    until(lambda: app.opened == 4, "warm")
    gw.reload(config.replace("pool { warm = 4 }", "proxy_protocol = v1"))
    until(lambda: len(app.open) == 0, "the old ones are closed")


@pytest.mark.threads
def test_a_reload_takes_new_limits_over_to_old_connections(gateway, backend):
    app = backend()
    config = "workers = 2\n" + pool("warm = %d  idle = %d")
    gw = gateway(config % (4, 8), app=app)
    until(lambda: app.opened == 4, "warm")
    gw.reload(config % (8, 8))
    assert gw.upstream("app", app)["opened"] == 8, "warm before it takes effect; the first four stayed"
    gw.reload(config % (2, 2))
    until(lambda: gw.upstream("app", app)["idle"] == len(app.open) == 2, "two are kept")
    until(lambda: app.opened == 8, "both")


def test_reuse_is_counted(gateway, backend):
    app = backend()
    gw = gateway(app=app)
    client = gw.client()
    for _ in range(200):
        client.get()
    server = gw.upstream("app", app)
    assert app.opened == 1
    assert (server["opened"], server["reused"], server["requests"]) == (1, 199, 200)
    assert gw.metric("postern_upstream_connections_opened_total", upstream="app") == 1
    assert gw.metric("postern_upstream_connection_reuses_total", upstream="app") == 199
    lines = gw.wait_log(200)
    assert [line["reused"] for line in lines] == [False] + [True] * 199


def test_clients_share_connections(gateway, backend):
    app = backend()
    gw = gateway(app=app)
    for _ in range(20):
        assert gw.get().status == 200
    assert app.opened == 1


def test_no_more_idle_than_allowed(gateway, upstream):
    up = upstream()
    gw = gateway(pool("idle = 2"), app=up)
    clients = [gw.client() for _ in range(4)]
    conns = []
    for client in clients:
        client.send(GET)
        conns.append(up.accept())
        conns[-1].expect()
    for client, conn in zip(clients, conns):
        conn.respond()
        client.response()
    until(lambda: sum(conn.is_closed_by_peer(0.05) for conn in conns) == 2, "two are closed")
    assert gw.upstream("app", up)["idle"] == 2


def test_idle_timeout(gateway, upstream):
    up = upstream()
    gw = gateway(pool("idle_timeout = 400ms"), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    turn_rest = conn.expect() and conn.respond()
    assert turn_rest is None and client.response().status == 200
    conn.expect_closed()
    until(lambda: gw.upstream("app", up)["idle"] == 0, "gone from the pool")


def test_lifetime(gateway, backend):
    """Used all the time, so that idle_timeout is not what ends it."""
    app = backend()
    gw = gateway(pool("lifetime = 400ms"), app=app)
    client = gw.client()

    def used_up():
        assert client.get().status == 200
        return app.opened >= 3

    until(used_up, "a third connection")
    assert gw.upstream("app", app)["requests"] == app.count, "and no request was lost or doubled"


def test_requests_per_backend_connection(gateway, backend):
    app = backend()
    gw = gateway(pool("requests = 5"), app=app)
    client = gw.client()
    for _ in range(20):
        assert client.get().status == 200
    assert app.opened == 4


def test_keep_alive_hint_of_the_backend_is_heeded(gateway, upstream):
    """Closed here before the backend closes it there."""
    up = upstream()
    gw = gateway(app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond(fields=[("Keep-Alive", "timeout=2")])
    client.response()
    conn.expect_closed(10)


def test_a_backends_own_idle_limit_is_learned(gateway, upstream):
    """It says nothing, and hangs up after about the same time each time: from then on the gateway
    leaves first. A busy machine may need more rounds."""
    up = upstream()
    gw = gateway(app=up)
    for _ in range(12):
        client = gw.client()
        client.send(GET)
        conn = up.accept()
        conn.expect()
        conn.respond()
        assert client.response().status == 200
        client.close()
        if conn.is_closed_by_peer(1.2):
            break
        conn.close()
        until(lambda: gw.upstream("app", up)["idle"] == 0, "its end was noticed")
    else:
        pytest.fail("it never learned")


def test_connection_closed_while_idle_is_not_used(pair):
    gw, up = pair
    client = gw.client()
    client.send(POST)
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    conn.close()
    until(lambda: gw.upstream("app", up)["idle"] == 0, "its end was noticed")
    client.send(POST)  # must not be lost, and must not need a retry
    conn = up.accept()
    conn.expect()
    conn.respond(b"second")
    assert client.response().body == b"second"
    assert gw.wait_log(2)[1]["attempts"] == 1


def test_keep_alive_race_is_retried_once_for_idempotent_requests(gateway, upstream):
    """The backend closes a reused connection just as the request goes out."""
    up = upstream()
    gw = gateway(ONE.replace("server", "retry { attempts = 0 } server"), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    client.send(GET)
    conn.expect()
    conn.close()
    fresh = up.accept()
    fresh.expect()
    fresh.respond(b"at last")
    assert client.response().body == b"at last"
    assert gw.wait_log(2)[1]["attempts"] == 2


def test_keep_alive_race_on_a_warm_connection(gateway, upstream):
    """It carried no request yet, but it was idle all the same."""
    up = upstream()
    gw = gateway(pool("warm = 1", "retry { attempts = 0 }"), app=up)
    conn = up.accept()
    client = gw.client()
    client.send(GET)
    conn.expect()
    conn.close()
    fresh = up.accept()
    fresh.expect()
    fresh.respond(b"at last")
    assert client.response().body == b"at last"


def test_keep_alive_race_never_sends_a_post_twice(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    client.send(POST)
    conn.expect()
    conn.close()
    assert client.response().status == 502
    gw.wait_log(reason="upstream.reset")
    up.expect_no_connection(0.3)


def test_keep_alive_race_is_over_with_the_first_byte_of_an_answer(gateway, upstream):
    up = upstream()
    gw = gateway(ONE.replace("server", "retry { attempts = 0 } server"), app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    client.send(GET)
    conn.expect()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Le")
    conn.close()
    assert client.response().status == 502
    gw.wait_log(reason="upstream.reset")
    up.expect_no_connection(0.2)


def test_connection_of_a_client_that_left_is_not_reused(pair):
    gw, up = pair
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    client.reset()
    conn.expect_closed()
    other = gw.client()
    other.send(GET)
    fresh = up.accept()
    fresh.expect()
    fresh.respond(b"mine")
    assert other.response().body == b"mine"


def test_early_answer_ends_the_backend_connection(pair):
    """The request body did not go out whole: its connection cannot carry another."""
    gw, up = pair
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\npart")
    conn = up.accept()
    conn.expect_head()
    conn.read_exact(4)
    conn.respond(b"early", status="400 Bad Request")
    assert client.response().status == 400
    client.close()
    conn.read_to_end()
    other = gw.client()
    other.send(GET)
    fresh = up.accept()
    fresh.expect()
    fresh.respond()
    assert other.response().status == 200
