"""The rows of perf/compare: what is asked of the gateways, and in which of their features."""
import dataclasses

import gateways
import generators

RATE = ("rate", "vegeta") # at half of what the slowest does in the row `small`
ROUTES = 10000


@dataclasses.dataclass
class Row:
    name: str
    what: str
    connections: int = 64
    path: str = "/small"
    generator: object = generators.wrk
    program: str = "wrk"    # what the generator is
    script: str = ""        # of wrk
    header: str = ""
    features: dict = dataclasses.field(default_factory=dict)
    longer: float = 1       # than others, where setting connections up takes a while
    needs: str = ""         # the feature that a gateway must have
    tls: bool = False
    control: str = ""       # what the same gateway does for comparison, in the same round ...
    controlled: tuple = ()  # ... which of them
    only: tuple = ()        # else all that have the feature


LIMITS = {"limits": True}
THREE = ("postern", "nginx", "haproxy")
ROWS = [
    Row("small", "GET, 150 B"),
    Row("echo", "POST, 1 KiB of JSON each way", path="/echo", script="echo.lua"),
    Row("64k", "GET, 64 KiB", path="/64k"),
    Row("1m", "GET, 1 MiB, 16 connections", 16, "/1m"),
    Row("upload", "POST, 1 MiB, 16 connections", 16, "/upload", script="upload.lua"),
    Row("c1000", "GET, 150 B, 1,000 connections", 1000, longer=1.5),
    Row("rate", "GET, 150 B, at a fixed rate (perf/load)", generator=generators.load, program=""),
    Row("vegeta", "GET, 150 B, at a fixed rate (vegeta)", generator=generators.vegeta, program="vegeta"),
    Row("logged", "GET, 150 B, with an access log in a file", features={"logged": True}, needs="logged",
        control="without", controlled=THREE),
    Row("limited", "GET, 150 B, with a rate limit by address", path=gateways.LIMITED, features=LIMITS,
        needs="limits", control="without", controlled=("postern",)),
    Row("keyed", "GET, 150 B, with a key and a rate limit by its owner", path=gateways.KEYED, features=LIMITS,
        needs="limits", control="without", controlled=THREE),
    Row("token", "GET, 150 B, with a token (JWT, HS256), the same each time", path=gateways.TOKEN,
        header=gateways.TOKEN_HEADER, features=LIMITS, needs="tokens", control="without", controlled=("postern",)),
    Row("routes", "GET, 150 B, through 10,000 routes", script="routes.lua", features={"routes": ROUTES},
        needs="routes", control="with one", controlled=("postern", "nginx")),
    Row("unix", "GET, 150 B, from a backend at a unix socket", features={"unix": True}, needs="unix",
        control="over TCP", controlled=("postern", "nginx", "relay")),
    Row("workers", "GET, 150 B, two workers", features={"workers": 2}, needs="workers", control="with one",
        controlled=(*THREE, "envoy"), only=(*THREE, "envoy")),
    Row("tls", "GET, 150 B over TLS 1.3", tls=True),
    Row("h2", "GET, 150 B over HTTP/2 and TLS 1.3, 32 at a time on each of 4 connections", 4,
        generator=generators.h2load, program="h2load", tls=True),
    Row("tls-new", "GET, 150 B, a connection and a full handshake each", 1, generator=generators.s_time,
        program="openssl", tls=True),
    Row("tls-reuse", "GET, 150 B, a connection and a resumed handshake each", 1, generator=generators.s_time,
        program="openssl", tls=True),
]
NAMES = [row.name for row in ROWS]


def takes_part(row, kind):
    if row.tls and not kind.speaks_tls:
        return False
    return (not row.needs or row.needs in kind.features) and (not row.only or kind.name in row.only)


def label(row, name):
    """of the control"""
    return f"{name}, {row.control}"


def entrants(row, kinds):
    """[(label, kind, is it the control)] of one round, control beside what it controls"""
    out = []
    for kind in kinds:
        if takes_part(row, kind):
            out.append((kind.name, kind, False))
            if kind.name in row.controlled:
                out.append((label(row, kind.name), kind, True))
    return out
