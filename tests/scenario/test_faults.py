"""The same conversations with what goes wrong on demand: POSTERN_FAULT of debug builds."""

import os

import pytest

import backend
import conversation
import conversation2
from conftest import ONE
from gateway import own_host, until
from nameserver import Nameserver
from recorder import Recorder
from strace import may_trace, traced
from wire2 import Client2

pytestmark = pytest.mark.undisturbed


@pytest.fixture
def talking(opened):
    up = Recorder(own_host(), conversation.answer)
    opened.append(up)
    return up


@pytest.mark.parametrize("fault, iterations", [("", 150), ("short-read", 25), ("short-read:3", 100), ("eagain", 60)])
def test_random_conversations(gateway, talking, fault, iterations):
    gw = gateway(ONE, app=talking, env={"POSTERN_FAULT": fault})
    assert conversation.run(gw, talking, iterations, seed=1) > iterations / 2


@pytest.mark.parametrize("calls, error, when", [
    ("recvfrom,recvmsg,read,readv", "EINTR", "5+3"), ("sendto,sendmsg,write,writev", "EINTR", "5+3"),
    ("recvfrom,recvmsg,read,readv", "EAGAIN", "5+3"), ("sendto,sendmsg,write,writev", "EAGAIN", "5+3"),
    ("epoll_wait,epoll_pwait,epoll_pwait2", "EINTR", "5+2"), ("accept4", "EINTR", "1+2"), ("accept4", "ECONNABORTED", "1+2"),
    ("accept4", "ENOBUFS", "2+3"), ("accept4", "EMFILE", "2+3"), ("accept4", "ENOMEM", "2+3"), ("splice", "EINTR", "1+2"),
    ("splice", "EAGAIN", "1+2"), ("connect", "EINTR", "2+50"), ("socket", "EMFILE", "9+9"), ("setsockopt", "ENOBUFS", "4+2"),
    ("pipe2", "EMFILE", "1+2"), ("close", "EINTR", "9+3")])
def test_what_the_kernel_may_say(gateway, backend, tmp_path, calls, error, when):
    """Errors of system calls that a quiet machine never gives, by strace: what can wait is only later, what is
    for nothing costs one request at most and never the process."""
    reason = may_trace()
    if reason:
        pytest.skip(reason)
    body = os.urandom(1 << 20)
    big = backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body), body) if request.target == "/big" else b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
        len(request.body), request.body))
    gw = gateway(ONE.replace("server", "pool { requests = 2 } server"), app=big)
    harmless = calls != "socket" and calls != "connect"
    trace = tmp_path / "trace"
    with traced(gw, "-o", str(trace), "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}:when={when}"):
        for i in range(20):
            client = gw.client()
            for target, sent in (("/big", b""), (f"/{i}", body[:40000]), (f"/{i}", b"")):
                answer = client.get(target, method="POST" if sent else "GET", body=sent or None)
                if harmless:
                    assert (answer.status, answer.body) == (200, body if target == "/big" else sent)
                else:
                    assert answer.status in (200, 502, 503)
            client.close()
    assert gw.get("/last").status == 200
    assert "(INJECTED)" in trace.read_text()


@pytest.mark.parametrize("fault", ["connect:2", "connect:3"])
def test_connects_that_fail_are_retried(gateway, talking, fault):
    """Every second or third connect is refused, and nobody notices with one retry."""
    gw = gateway(ONE.replace("server", "pool { requests = 1 warm = 0 } retry { budget = 100% } server"), app=talking,
                 env={"POSTERN_FAULT": fault})
    before = gw.metric("postern_upstream_retries_total")
    for i in range(20):
        assert gw.get(f"/{i}x").status == 200
    retried = gw.metric("postern_upstream_retries_total") - before
    if not retried:
        pytest.skip("a release build has no faults of its own making")


def test_slow_dns(gateway, opened):
    """A start, a changed name and a reload, each look-up late: nobody waits but who has to."""
    hosts = [own_host(), "127.62." + own_host().split(".", 2)[2]]
    made = [backend.Backend(hosts[0], "a")]
    made.append(backend.Backend(hosts[1], "b", port=made[0].port))
    dns = Nameserver(own_host())
    opened.extend([*made, dns])
    dns.say("slow.test", [hosts[0]])
    gw = gateway('resolver = {"@dns@"}\n' + ONE.replace("@app@", f"slow.test:{made[0].port}"), dns=dns,
                 env={"POSTERN_FAULT": "dns:400"})
    assert gw.get().body == b"a"
    dns.say("slow.test", [hosts[1]])
    until(lambda: gw.get().body == b"b", "the change is followed")
    gw.reload()
    assert gw.get().body == b"b"
    assert not [line for line in gw.log_lines() if line["status"] != 200]


@pytest.mark.parametrize("n", [1, 10, 60, 150, 300, 450, 600, 700, 800, 1000, 1500])
def test_an_allocation_that_fails(gateway, talking, n):
    """The start fails with a word, or a request does with 503 or a closed connection; then all
    is well again."""
    gw = gateway(ONE, app=talking, env={"POSTERN_FAULT": f"alloc:{n}"}, wait=False)
    try:
        gw.wait_ready()
    except AssertionError:
        gw.proc.wait(15)
        gw.expect_status = 1
        assert "memory" in gw.stderr.lower(), gw.stderr
        return
    failed = 0
    for i in range(60):
        client = gw.client()
        try:
            status = client.get(f"/{i}xx", fields=[(f"X-{k}", "v" * 40) for k in range(i % 30)]).status
        except (AssertionError, OSError):
            status = None
        client.close()
        assert status in (200, 502, 503, None)
        failed += status != 200
    assert failed <= 1


BODIES = [b"", b"x", b"hello" * 50, bytes(range(256)) * 800]


def echo(request):
    body = request.target.encode() + request.body
    if len(body) % 2:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


def ask_http1(gw, i):
    """None: the connection ended without a whole answer; else (status, body)."""
    body = BODIES[i % len(BODIES)]
    client = gw.client()
    try:
        answer = client.get(f"/{i}", method="POST" if body else "GET", body=body or None,
                            fields=[(f"X-{k}", "v" * 40) for k in range(i % 40)])
        return answer.status, answer.body
    except (AssertionError, OSError):
        return None
    finally:
        client.close()


def ask_http2(gw, i):
    body = BODIES[i % 3]
    client = Client2(gw.address())
    try:
        stream = client.request(f"/{i}", method="POST" if body else "GET", end=not body,
                                headers=[(f"x-{k}", "v" * 40) for k in range(i % 40)])
        if body:
            client.body(stream, body)
        answer = client.response(stream)
        return (answer.status, answer.body) if answer.ended and answer.final else None
    except (AssertionError, OSError):
        return None
    finally:
        client.close()


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
@pytest.mark.parametrize("n", [41, 101, 307, 1009])
def test_allocations_that_fail_again_and_again(gateway, backend, ask, n):
    """Every n-th of all that a worker takes fails, so each place where a request takes memory has its turn. Whoever
    got an answer got his own or a 503, nothing that broke off looks whole, and with no more faults than one in
    a few requests most succeed."""
    gw = gateway(ONE.replace("server", "pool { requests = 7 } server"), app=backend(answer=echo),
                 env={"POSTERN_FAULT": f"alloc-every:{n}"})
    outcomes = {}
    for i in range(400):
        outcome = ask(gw, i)
        status = outcome and outcome[0]
        outcomes[status] = outcomes.get(status, 0) + 1
        if status == 200:
            assert outcome[1] == f"/{i}".encode() + BODIES[i % (4 if ask is ask_http1 else 3)]
        else:
            assert status in (None, 502, 503), outcome
    if outcomes == {200: 400} and n < 100:
        pytest.skip("a release build has no faults of its own making")
    assert n < 300 or outcomes.get(200, 0) > 200, outcomes


def fails_to_start(gw):
    """Whether it said that there is no memory, and ended."""
    try:
        gw.wait_ready()
    except AssertionError:
        gw.proc.wait(15)
        gw.expect_status = 1
        assert "memory" in gw.stderr.lower(), (gw.proc.returncode, gw.stderr)
        return True
    return False


@pytest.mark.parametrize("ask", [ask_http1, ask_http2])
def test_each_allocation_of_a_conversation_fails_in_turn(gateway, backend, ask):
    """The first, the second, ... that a worker takes, each in a gateway of its own, until all have had their turn: the
    start fails with a word, or what fails is one request, cleanly, and all others succeed."""
    up = backend(answer=echo)
    asked = (0, 3 if ask is ask_http1 else 2, 1, 1)
    right = [(200, f"/{i}".encode() + BODIES[i]) for i in asked]
    felt, n = [0], 0
    while n < felt[-1] + 20:
        n += 1
        gw = gateway(ONE, app=up, env={"POSTERN_FAULT": f"alloc-once:{n}"}, wait=False)
        failed = fails_to_start(gw)
        if not failed:
            outcome = [ask(gw, i) for i in asked]
            assert all(got in (None, want) or got[0] in (502, 503) for got, want in zip(outcome, right)), (n, outcome)
            failed = sum(got != want for got, want in zip(outcome, right))
            assert failed <= 1, (n, outcome)
        gw.finish()
        if failed:
            felt.append(n)
        assert n < 500, felt
    if felt == [0]:
        pytest.skip("a release build has no faults of its own making")
    assert len(felt) > 30, felt


@pytest.mark.parametrize("fault, iterations", [("", 120), ("short-read", 15), ("short-read:3", 80), ("eagain", 40)])
def test_random_conversations_of_http2_clients(gateway, talking, fault, iterations):
    gw = gateway(ONE, app=talking, env={"POSTERN_FAULT": fault})
    assert conversation2.run(gw, talking, iterations, seed=1) > iterations


@pytest.mark.parametrize("fault, iterations", [("", 60), ("short-read", 10), ("short-read:3", 40), ("eagain", 30)])
def test_random_conversations_with_http2_backends(gateway, opened, fault, iterations):
    up = conversation2.Backend2(own_host())
    opened.append(up)
    gw = gateway(conversation2.BEHIND, app=up, env={"POSTERN_FAULT": fault})
    assert conversation2.ask_all(gw, iterations, seed=1) > iterations
