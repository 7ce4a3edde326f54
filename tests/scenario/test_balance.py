"""Which backend gets which request."""

import collections
import socket
import threading

import pytest

from conftest import HTTP, ONE
from gateway import free_address, own_host, until

ROUTE = 'route "all" { path = "/{rest...}"  upstream = app }\n'


def config(servers, extra="", workers=1):
    return (f"workers = {workers}\n" + HTTP + f'upstream "app" {{ {servers} {extra} }}\n' + ROUTE)


def test_round_robin_is_exact(gateway, backend):
    apps = [backend(f"b{i}") for i in range(4)]
    gw = gateway(config('server "@a@" {} server "@b@" {} server "@c@" {} server "@d@" {}'),
                 **dict(zip("abcd", apps)))
    client = gw.client()
    for _ in range(40):
        assert client.get().status == 200
    assert [app.count for app in apps] == [10] * 4


@pytest.mark.undisturbed
@pytest.mark.threads
def test_round_robin_is_exact_over_workers_and_connections(gateway, backend):
    apps = [backend(f"b{i}") for i in range(3)]
    gw = gateway(config('server "@a@" {} server "@b@" {} server "@c@" {}', workers=2),
                 **dict(zip("abc", apps)))

    def requests():
        client = gw.client()
        for _ in range(30):
            assert client.get().status == 200

    threads = [threading.Thread(target=requests) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [app.count for app in apps] == [60] * 3
    assert sum(s["requests"] for s in gw.upstream("app")) == 180


def test_weights_are_exact_and_spread(gateway, backend):
    a, b, c = (backend(name) for name in "abc")
    gw = gateway(config('server "@a@" { weight = 3 } server "@b@" { weight = 2 } server "@c@" {}'),
                 a=a, b=b, c=c)
    client = gw.client()
    order = [client.get().body.decode() for _ in range(60)]
    assert collections.Counter(order) == {"a": 30, "b": 20, "c": 10}
    for i in range(0, 60, 6):
        assert collections.Counter(order[i:i + 6]) == {"a": 3, "b": 2, "c": 1}
    assert "aaa" not in "".join(order), "smooth: the heavy one does not get all its turns at once"


def test_least_requests_avoids_the_busy_one(gateway, upstream):
    a, b = upstream(), upstream()
    gw = gateway(config('server "@a@" {} server "@b@" {}', "balance = least_requests"), a=a, b=b)
    first = gw.client()
    first.send(b"GET /held HTTP/1.1\r\nHost: t\r\n\r\n")
    busy, free = a, b
    try:
        held = a.accept(1)
    except AssertionError:
        busy, free = b, a
        held = b.accept()
    held.expect()
    client = gw.client()
    conn = None
    for _ in range(4):
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
        conn = conn or free.accept()
        conn.expect()
        conn.respond()
        client.response()
    held.respond()
    first.response()
    busy.expect_no_connection(0.05)


def test_two_choices_sends_less_to_the_busy_one(gateway, backend):
    release, holds = threading.Event(), threading.Event()

    def answer(request, name):
        if request.target == "/held":
            holds.set()
            assert release.wait(30)
        return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + name

    a, b = (backend(name, lambda request, name=name: answer(request, name.encode()))
            for name in "ab")
    gw = gateway(config('server "@a@" {} server "@b@" {}', "balance = two_choices"), a=a, b=b)
    first = gw.client()
    first.send(b"GET /held HTTP/1.1\r\nHost: t\r\n\r\n")
    assert holds.wait(15)
    busy = a if a.count else b
    client = gw.client()
    for _ in range(60):
        assert client.get().status == 200
    assert busy.count - 1 < 27, "an even share of 60 would be 30"
    release.set()
    first.response()


@pytest.mark.parametrize("on, vary", [
    ("header:X-User", lambda k: dict(fields=[("X-User", k)])),
    ("cookie:session", lambda k: dict(fields=[("Cookie", f"a=b; session={k}; c=d")])),
    ("path", lambda k: dict(target=f"/{k}")),
])
def test_hash_keeps_a_key_on_its_server(gateway, backend, on, vary):
    apps = [backend(name) for name in "abc"]
    gw = gateway(config('server "@a@" {} server "@b@" {} server "@c@" {}',
                        f'balance = hash  hash_on = "{on}"'), **dict(zip("abc", apps)))
    client = gw.client()
    places = {}
    for _ in range(3):
        for key in range(30):
            body = client.get(**vary(f"key{key}")).body
            assert places.setdefault(key, body) == body
    assert len(set(places.values())) == 3, "thirty keys use all three servers"


def test_hash_on_client_ip(gateway, backend):
    apps = [backend(name) for name in "abc"]
    gw = gateway(config('server "@a@" {} server "@b@" {} server "@c@" {}',
                        "balance = hash  hash_on = client_ip"), **dict(zip("abc", apps)))
    assert len({gw.get().body for _ in range(6)}) == 1


def test_hash_bound_sends_what_is_too_much_to_the_next(gateway, backend):
    """One key that everybody asks for: three at a time over three servers is one for each."""
    release, holds = threading.Event(), threading.Semaphore(0)

    def answer(request, name):
        if request.target == "/held":
            holds.release()
            assert release.wait(30)
        return b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n" + name

    apps = [backend(name, lambda request, name=name: answer(request, name.encode()))
            for name in "abc"]
    gw = gateway(config('server "@a@" {} server "@b@" {} server "@c@" {}',
                        "balance = hash  hash_bound = 100%"), **dict(zip("abc", apps)))
    home = gw.get().body
    clients = [gw.client() for _ in range(3)]
    for client in clients:
        client.send(b"GET /held HTTP/1.1\r\nHost: t\r\n\r\n")
        assert holds.acquire(timeout=15)
    release.set()
    assert sorted(client.response().body for client in clients) == [b"a", b"b", b"c"]
    assert {gw.get().body for _ in range(5)} == {home}, "with room the key is at home again"


def test_backup_only_serves_when_the_others_cannot(gateway, backend):
    main, spare = backend("main"), backend("spare")
    gw = gateway(config('server "@a@" {} server "@b@" { backup = true }'), a=main, b=spare)
    client = gw.client()
    assert {client.get().body for _ in range(10)} == {b"main"}
    main.stop()
    assert [client.get().body for _ in range(5)] == [b"spare"] * 5


def test_a_stopped_backend_among_three_is_not_seen(gateway, backend):
    apps = [backend(name) for name in "abc"]
    gw = gateway(config('server "@a@" {} server "@b@" {} server "@c@" {}', workers=2),
                 **dict(zip("abc", apps)))
    clients = [gw.client() for _ in range(4)]
    for i in range(60):
        if i == 20:
            apps[1].stop()
        response = clients[i % 4].get()
        assert response.status == 200, response.body
    assert gw.metric("postern_upstream_retries_total", upstream="app") >= 1


@pytest.mark.parametrize("warm", [0, 1])
def test_nobody_is_sent_to_find_out_whether_a_server_is_back(gateway, backend, warm):
    """A server that answers no connect costs whoever comes first the time for it. Later tries are
    the gateway's own, and no request waits for one."""
    with socket.socket() as silent:
        silent.bind((own_host(), 0))
        silent.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        port = silent.getsockname()[1]
        dead = f"{own_host()}:{port}"
        gw = gateway(config(f'server "@a@" {{}} server "@b@" {{}} pool {{ warm = {warm} }} '
                            "timeouts { connect = 150ms } retry { attempts = 1  budget = 100% }"),
                     a=dead, b=backend("b"))
        client = gw.client()

        def tries():
            response = client.get()
            assert (response.status, response.body) == (200, b"b")
            return gw.metric("postern_upstream_connections_opened_total", server=dead)

        until(lambda: tries() >= 4, "it is tried again and again")
        attempts = [line["attempts"] for line in gw.wait_log(1)]
        assert attempts.count(2) <= 1 - warm and set(attempts) <= {1, 2}
        for filler in fillers:
            filler.close()
    backend("a", port=port)
    until(lambda: client.get().body == b"a", "it is found to be back")


def test_names_are_resolved(gateway, backend):
    app = backend()
    # A backend on this test's own address has no name; localhost has one everywhere.
    import backend as module
    local = module.Backend("127.0.0.1", "local")
    gw = gateway(ONE, app=f"localhost:{local.port}")
    assert gw.get().body == b"local"
    local.stop()
    app.stop()


def test_all_servers_dead_is_an_error_and_not_a_loop(gateway):
    gw = gateway(config('server "@a@" {} server "@b@" {}'), a=free_address(own_host()),
                 b=free_address(own_host()))
    response = gw.get()
    assert response.status == 502
    assert gw.wait_log()[0]["attempts"] == 2
