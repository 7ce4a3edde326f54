#!/usr/bin/python3
"""What our HTTP/1 request parser accepts, h11 must accept and read alike.

    differential_h11.py DRIVER [N] [SEED]

DRIVER is the h1_verdict program. Its verdicts on the corpus and on N mutants of it (seeded, so
that every run sees the same) are held against h11's: method, target, version, framing, fields
and body must agree. h11 may accept more than we do, never less: a request that one reads and
the other does not, or reads otherwise, is how requests are smuggled. Exits 1 on disagreement."""

import pathlib
import random
import re
import struct
import subprocess
import sys

import h11

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus" / "h1_request"

# What mutants are made with: bytes that end, split or frame something, and whole fields.
PIECES = [
    b"\r\n", b"\r", b"\n", b"\0", b" ", b"\t", b":", b",", b";", b"\x0b", b"\x7f", b"\x80", b"#",
    b"0", b"5", b"+", b"-", b"0x", b"chunked", b"gzip", b"identity", b"close", b"keep-alive",
    b"HTTP/1.0", b"HTTP/1.1", b"Content-Length: 5\r\n", b"Content-Length: 05\r\n",
    b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding:\tChunked \r\n",
    b"Host: h\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"X:\r\n", b"Y: a b\r\n",
    b"Z: \xff\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b";ext=1", b"hello", b"http://h", b"?q", b"*",
]


def mutate(rng, seeds):
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        if kind == 0 and at < len(data):
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.choice(PIECES)
        elif kind == 2:
            del data[at:at + rng.randrange(1, 4)]
        elif kind == 3:  # a whole line twice, or gone, or moved
            lines = bytes(data).split(b"\r\n")
            line = rng.randrange(len(lines))
            what = rng.randrange(3)
            piece = [lines[line]] if what == 0 else [lines.pop(line)]
            if what != 1:
                lines[rng.randrange(len(lines) + 1):0] = piece
            data = bytearray(b"\r\n".join(lines))
        elif kind == 4:  # a field where one may stand
            ends = [i + 2 for i in range(len(data) - 1) if data[i:i + 2] == b"\r\n"]
            at = rng.choice(ends) if ends else 0
            data[at:at] = rng.choice([p for p in PIECES if p.endswith(b"\r\n")])
        elif kind == 5 and at < len(data):
            data[at] ^= 0x20
        else:
            other = rng.choice(seeds)
            data[at:] = other[rng.randrange(len(other) + 1):]
    return bytes(data[:4096])


def ours(driver, inputs):
    stdin = b"".join(struct.pack(">I", len(data)) + data for data in inputs)
    run = subprocess.run([driver], input=stdin, stdout=subprocess.PIPE, check=True)
    lines = run.stdout.decode("ascii").splitlines()
    assert len(lines) == len(inputs), "one line for each input"
    return lines


def unhex(text):
    return b"" if text == "-" else bytes.fromhex(text)


def our_reading(line):
    _, method, target, version, framing, body, fields = line.split(" ")
    return {
        "method": method, "target": target, "version": version, "framing": framing,
        "complete": not body.endswith("+"), "body": unhex(body.rstrip("+")),
        "fields": [tuple(part.split(b": ", 1)) for part in unhex(fields).split(b"\n") if part],
    }


def h11_reading(data):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    request, body, complete = connection.next_event(), b"", False
    if request is h11.NEED_DATA:
        return None
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            # A framing field among the trailers: h11 refuses it, we drop it (RFC 9110 6.5.1).
            if not re.search("Transfer-Encoding|Content-Length", str(error)):
                raise
            complete = True
            break
        if isinstance(event, h11.Data):
            body += bytes(event.data)
            continue
        complete = isinstance(event, h11.EndOfMessage)
        break
    names = dict(request.headers)
    framing = "none"
    if b"transfer-encoding" in names:
        framing = "chunked"
    elif b"content-length" in names:
        framing = str(int(names[b"content-length"]))
    return {
        "method": request.method.decode(), "target": request.target.decode(),
        "version": request.http_version.decode(), "framing": framing,
        "complete": complete, "body": body,
        "fields": [(name, value) for name, value in request.headers
                   if name not in (b"content-length", b"transfer-encoding")],
    }


def disagreement(line, data):
    """None, or what differs, for an input that we accepted."""
    mine = our_reading(line)
    mine["fields"] = [(name.lower(), value) for name, value in mine["fields"]]
    try:
        theirs = h11_reading(data)
    except h11.RemoteProtocolError as error:
        return f"h11 refuses: {error}"
    if theirs is None:
        return "h11 wants more"
    for key, value in mine.items():
        if value != theirs[key]:
            return f"{key}: ours {value!r}, h11's {theirs[key]!r}"
    return None


def main():
    driver = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 9112)
    seeds = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    inputs = seeds + [mutate(rng, seeds) for _ in range(count)]
    accepted = faults = 0
    for line, data in zip(ours(driver, inputs), inputs):
        if not line.startswith("ok "):
            continue
        accepted += 1
        fault = disagreement(line, data)
        if fault:
            faults += 1
            print(f"{data!r}\n  {fault}")
    print(f"{len(inputs)} inputs, {accepted} accepted, {faults} disagreements with h11 {h11.__version__}")
    # Few accepted would mean that nothing was compared.
    return 1 if faults or accepted < len(inputs) // 20 else 0


if __name__ == "__main__":
    sys.exit(main())
