"""Random conversations: clients that send valid and half-valid requests in random pieces, a
backend that answers in random framings. Each is made from a seed alone.

Invariants: what reached the backend is what h11, a strict parser that is not ours, says the
client sent, in its order; and every answer went to the client that asked.

By hand: POSTERN=... /usr/bin/python3 -B tests/scenario/conversation.py ITERATIONS [SEED]
"""

import random
import socket
import sys
import tempfile

import h11

from conftest import ONE
from gateway import Gateway, own_host
from recorder import Recorder
from wire import Client, Conn, Response

MUTANTS = [b"\r", b"\n", b"\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"0", b"-", b"+", b"chunked", b"Content-Length: 3\r\n",
           b"Transfer-Encoding: chunked\r\n", b"Host: evil\r\n", b"GET /x HTTP/1.1\r\n", b"0\r\n\r\n", b"\x80", b"\x7f", b"%", b"HTTP/1.0"]


def answer(target):
    """A whole answer that carries the target, its framing chosen by the target."""
    pick, body = random.Random(target), target.encode()
    extra = b"X-Pad: " + b"p" * pick.randrange(200) + b"\r\n"
    kind = pick.randrange(4)
    if kind == 0:
        return [b"HTTP/1.1 200 OK\r\n" + extra + b"Content-Length: %d\r\n\r\n" % len(body) + body]
    if kind == 1:
        return [b"HTTP/1.1 200 OK\r\n" + extra + b"\r\n" + body, "close"]
    at = pick.randrange(1, len(body))
    coded = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:at], body[at:]))
    whole = b"HTTP/1.1 200 OK\r\n" + extra + b"Transfer-Encoding: chunked\r\n\r\n" + coded + b"0\r\n\r\n"
    if kind == 2:
        return [whole]
    cut = pick.randrange(1, len(whole))
    return [b"HTTP/1.1 103 Early Hints\r\n\r\n", whole[:cut], whole[cut:]]


def request(pick, target):
    method = pick.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "BREW"])
    lines = [f"{method} {target} HTTP/1.1", pick.choice(["Host: test", "host:test", "HOST: \ttest "])]
    lines += [f"X-{i}: {'v' * pick.randrange(60)}" for i in range(pick.randrange(5))]
    body = pick.randbytes(pick.choice([0, 1, 5, 100, 5000, 40000]))
    kind = pick.randrange(3) if method != "GET" else 0
    if kind == 0:
        body = b""
    elif kind == 1:
        lines.insert(pick.randrange(1, len(lines) + 1), f"Content-Length: {len(body)}")
    else:
        lines.append("Transfer-Encoding: chunked")
        parts, rest = [], body
        while rest:
            n = pick.randrange(1, len(rest) + 1)
            parts.append(b"%x%s\r\n%s\r\n" % (n, pick.choice([b"", b";x", b';a="b"']), rest[:n]))
            rest = rest[n:]
        body = b"".join(parts) + b"0\r\n\r\n"
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def mutate(pick, data):
    at = pick.randrange(min(len(data), 400))
    kind = pick.randrange(3)
    if kind == 0:
        return data[:at] + pick.choice(MUTANTS) + data[at:]
    if kind == 1:
        return data[:at] + data[at + pick.randrange(1, 4):]
    return data[:at] + pick.choice(MUTANTS)[:1] + data[at + 1:]


def as_h11_reads(data, ended=False):
    """[(method, target, body)] of what is there before the first fault, and whether there is one.
    `ended`: nothing comes behind it."""
    conn, found = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20), []
    conn.receive_data(data)
    if ended:
        conn.receive_data(b"")
    head, body = None, b""
    try:
        while True:
            event = conn.next_event()
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                found.append((head.method.decode(), head.target.decode("latin-1"), body))
                conn.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                conn.send(h11.EndOfMessage())
                if conn.our_state is h11.MUST_CLOSE:
                    return found, False
                conn.start_next_cycle()
            else:
                return found, False
    except h11.ProtocolError:
        return found, True


def read_answers(sock):
    """All answers until the gateway closes, as (status, body)."""
    conn, answers = Conn(sock, 15), []
    conn.__class__ = Client
    while True:
        try:
            response = conn.response()
        except (AssertionError, OSError):
            return answers
        answers.append((response.status, response.body))


def converse(gw, up, seed):
    pick = random.Random(seed)
    targets = [f"/{seed}/{i}/{pick.randrange(1 << 30)}" for i in range(pick.randrange(1, 5))]
    requests = [request(pick, target) for target in targets]
    if pick.randrange(3) == 0:
        i = pick.randrange(len(requests))
        requests[i] = mutate(pick, requests[i])
    data = b"".join(requests)
    if pick.randrange(4) == 0:
        data = data[:pick.randrange(1, len(data))]
    mark = up.mark()
    sock = socket.create_connection(gw.address())
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.settimeout(15)
    at = 0
    try:
        while at < len(data):
            n = pick.choice([1, 2, 7, 100, 3000, 70000])
            sock.sendall(data[at:at + n])
            at += n
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    answers = read_answers(sock)
    sock.close()
    sent, _ = as_h11_reads(data)
    got = [(s.request.method, s.request.target, s.request.body) for s in up.since(mark)]
    assert got == sent[:len(got)], f"seed {seed}: the backend read {got}, h11 reads {sent}"
    good = [body for status, body in answers if status == 200]
    assert good == [target.encode() for _, target, _ in got][:len(good)], f"seed {seed}: answers {answers}"
    assert len(got) - len(good) <= 1, f"seed {seed}: answered {len(good)} of {len(got)}"
    return len(got)


def run(gw, up, iterations, seed=0):
    """How many requests passed. The backend's faults are what no strict parser takes."""
    passed = 0
    for i in range(iterations):
        passed += converse(gw, up, seed + i)
        with up.lock:
            faults, up.faults = up.faults, []
        assert all(kind == "cut" for kind, _ in faults), f"seed {seed + i}: {faults}"
    return passed


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        backend = Recorder(own_host(), answer)
        gateway = Gateway(directory, ONE, {"app": backend})
        first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 40)
        print(f"{run(gateway, backend, int(sys.argv[1]), first)} requests passed, from seed {first} on")
        gateway.finish()
