"""Backends that speak HTTP/2 and misbehave: the right reason, nothing left behind, nothing
executed twice."""

import signal
import threading
import time

import pytest
from hyperframe.frame import (ContinuationFrame, DataFrame, GoAwayFrame, HeadersFrame, PingFrame,
                              PushPromiseFrame, SettingsFrame, WindowUpdateFrame)

from backend2 import Conn2
from conftest import HTTP
from gateway import until
from wire import Closed
from wire2 import INTERNAL_ERROR, NO_ERROR, PROTOCOL_ERROR, REFUSED_STREAM

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"
TIMES = 8


def config(options="retry { attempts = 0 }", servers='server "@app@" {}'):
    return HTTP + f'''
upstream "app" {{ {servers} protocol = h2 {options} }}
route "all" {{ path = "/{{rest...}}"  upstream = app }}
'''


# ---- one request each, and what becomes of it

def served(play, settings=()):
    """A backend that plays for each request."""
    def run(conn):
        h2 = Conn2(conn, settings)
        while not h2.closed:
            play(h2, h2.whole_request())
    run.__name__ = play.__name__
    return run


def never_a_word(conn):
    Conn2(conn, None).read_all(2)


@served
def no_answer(h2, stream):
    pass


@served
def interims_only(h2, stream):
    for _ in range(17):
        h2.head(stream, "103")


@served
def reset_internal(h2, stream):
    h2.reset(stream, INTERNAL_ERROR)


@served
def reset_protocol(h2, stream):
    h2.reset(stream, PROTOCOL_ERROR)


@served
def reset_without_an_error(h2, stream):
    h2.reset(stream, NO_ERROR)


def http1(conn):
    conn.read_until(b"\r\n\r\n")
    conn.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def closed_at_once(conn):
    conn.close()


def reset_at_once(conn):
    conn.reset()


@served
def goodbye_and_closed(h2, stream):
    h2.send(GoAwayFrame(0, last_stream_id=stream))
    h2.close()


@served
def connection_error(h2, stream):
    h2.send(GoAwayFrame(0, last_stream_id=stream, error_code=INTERNAL_ERROR))
    h2.close()


@served
def no_status(h2, stream):
    h2.send(h2.headers_frame([("content-length", "0")], stream))


@served
def two_statuses(h2, stream):
    h2.send(h2.headers_frame([(":status", "200"), (":status", "204")], stream))


@served
def a_status_that_is_none(h2, stream):
    h2.head(stream, "2000", end=True)


@served
def switching_protocols(h2, stream):
    h2.head(stream, "101")


@served
def an_interim_that_ends(h2, stream):
    h2.head(stream, "103", end=True)


@served
def upper_case(h2, stream):
    h2.head(stream, fields=[("X-Upper", "1")], end=True)


@served
def a_connection_field(h2, stream):
    h2.head(stream, fields=[("connection", "close")], end=True)


@served
def a_transfer_coding(h2, stream):
    h2.head(stream, fields=[("transfer-encoding", "chunked")])


@served
def a_line_break_in_a_value(h2, stream):
    h2.head(stream, fields=[("x", "a\r\nset-cookie: b")], end=True)


@served
def two_lengths(h2, stream):
    h2.head(stream, fields=[("content-length", "1"), ("content-length", "2")])


@served
def data_before_the_head(h2, stream):
    h2.body(stream, b"x")


@served
def a_head_too_large(h2, stream):
    h2.send(HeadersFrame(stream, h2.block_of([(":status", "200")])))
    for i in range(70):
        h2.send(ContinuationFrame(stream, h2.block_of([(f"x-{i}", "y" * 1000)])))


@served
def a_head_without_end(h2, stream):
    h2.send(HeadersFrame(stream, h2.block_of([(":status", "200")])))
    for _ in range(1000):
        h2.send(ContinuationFrame(stream, b""))


@served
def a_push(h2, stream):
    frame = PushPromiseFrame(stream, 2, h2.block_of(h2.fields("/pushed")))
    frame.flags.add("END_HEADERS")
    h2.send(frame)


@served
def a_window_too_large(h2, stream):
    h2.send(WindowUpdateFrame(0, 0x7fffffff))


@served
def a_frame_too_large(h2, stream):
    h2.raw((1 << 20).to_bytes(3, "big") + b"\0\0" + stream.to_bytes(4, "big"))


@served
def a_ping_of_seven_bytes(h2, stream):
    h2.raw(b"\0\0\7\6\0\0\0\0\0seven77")


@served
def bad_compression(h2, stream):
    h2.send(HeadersFrame(stream, b"\xff\xff\xff\xff\xff\xff\xff", flags=["END_HEADERS"]))


@served
def half_and_reset(h2, stream):
    h2.head(stream, fields=[("content-length", "100")])
    h2.body(stream, b"half", end=False)
    h2.reset(stream, INTERNAL_ERROR)


@served
def half_and_closed(h2, stream):
    h2.head(stream)
    h2.body(stream, b"half", end=False)
    h2.close()


@served
def half_and_silence(h2, stream):
    h2.head(stream, fields=[("content-length", "100")])
    h2.body(stream, b"half", end=False)


@served
def less_than_it_said(h2, stream):
    h2.head(stream, fields=[("content-length", "100")])
    h2.body(stream, b"half")


@served
def more_than_it_said(h2, stream):
    h2.head(stream, fields=[("content-length", "2")])
    h2.body(stream, b"half")


@served
def a_status_in_the_trailers(h2, stream):
    h2.head(stream)
    h2.body(stream, b"half", end=False)
    h2.send(h2.headers_frame([(":status", "200")], stream))


@served
def drop_by_drop(h2, stream):
    h2.head(stream, fields=[("content-length", "20")])
    for i in range(20):
        h2.send(h2.data_frame(stream, b"y", end=i == 19))
        time.sleep(0.005)


@served
def many_pings(h2, stream):
    for _ in range(500):
        h2.send(PingFrame(0, b"12345678"))
    h2.answer(stream)


@served
def empty_and_padded(h2, stream):
    h2.head(stream)
    for _ in range(50):
        h2.send(h2.data_frame(stream, b"", end=False))
    h2.send(h2.data_frame(stream, b"ok", pad=200))


@served
def an_end_and_then_more(h2, stream):
    h2.answer(stream)
    h2.send(DataFrame(stream, b"more"))


BAD = {
    never_a_word: (504, "upstream.timeout_response"),
    no_answer: (504, "upstream.timeout_response"),
    interims_only: (502, "upstream.protocol"),
    reset_internal: (502, "upstream.reset"),
    reset_protocol: (502, "upstream.protocol"),
    reset_without_an_error: (502, "upstream.reset"),
    http1: (502, "upstream.protocol"),
    closed_at_once: (502, "upstream.reset"),
    reset_at_once: (502, "upstream.reset upstream.connect"),  # it may come before we know of the connection
    goodbye_and_closed: (502, "upstream.reset"),
    connection_error: (502, "upstream.reset"),
    no_status: (502, "upstream.protocol"),
    two_statuses: (502, "upstream.protocol"),
    a_status_that_is_none: (502, "upstream.protocol"),
    switching_protocols: (502, "upstream.protocol"),
    an_interim_that_ends: (502, "upstream.protocol"),
    upper_case: (502, "upstream.protocol"),
    a_connection_field: (502, "upstream.protocol"),
    a_transfer_coding: (502, "upstream.protocol"),
    a_line_break_in_a_value: (502, "upstream.protocol"),
    two_lengths: (502, "upstream.protocol"),
    data_before_the_head: (502, "upstream.protocol"),
    a_head_too_large: (502, "upstream.protocol"),
    a_head_without_end: (502, "upstream.protocol"),
    a_push: (502, "upstream.protocol"),
    a_window_too_large: (502, "upstream.protocol"),
    a_frame_too_large: (502, "upstream.protocol"),
    a_ping_of_seven_bytes: (502, "upstream.protocol"),
    bad_compression: (502, "upstream.protocol"),
    half_and_reset: (200, "upstream.reset"),
    half_and_closed: (200, "upstream.reset"),
    half_and_silence: (200, "upstream.timeout_idle"),
    less_than_it_said: (200, "upstream.protocol"),
    more_than_it_said: (200, "upstream.protocol"),
    a_status_in_the_trailers: (200, "upstream.protocol"),
    drop_by_drop: (200, ""),
    many_pings: (200, ""),
    empty_and_padded: (200, ""),
    an_end_and_then_more: (200, ""),
}


@pytest.mark.parametrize("how", BAD, ids=lambda how: how.__name__)
def test_it_has_its_reason_and_leaves_nothing_behind(gateway, upstream, how):
    status, reason = BAD[how]
    up = upstream()
    quick = "timeouts { response = 150ms  idle = 150ms }" if "timeout" in reason else ""
    gw = gateway(config(f"retry {{ attempts = 0 }} pool {{ idle_timeout = 50ms }} {quick}"), app=up)
    ends = threading.Event()

    def serve():
        while not ends.is_set():
            try:
                conn = up.accept(0.1)
            except AssertionError:
                continue
            except OSError:
                return
            try:
                how(conn)
            except (Closed, OSError, AssertionError):
                pass
            conn.close()

    player = threading.Thread(target=serve)
    player.start()

    def one():
        client = gw.client()
        client.send(GET)
        response = client.head()
        while response.status < 200:
            response = client.head()
        assert response.status == status
        if not reason:
            client.read_body(response)
        elif status == 200:
            with pytest.raises((Closed, AssertionError)):
                client.read_body(response)
        else:
            client.read_body(response)
        client.close()

    before = gw.descriptors()
    try:
        one()
        until(lambda: gw.upstream("app", up)["active"] == 0, "nothing is under way")
        for _ in range(TIMES):
            one()
        lines = gw.wait_log(TIMES + 1, status=status)
        assert {line["reason"] or "" for line in lines} <= set(reason.split() or [""])
    finally:
        ends.set()
        player.join(15)

    def clean():
        server = gw.upstream("app", up)
        return server["active"] == server["idle"] == 0 and gw.descriptors() <= before

    until(clean, f"no connection and no descriptor is left: {before}")


# ---- several requests

def send(gw, target="/", method="GET", body=None):
    client = gw.client()
    length = "" if body is None else f"Content-Length: {len(body)}\r\n"
    client.send(f"{method} {target} HTTP/1.1\r\nHost: test\r\n{length}\r\n".encode() + (body or b""))
    return client


def test_what_a_goodbye_leaves_out_is_sent_again(gateway, upstream):
    """RFC 9113 6.8: streams above the last that the server names were not looked at, and may go
    elsewhere whatever they are; the others are finished."""
    up = upstream()
    gw = gateway(config(""), app=up)
    first = send(gw, "/first")
    h2 = Conn2(up.accept())
    one = h2.whole_request()
    second = send(gw, "/second", "POST", b"body")
    two = h2.whole_request()
    h2.send(GoAwayFrame(0, last_stream_id=one))
    again = Conn2(up.accept())
    stream = again.whole_request()
    assert (again.field(stream, ":path"), again.stream(stream).body) == ("/second", b"body") and two > one
    again.answer(stream, b"2")
    h2.answer(one, b"1")
    assert (first.response().body, second.response().body) == (b"1", b"2")
    h2.read_all()  # its last request is answered, and the gateway leaves
    client = send(gw, "/third")
    again.answer(again.whole_request(), b"3")
    assert client.response().body == b"3"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_refused_stream_is_sent_again(gateway, upstream, method):
    up = upstream()
    gw = gateway(config(""), app=up)
    client = send(gw, "/x", method, b"body" if method == "POST" else None)
    h2 = Conn2(up.accept())
    h2.reset(h2.whole_request(), REFUSED_STREAM)
    h2.answer(h2.whole_request(), b"again")
    assert client.response().body == b"again"
    assert gw.metric("postern_upstream_retries_total") == 1


@pytest.mark.parametrize("how", ["reset", "closed", "goodbye"])
def test_a_post_that_may_have_been_executed_is_not_sent_again(gateway, upstream, how):
    up = upstream()
    gw = gateway(config(""), app=up)
    client = send(gw, "/x", "POST", b"body")
    h2 = Conn2(up.accept())
    stream = h2.whole_request()
    if how == "reset":
        h2.reset(stream, INTERNAL_ERROR)
    elif how == "goodbye":
        h2.send(GoAwayFrame(0, last_stream_id=stream))
    if how != "reset":
        h2.close()
    assert client.response().status == 502
    up.expect_no_connection()
    assert gw.wait_log(reason="upstream.reset", attempts=1)


def test_a_server_says_how_many_at_a_time(gateway, upstream):
    """No more than that on its connection; the others get one of their own, and nobody waits."""
    up = upstream()
    gw = gateway(config("pool { warm = 1 }"), app=up)
    h2 = Conn2(up.accept(), [(SettingsFrame.MAX_CONCURRENT_STREAMS, 1)])
    h2.ping()
    clients = [send(gw, f"/{i}") for i in range(3)]
    ends = [h2, Conn2(up.accept(), [(SettingsFrame.MAX_CONCURRENT_STREAMS, 1)]),
            Conn2(up.accept(), [(SettingsFrame.MAX_CONCURRENT_STREAMS, 1)])]
    for end in ends:
        end.answer(end.whole_request(), end.field(end.taken, ":path").encode())
    assert sorted(c.response().body for c in clients) == [b"/0", b"/1", b"/2"]


def test_an_answer_before_the_request_has_ended(gateway, upstream):
    """RFC 9113 8.1: the server wants no more of it, which is no failure; the connection goes on."""
    up = upstream()
    gw = gateway(config(""), app=up)
    client = gw.client()
    client.send(b"POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\nbegun")
    h2 = Conn2(up.accept())
    stream = h2.request()
    h2.until(lambda: h2.stream(stream).body, "the beginning")
    h2.answer(stream, b"too large", "413")
    h2.reset(stream, NO_ERROR)
    response = client.response()
    assert (response.status, response.body) == (413, b"too large")
    other = send(gw, "/y")
    h2.answer(h2.whole_request(), b"y")
    assert other.response().body == b"y"
    assert gw.wait_log(status=413)[0]["reason"] is None


# ---- connections that are no good any more

def test_a_server_that_takes_nothing_of_an_upload(gateway, upstream):
    """It never opens its window: what stands still is the server's fault, not the client's."""
    up = upstream()
    gw = gateway(config("retry { attempts = 0 } timeouts { response = 300ms }"), app=up)
    client = gw.client()
    client.send(b"POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200000)
    h2 = Conn2(up.accept(), window=False)
    stream = h2.request()
    assert client.response().status == 504
    h2.expect_reset(stream, 8)
    assert len(h2.stream(stream).body) == 65535
    assert gw.wait_log(reason="upstream.timeout_response")


def test_a_slow_upload_is_not_the_servers_fault(gateway, upstream):
    up = upstream()
    gw = gateway(config("retry { attempts = 0 } timeouts { response = 200ms }"), app=up)
    client = gw.client()
    client.send(b"POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\n")
    h2 = Conn2(up.accept())
    stream = h2.request()
    for _ in range(9):
        time.sleep(0.1)
        client.send(b"x")
    h2.until(lambda: h2.stream(stream).ended, "the request's end")
    h2.answer(stream)
    assert client.response().status == 200


@pytest.mark.parametrize("how", ["response", "try", "total"])
def test_a_connection_that_has_gone_silent_is_not_used_again(gateway, upstream, how):
    """As when its server's machine is gone: nothing comes, not even a reset. Each request on it
    would wait in vain."""
    options = {"response": "timeouts { response = 300ms } retry { attempts = 0 }",
               "try": "timeouts { connect = 300ms } retry { try_timeout = 300ms on = {timeout} attempts = 5 budget = 100% }",
               "total": "timeouts { connect = 300ms total = 300ms } retry { attempts = 0 }"}
    up = upstream()
    gw = gateway(config(options[how]), app=up)
    client = send(gw)
    dead = Conn2(up.accept())
    dead.answer(dead.whole_request())
    assert client.response().status == 200
    answers = []

    def ask():
        answers.append(gw.get().status)
        return answers[-1] == 200

    asking = threading.Thread(target=lambda: until(ask, "somebody answers"))
    asking.start()
    alive = Conn2(up.accept())
    alive.answer(alive.whole_request())
    asking.join(15)
    assert answers[-1] == 200 and set(answers[:-1]) <= {504}
    assert how == "response" or len(answers) < 10


def test_a_connection_whose_server_is_only_slow_stays(gateway, upstream):
    """It answers pings, and other requests."""
    up = upstream()
    gw = gateway(config("timeouts { connect = 200ms total = 200ms } retry { attempts = 0 }"), app=up)
    client = send(gw, "/quick")
    h2 = Conn2(up.accept())
    h2.answer(h2.whole_request())
    assert client.response().status == 200
    slow = send(gw, "/slow")
    h2.expect_reset(h2.whole_request(), 8)
    assert slow.response().status == 504
    h2.until(lambda: any(isinstance(f, PingFrame) for f in h2.frames), "the question whether it is there")
    for _ in range(3):
        client = send(gw, "/quick")
        h2.answer(h2.whole_request())
        assert client.response().status == 200
    assert gw.upstream("app", up)["opened"] == 1


def test_a_connection_retires_with_all_its_requests(gateway, upstream):
    """lifetime is a connection's: many requests at a time do not keep it alive for ever."""
    up = upstream()
    gw = gateway(config("pool { lifetime = 1s }"), app=up)
    stop, lock, seen = threading.Event(), threading.Lock(), []

    def serve(conn):
        h2 = Conn2(conn)
        try:
            while True:
                h2.answer(h2.whole_request())
        except (Closed, OSError):
            with lock:
                seen.append(h2.closed)

    def ask():
        client = gw.client()
        while not stop.is_set():
            assert client.get().status == 200
        client.close()

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for thread in askers:
        thread.start()
    servers = []
    for _ in range(3):  # generations
        servers.append(threading.Thread(target=serve, args=(up.accept(),)))
        servers[-1].start()
    until(lambda: len(seen) >= 2, "two have retired")
    stop.set()
    for thread in askers:
        thread.join(15)
    assert gw.upstream("app", up)["opened"] <= 8
    assert {line["status"] for line in gw.log_lines()} == {200}


@pytest.mark.parametrize("why", ["idle", "reload", "stop"])
def test_the_gateway_leaves_with_a_goodbye(gateway, upstream, why):
    """RFC 9113 5.4.1: a server that is told need not take the end of the connection for a fault."""
    up = upstream()
    idle = "300ms" if why == "idle" else "1h"
    gw = gateway(config(f"pool {{ warm = 0 idle_timeout = {idle} }}"), app=up)
    client = send(gw, "/x")
    h2 = Conn2(up.accept())
    h2.answer(h2.whole_request(), b"done")
    assert client.response().body == b"done"
    if why == "reload":
        gw.reload(HTTP + 'route "all" { respond { body = x } }\n')
    elif why == "stop":
        gw.signal(signal.SIGTERM)
    h2.read_all()
    h2.expect_goaway(NO_ERROR)


# ---- what is counted: connections and requests, not who may use one at a time

def answer_next(h2):
    stream = h2.whole_request()
    h2.answer(stream, h2.field(stream, ":path").encode())
    return stream


def test_a_connection_has_so_many_requests(gateway, upstream):
    """pool.requests is a connection's; one after the other, and at a time."""
    up = upstream()
    gw = gateway(config("pool { warm = 0  requests = 3 }"), app=up)
    for _ in range(2):
        h2 = None
        for i in range(3):
            client = send(gw, f"/{i}")
            h2 = h2 or Conn2(up.accept())
            answer_next(h2)
            assert client.response().body == b"/%d" % i
        h2.read_all()
        h2.expect_goaway(NO_ERROR)
        assert len(h2.streams) == 3
    clients = [send(gw, f"/{i}") for i in range(5)]
    one, two = Conn2(up.accept()), Conn2(up.accept())
    for _ in range(3):
        answer_next(one)
    for _ in range(2):
        answer_next(two)
    assert sorted(c.response().body for c in clients) == [b"/%d" % i for i in range(5)]
    one.read_all()
    one.expect_goaway(NO_ERROR)
    server = gw.upstream("app", up)
    assert (server["requests"], server["opened"], server["reused"]) == (11, 4, 7)


def test_connections_are_counted_and_not_their_streams(gateway, upstream):
    """What is opened and what is reused make up what was asked; idle and active are connections."""
    up = upstream()
    gw = gateway(config("pool { warm = 0  idle_timeout = 1h }"), app=up)
    clients = [send(gw, "/0")]
    h2 = Conn2(up.accept())
    streams = [h2.whole_request()]
    for i in range(1, 5):
        clients.append(send(gw, f"/{i}"))
        streams.append(h2.whole_request())
    labels = {"upstream": "app", "server": str(up)}

    def count():
        return [int(gw.metric("postern_upstream_connections", state=state, **labels))
                for state in ("idle", "active")]

    def shown():
        server = gw.upstream("app", up)
        return [server[key] for key in ("idle", "active", "opened", "reused", "requests")]

    assert count() == [0, 1] and shown()[:4] == [0, 1, 1, 4]
    for i, stream in enumerate(streams):
        h2.answer(stream)
        assert clients[i].response().status == 200
        assert count() == ([1, 0] if i == 4 else [0, 1])
    assert shown() == [1, 0, 1, 4, 5]
    assert gw.metric("postern_upstream_connections_opened_total", **labels) == 1
    assert gw.metric("postern_upstream_connection_reuses_total", **labels) == 4
    assert [line["reused"] for line in gw.wait_log(5)] == [False] + 4 * [True]
    h2.close()
    until(lambda: count() == [0, 0], "it is gone")


@pytest.mark.parametrize("state", ["idle", "active"])
def test_what_breaks_off_is_not_counted_any_more(gateway, upstream, state):
    up = upstream()
    gw = gateway(config("pool { warm = 0 } retry { attempts = 0 }"), app=up)
    client = send(gw, "/x")
    h2 = Conn2(up.accept())
    stream = h2.whole_request()
    if state == "idle":
        h2.answer(stream)
        assert client.response().status == 200
    assert gw.upstream("app", up)[state] == 1
    h2.reset_connection()
    if state == "active":
        assert client.response().status == 502
    until(lambda: [gw.upstream("app", up)[s] for s in ("idle", "active")] == [0, 0], "it is gone")


def test_a_stream_on_a_connection_that_was_there_is_sent_again(gateway, upstream):
    """The server left just when a second request came on its connection: as on a reused one of
    HTTP/1, that is nobody's fault and costs no attempt."""
    up = upstream()
    gw = gateway(config("pool { warm = 0 } retry { attempts = 0 }"), app=up)
    first = send(gw, "/first")
    h2 = Conn2(up.accept())
    h2.whole_request()
    second = send(gw, "/second")
    h2.whole_request()
    h2.close()
    assert first.response().status == 502
    again = Conn2(up.accept())
    answer_next(again)
    assert second.response().body == b"/second"
