"""Descriptors run out, clients come and go, and what a request costs in system calls."""

import os
import re
import resource
import socket
import time

import pytest

from conftest import ONE
from gateway import until
from strace import may_trace, traced

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


def test_out_of_descriptors_pauses_and_recovers(gateway, backend):
    gw = gateway(app=backend(),
                 preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    clients = []
    for _ in range(1000):
        sock = socket.socket()
        sock.settimeout(10)
        sock.connect(gw.address())  # the kernel's queue takes what postern cannot
        clients.append(sock)
    time.sleep(0.3)
    before = gw.cpu_seconds()
    time.sleep(1.5)
    spent = gw.cpu_seconds() - before
    assert spent < 0.3, f"{spent} s of CPU in 1.5 s: it spins"
    for path in ("/healthz", "/readyz", "/metrics"):
        assert gw.admin(path).status == 200, "who looks after it can still see"
    for sock in clients:
        sock.close()

    def answered():
        try:
            return gw.get().status == 200
        except (AssertionError, OSError):
            return False

    until(answered, "it serves again")


def test_connections_that_come_and_go_leave_nothing_behind(gateway, backend):
    gw = gateway(app=backend())
    gw.get()
    until(lambda: gw.metric("postern_downstream_connections") == 0, "closed")
    before = gw.descriptors()
    for i in range(100):
        client = gw.client()
        client.send(GET[:i % len(GET)])
        if i % 3:
            client.reset()
        else:
            client.close()
    gw.get()  # accepted behind all of them: none waits in the kernel's queue any more
    until(lambda: gw.metric("postern_downstream_connections") == 0, "closed")
    until(lambda: gw.descriptors() <= before, "as many as before")


def test_idle_gateway_does_not_burn_cpu(gateway, backend):
    gw = gateway("workers = 2\n" + ONE.replace("server", "pool { warm = 4 } server"), app=backend())
    clients = [gw.client() for _ in range(50)]
    for client in clients:
        client.get()
    before = gw.cpu_seconds()
    time.sleep(1.0)
    assert gw.cpu_seconds() - before < 0.2


@pytest.mark.undisturbed
@pytest.mark.parametrize("connections", [1, 4])
def test_a_request_costs_two_reads_and_two_writes(gateway, backend, tmp_path, connections):
    reason = may_trace()
    if reason:
        pytest.skip(reason)
    gw = gateway(app=backend())
    clients = [gw.client() for _ in range(connections)]

    def requests(rounds):
        for _ in range(rounds):
            for client in clients:
                client.send(GET)
            for client in clients:
                assert client.response().status == 200

    requests(10)
    trace = tmp_path / "trace"
    rounds = 400 // connections
    with traced(gw, "-o", str(trace)):
        requests(rounds)
    calls = {}
    for line in trace.read_text().splitlines():
        match = re.match(r"(\d+)\s+(\w+)\(", line)
        if match:
            calls.setdefault(match[1], []).append(match[2])
    # The worker is the thread that waits most often; the log's writer and main are others.
    worker = max(calls.values(), key=len)
    count = rounds * connections

    def per_request(*names):
        return sum(name in names for name in worker) / count

    reads = per_request("read", "readv", "recvfrom", "recvmsg")
    writes = per_request("write", "writev", "sendto", "sendmsg")
    assert 1.9 <= reads <= 2.05, f"{reads} reads a request"
    assert 1.9 <= writes <= 2.05, f"{writes} writes a request"
    assert per_request("epoll_ctl") <= 0.1
    other = {name for name in worker} - {
        "read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg",
        "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2"}
    assert sum(name in other for name in worker) / count <= 0.1, other


@pytest.mark.undisturbed
def test_a_large_body_stays_in_the_kernel(gateway, backend, tmp_path):
    reason = may_trace()
    if reason:
        pytest.skip(reason)
    size = 8 << 20
    body = os.urandom(size)
    gw = gateway(app=backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, body)))
    trace = tmp_path / "trace"
    with traced(gw, "-e", "trace=splice", "-o", str(trace)):
        assert gw.get().body == body
    moved = sum(int(n) for n in re.findall(r"splice\(.* = (\d+)$", trace.read_text(), re.M))
    assert 2 * size * 0.9 <= moved <= 2 * size, moved  # into pipes and out again
    assert gw.wait_log(status=200)[0]["bytes_out"] == size


def test_pipes_of_bodies_that_break_off_are_not_leaked(gateway, backend):
    size = 8 << 20
    gw = gateway(app=backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
        size, b"x" * size)))
    assert len(gw.get().body) == size
    until(lambda: gw.metric("postern_downstream_connections") == 0, "closed")
    before = gw.descriptors()
    for _ in range(20):
        client = gw.client()
        client.send(GET)
        client.sock.recv(1000)
        client.reset()
    until(lambda: gw.metric("postern_downstream_connections") == 0, "closed")
    until(lambda: gw.descriptors() <= before, "as many as before")
    assert len(gw.get().body) == size


def test_a_full_disk_under_the_log_stops_nothing(gateway, backend):
    gw = gateway('access_log { path = "/dev/full" }\n' + ONE, app=backend())
    client = gw.client()
    for i in range(300):
        assert client.get(f"/{i}").status == 200
    until(lambda: gw.metric("postern_access_log_dropped_total") > 0, "lost lines are counted")


def test_head_bombs_leave_no_memory_behind(gateway, backend):
    """Many clients with heads that are as large as allowed and never end."""
    gw = gateway(app=backend())
    gw.get()
    before = gw.rss_kib()
    clients = [gw.client() for _ in range(100)]
    for client in clients:
        client.send(b"GET / HTTP/1.1\r\nHost: test\r\n" + b"X: %s\r\n" % (b"a" * 1000) * 30)
    held = gw.rss_kib() - before
    assert held < 100 * 80 + 4096, f"{held} KiB for 100 heads of 30 KiB"
    assert gw.get().status == 200
    for client in clients:
        client.close()
    until(lambda: gw.metric("postern_downstream_connections") == 0, "closed")


def test_small_chunks_cost_no_allocation_each(gateway, upstream):
    """An upload in chunks of one byte is held in as little memory as one in large ones."""
    up = upstream()
    gw = gateway(app=up)
    client = gw.client()
    before = gw.rss_kib()
    client.send(b"POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n")
    conn = up.accept()
    conn.expect_head()
    client.sock.settimeout(1)
    try:
        client.send(b"1\r\nx\r\n" * 400000)  # the backend reads nothing
    except (socket.timeout, AssertionError):
        pass
    assert gw.rss_kib() - before < 8192
