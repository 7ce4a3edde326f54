"""Random conversations over HTTP/2, each made from a seed alone: clients whose requests are right
or break one rule, many at a time and in random pieces; and backends that answer so.

Invariants: what breaks a rule never reaches a backend whole, all else does once and as it was sent;
every answer goes to the stream that asked; and no answer that broke off looks complete.

By hand: POSTERN=... /usr/bin/python3 -B tests/scenario/conversation2.py ITERATIONS [SEED]
"""

import random
import sys
import tempfile
import threading

from hpack import NeverIndexedHeaderTuple
from hyperframe.frame import (ContinuationFrame, DataFrame, HeadersFrame, PingFrame, PriorityFrame,
                              RstStreamFrame, WindowUpdateFrame)

from conftest import ONE
from conversation import answer
from gateway import Gateway, own_host
from recorder import Recorder
from backend2 import Conn2
from wire import Closed, Upstream
from wire2 import Client2

BEHIND = ONE.replace("server", "protocol = h2 retry { attempts = 0 } server")

# What is done to a request's fields: each makes it malformed (RFC 9113 8).
BREAKS = {
    "upper case": lambda f: f + [("X-Upper", "1")],
    "connection": lambda f: f + [("connection", "x")],
    "keep-alive": lambda f: f + [("keep-alive", "timeout=5")],
    "coding": lambda f: f + [("transfer-encoding", "chunked")],
    "upgrade": lambda f: f + [("upgrade", "websocket")],
    "te": lambda f: f + [("te", "gzip")],
    "line break": lambda f: f + [("x", "a\r\nHost: evil")],
    "lone LF": lambda f: f + [("x", "a\nGET /evil HTTP/1.1")],
    "NUL": lambda f: f + [("x", "a\0b")],
    "blank in a name": lambda f: f + [("x y", "1")],
    "colon in a name": lambda f: f + [("x:y", "1")],
    "no name": lambda f: f + [("", "1")],
    "two lengths": lambda f: f + [("content-length", "1"), ("content-length", "2")],
    "signed length": lambda f: [x for x in f if x[0] != "content-length"] + [("content-length", "+1")],
    "no path": lambda f: [x for x in f if x[0] != ":path"],
    "empty path": lambda f: [(n, "" if n == ":path" else v) for n, v in f],
    "no method": lambda f: [x for x in f if x[0] != ":method"],
    "no scheme": lambda f: [x for x in f if x[0] != ":scheme"],
    "two paths": lambda f: [(":path", "/evil")] + f,
    "late pseudo": lambda f: f + [(":path", "/evil")],
    "unknown pseudo": lambda f: [(":evil", "1")] + f,
    "status": lambda f: [(":status", "200")] + f,
    "blank in the path": lambda f: [(n, v + " HTTP/1.1" if n == ":path" else v) for n, v in f],
    "blank in the method": lambda f: [(n, "GET /evil" if n == ":method" else v) for n, v in f],
    "another host": lambda f: f + [("host", "evil")],
    "userinfo": lambda f: [(n, "a@test" if n == ":authority" else v) for n, v in f],
}


class Plan:
    """One request: `units` are what is sent without anything of other streams in between."""

    def __init__(self, pick, stream, target):
        self.stream, self.target = stream, target
        self.method = pick.choice(["GET", "POST", "PUT", "DELETE", "OPTIONS", "BREW"])
        self.body = b"" if self.method == "GET" else pick.randbytes(pick.choice([0, 1, 5, 100, 5000, 30000]))
        self.fields = [(":method", self.method), (":scheme", "http"), (":authority", "test"), (":path", target)]
        self.fields += [(f"x-{i}", "v" * pick.randrange(60)) for i in range(pick.randrange(5))]
        has_length = pick.randrange(2)
        if has_length:
            self.fields.append(("content-length", str(len(self.body))))
        self.ends = True
        self.broken = None
        # As much as was said has come before it breaks: a backend over HTTP/1 may have it whole.
        self.may_pass = False
        if pick.randrange(3) == 0:
            self.damage(pick, has_length)
        self.trailers = [("x-sum", "1")] if pick.randrange(5) == 0 else None
        self.units = list(self.make(pick))

    def damage(self, pick, has_length):
        kinds = [*BREAKS, "reset", "unended"] + ["too short", "too long"] * bool(has_length)
        self.broken = pick.choice(kinds)
        if self.broken in BREAKS:
            self.fields = BREAKS[self.broken](self.fields)
        elif self.broken == "too long":
            self.body += b"x"
        elif self.broken == "too short":
            if not self.body:
                self.fields = [(n, "5" if n == "content-length" else v) for n, v in self.fields]
            self.body = self.body[:-1]
        else:
            self.ends = False
        self.may_pass = bool(has_length) and self.broken in ("too long", "reset", "unended")

    def head(self, pick, fields, end):
        """HEADERS and CONTINUATIONs; encoded when they are sent, as HPACK wants it."""
        def unit(encoder):
            block = encoder.encode([NeverIndexedHeaderTuple(*f) if pick.randrange(4) == 0 else f for f in fields],
                                   huffman=bool(pick.randrange(2)))
            cuts = sorted(pick.randrange(len(block) + 1) for _ in range(pick.choice([0, 0, 1, 3])))
            parts = [block[a:b] for a, b in zip([0, *cuts], [*cuts, len(block)])]
            frames = [HeadersFrame(self.stream, parts[0], flags=["END_STREAM"] if end else [])]
            frames += [ContinuationFrame(self.stream, part) for part in parts[1:]]
            frames[-1].flags.add("END_HEADERS")
            return b"".join(frame.serialize() for frame in frames)
        return unit

    def make(self, pick):
        end_at_head = self.ends and not self.body and not self.trailers and pick.randrange(2)
        yield self.head(pick, self.fields, end_at_head)
        if end_at_head:
            return
        rest, frames = self.body, []
        while rest:
            n = min(pick.randrange(1, len(rest) + 1), 16000)
            frames.append(DataFrame(self.stream, rest[:n]))
            rest = rest[n:]
        for _ in range(pick.choice([0, 0, 2])):
            frames.insert(pick.randrange(len(frames) + 1), DataFrame(self.stream, b""))
        if self.ends and not self.trailers:
            frames = frames or [DataFrame(self.stream, b"")]
            frames[-1].flags.add("END_STREAM")
        for frame in frames:
            if pick.randrange(4) == 0:
                frame.flags.add("PADDED")
                frame.pad_length = pick.randrange(200)
            yield lambda encoder, data=frame.serialize(): data
        if self.broken == "reset":
            yield lambda encoder: RstStreamFrame(self.stream, 8).serialize()
        elif self.ends and self.trailers:
            yield self.head(pick, self.trailers, True)


def noise(pick):
    """Frames that are right and mean nothing."""
    return pick.choice([
        PingFrame(0, b"12345678").serialize(), WindowUpdateFrame(0, 1).serialize(),
        PriorityFrame(99, 0, 7).serialize(), b"\0\0\x08\xee\xff\0\0\0\0whatever"])


def converse(gw, up, seed):
    pick = random.Random(seed)
    plans = [Plan(pick, 1 + 2 * i, f"/{seed}/{i}/{pick.randrange(1 << 30)}") for i in range(pick.randrange(1, 7))]
    mark = up.mark()
    client = Client2(gw.address())
    queues, data, begun = [list(p.units) for p in plans], b"", 0
    while any(queues):
        # streams begin in the order of their numbers; then anything goes
        open_ones = [q for q in queues[:begun + 1] if q]
        queue = pick.choice(open_ones) if open_ones else queues[begun]
        begun = max(begun, min(queues.index(queue) + 1, len(queues) - 1))
        data += queue.pop(0)(client.encoder)
        data += noise(pick) if pick.randrange(5) == 0 else b""
    while data:
        n = pick.choice([1, 2, 7, 100, 3000, 70000])
        client.raw(data[:n])
        data = data[n:]
    for plan in plans:
        if plan.ends:
            client.response(plan.stream)
    client.ping()
    check_answers(client, plans, seed)
    client.close()
    return check_backend(up.since(mark), plans, seed)


def check_answers(client, plans, seed):
    for plan in plans:
        stream = client.stream(plan.stream)
        whole = stream.ended and stream.final and stream.status == 200
        if plan.broken and plan.ends and not plan.may_pass:
            assert not whole, f"seed {seed}: {plan.broken} is answered: {stream.final}"
        elif not plan.broken:
            assert whole and stream.body == plan.target.encode(), \
                f"seed {seed}: {plan.target} got {stream.final} {stream.body[:100]} {stream.reset}"


def check_backend(seen, plans, seed):
    by_target = {plan.target: plan for plan in plans}
    for one in seen:
        plan = by_target.pop(one.request.target, None)
        assert plan, f"seed {seed}: nobody asked for {one}, or twice"
        assert not plan.broken or plan.may_pass, f"seed {seed}: the backend got what is {plan.broken}: {one}"
        body = plan.body[:-1] if plan.broken == "too long" else plan.body
        assert (one.request.method, one.request.body) == (plan.method, body), f"seed {seed}: {one}"
        assert bool(one.request.trailers) <= bool(plan.trailers), f"seed {seed}: {one}"
    left = [plan for plan in by_target.values() if not plan.broken]
    assert not left, f"seed {seed}: the backend never got {[plan.target for plan in left]}"
    return len(seen)


def run(gw, up, iterations, seed=0):
    """How many requests passed."""
    passed = 0
    for i in range(iterations):
        passed += converse(gw, up, seed + i)
        with up.lock:
            faults, up.faults = up.faults, []
        assert all(kind == "cut" for kind, _ in faults), f"seed {seed + i}: {faults}"
    return passed


# ---- the other side

ANSWERS = {
    "upper case": lambda f: f + [("X-Upper", "1")],
    "connection": lambda f: f + [("connection", "close")],
    "coding": lambda f: f + [("transfer-encoding", "chunked")],
    "line break": lambda f: f + [("x", "a\r\nSet-Cookie: evil=1")],
    "NUL": lambda f: f + [("x", "\0")],
    "two lengths": lambda f: f + [("content-length", "1"), ("content-length", "2")],
    "no status": lambda f: [x for x in f if x[0] != ":status"],
    "two statuses": lambda f: [(":status", "200")] + f,
    "late pseudo": lambda f: f + [(":status", "200")],
    "101": lambda f: [(n, "101" if n == ":status" else v) for n, v in f],
    "no number": lambda f: [(n, "2x0" if n == ":status" else v) for n, v in f],
    "path": lambda f: [(":path", "/")] + f,
}
CUTS = ["too short", "too long", "reset", "closed"]


class Backend2:
    """Answers streams by what their targets say, on any number of connections."""

    def __init__(self, host):
        self.up = Upstream(host)
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def __str__(self):
        return str(self.up)

    def accept(self):
        while not self.ended.is_set():
            try:
                conn = self.up.accept(0.1)
            except (AssertionError, OSError):
                continue
            self.threads.append(threading.Thread(target=self.serve, args=(conn,)))
            self.threads[-1].start()

    def serve(self, conn):
        try:
            h2 = Conn2(conn)
            while not self.ended.is_set():
                try:
                    stream = h2.whole_request()
                except TimeoutError:
                    continue
                self.answer(h2, stream)
        except (Closed, OSError, AssertionError, KeyError):
            pass
        conn.close()

    def answer(self, h2, stream):
        target = h2.field(stream, ":path")
        pick, body = random.Random(target), target.encode()
        how = broken_answer(target)
        fields = [("x-pad", "p" * pick.randrange(200))]
        if how in ("too short", "too long") or pick.randrange(2):
            fields.append(("content-length", str(len(body) + {"too short": 1, "too long": -1}.get(how, 0))))
        if pick.randrange(4) == 0:
            h2.head(stream, "103", [("link", "</a>")])
        fields = [(":status", "200"), *fields]
        h2.send(h2.headers_frame(ANSWERS[how](fields) if how in ANSWERS else fields, stream, False))
        while len(body) > 1 and pick.randrange(3):
            n = pick.randrange(1, len(body))
            h2.send(h2.data_frame(stream, body[:n], False, pick.choice([None, None, 0, 100])))
            body = body[n:]
        if how == "reset":
            h2.reset(stream, pick.choice([0, 1, 2, 8, 11]))
        elif how == "closed":
            h2.close()
        elif pick.randrange(4) == 0:
            h2.send(h2.data_frame(stream, body, False))
            h2.send(h2.headers_frame([("x-sum", "1")], stream))
        else:
            h2.send(h2.data_frame(stream, body))

    def close(self):
        self.ended.set()
        self.up.close()
        for conn in self.up.conns:
            conn.close()
        for thread in self.threads:
            thread.join(20)


def broken_answer(target):
    pick = random.Random("how" + target)
    return pick.choice([*ANSWERS, *CUTS]) if pick.randrange(3) == 0 else None


def ask_all(gw, iterations, seed=0):
    """Clients of HTTP/1 before such a backend, some at a time: each gets its own answer, whole, or
    sees that there is none. How many were whole."""
    whole = 0
    for i in range(iterations):
        pick = random.Random(seed + i)
        asked = []
        for k in range(pick.randrange(1, 6)):
            target = f"/{seed + i}/{k}/{pick.randrange(1 << 30)}"
            body = pick.randbytes(pick.choice([0, 10, 20000]))
            client = gw.client()
            client.send(f"POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            asked.append((target, client))
        for target, client in asked:
            whole += check_answer(client, target)
            client.close()
    return whole


def check_answer(client, target):
    how, response = broken_answer(target), None
    try:
        response = client.response()
    except (Closed, AssertionError):
        pass
    if response and response.status == 200:
        if how == "too long":  # as much as was said had come before the rest did
            assert response.body == target.encode()[:-1]
            return 0
        assert not how, f"{target}: {how} looks whole: {response.raw_head} {response.body[:100]}"
        assert response.body == target.encode(), f"{target} got {response.body[:100]}"
        return 1
    # another stream's fault may have ended the connection that both were on
    assert response is None or response.status in (502, 503), f"{target} got {response.raw_head}"
    return 0


if __name__ == "__main__":
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 40)
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(own_host(), answer)
        gateway = Gateway(directory, ONE, {"app": recorder})
        print(f"{run(gateway, recorder, int(sys.argv[1]), first)} requests passed, from seed {first} on")
        gateway.finish()
    with tempfile.TemporaryDirectory() as directory:
        backend = Backend2(own_host())
        gateway = Gateway(directory, BEHIND, {"app": backend})
        print(f"{ask_all(gateway, int(sys.argv[1]), first)} answers were whole")
        gateway.finish()
        backend.close()
