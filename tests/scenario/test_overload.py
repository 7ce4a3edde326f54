"""Too many requests: limits over all workers, the queue, and what is said about it."""

import select
import threading

import pytest

from conftest import HTTP, ONE
from gateway import until
from test_errors import check

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def config(text, workers=1):
    return f"workers = {workers}\n" + ONE.replace("server", text + " server", 1)


class Holder:
    """A backend's answer that waits until it is let go, and notes how many are held at once."""

    def __init__(self):
        self.go, self.lock = threading.Semaphore(0), threading.Lock()
        self.held = self.most = self.answered = 0

    def __call__(self, request):
        with self.lock:
            self.held += 1
            self.most = max(self.most, self.held)
        assert self.go.acquire(timeout=30)
        with self.lock:
            self.held -= 1
            self.answered += 1
        return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def send(gw, n):
    clients = [gw.client() for _ in range(n)]
    for client in clients:
        client.send(GET)
    return clients


def overflows(gw, limit):
    return gw.metric("postern_upstream_overflows_total", upstream="app", limit=limit)


@pytest.mark.threads
@pytest.mark.parametrize("workers", [1, 2])
def test_pending_is_counted_over_all_workers(gateway, backend, workers):
    holder = Holder()
    app = backend(answer=holder)
    gw = gateway(config("pool { connections = 2 } breaker { pending = 3 } timeouts { queue = 30s }",
                        workers), app=app)
    running = send(gw, 2)
    until(lambda: holder.held == 2, "all connections are busy")
    waiting = send(gw, 4)
    ready, _, _ = select.select([client.sock for client in waiting], [], [], 15)
    assert len(ready) == 1, "one is too many"
    refused = next(client for client in waiting if client.sock is ready[0])
    waiting.remove(refused)
    first = refused.response()
    problem = check(gw, first, 503, "upstream.overflow", limit=3)
    assert problem["actual"] == 4
    assert first.get("Retry-After") == "30", "by then who waits has been served or sent away"
    for _ in range(5):
        assert gw.get().status == 503
    assert overflows(gw, "pending") == 6
    for _ in range(5):
        holder.go.release()
    assert [client.response().status for client in running + waiting] == [200] * 5
    assert holder.most == 2
    assert gw.stderr.count('upstream "app" refuses requests: breaker.pending is 3') == 1
    gw.wait_stderr('upstream "app" refuses no requests any more: 6 were refused')


@pytest.mark.threads
@pytest.mark.parametrize("workers", [1, 2])
def test_requests_under_way_are_counted_over_all_workers(gateway, backend, workers):
    holder = Holder()
    gw = gateway(config("breaker { requests = 4 }", workers), app=backend(answer=holder))
    running = send(gw, 4)
    until(lambda: holder.held == 4, "four are under way")
    problem = check(gw, gw.get(), 503, "upstream.overflow", limit=4)
    assert problem["actual"] == 5
    assert [gw.get().status for _ in range(2)] == [503] * 2
    assert overflows(gw, "requests") == 3
    for _ in range(5):
        holder.go.release()
    assert [client.response().status for client in running] == [200] * 4
    assert gw.get().status == 200
    assert "refuses requests: breaker.requests is 4, and this would be 5" in gw.stderr


@pytest.mark.threads
@pytest.mark.parametrize("workers, connections", [(1, 4), (2, 5), (4, 8), (4, 2)])
def test_connections_are_honoured_exactly_and_none_is_left_unused(gateway, backend, workers,
                                                                  connections):
    """More clients than connections, however the workers share them: exactly so many are open,
    and everybody is served."""
    holder = Holder()
    app = backend(answer=holder)
    gw = gateway(config(f"pool {{ connections = {connections} }} timeouts {{ queue = 60s }}",
                        workers), app=app)
    clients = send(gw, 30)
    until(lambda: holder.held == connections, "all of them are in use", 30)
    assert len(app.open) == connections
    for _ in clients:
        holder.go.release()
    assert [client.response().status for client in clients] == [200] * 30
    assert holder.most == connections
    until(lambda: len(app.open) <= connections, "no more than that are open")


def test_no_worker_starves(gateway, backend):
    """One connection, four workers, and clients that never leave off: all get answers."""
    app = backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    gw = gateway(config("pool { connections = 1 } timeouts { queue = 60s }", 4), app=app)
    ended, counts = threading.Event(), [0] * 12

    def run(i):
        client = gw.client()
        while not ended.is_set():
            assert client.get().status == 200
            counts[i] += 1

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(counts))]
    for thread in threads:
        thread.start()
    try:
        until(lambda: min(counts) >= 3, f"everybody is served: {counts}", 60)
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_the_queue_is_first_come_first_served(gateway, upstream):
    up = upstream()
    gw = gateway(config("pool { connections = 1 } timeouts { queue = 30s }"), app=up)
    clients = []
    for i in range(6):
        client = gw.client()
        client.send(b"GET /%d HTTP/1.1\r\nHost: t\r\n\r\n" % i)
        clients.append(client)
        if i == 0:
            conn = up.accept()
            first = conn.expect()
        else:  # the one before was read: the worker takes connections in order
            until(lambda: gw.metric("postern_downstream_connections") >= i + 1, "accepted")
    order = [first.target]
    for _ in range(5):
        conn.respond()
        order.append(conn.expect().target)
    conn.respond()
    assert order[0] == "/0" and sorted(order) == [f"/{i}" for i in range(6)]
    for client in clients:
        assert client.response().status == 200


def test_the_queue_has_an_end(gateway, upstream):
    up = upstream()
    gw = gateway(config("pool { connections = 1 } timeouts { queue = 200ms }"), app=up)
    first, second = send(gw, 2)
    conn = up.accept()
    conn.expect()
    responses = []
    for client in (first, second):
        client.sock.settimeout(2)
        try:
            responses.append(client.response())
        except AssertionError:
            pass
    problem = check(gw, responses[0], 503, "upstream.overflow", limit=1)
    assert len(responses) == 1 and problem["actual"] == 2
    assert overflows(gw, "connections") == 1


def test_a_server_that_is_full_is_stepped_over(gateway, backend, upstream):
    slow, quick = upstream(), backend()
    gw = gateway(HTTP + '''upstream "app" { server "@a@" {} server "@b@" {}
pool { connections = 1 } timeouts { queue = 10s } }
route "all" { path = "/{rest...}"  upstream = app }''', a=slow, b=quick)
    client = gw.client()
    client.send(GET)
    slow.accept().expect()
    other = gw.client()
    for _ in range(10):
        assert other.get().body == b"backend"


TWO = HTTP + '''upstream "app" { server "@a@" {} server "@b@" {} %s }
route "all" { path = "/{rest...}"  upstream = app }'''


@pytest.mark.threads
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "closed"])
def test_who_waits_is_served_by_whoever_is_free_first(gateway, backend, upstream, kept):
    """One server hangs with all its connections: who waits for it goes to the other, in order,
    whether connections come free there or are opened anew."""
    stuck, holder = upstream(), Holder()
    answer = holder if kept else lambda request: holder(request).replace(
        b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    quick = backend(answer=answer)
    gw = gateway(TWO % "pool { connections = 1 } timeouts { queue = 60s }", a=stuck, b=quick)
    running = send(gw, 2)
    stuck.accept().expect()
    until(lambda: holder.held == 1, "both are busy")
    waiting = []
    for i in range(6):
        waiting += send(gw, 1)
        until(lambda: gw.metric("postern_downstream_connections") >= 3 + i, "accepted, in order")
    for i in range(7):
        holder.go.release()
    for client in waiting:
        assert client.response().status == 200
    assert quick.count == 7 and holder.most == 1
    ready, _, _ = select.select([client.sock for client in running], [], [], 0)
    assert len(ready) == 1, "the one at the server that hangs waits on"
    servers = {line["server"] for line in gw.wait_log(7)}
    assert servers == {str(quick)}, "the log says who has served"


def test_a_key_waits_for_its_server(gateway, upstream):
    a, b = upstream(), upstream()
    gw = gateway(HTTP + '''upstream "app" { server "@a@" {} server "@b@" {} balance = hash
pool { connections = 1 } timeouts { queue = 200ms } }
route "all" { path = "/{rest...}"  upstream = app }''', a=a, b=b)
    send(gw, 1)
    try:
        a.accept(1).expect()
    except AssertionError:
        b.accept().expect()
    check(gw, gw.get(), 503, "upstream.overflow")
