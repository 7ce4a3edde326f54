"""What a client's bytes cost the gateway: memory that is held, and time.

Each deed is done by many connections with few of its units and with many more; the difference of both,
over the difference of the bytes that were sent, is what a byte costs, whatever a connection costs
by itself (that stands in a column of its own). Time is held against that of an ordinary request of
300 bytes: for a deed that is a request, per request, for the others per byte.

By hand, with a build without sanitizers: POSTERN=... /usr/bin/python3 -B tests/scenario/amplification.py
"""

import fcntl
import os
import socket
import ssl
import statistics
import struct
import sys
import tempfile
import time

from hpack import Encoder
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

from backend import Backend
from conftest import ONE
from gateway import Gateway, own_host, until
from tls import Authority
from wire import Client
from wire2 import PREFACE

MEMORY_MOST = 16  # bytes held for each byte sent
TIME_MOST = 20    # times an ordinary request, per byte or per request
TIOCOUTQ = 0x5411
# The backends are threads of this process, and CPU is the gateway's own.
CONFIG = ONE.replace("listen =", 'limits { connections = 0 } listen =', 1) + '''
listener "https" { listen = {"@https@"} tls { %s } }
route "held" { path = "/held/{rest...}"  upstream = silent }
upstream "silent" { server "@silent@" {} timeouts { connect = 600s  response = 600s  total = 600s } }
'''


class Silent:
    """Takes connections into the kernel's queue and never says a word."""

    def __init__(self):
        self.sock = socket.create_server((own_host(), 0), backlog=4096)
        self.address = "%s:%d" % self.sock.getsockname()

    def __str__(self):
        return self.address

    def close(self):
        self.sock.close()


def cpu_ns(gw):
    """Time on a core of all threads; ticks would be too coarse."""
    base = f"/proc/{gw.proc.pid}/task"
    return sum(int(open(f"{base}/{task}/schedstat").read().split()[0]) for task in os.listdir(base))


def settle(gw, socks=()):
    """The gateway has read what was sent (the kernel's queues say so), and does nothing any more."""
    for sock in socks:
        until(lambda: struct.unpack("i", fcntl.ioctl(sock, TIOCOUTQ, b"\0" * 4))[0] == 0, "all is taken", 60)
    last = [cpu_ns(gw)]

    def still():
        time.sleep(0.05)
        now, before = cpu_ns(gw), last[0]
        last[0] = now
        return now - before < 2_000_000

    until(still, "the gateway rests", 60)


def send(gw, data, name="http"):
    sock = socket.create_connection(gw.address(name), 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(data)
    return sock


def padded(target=b"/"):
    """An ordinary request: 300 bytes, as programs send them."""
    head = b"GET " + target + b" HTTP/1.1\r\nHost: test\r\nAccept: */*\r\nUser-Agent: tester/1.0\r\nX-Pad: "
    return head + b"p" * (300 - len(head) - 4) + b"\r\n\r\n"


def get(target):
    return b"GET " + target + b" HTTP/1.1\r\nHost: t\r\n"


def fields(n, target=b"/held/x"):
    return get(target) + b"a:\r\n" * n + b"\r\n"


def unfinished(n):
    return get(b"/") + b"a:\r\n" * n


def one_field(n):
    return get(b"/held/x") + b"a:" + b"x" * n + b"\r\n\r\n"


def chunks(n, target=b"/held/x", end=b""):
    return b"POST " + target + b" HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * n + end


def pipelined(n):
    return get(b"/held/x") + b"\r\n" + (get(b"/") + b"\r\n") * n


def begun(extra=b""):
    return PREFACE + SettingsFrame(0, {}).serialize() + extra


def head2(encoder, stream, path, more=(), method="GET", end=True):
    block = encoder.encode([(":method", method), (":scheme", "http"), (":authority", "t"), (":path", path), *more])
    return HeadersFrame(stream, block, flags=["END_HEADERS"] + ["END_STREAM"] * end).serialize()


def streams(n):
    encoder = Encoder()
    return begun(b"".join(head2(encoder, 1 + 2 * i, "/held/x") for i in range(n)))


def indexed(n):
    """Each stream's fields are seven times an entry of 3,800 bytes, one byte each."""
    encoder = Encoder()
    return begun(b"".join(head2(encoder, 1 + 2 * i, "/held/x", [("x", "b" * 3800)] * 7) for i in range(n)))


def dribbled(n, path="/held/x", end=False):
    encoder = Encoder()
    frame = DataFrame(1, b"x").serialize()
    return begun(head2(encoder, 1, path, method="POST", end=False) + frame * n + (DataFrame(1, b"", flags=["END_STREAM"]).serialize() if end else b""))


def hello(_):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
    out = ssl.MemoryBIO()
    try:
        ctx.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


# name -> (what is sent for n units, few, many, connections, listener); held until all are measured
HELD = {
    "fields of no value, the answer awaited": (fields, 10, 90, 60, "http"),
    "one long field, the answer awaited": (one_field, 1000, 20000, 60, "http"),
    "a head without end": (unfinished, 10, 90, 60, "http"),
    "chunks of a byte to a backend that reads nothing": (chunks, 500, 60000, 20, "http"),
    "requests behind one that waits": (pipelined, 10, 3000, 20, "http"),
    "frames of a byte on a stream": (dribbled, 100, 20000, 20, "http"),
}
# What is a whole request or handshake each: bytes of memory for one.
ONES = {
    "a byte of a head": (lambda n: b"G" * n, 0, 1, 200, "http", 20 << 10),
    "a stream that waits": (streams, 10, 90, 10, "http", 24 << 10),
    "a stream with 26 KiB of indexed fields": (indexed, 10, 90, 5, "http", 100 << 10),
    "a TLS hello": (hello, 0, 1, 100, "https", 100 << 10),
}


def held(gw, make, few, many, connections, listener, *_):
    """(bytes of memory for a byte more, for a connection with `few`, for a unit more). The gateway must be
    new: what another deed has left in its free lists would be taken first."""
    grown, sizes, socks = [], [], []
    for n in (few, many):
        before = gw.rss_kib()
        data = make(n) if make is not hello or n else b""
        for _ in range(connections):
            socks.append(send(gw, make(n) if make is hello and n else data, listener))
        settle(gw, socks)
        grown.append((gw.rss_kib() - before) * 1024 / connections)
        sizes.append(len(make(n)) if make is not hello or n else 0)
    for sock in socks:
        sock.close()
    more = grown[1] - grown[0]
    return more / max(1, sizes[1] - sizes[0]), grown[0], more / (many - few)


def spent(gw, data, connections, listener="http", answers=None):
    """Time for one such connection: sent, read to the end of what comes, closed. The median of batches."""
    batches = []
    for _ in range(7):
        settle(gw)
        before = cpu_ns(gw)
        for _ in range(connections):
            sock = send(gw, data, listener)
            answers(sock) if answers else sock.recv(1)
            sock.close()
        settle(gw)
        batches.append((cpu_ns(gw) - before) / connections)
    return statistics.median(batches)


def read_answers(count):
    def read(sock):
        found, rest = 0, b""
        while found < count:
            part = sock.recv(1 << 18)
            assert part, "closed"
            rest += part
            found += rest.count(b"HTTP/1.1 200")
            rest = rest[-11:].split(b"HTTP/1.1 200")[-1]
    return read


def read_streams(ends):
    """Until so many streams have ended (a frame of type 0 or 1 with END_STREAM)."""
    def read(sock):
        data, ended = b"", 0
        while ended < ends:
            part = sock.recv(1 << 18)
            assert part, "closed"
            data += part
            while len(data) >= 9 and len(data) >= 9 + (data[0] << 16 | data[1] << 8 | data[2]):
                ended += data[3] in (0, 1) and data[4] & 1
                data = data[9 + (data[0] << 16 | data[1] << 8 | data[2]):]
    return read


def indexed_answered(n):
    encoder = Encoder()
    return begun(b"".join(head2(encoder, 1 + 2 * i, "/x", [("x", "b" * 3800)] * 7) for i in range(n)))


def streams_answered(n):
    encoder = Encoder()
    return begun(b"".join(head2(encoder, 1 + 2 * i, "/x") for i in range(n)))


# name -> (what is sent for n units, few, many, listener, reader of answers for n, whether a unit is a request)
TIMED = {
    "fields of no value": (lambda n: fields(n, b"/") * 20, 10, 90, "http", lambda n: read_answers(20), False),
    "chunks of a byte": (lambda n: chunks(n, b"/", b"0\r\n\r\n"), 100, 10000, "http", lambda n: read_answers(1), False),
    "frames of a byte": (lambda n: dribbled(n, "/", True), 100, 10000, "http", lambda n: read_streams(1), False),
    "requests on end": (lambda n: (get(b"/") + b"\r\n") * n, 20, 200, "http", read_answers, True),
    "streams": (streams_answered, 10, 90, "http", read_streams, True),
    "streams with 26 KiB of indexed fields": (indexed_answered, 10, 90, "http", read_streams, True),
}


def per_unit(gw, make, few, many, listener, reader, is_request, rounds=6):
    """(ns for a unit more, bytes of a unit)"""
    costs = [spent(gw, make(n), rounds, listener, reader(n)) for n in (few, many)]
    return (costs[1] - costs[0]) / (many - few), (len(make(many)) - len(make(few))) / (many - few)


def ordinary(gw):
    """ns for an ordinary request."""
    costs = [spent(gw, padded() * n, 6, "http", read_answers(n)) for n in (20, 200)]
    return (costs[1] - costs[0]) / 180


def handshake(gw):
    """(ns for a hello on a connection of its own, and for an ordinary request on one)"""
    return spent(gw, hello(1), 30, "https"), spent(gw, padded(), 30, "http", read_answers(1))


def configuration(tmp, kind="ecdsa"):
    return CONFIG % Authority(os.path.join(tmp, "ca")).issue("localhost", kind=kind).section()


def main():
    opened, started = [], []
    with tempfile.TemporaryDirectory() as tmp:
        app, silent = Backend(own_host()), Silent()
        opened.extend((app, silent))
        text = configuration(tmp)

        def fresh():
            started.append(Gateway(tempfile.mkdtemp(dir=tmp), text, {"app": app, "silent": silent}))
            Client.to(started[-1].address()).get("/")
            return started[-1]

        print(f"{'held':52}{'for a byte':>12}{'a connection':>14}")
        for name, case in HELD.items():
            a_byte, alone, _ = held(fresh(), *case)
            started.pop().finish()
            print(f"{name:52}{a_byte:12.1f}{alone:14,.0f}", flush=True)
        for name, case in ONES.items():
            print(f"{name:52}{'each':>12}{held(fresh(), *case)[2]:14,.0f}", flush=True)
            started.pop().finish()
        gw = fresh()
        base = ordinary(gw)
        print(f"\nan ordinary request of 300 bytes takes {base / 1000:.1f} us\n{'time':52}{'ns a unit':>12}{'times':>8}")
        for name, case in TIMED.items():
            ns, size = per_unit(gw, *case)
            print(f"{name:52}{ns:12,.0f}{ns / base if case[5] else ns / size / (base / 300):8.2f}", flush=True)
        ns, plain = handshake(gw)
        print(f"{'TLS hellos, ECDSA, beside a request on a connection':52}{ns:12,.0f}{ns / plain:8.2f}")
        gw.finish()
    for thing in opened:
        thing.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
