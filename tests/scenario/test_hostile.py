"""Broken and hostile messages, from the tables in cases/, through the real binary."""

import json

import pytest

from cases import response_cases
from cases.request_cases import CHUNKS_BAD, H, PASSED, PIPELINED, REFUSED, SMUGGLED, TRAILERS_BAD, TRAILERS_LARGE, get
from conftest import ONE
from gateway import Gateway, own_host, until
from recorder import Recorder
from wire import Closed

CONFIG = ONE + 'route "server" { path = "*"  upstream = app }'

# what the gateway adds to every request; the values are random or this test's address
OURS = {"x-forwarded-proto": "http", "x-forwarded-host": None, "x-forwarded-for": None,
        "x-request-id": None, "traceparent": None, "via": "1.1 postern"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """One gateway and one recording backend for all cases of a table."""
    up = Recorder(own_host())
    gw = Gateway(tmp_path_factory.mktemp("hostile"), CONFIG, {"app": up})
    yield gw, up
    assert not up.faults, up.faults[:3]
    gw.finish()
    up.close()


def settle(gw, up):
    """When this is answered, all that the gateway sent before is on record."""
    assert gw.get("/settled").status == 200


def check_refused(gw, up, data, status, reason, method="GET"):
    mark = up.mark()
    client = gw.client()
    client.send(data)
    response = client.response(method)
    problem = json.loads(response.body)
    assert (response.status, problem["reason"]) == (status, reason), problem
    assert problem["status"] == status
    assert response.get("Content-Type") == "application/problem+json"
    assert response.get("Connection") == "close"
    client.expect_closed()
    client.close()
    settle(gw, up)
    seen = up.since(mark)
    assert [s.request.target for s in seen] == ["/settled"], seen
    assert up.mark()[1] - mark[1] == len(seen[0].raw), "something reached the backend"
    return problem


@pytest.mark.parametrize("name", REFUSED)
def test_refused(hostile, name):
    check_refused(*hostile, *REFUSED[name])


def check_ours(fields, peer):
    """Each field that the gateway vouches for is there once, with its own value."""
    own = {}
    for name, value in fields:
        if name.lower() in OURS:
            assert name.lower() not in own, f"{name} twice"
            own[name.lower()] = value
    assert set(own) | {"x-forwarded-host"} == set(OURS), own
    assert own["x-forwarded-for"] == peer and own["x-forwarded-proto"] == "http"
    assert "6.6.6.6" not in str(own) and "7.7.7.7" not in str(own)


@pytest.mark.parametrize("name", PASSED)
def test_passed(hostile, name):
    gw, up = hostile
    data, start, fields, body = PASSED[name]
    mark = up.mark()
    client = gw.client()
    peer = client.sock.getsockname()[0]
    client.send(data)
    response = client.response()
    assert response.status == 200, response.body
    settle(gw, up)
    request = up.since(mark)[0].request
    assert request.start == start
    rest = [(n, v) for n, v in request.fields if n.lower() not in OURS]
    framing = [f for f in rest if f[0] in ("Content-Length", "Transfer-Encoding")]
    assert sorted(rest) == sorted(fields)
    assert [f for f in rest if f not in framing] == [f for f in fields if f not in framing]
    assert request.body == body
    assert not request.trailers
    check_ours(request.fields, peer)
    assert [s.request.target for s in up.since(mark)[1:]] == ["/settled"]
    client.send(b"GET /second HTTP/1.1\r\n" + H + b"\r\n")  # where it began is not lost
    if response.get("Connection") == "close":
        client.expect_closed()
    else:
        assert client.response().status == 200
        assert up.since(mark)[-1].request.target == "/second"
    client.close()


def take_cut(up):
    """What reached the backend and broke off; anything else that it could not read is a fault."""
    with up.lock:
        faults, up.faults = up.faults, []
    assert all(kind == "cut" for kind, _ in faults), faults
    return [got for _, got in faults]


def check_body_refused(gw, up, body, reason, status=400):
    """The backend may have got the head and good chunks, never an end of the message."""
    mark = up.mark()
    client = gw.client()
    client.send(b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n" + body)
    response = client.response()
    assert (response.status, json.loads(response.body)["reason"]) == (status, reason)
    assert response.get("Connection") == "close"
    client.expect_closed()
    client.close()
    settle(gw, up)
    assert [s.request.target for s in up.since(mark)] == ["/settled"]
    for got in take_cut(up):
        assert b"\r\n0\r\n" not in got and b"smuggled" not in got


@pytest.mark.parametrize("name", CHUNKS_BAD)
def test_bad_chunk_is_refused(hostile, name):
    check_body_refused(*hostile, CHUNKS_BAD[name], "bad_request.chunk")


@pytest.mark.parametrize("name", TRAILERS_BAD)
def test_bad_trailer_is_refused(hostile, name):
    check_body_refused(*hostile, TRAILERS_BAD[name], "bad_request.trailer")


@pytest.mark.parametrize("framing", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                                     b"Transfer-Encoding: chunked\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n"])
def test_an_upload_that_breaks_off_never_looks_complete(hostile, framing):
    gw, up = hostile
    mark = up.mark()
    client = gw.client()
    client.send(b"POST /broken HTTP/1.1\r\n" + H + framing)
    client.half_close()
    client.expect_closed()
    client.close()
    gw.wait_log(path="/broken", reason="client.abort")
    settle(gw, up)
    assert [s.request.target for s in up.since(mark)] == ["/settled"]
    take_cut(up)


@pytest.mark.parametrize("name", TRAILERS_LARGE)
def test_large_trailers_are_refused(hostile, name):
    check_body_refused(*hostile, TRAILERS_LARGE[name], "client.headers_too_large", 431)


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_the_place_of_a_bad_chunk_does_not_depend_on_the_pieces_it_came_in(hostile, step):
    gw, up = hostile
    for body, reason, at in ((b"3\r\nabc\r\n5;a\r\n12345\r\nx\r\n", "chunk", 20), (b"3\r\nabcX", "chunk", 6),
                             (b"1\r\na\r\n0\r\nX : 1\r\n\r\n", "trailer", 10)):
        client = gw.client()
        client.send(b"POST / HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n")
        client.send_slowly(body[:at + 1], step)
        client.send(body[at + 1:])
        problem = json.loads(client.response().body)
        assert problem["reason"] == f"bad_request.{reason}"
        line = gw.wait_log(req_id=problem["instance"])[0]
        assert line["offset"] == at, (body, line)
        client.close()
    settle(gw, up)
    take_cut(up)


def test_what_may_be_passed_on_no_further_ends_here(hostile):
    """RFC 9110 7.6.2: we are who it is for. TRACE is not done here: it would show credentials."""
    gw, up = hostile
    mark = up.mark()
    client = gw.client()
    for line, status in ((b"OPTIONS * HTTP/1.1", 200), (b"OPTIONS /x HTTP/1.1", 200), (b"TRACE / HTTP/1.1", 405)):
        client.send(get(b"Max-Forwards: 0", b"Authorization: x", line=line))
        response = client.response()
        assert response.status == status
        assert response.get("Allow") == (None if status == 200 else "OPTIONS")
    assert json.loads(response.body)["reason"] == "route.method"
    client.close()
    settle(gw, up)
    assert [s.request.target for s in up.since(mark)] == ["/settled"]


def test_a_secure_target_on_a_plain_connection_is_misdirected(hostile, gateway):
    """RFC 9110 7.4; a trusted proxy has spoken TLS with whom it speaks for."""
    gw, up = hostile
    secure = get(line=b"GET https://test/ HTTP/1.1")
    mark = up.mark()
    client = gw.client()
    client.send(secure)
    response = client.response()
    assert (response.status, json.loads(response.body)["reason"]) == (421, "client.misdirected")
    client.close()
    settle(gw, up)
    assert [s.request.target for s in up.since(mark)] == ["/settled"]
    behind = gateway(CONFIG.replace("listen =", 'trusted_proxies = {"127.0.0.0/8"}  listen =', 1), app=up)
    client = behind.client()
    client.send(secure)
    assert client.response().status == 200


@pytest.mark.parametrize("cut", ["each byte", "pairs"])
def test_pipelined_requests_cut_anywhere_stay_what_they_are(hostile, cut):
    gw, up = hostile
    one = b"POST /1 HTTP/1.1\r\n" + H + b"Content-Length: 5\r\n\r\nGET /"
    two = b"POST /2 HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n3;x\r\n0\r\n\r\n0\r\n\r\n"
    three = b"PUT /3 HTTP/1.1\r\n" + H + b"Transfer-Encoding: chunked\r\n\r\n1;y\r\nx\r\n0\r\nX: 1\r\n\r\n"
    whole = one + two + three + b"GET /4 HTTP/1.1\r\n" + H + b"\r\n"
    cuts = [(n,) for n in range(1, len(whole))] if cut == "each byte" else [(n, n + 7) for n in range(1, len(whole) - 7, 5)]
    for places in cuts:
        mark = up.mark()
        client = gw.client()
        at = 0
        for place in (*places, len(whole)):
            client.send(whole[at:place])
            at = place
        assert [client.response().status for _ in range(4)] == [200] * 4, places
        client.close()
        assert [(s.request.target, s.request.body) for s in up.since(mark)] == \
            [("/1", b"GET /"), ("/2", b"0\r\n"), ("/3", b"x"), ("/4", b"")], places


@pytest.mark.parametrize("name", PIPELINED)
def test_nothing_is_read_behind_a_refused_request(hostile, name):
    gw, up = hostile
    _, status, reason = REFUSED[name]
    check_refused(gw, up, PIPELINED[name] + SMUGGLED * 3, status, reason)


@pytest.mark.parametrize("step", [1, 2, 7])
def test_refused_in_pieces_as_in_one(hostile, step):
    gw, up = hostile
    for name in (*list(PIPELINED)[:12], "line.two_empty_lines_first", "line.many_empty_lines"):
        data, status, reason = REFUSED[name]
        client = gw.client()
        try:
            client.send_slowly(data[:3000], step)
        except AssertionError:
            pass  # refused before its end, and closed
        response = client.response()
        assert (name, response.status, json.loads(response.body)["reason"]) == (name, status, reason)
        client.close()


def test_every_refusal_is_logged_with_reason_and_place(hostile):
    gw, up = hostile
    expected = {}
    for name, (data, status, reason) in REFUSED.items():
        client = gw.client()
        client.send(data)
        expected[json.loads(client.response().body)["instance"]] = (name, status, reason)
        client.close()

    def logged():
        lines = {line["req_id"]: line for line in gw.log_lines() if line["req_id"] in expected}
        return lines if len(lines) == len(expected) else None

    for req_id, line in until(logged, "every refusal is logged").items():
        name, status, reason = expected[req_id]
        assert (name, line["status"], line["reason"]) == (name, status, reason)
        assert isinstance(line.get("offset", 0), int)


# ---- answers

ANSWERS = {f"/{kind}/{name}": steps
           for kind, table in (("refused", response_cases.REFUSED), ("cut", response_cases.CUT),
                               ("head", response_cases.HEAD_CUT))
           for name, steps in table.items()}
ANSWERS.update({f"/whole/{name}": case[0] for name, case in response_cases.WHOLE.items()})

IN_PIECES = ("interim_100", "interim_longer_than_the_answer", "interim_sixteen", "interim_with_chunks", "chunked_extension", "trailers", "length", "no_phrase",
             "until_close", "keep_alive_10", "status_204")


def pieces(steps, size):
    return [piece for step in steps for piece in ([step] if isinstance(step, str) else
                                                  [step[i:i + size] for i in range(0, len(step), size)])]


ANSWERS.update({f"/pieces{size}/{name}": pieces(response_cases.WHOLE[name][0], size) for name in IN_PIECES for size in (1, 9)})


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    up = Recorder(own_host(), lambda target: ANSWERS.get(target.split("?")[0]))
    gw = Gateway(tmp_path_factory.mktemp("answering"), CONFIG, {"app": up})
    yield gw, up
    assert not up.faults, up.faults[:3]
    gw.finish()
    up.close()


def ask(target, method="POST", version="1.1"):
    """POST: what is not repeated, so that each case is one attempt."""
    length = "Content-Length: 0\r\n" if method == "POST" else ""
    return f"{method} {target} HTTP/{version}\r\nHost: test\r\n{length}\r\n"


def was_reused(gw, up, client, number):
    """The next request of the same client, and whether it came on that backend connection."""
    client.send(ask("/next", "GET"))
    response = client.response()
    assert (response.status, response.body) == (200, b"ok"), "the client's connection is fine"
    with up.lock:
        assert up.seen[-1].request.target == "/next"
        return up.seen[-1].conn == number


def check_502(gw, up, target, reason):
    mark = up.mark()
    client = gw.client()
    client.send(ask(target))
    response = client.response()
    assert (response.status, json.loads(response.body)["reason"]) == (502, reason), response.raw_head
    seen = up.since(mark)
    assert [s.request.target for s in seen] == [target], "sent exactly once"
    assert not was_reused(gw, up, client, seen[0].conn)
    client.close()


@pytest.mark.parametrize("name", response_cases.REFUSED)
def test_malformed_answer_is_502(answering, name):
    check_502(*answering, f"/refused/{name}", "upstream.protocol")


@pytest.mark.parametrize("name", response_cases.HEAD_CUT)
def test_answer_cut_in_its_head_is_502(answering, name):
    check_502(*answering, f"/head/{name}", "upstream.reset")


@pytest.mark.parametrize("name", response_cases.WHOLE)
def test_answer_arrives_whole(answering, name):
    gw, up = answering
    _, status, body, reused = response_cases.WHOLE[name]
    mark = up.mark()
    client = gw.client()
    client.send(ask(f"/whole/{name}"))
    response = client.response()
    assert (response.status, response.body) == (status, body)
    assert not set(response.names) & {"x-hop", "keep-alive", "proxy-connection", "upgrade"}
    if status == 204:
        assert response.length is None and not response.is_chunked
    allowed = {"x-sum"} if name == "trailers" else set()
    assert {n.lower() for n, _ in response.trailers} <= allowed
    assert was_reused(gw, up, client, up.since(mark)[0].conn) is reused
    client.close()


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("name", IN_PIECES)
def test_answer_in_pieces_arrives_whole(answering, name, size):
    gw, up = answering
    _, status, body, reused = response_cases.WHOLE[name]
    mark = up.mark()
    client = gw.client()
    client.send(ask(f"/pieces{size}/{name}"))
    response = client.response()
    assert (response.status, response.body) == (status, body)
    assert was_reused(gw, up, client, up.since(mark)[0].conn) is reused
    client.close()


def test_one_answer_leaves_nothing_for_the_next_of_its_connection(answering):
    """Chunks, trailers, interim answers and lengths, in turn on one connection of the backend."""
    gw, up = answering
    mark = up.mark()
    client = gw.client()
    names = ["interim_sixteen", "chunked", "trailers", "chunked_bytes", "interim_sixteen", "chunked_empty", "length", "chunked_extension"]
    for name in names * 2:
        client.send(ask(f"/whole/{name}"))
        response = client.response()
        assert (response.status, response.body) == response_cases.WHOLE[name][1:3], name
        assert bool(response.trailers) is (name == "trailers")
    client.close()
    assert len({s.conn for s in up.since(mark)}) == 1


@pytest.mark.parametrize("name", response_cases.WHOLE)
def test_answer_to_head_has_no_body(answering, name):
    gw, up = answering
    status = response_cases.WHOLE[name][1]
    client = gw.client()
    client.send(ask(f"/whole/{name}", "HEAD"))
    assert client.response("HEAD").status == status
    client.send(ask("/next", "GET"))  # whatever the backend wrote behind it is not our answer
    assert client.response().body == b"ok"
    client.close()


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("name", response_cases.CUT)
def test_cut_body_never_looks_complete(answering, name, version):
    gw, up = answering
    client = gw.client()
    client.send(ask(f"/cut/{name}", version=version))
    try:
        response = client.head()
    except AssertionError:
        client.close()
        return  # reset before the head: plain enough
    if response.status == 502:
        client.close()
        return
    assert response.status == 200
    with pytest.raises((AssertionError, ConnectionResetError)) as error:
        client.read_body(response)
    assert "nothing came" not in str(error.value), "the client was left waiting"
    assert isinstance(error.value, (Closed, ConnectionResetError)), error.value
    client.close()
