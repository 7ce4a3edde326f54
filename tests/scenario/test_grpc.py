"""gRPC from end to end: real clients, real servers (python3-grpcio), HTTP/2 on both sides."""

import threading
from concurrent import futures

import grpc
import pytest

from backend2 import Backend2
from conftest import HTTP
from gateway import free_address, own_host, until
from wire import WAIT

CONF = HTTP + '''
upstream "app" { server "@app@" {} protocol = h2 }
route "all" { path = "/{rest...}"  upstream = app }
'''


class Server:
    """Methods of service t.T over plain bytes."""

    def __init__(self, port=0, **options):
        self.calls, self.release = [], threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(20), options=list(options.items()))
        handlers = {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Wait": grpc.unary_unary_rpc_method_handler(self.wait),
            "Many": grpc.unary_stream_rpc_method_handler(self.many),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "Echo": grpc.stream_stream_rpc_method_handler(self.echo),
        }
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("t.T", handlers),))
        self.port = self.server.add_insecure_port(f"{own_host()}:{port}")
        self.server.start()

    def __str__(self):
        return f"{own_host()}:{self.port}"

    def close(self):
        self.release.set()
        self.server.stop(None).wait(WAIT)

    def unary(self, request, context):
        meta = dict(context.invocation_metadata())
        self.calls.append(meta)
        context.send_initial_metadata((("x-initial", "1"),))
        context.set_trailing_metadata((("x-trailing", "2"), ("x-bin", b"\0\1\2")))
        return b"answer to " + request

    def fail(self, request, context):
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now: \u00e4")

    def wait(self, request, context):
        self.calls.append(context.time_remaining())
        self.release.wait(WAIT)
        return b"late"

    def many(self, request, context):
        for n in range(int(request)):
            yield b"%d" % n

    def sum(self, requests, context):
        return b"%d" % sum(int(r) for r in requests)

    def echo(self, requests, context):
        for request in requests:
            yield b"echo " + request


@pytest.fixture
def grpc_pair(gateway, opened):
    server = Server()
    opened.append(server)
    gw = gateway(CONF, app=server)
    host, port = gw.address()
    channel = grpc.insecure_channel(f"{host}:{port}")
    opened.append(channel)
    return gw, server, channel


def test_unary_with_metadata(grpc_pair):
    gw, server, channel = grpc_pair
    answer, call = channel.unary_unary("/t.T/Unary").with_call(
        b"question", timeout=WAIT, metadata=(("x-mine", "here"), ("y-bin", b"\xff\0")))
    assert answer == b"answer to question"
    assert server.calls[0]["x-mine"] == "here" and server.calls[0]["y-bin"] == b"\xff\0"
    assert dict(call.initial_metadata())["x-initial"] == "1"
    assert dict(call.trailing_metadata())["x-trailing"] == "2"
    assert dict(call.trailing_metadata())["x-bin"] == b"\0\1\2"
    line = gw.wait_log()[0]
    assert line["proto"] == "HTTP/2.0" and line["status"] == 200 and line["upstream"] == "app"


def test_status_of_the_server(grpc_pair):
    _, _, channel = grpc_pair
    with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/t.T/Fail")(b"", timeout=WAIT)
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert error.value.details() == "not now: \u00e4"
    with pytest.raises(grpc.RpcError) as error:  # trailers only
        channel.unary_unary("/t.T/None")(b"", timeout=WAIT)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_streams(grpc_pair):
    _, _, channel = grpc_pair
    many = list(channel.unary_stream("/t.T/Many")(b"500", timeout=WAIT))
    assert many == [b"%d" % n for n in range(500)]
    assert channel.stream_unary("/t.T/Sum")((b"%d" % n for n in range(500)), timeout=WAIT) == b"124750"


def test_both_directions_at_once(grpc_pair):
    """Each message is asked for by the answer to the one before."""
    _, _, channel = grpc_pair
    turn = threading.Semaphore(1)

    def requests():
        for n in range(50):
            turn.acquire()
            yield b"%d" % n

    seen = []
    for answer in channel.stream_stream("/t.T/Echo")(requests(), timeout=WAIT):
        seen.append(answer)
        turn.release()
    assert seen == [b"echo %d" % n for n in range(50)]


def test_large_messages(grpc_pair):
    _, _, channel = grpc_pair
    body = b"x" * (3 << 20)
    assert channel.unary_unary("/t.T/Unary")(body, timeout=WAIT) == b"answer to " + body


def test_many_calls_share_a_connection(grpc_pair):
    gw, server, channel = grpc_pair
    calls = [channel.unary_unary("/t.T/Unary").future(b"%d" % n, timeout=WAIT) for n in range(90)]
    assert [c.result() for c in calls] == [b"answer to %d" % n for n in range(90)]
    assert gw.metric("postern_upstream_connections_opened_total", upstream="app") == 1
    assert gw.metric("postern_requests_total", code="200") == 90


def test_client_cancels(grpc_pair):
    gw, server, channel = grpc_pair
    call = channel.unary_unary("/t.T/Wait").future(b"")
    until(lambda: server.calls, "it has arrived")
    call.cancel()
    line = gw.wait_log()[0]
    assert line["reason"] == "client.abort"
    assert channel.unary_unary("/t.T/Unary")(b"a", timeout=WAIT) == b"answer to a"
    assert gw.metric("postern_upstream_connections_opened_total", upstream="app") == 1


def test_deadline_of_the_client(grpc_pair):
    gw, server, channel = grpc_pair
    with pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/t.T/Wait")(b"", timeout=0.5)
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.calls[0] <= 0.5
    # Three clocks run: the client's, the gateway's and the server's own, which answers with status 4.
    line = gw.wait_log()[0]
    assert line["reason"] in ("client.abort", "upstream.timeout_total") or line["status"] == 200, line


def test_our_own_errors(gateway, opened):
    gw = gateway(CONF.replace("/{rest...}", "/t.T/{rest...}"), app=free_address(own_host()))
    host, port = gw.address()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/t.T/Unary")(b"", timeout=WAIT)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "Cannot connect" in error.value.details()
        with pytest.raises(grpc.RpcError) as error:
            channel.unary_unary("/other/None")(b"", timeout=WAIT)
        assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED
    assert gw.wait_log(reason="upstream.connect")[0]["status"] == 502


def test_http1_client_and_h2_backend(gateway, upstream, opened):
    """A plain request by HTTP/1 goes to a server of HTTP/2 and back."""
    server = Server()
    opened.append(server)
    gw = gateway(CONF, app=server)
    response = gw.client().get("/t.T/Unary")  # a gRPC server's word for what is not gRPC
    assert response.status in (200, 415), response.start
    assert server.calls == []


def test_server_restarts(gateway, opened):
    server = Server()
    gw = gateway(CONF, app=server)
    host, port = gw.address()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        unary = channel.unary_unary("/t.T/Unary")
        assert unary(b"1", timeout=WAIT)
        server.close()
        again = Server(server.port)
        opened.append(again)

        def works():
            try:
                return unary(b"2", timeout=WAIT) == b"answer to 2"
            except grpc.RpcError:
                return False
        until(works, "the new server answers")


def test_max_streams_of_the_server(gateway, opened):
    server = Server(**{"grpc.max_concurrent_streams": 2})
    opened.append(server)
    gw = gateway(CONF, app=server)
    host, port = gw.address()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        assert channel.unary_unary("/t.T/Unary")(b"0", timeout=WAIT)
        calls = [channel.unary_unary("/t.T/Unary").future(b"%d" % n, timeout=WAIT)
                 for n in range(30)]
        assert [c.result() for c in calls] == [b"answer to %d" % n for n in range(30)]


# ---- calls that end before their time, of every kind

KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


@pytest.fixture
def scripted(gateway, opened):
    """A backend that is played frame by frame, between it and a real client: what each side sees
    of a call's end does not depend on how fast the other is."""
    up = Backend2(own_host())
    opened.append(up)
    gw = gateway(CONF.replace("protocol = h2", "protocol = h2 pool { warm = 0 }"), app=up)
    host, port = gw.address()
    channel = grpc.insecure_channel(f"{host}:{port}")
    opened.append(channel)
    return gw, up, channel


class Endless:
    """Requests of a stream: one, and then none until the test ends."""

    def __init__(self, first=b"one"):
        self.first, self.over = first, threading.Event()

    def __iter__(self):
        yield self.first
        self.over.wait(WAIT)


def begin(channel, kind, requests, **options):
    call = getattr(channel, kind)("/t.T/X")
    if kind.endswith("unary"):
        return call.future(iter(requests) if kind.startswith("stream") else b"one", **options)
    return call(iter(requests) if kind.startswith("stream") else b"one", **options)


def message(text):
    return b"\0" + len(text).to_bytes(4, "big") + text


def in_the_middle(up, kind, requests, channel, **options):
    """A call of that kind under way: its first message has come, and been answered where there is
    more than one answer."""
    call = begin(channel, kind, requests, **options)
    conn = up.accept()
    stream, fields = conn.asked(body=False)
    conn.until(lambda: message(b"one") in conn.stream(stream).body, "the first message")
    if kind.endswith("stream"):
        conn.head(stream, fields=[("content-type", "application/grpc")])
        conn.body(stream, message(b"first"), end=False)
        assert next(iter(call)) == b"first"
    return call, conn, stream, fields


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_reaches_the_server(scripted, kind):
    gw, up, channel = scripted
    requests = Endless()
    call, conn, stream, _ = in_the_middle(up, kind, requests, channel)
    call.cancel()
    conn.expect_reset(stream, 8)
    requests.over.set()
    line = gw.wait_log()[0]
    assert line["reason"] == "client.abort"
    # Its connection serves on.
    again = channel.unary_unary("/t.T/Y").future(b"", timeout=WAIT)
    stream, _ = conn.asked()
    conn.head(stream, fields=[("content-type", "application/grpc")])
    conn.body(stream, message(b"well"), end=False)
    conn.trailers(stream, [("grpc-status", "0")])
    assert again.result() == b"well"


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_ends_it_in_the_middle(scripted, kind):
    """The client's word of its time goes to the server, and the server hears when it is over."""
    gw, up, channel = scripted
    requests = Endless()
    call, conn, stream, fields = in_the_middle(up, kind, requests, channel, timeout=1)
    assert "grpc-timeout" in fields
    with pytest.raises(grpc.RpcError) as error:
        if kind.endswith("stream"):
            list(call)
        else:
            call.result()
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    conn.expect_reset(stream, 8)
    requests.over.set()
    assert gw.wait_log()[0]["reason"] in ("client.abort", "upstream.timeout_total")  # two clocks


@pytest.mark.parametrize("kind", KINDS)
def test_trailers_only(scripted, kind):
    """One block of fields is the whole answer, while the requests go on."""
    gw, up, channel = scripted
    requests = Endless()
    call = begin(channel, kind, requests)
    conn = up.accept()
    stream, _ = conn.asked(body=False)
    conn.head(stream, fields=[("content-type", "application/grpc"), ("grpc-status", "9"),
                                 ("grpc-message", "not%20now")], end=True)
    with pytest.raises(grpc.RpcError) as error:
        if kind.endswith("stream"):
            list(call)
        else:
            call.result()
    requests.over.set()
    assert (error.value.code(), error.value.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "not now")
    assert gw.wait_log()[0]["status"] == 200


def test_messages_larger_than_every_window(gateway, opened):
    """Of a stream (128 KiB) and of a connection (1 MiB), both ways and in both kinds of streams."""
    size = 2_500_000
    server = Server()
    opened.append(server)
    gw = gateway(CONF, app=server)
    host, port = gw.address()
    body = bytes(range(256)) * (size // 256)
    with grpc.insecure_channel(f"{host}:{port}", options=[("grpc.max_receive_message_length", -1)]) as channel:
        answers = list(channel.stream_stream("/t.T/Echo")(iter([body] * 3), timeout=4 * WAIT))
    assert answers == [b"echo " + body] * 3


# ---- answers of postern's own, as a gRPC client hears them

OWN = [  # what stands in the configuration, what is asked for, what comes of it
    ("route.none", "", "/none/X", b"", "UNIMPLEMENTED"),
    ("route.method", 'route "m" { path = "/t.T/M" methods = {GET} upstream = app }', "/t.T/M", b"", "UNIMPLEMENTED"),
    ("client.body_too_large", 'route "b" { path = "/t.T/B" body_bytes = 10 upstream = app }', "/t.T/B", b"x" * 100,
     "RESOURCE_EXHAUSTED"),
    ("upstream.connect", "", "/t.T/X", b"", "UNAVAILABLE"),
    ("upstream.timeout_connect", 'upstream "mute" { server "@mute@" {} protocol = h2 tls { verify = false }'
     ' timeouts { connect = 100ms } retry { attempts = 0 } pool { warm = 0 } }\n'
     'route "c" { path = "/t.T/C" upstream = mute }', "/t.T/C", b"", "UNAVAILABLE"),
    ("upstream.timeout_response", 'upstream "slow" { server "@mute@" {} protocol = h2'
     ' timeouts { response = 100ms } retry { attempts = 0 } pool { warm = 0 } }\n'
     'route "r" { path = "/t.T/R" upstream = slow }', "/t.T/R", b"", "DEADLINE_EXCEEDED"),
    ("upstream.timeout_total", 'upstream "late" { server "@mute@" {} protocol = h2'
     ' timeouts { total = 100ms } retry { attempts = 0 } pool { warm = 0 } }\n'
     'route "t" { path = "/t.T/T" upstream = late }', "/t.T/T", b"", "DEADLINE_EXCEEDED"),
    ("upstream.protocol", 'upstream "odd" { server "@odd@" {} protocol = h2 retry { attempts = 0 } pool { warm = 0 } }\n'
     'route "o" { path = "/t.T/O" upstream = odd }', "/t.T/O", b"", "UNAVAILABLE"),
    ("auth.", 'route "k" { path = "/t.T/K" key_auth { file = "@keys@" } upstream = app }', "/t.T/K", b"",
     "UNAUTHENTICATED"),
    ("auth.address", 'route "a" { path = "/t.T/A" access { deny = {"0.0.0.0/0"} } upstream = app }', "/t.T/A", b"",
     "PERMISSION_DENIED"),
    ("limit.rate", 'route "l" { path = "/t.T/L" rate_limit { rate = "1/h" burst = 1 } upstream = app }', "/t.T/L", b"",
     "UNAVAILABLE"),
]


@pytest.mark.parametrize("reason, conf, method, body, code", OWN, ids=[case[0] for case in OWN])
def test_own_reasons(gateway, upstream, tmp_path, reason, conf, method, body, code):
    odd = upstream()
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')

    def answer_oddly():
        conn = odd.accept()
        conn.read_until(b"SM\r\n\r\n")
        conn.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    player = threading.Thread(target=answer_oddly)
    if reason == "upstream.protocol":
        player.start()
    gw = gateway(CONF.replace("/{rest...}", "/t.T/X") .replace("protocol = h2", "protocol = h2 pool { warm = 0 }")
                 + conf.replace("@keys@", str(keys)), app=free_address(own_host()), mute=upstream(), odd=odd)
    host, port = gw.address()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        for _ in range(2 if reason == "limit.rate" else 1):
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(method)(body, timeout=WAIT)
    assert error.value.code().name == code
    assert error.value.details()
    assert [line for line in gw.wait_log(2 if reason == "limit.rate" else 1)
            if (line["reason"] or "").startswith(reason)]
    if player.is_alive():
        player.join(15)
