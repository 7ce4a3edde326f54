"""Health checks of backends that speak HTTP/2: by their gRPC health service, and by a path."""

import threading
from concurrent import futures

import grpc
import pytest

from backend2 import Backend2
from conftest import HTTP
from gateway import own_host, run, until
from tls import Authority, server_context
from wire import WAIT

CHECK = "grpc.health.v1.Health"


def conf(health, more="", servers='server "@app@" {}'):
    return HTTP + f'''
upstream "app" {{ {servers} protocol = h2  pool {{ warm = 0 }} {more}
  health {{ {health}  interval = 20ms  timeout = 5s  rise = 2  fall = 2 }} }}
route "all" {{ path = "/{{rest...}}"  upstream = app }}
'''


class Serving:
    """A real gRPC server with a health service: what it says for each service."""

    def __init__(self, **says):
        self.says = {"": 1, **says}
        self.asked = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        methods = {"Check": grpc.unary_unary_rpc_method_handler(self.check)}
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(CHECK, methods),
             grpc.method_handlers_generic_handler(
                 "t.T", {"Unary": grpc.unary_unary_rpc_method_handler(lambda r, c: b"ok")})))
        self.port = self.server.add_insecure_port(f"{own_host()}:0")
        self.server.start()

    def __str__(self):
        return f"{own_host()}:{self.port}"

    def close(self):
        self.server.stop(None).wait(WAIT)

    def check(self, request, context):
        name = request[2:].decode()
        self.asked.append((request, dict(context.invocation_metadata()),
                           context.time_remaining()))
        if name not in self.says:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown")
        return bytes([8, self.says[name]]) if self.says[name] else b""


@pytest.fixture
def serving(opened):
    def make(**says):
        server = Serving(**says)
        opened.append(server)
        return server

    return make


def state(gw):
    server = gw.upstream("app")[0]
    return server["state"], server.get("why", "")


def wait_state(gw, expected):
    until(lambda: state(gw)[0] == expected, f"{expected}, now {state(gw)}")


def test_the_whole_server(gateway, serving):
    server = serving()
    gw = gateway(conf("type = grpc"), app=server)
    assert state(gw)[0] == "up"
    request, metadata, left = server.asked[0]
    assert request == b""
    assert metadata["user-agent"] == "postern-health"
    assert 0 < left <= 5.0  # the probe's timeout is the call's deadline
    server.says[""] = 2
    wait_state(gw, "down")
    assert state(gw)[1].endswith("it says NOT_SERVING, expected SERVING")
    assert gw.metric("postern_upstream_probes_total", result="status") >= 2
    server.says[""] = 1
    wait_state(gw, "up")


def test_calls_pass_while_it_serves(gateway, serving):
    server = serving()
    gw = gateway(conf("type = grpc"), app=server)
    host, port = gw.address()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        assert channel.unary_unary("/t.T/Unary")(b"", timeout=WAIT) == b"ok"
        server.says[""] = 2
        wait_state(gw, "down")
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/t.T/Unary")(b"", timeout=WAIT)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE


def test_one_service(gateway, serving):
    server = serving(**{"users.v1.Users": 1})
    server.says[""] = 2  # what is asked for counts alone
    gw = gateway(conf('type = grpc  service = "users.v1.Users"'), app=server)
    assert state(gw)[0] == "up"
    assert server.asked[0][0] == b"\x0a\x0eusers.v1.Users"
    server.says["users.v1.Users"] = 0  # UNKNOWN: an empty message
    wait_state(gw, "down")
    assert state(gw)[1].endswith("it says UNKNOWN, expected SERVING")


def test_a_service_that_it_does_not_know(gateway, serving):
    gw = gateway(conf('type = grpc  service = "other"'), app=serving())
    wait_state(gw, "down")
    assert state(gw)[1].endswith("grpc-status 5, expected 0")


def test_a_server_without_a_health_service(gateway, opened):
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port(f"{own_host()}:0")
    server.start()
    gw = gateway(conf("type = grpc"), app=f"{own_host()}:{port}")
    wait_state(gw, "down")
    assert state(gw)[1].endswith("grpc-status 12, expected 0")
    server.stop(None).wait(WAIT)


GOOD = [("content-type", "application/grpc")]


def message(conn, stream, body, headers=GOOD, trailers=(("grpc-status", "0"),), status=200):
    conn.head(stream, status, headers)
    if body:
        conn.body(stream, body, end=False)
    conn.trailers(stream, trailers)


@pytest.mark.parametrize("answer, why", [
    (lambda c, s: message(c, s, b"\0\0\0\0\2\x08\1"), None),
    (lambda c, s: message(c, s, b"\0\0\0\0\2\x08\1",
                          [("content-type", "application/grpc+proto")]), None),
    (lambda c, s: message(c, s, b"\0\0\0\0\2\x08\3"), "it says SERVICE_UNKNOWN"),
    (lambda c, s: message(c, s, b"\0\0\0\0\2\x08\x63"), "it says UNKNOWN"),
    (lambda c, s: message(c, s, b"\0\0\0\0\3\x08\1"), "is not one of grpc.health.v1"),
    (lambda c, s: message(c, s, b"\1\0\0\0\2\x08\1"), "is not one of grpc.health.v1"),
    (lambda c, s: message(c, s, b""), "is not one of grpc.health.v1"),
    (lambda c, s: message(c, s, b"x" * 300), "longer than one of grpc.health.v1 can be"),
    (lambda c, s: message(c, s, b"\0\0\0\0\2\x08\1", trailers=[("x", "y")]),
     "its answer has no grpc-status"),
    (lambda c, s: message(c, s, b"\0\0\0\0\2\x08\1", trailers=[("grpc-status", "14")]),
     "grpc-status 14, expected 0"),
    (lambda c, s: c.head(s, 200, GOOD + [("grpc-status", "7")], end=True),
     "grpc-status 7, expected 0"),
    (lambda c, s: message(c, s, b"ok", [("content-type", "text/plain")]), "is not gRPC"),
    (lambda c, s: message(c, s, b"ok", status=404), "status 404, expected 200"),
    (lambda c, s: c.reset(s, 2), "it closed the stream without an answer"),
    (lambda c, s: (c.head(s, 200, GOOD), c.reset(s, 2)),
     "it closed the stream in the middle of its answer"),
    (lambda c, s: c.raw(b"\0\0\0\xff"), "no answer within 300 ms"),
    (lambda c, s: c.raw(b"\0\0\1\4\0\0\0\0\0x"), "what it answers is not HTTP/2"),
    (lambda c, s: c.close(), "it closed the stream without an answer"),
])
def test_what_it_may_answer(gateway, opened, answer, why):
    """The first probe decides."""
    up = Backend2(own_host())
    opened.append(up)
    text = conf("type = grpc").replace("20ms", "10m").replace("5s", "300ms")
    gw = gateway(text, wait=False, app=up)
    conn = up.accept()
    stream, fields = conn.asked()
    assert fields[":method"] == "POST" and fields[":path"] == f"/{CHECK}/Check"
    assert fields[":authority"] == str(up) and fields["content-type"] == "application/grpc"
    assert fields["te"] == "trailers" and fields["grpc-timeout"] == "300m"
    assert "content-length" not in fields
    assert conn.stream(stream).body == b"\0\0\0\0\0"
    answer(conn, stream)
    gw.wait_ready()
    assert state(gw)[0] == ("down" if why else "up")
    if why:
        assert why in state(gw)[1]


def test_a_probe_says_goodbye(gateway, opened):
    up = Backend2(own_host())
    opened.append(up)
    gw = gateway(conf("type = grpc").replace("20ms", "10m"), wait=False, app=up)
    conn = up.accept()
    stream, _ = conn.asked()
    message(conn, stream, b"\0\0\0\0\2\x08\1")
    conn.expect_goaway(0)
    assert conn.stream(stream).reset is None
    gw.wait_ready()


def test_a_path_is_asked_for_over_http2(gateway, opened):
    up = Backend2(own_host())
    opened.append(up)
    gw = gateway(conf('path = "/healthz"  host = "inner"  body = "we are ready"'
                      '  status = {200, 204}'), wait=False, app=up)
    conn = up.accept()
    stream, fields = conn.asked()
    assert fields[":method"] == "GET" and fields[":path"] == "/healthz"
    assert fields[":authority"] == "inner" and "connection" not in fields
    conn.head(stream)
    conn.body(stream, b"now we are re", end=False)
    conn.body(stream, b"ady")
    gw.wait_ready()
    assert state(gw)[0] == "up"
    for _ in range(2):
        conn = up.accept()
        stream, _ = conn.asked()
        conn.answer(stream, b"", 500)
    wait_state(gw, "down")
    assert "status 500, expected 200, 204" in state(gw)[1]


def test_over_tls(gateway, opened, tmp_path):
    ca = Authority(tmp_path)
    ctx = server_context(ca.issue("localhost", own_host()))
    ctx.set_alpn_protocols(["h2"])
    up = Backend2(own_host(), ctx=ctx)
    opened.append(up)
    gw = gateway(conf("type = grpc", f'tls {{ ca = "{ca.pem}" }}').replace("20ms", "10m"),
                 wait=False, app=up)
    conn = up.accept()
    stream, fields = conn.asked()
    assert fields[":scheme"] == "https"
    message(conn, stream, b"\0\0\0\0\2\x08\1")
    gw.wait_ready()
    assert state(gw)[0] == "up"


def test_a_server_that_takes_no_h2_is_down(gateway, opened, tmp_path):
    ca = Authority(tmp_path)
    ctx = server_context(ca.issue("localhost", own_host()))
    up = Backend2(own_host(), ctx=ctx)
    opened.append(up)
    done = threading.Thread(target=lambda: pytest.raises(Exception, up.accept))
    done.start()
    gw = gateway(conf("type = grpc", f'tls {{ ca = "{ca.pem}" }}').replace("20ms", "10m"),
                 app=up)
    wait_state(gw, "down")
    assert "it does not take HTTP/2 over TLS (ALPN h2)" in state(gw)[1]
    done.join()


@pytest.mark.parametrize("line, expected", [
    ("health { type = grpc }", "health.type is grpc, which is spoken over HTTP/2; expected "
     "protocol = h2"),
    ('protocol = h2 health { type = grpc  path = "/x" }',
     "health.path has no effect with type = grpc"),
    ('protocol = h2 health { path = "/x"  service = a }',
     "health.service has no effect with type = http"),
    ('protocol = h2 health { type = grpc  service = "a b" }',
     'health.service is "a b", expected the name of a gRPC service'),
])
def test_faults(tmp_path, line, expected):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\nupstream "app" { '
                    f'server "127.0.0.1:1" {{}}\n{line}\n}}\n'
                    'route "all" { upstream = app }\n')
    status, out, _ = run("-t", "-c", str(file))
    assert status == 1 and f"{file}:3: {expected}" in out, out
