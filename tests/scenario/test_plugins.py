"""Plugins: found, loaded, checked, and at work on requests; by plugins made for this."""

import json
import os
import re
import shutil
import subprocess

import pytest

from gateway import BINARY, is_sanitized, own_host, run, until
from plugins import ENV, ROOT, build, check, minimal, needed
from tls import Authority, TlsUpstream, server_context

HTTP = 'listener "http" { listen = {"@http@"} %s }\n'
APP = 'upstream "app" { server "@app@" {} }\n'


@pytest.fixture(autouse=True)
def built():
    needed()


def answers(*routes):
    return HTTP % "" + "".join(
        f'route "{name}" {{ path = "/{name}"  respond {{ status = 200  body = "{name}" }} '
        f'{more} }}\n' for name, more in routes)


def proxied(section, listener=""):
    return HTTP % listener + APP + \
        f'route "all" {{ path = "/{{rest...}}"  upstream = app  {section} }}\n'


# what a request meets


def test_sees_and_changes_the_request(gateway, upstream):
    up = upstream()
    gw = gateway(proxied('''probe {
        see = {"field 1", "field 6", "field 7", "field 9", "field 4", "field 10", "field 12",
               "field 15", "header accept 1", "header accept 2", "parameter a 1",
               "parameter k&y 0", "cookie c 0", "cookie c 1", "address", "fact probe"}
        set = {"X-User: me", "X-Twin: v"}  add = {"X-More: 1", "X-More: 2"}
        remove = {"X-Secret"}  remove_parameter = {"key"}  remove_cookie = {"token"}
        credential = "somebody" }'''), app=up, env=ENV)
    client = gw.client()
    client.send("GET /p?a=1&key=s3cr%C3%A9t&a=2+%41&k%26y=x&%6bey=again HTTP/1.1\r\n"
                "Host: Example.org:80\r\nAccept: a\r\nAccept: b\r\nX-Secret: s\r\nX-User: them\r\n"
                "x_twin: them\r\nCookie: token=t; c=1\r\nCookie: token=u\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.target == "/p?a=1&a=2+%41&k%26y=x"
    assert request.get("X-User") == "me" and request.all("X-More") == ["1", "2"]
    assert not request.has("X-Secret") and not request.has("x_twin")
    assert request.get("X-Twin") == "v"
    assert request.all("Cookie") == ["c=1"]
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    response = client.response()
    assert response.all("X-Seen") == [
        "field 1 = GET", "field 6 = example.org", "field 7 = /p",
        "field 9 = a=1&key=s3cr%C3%A9t&a=2+%41&k%26y=x&%6bey=again",
        f"field 4 = {client.sock.getsockname()[0]}", "field 10 = http", "field 12 = all",
        "field 15 = none", "header accept 1 = b", "header accept 2 = none",
        "parameter a 1 = 2 A", "parameter k&y 0 = x", "cookie c 0 = 1", "cookie c 1 = none",
        response.all("X-Seen")[14], "fact probe = none"]
    assert re.fullmatch(r"address = 4 127\.\d+", response.all("X-Seen")[14])
    line = gw.wait_log(1)[0]
    assert line["credential"] == "somebody"
    assert "s3cr" not in json.dumps(line) and "key" not in line["path"]


def test_what_frames_a_message_is_not_a_plugins(gateway):
    gw = gateway(answers(("a", '''probe { set = {"Host: other", "Content-Length: 3", "X Y: z",
        "Connection: close", "X-Request-Id: forged"} }''')), env=ENV)
    response = gw.get("/a")
    assert response.status == 200
    assert response.all("X-Refused") == ["Host", "Content-Length", "X Y", "Connection",
                                         "X-Request-Id"]


def test_answers_in_the_gateways_own_voice(gateway):
    gw = gateway(answers(("a", 'probe { answer = 429  reason = "probe.refused" '
                               'answer_set = {"RateLimit: x"} }')), env=ENV)
    response = gw.get("/a")
    assert response.status == 429
    assert response.get("Content-Type") == "application/problem+json"
    assert json.loads(response.body) == {
        "type": "urn:postern:problem:probe.refused", "title": "The probe refuses", "status": 429,
        "detail": 'Because "it" says so.', "instance": gw.wait_log(1)[0]["req_id"],
        "reason": "probe.refused", "limit": 5, "actual": 6}
    assert response.get("X-Probe") == "answered" and response.get("RateLimit") == "x"
    assert response.get("X-Probe-Response") == "429 1"
    line = gw.wait_log(1)[0]
    assert (line["status"], line["reason"], line["route"]) == (429, "probe.refused", "a")
    gw.wait_metric(1, "postern_responses_total", route="a", reason="probe.refused")
    text = gw.get("/a", fields=[("Accept", "text/plain")])
    assert text.body.decode().startswith('429 The probe refuses\nBecause "it" says so.\n')


def test_answers_with_a_body_of_its_own(gateway):
    gw = gateway(answers(("a", 'probe { answer = 201  body = "mine" }'),
                         ("b", 'probe { answer = 204 }')), env=ENV)
    a, b = gw.get("/a"), gw.get("/b")
    assert (a.status, a.body, a.get("Content-Type")) == (201, b"mine", "text/x-probe")
    assert (b.status, b.body) == (204, b"")
    assert [line["reason"] for line in gw.wait_log(2)] == [None, None]


def test_a_grpc_client_gets_a_grpc_status(gateway):
    gw = gateway(answers(("a", 'probe { answer = 401  reason = "probe.refused" }')), env=ENV)
    response = gw.get("/a", fields=[("Content-Type", "application/grpc")])
    assert (response.status, response.get("Grpc-Status")) == (200, "16")
    assert gw.wait_log(1)[0]["status"] == 401


def test_headers_for_any_answer_reach_errors_of_the_gateway_too(gateway):
    gw = gateway(HTTP % 'probe { answer_set = {"X-Any: yes"} }' +
                 'route "a" { path = "/a"  methods = {POST}  respond { status = 200 } }\n'
                 'upstream "none" { server "127.0.0.1:1" {} retry { attempts = 0 } }\n'
                 'route "b" { path = "/b"  upstream = none }\n', env=ENV)
    for target, status in (("/none", 404), ("/a", 405), ("/b", 502)):
        response = gw.get(target)
        assert (response.status, response.get("X-Any")) == (status, "yes")
        assert response.get("X-Probe-Response").startswith(f"{status} ")
    gw.wait_stderr("log /none 404 route.none")
    gw.wait_stderr("log /b 502 upstream.connect")


# which sections count


def test_the_innermost_section_counts_as_a_whole(gateway):
    def named(name):
        return f'probe {{ answer_set = {{"X-Place: {name}"}} }}\n'

    gw = gateway(named("top") + HTTP % named("listener") + 'listener "plain" { listen = "@plain@" }\n'
                 'route "a" { path = "/a"  respond { status = 200 } probe { '
                 'answer_set = {"X-Place: route"} } }\n'
                 'route "b" { path = "/b"  respond { status = 200 } }\n'
                 'route "c" { path = "/c"  respond { status = 200 } probe { enabled = false } }\n',
                 env=ENV)
    found = [gw.get(path, name=name).get("X-Place")
             for name in ("http", "plain") for path in ("/a", "/b", "/c", "/d")]
    assert found == ["route", "listener", None, "listener", "route", "top", None, "top"]


def test_counters_and_shared_state_outlive_a_reload(gateway):
    config = answers(("a", 'probe { }'), ("b", 'probe { state = "other" }'))
    gw = gateway(config, env=ENV)
    assert gw.get("/a").get("X-Probe-Response") == "200 1"
    gw.reload(config + "# again\n")
    assert gw.get("/a").get("X-Probe-Response") == "200 2"
    assert gw.get("/b").get("X-Probe-Response") == "200 1"
    gw.wait_metric(2, "postern_plugin_probe_total", plugin="probe", place="route a")
    gw.wait_metric(1, "postern_plugin_probe_total", place="route b")
    gw.reload(answers(("b", 'probe { state = "other" }')))
    gw.reload(config)
    assert gw.get("/a").get("X-Probe-Response") == "200 1"  # nobody asked for it meanwhile


# waiting


WAITS = {"thread": "thread", "timer": "timer", "now": "now", "abroad": "posted"}


@pytest.mark.threads
@pytest.mark.parametrize("how", WAITS)
def test_waits_and_goes_on(gateway, upstream, how):
    up = upstream()
    gw = gateway(proxied(f'waiter {{ how = {how}  times = 3 }}'), app=up, env=ENV)
    client = gw.client()
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
    conn = up.accept()
    assert conn.expect().body == b"hello"
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response("POST").all("X-Waited") == [WAITS[how]] * 3
    gw.wait_stderr("over /x 200")


@pytest.mark.threads
def test_many_wait_at_once(gateway):
    gw = gateway(answers(("a", "waiter { how = thread  after = 20ms }")), env=ENV)
    clients = [gw.client() for _ in range(300)]
    for client in clients:
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    for client in clients:
        assert client.response().get("X-Waited") == "thread"


def test_answers_and_fails_after_waiting(gateway):
    gw = gateway(answers(("a", "waiter { how = timer  then = answer }"),
                         ("b", "waiter { how = timer  then = fail }"),
                         ("c", "waiter { how = timer  then = fail  fail = open }")), env=ENV)
    assert json.loads(gw.get("/a").body)["reason"] == "waiter.refused"
    failed = gw.get("/b")
    assert failed.status == 503 and failed.has("Retry-After")
    said = json.loads(failed.body)
    assert (said["reason"], said["detail"]) == (
        "plugin.failed", 'A plugin cannot do its work: "waiter".')
    assert gw.get("/c").status == 200


@pytest.mark.parametrize("how", ["nobody", "late"])
@pytest.mark.threads
def test_an_overrun_is_answered_for(gateway, how):
    gw = gateway(answers(
        ("a", f"waiter {{ how = {how}  after = 300ms  deadline = 50ms }}"),
        ("b", f"waiter {{ how = {how}  after = 300ms  deadline = 50ms  fail = open }}")), env=ENV)
    response = gw.get("/a")
    assert response.status == 503
    assert json.loads(response.body)["reason"] == "plugin.timeout"
    assert gw.get("/b").body == b"b"
    gw.wait_metric(1, "postern_responses_total", route="a", reason="plugin.timeout")
    gw.wait_stderr("cancelled /a")
    gw.wait_stderr("cancelled /b")
    if how == "late":
        until(lambda: gw.stderr.count("dropped") == 2, "late words are dropped")
    assert gw.stderr.count("cancelled /a") == gw.stderr.count("over /a 503") == 1


@pytest.mark.threads
def test_a_client_that_leaves_is_told_once(gateway):
    gw = gateway(answers(("a", "waiter { how = late  after = 200ms  deadline = 10s }")), env=ENV)
    client = gw.client()
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    until(lambda: gw.metric("postern_downstream_connections", listener="http") == 1, "it is there")
    client.reset()
    gw.wait_stderr("over /a 499")
    gw.wait_stderr("dropped")
    assert gw.stderr.count("cancelled /a") == 1
    assert gw.wait_log(1)[0]["reason"] == "client.abort"


def test_wait_without_a_token_is_a_failure(gateway):
    gw = gateway(answers(("a", "waiter { how = untold }")), env=ENV)
    assert json.loads(gw.get("/a").body)["reason"] == "plugin.failed"


@pytest.mark.threads
def test_stops_while_somebody_waits(gateway):
    gw = gateway(answers(("a", "waiter { how = late  after = 800ms  deadline = 20s }")), env=ENV)
    client = gw.client()
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    until(lambda: gw.metric("postern_downstream_connections", listener="http") == 1, "it is there")
    gw.proc.terminate()
    gw.wait_stderr("draining")
    gw.proc.terminate()
    gw.wait_exit()
    assert gw.stderr.count("cancelled /a") == 1


# bodies


BODIES = {"upper": b"HELLO WORLD", "twice": b"hello hello worldworld", "tail": b"hello worldthe end",
          "swallow": b""}


@pytest.mark.parametrize("waits", ["0", "50ms"])
@pytest.mark.parametrize("way", BODIES)
def test_a_requests_body_goes_through_plugins(gateway, upstream, way, waits):
    up = upstream()
    gw = gateway(proxied(f"editor {{ request = {way}  waits = {waits} }}"), app=up, env=ENV)
    client = gw.client()
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                "6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.is_chunked and sorted(request.body) == sorted(BODIES[way])
    if way != "twice":  # which depends on where the pieces end
        assert request.body == BODIES[way]
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    assert client.response("POST").body == b"ok"
    line = gw.wait_log(1)[0]
    assert (line["bytes_in"], line["bytes_out"]) == (11, 2)
    client.send("POST /y HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
    assert conn.expect().is_chunked
    conn.send("HTTP/1.1 204 No Content\r\n\r\n")
    assert client.response("POST").status == 204
    client.send("GET /z HTTP/1.1\r\nHost: h\r\n\r\n")
    assert not conn.expect().is_chunked  # nothing that could be worked on
    conn.send("HTTP/1.1 204 No Content\r\n\r\n")
    assert client.response().status == 204


@pytest.mark.parametrize("way", BODIES)
def test_an_answers_body_goes_through_plugins(gateway, upstream, way):
    up = upstream()
    gw = gateway(proxied(f"editor {{ response = {way} }}"), app=up, env=ENV)
    client = gw.client()
    client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello world")
    response = client.response()
    assert response.is_chunked and sorted(response.body) == sorted(BODIES[way])
    client.send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n")
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n")
    assert client.response("HEAD").length is None


def test_large_bodies_go_through_plugins_in_bounded_memory(gateway, backend):
    size = 20 << 20
    sub = backend("sub", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(r.body) +
                  r.body)
    gw = gateway(HTTP % "limits { body_bytes = 0 }" + APP + 'route "all" { upstream = app '
                 'editor { request = upper  response = tail } }\n', app=sub, env=ENV)
    before = gw.rss_kib()
    response = gw.get("/x", method="POST", body=b"x" * size)
    assert response.body == b"X" * size + b"the end"
    if not is_sanitized():
        assert gw.rss_kib() - before < 8192


def test_a_body_that_a_plugin_refuses(gateway, upstream):
    up = upstream()
    gw = gateway(proxied("editor { request = refuse  response = refuse }"), app=up, env=ENV)
    response = gw.get("/x", method="POST", body=b"bad!")
    assert json.loads(response.body)["reason"] == "plugin.failed"
    client = gw.client()
    client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    conn = up.accept()
    while conn.expect_head().method == "POST":
        conn = up.accept()
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ngood")
    assert client.read_until(b"good\r\n").startswith(b"HTTP/1.1 200 OK")
    conn.send("bad!")
    client.expect_closed()
    assert gw.wait_log(1, status=200)[0]["reason"] == "plugin.failed"


# calls


def test_calls_over_pooled_connections(gateway, backend):
    sub = backend("sub", lambda request: b"HTTP/1.1 207 Multi\r\nX-First: 1\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (len(request.get("X-Call")),
                                                     request.get("X-Call").encode()))
    gw = gateway(answers(("a", f'waiter {{ how = call  after = 5s  origin = "http://{sub}" }}')),
                 env=ENV)
    client = gw.client()
    for _ in range(3):
        assert client.get("/a").get("X-Waited") == "207 2 /a x-first"
    assert (sub.count, sub.opened) == (3, 1)
    assert sub.requests[0] == ("GET", "/check", 0)
    gw.wait_metric(3, "postern_upstream_requests_total", upstream=f"http://{sub}", code="207")


def test_calls_an_upstream_by_name_with_a_body(gateway, backend):
    sub = backend("sub")
    gw = gateway(APP + answers(("a", 'waiter { how = call  after = 5s  origin = "app" '
                                     'method = POST  body = 100k }')), app=sub, env=ENV)
    assert gw.get("/a").get("X-Waited") == "200 3 sub"
    assert sub.requests[0] == ("POST", "/check", 102400)


def test_a_call_that_fails_says_why(gateway, upstream, backend):
    big = backend("big", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000)
    chunked = backend("big", lambda r: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                      b"1388\r\n" + b"x" * 5000 + b"\r\n0\r\n\r\n")
    silent = upstream()
    gw = gateway(answers(
        ("a", 'waiter { how = call  after = 5s  origin = "http://127.0.0.1:1" }'),
        ("b", f'waiter {{ how = call  after = 5s  origin = "http://{big}"  max = 4k }}'),
        ("c", f'waiter {{ how = call  after = 5s  origin = "http://{chunked}"  max = 4k }}'),
        ("d", f'waiter {{ how = call  after = 60ms  origin = "http://{silent}" }}'),
        ("e", f'waiter {{ how = call  after = 5s  origin = "http://{big}"  max = 4k '
              'target = "no path" }')), env=ENV)
    assert [gw.get("/" + name).get("X-Waited") for name in "abcde"] == [
        "failed: Cannot connect to the backend",
        "failed: its answer is larger than it may be",
        "failed: its answer is larger than it may be",
        "failed: it took too long",
        "failed: its method or target is none"]


def test_calls_over_tls_and_looks_at_the_certificate(gateway, opened, tmp_path):
    ca, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    config = answers(("a", 'waiter { how = call  after = 10s  origin = "https://@sub@" }'))
    for trusted, said in ((ca, "200 2 ok"), (other, "failed: ")):
        up = TlsUpstream(own_host(), server_context(ca.issue(own_host())))
        opened.append(up)
        gw = gateway(config, sub=up, env=dict(ENV, SSL_CERT_FILE=str(trusted.pem)))
        client = gw.client()
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
        if trusted is ca:
            conn = up.accept()
            assert conn.expect().get("Host") == str(up)
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        else:
            up.accept_failing()
        assert client.response().get("X-Waited").startswith(said)


def test_a_call_survives_the_keep_alive_race(gateway, upstream):
    up = upstream()
    gw = gateway(answers(("a", f'waiter {{ how = call  after = 5s  origin = "http://{up}" }}')),
                 env=ENV)
    client = gw.client()
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    first = up.accept()
    first.expect()
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response().status == 200
    client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    first.expect()
    first.close()
    second = up.accept()
    second.expect()
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response().get("X-Waited").startswith("200 0")


def calls(upstream, waiter="", more=""):
    """`upstream` is what is in it."""
    return f'upstream "sub" {{ {upstream} }}\n' + answers(
        ("a", f'waiter {{ how = call  after = 5s  origin = "sub" {waiter} }}')) + more


@pytest.mark.parametrize("version, header", [
    ("v1", b"PROXY UNKNOWN\r\n"),
    ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x00\x00\x00"), # UNSPEC: we speak for nobody
])
def test_a_call_begins_with_the_header_that_its_upstream_asks_for(gateway, upstream, version, header):
    up = upstream()
    gw = gateway(calls(f'proxy_protocol = {version}  server "{up}" {{}}'), env=ENV)
    client = gw.client()
    for _ in range(2):
        client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
        conn = up.accept()
        assert conn.read_exact(len(header)) == header
        assert conn.expect().target == "/check"
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        assert client.response().get("X-Waited").startswith("200 0")


def says(status):
    return lambda request: f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()


def test_a_call_is_sent_again_as_its_upstream_says(gateway, backend):
    bad, good = backend("bad", says(503)), backend("good")
    servers = f'server "{bad}" {{}} server "{good}" {{}}'
    retry = "retry { on = {503} }"
    gw = gateway(calls(servers + retry), env=ENV)
    assert [gw.get("/a").get("X-Waited") for _ in range(4)] == ["200 4 good"] * 4
    assert bad.count > 0 and good.count == 4
    gw.wait_metric(bad.count, "postern_upstream_retries_total", upstream="sub")
    for other in (servers, servers + retry.replace("{ on", "{ attempts = 0  on")):
        gw = gateway(calls(other), env=ENV)
        assert [gw.get("/a").get("X-Waited")[:3] for _ in range(4)] == ["503", "200"] * 2
    gw = gateway(calls(servers + retry, "method = POST"), env=ENV) # somebody has seen it
    assert [gw.get("/a").get("X-Waited")[:3] for _ in range(4)] == ["503", "200"] * 2
    assert gw.metric("postern_upstream_retries_total", upstream="sub") == 0


def test_calls_keep_to_the_retry_budget(gateway, backend):
    bad, worse = backend("bad", says(503)), backend("worse", says(503))
    gw = gateway(calls(f'server "{bad}" {{}} server "{worse}" {{}} retry {{ on = {{503}}  budget = 0% }}'),
                 env=ENV)
    client = gw.client()
    for _ in range(40):
        assert client.get("/a").get("X-Waited").startswith("503")
    retries, refused = (gw.metric(f"postern_upstream_retries_{name}total", upstream="sub")
                        for name in ("", "refused_"))
    assert retries >= 10 and refused > 0 # ten are free in a window
    assert retries + refused == 40 and bad.count + worse.count == 40 + retries


def test_a_try_of_a_call_has_its_own_time(gateway, upstream, backend):
    silent, good = upstream(), backend("good")
    gw = gateway(calls(f'server "{silent}" {{}} server "{good}" {{}} '
                       'retry { on = {timeout}  try_timeout = 50ms }'), env=ENV)
    assert [gw.get("/a").get("X-Waited") for _ in range(2)] == ["200 4 good"] * 2


def test_calls_count_for_the_breaker(gateway, upstream):
    up = upstream()
    gw = gateway(calls(f'server "{up}" {{}} breaker {{ requests = 1 }}'), env=ENV)
    first, second = gw.client(), gw.client()
    first.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n")
    conn = up.accept()
    conn.expect()
    assert second.get("/a").get("X-Waited") == "failed: Too many requests wait for the backend"
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert first.response().get("X-Waited").startswith("200 0")
    gw.wait_metric(1, "postern_upstream_overflows_total", upstream="sub")
    gw.wait_stderr(r'upstream "sub" refuses requests: breaker.requests is 1')
    second.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n") # the first one is over
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert second.response().get("X-Waited").startswith("200 0")


def test_calls_that_fail_speak_against_a_server(gateway, backend):
    bad, good = backend("bad", says(503)), backend("good")
    gw = gateway(calls(f'server "{bad}" {{}} server "{good}" {{}} '
                       "outlier { failures = 2  eject = 1m  max_ejected = 50% }"), env=ENV)
    for _ in range(4):
        gw.get("/a")
    until(lambda: [s["state"] for s in gw.upstream("sub")].count("up") == 1,
          "one is ejected")
    count = bad.count
    assert [gw.get("/a").get("X-Waited") for _ in range(4)] == ["200 4 good"] * 4
    assert bad.count == count


# what goes on without requests


@pytest.mark.threads
def test_starts_and_stops_on_each_worker(gateway, tmp_path):
    (tmp_path / "said").write_text("hello\n")
    with_it = "workers = 2\n" + answers(("a", f'keeper {{ file = "{tmp_path}/said" }}'))
    gw = gateway(with_it, env=ENV)

    def said(what, times):  # by both workers, whose lines come when they come
        until(lambda: gw.stderr.count(what + " 0") == gw.stderr.count(what + " 1") == times,
              f"each worker has said {what} {times} times")

    said("start", 1)

    def ticks():
        return [int(n) for n in gw.get("/a").get("X-Ticks").split()]

    until(lambda: min(ticks()) > 4, "timers and descriptors are at work")
    gw.reload(with_it.replace("20ms", "30ms") + "# again\n")
    until(lambda: gw.stderr.count("discarded hello") == 1, "the old one has ended")
    said("start", 2)
    said("stop", 1)
    until(lambda: min(ticks()) > 4, "and so they are in the new one")
    gw.reload("workers = 2\n" + answers(("a", "")))
    until(lambda: gw.stderr.count("discarded hello") == 2, "it has ended too")
    said("stop", 2)
    assert gw.get("/a").status == 200


def test_an_instance_lives_as_long_as_its_last_exchange(gateway, upstream, tmp_path):
    (tmp_path / "said").write_text("hello\n")
    up = upstream()
    gw = gateway(proxied(f'keeper {{ file = "{tmp_path}/said" }}'), app=up, env=ENV)
    client = gw.client()
    client.send("GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
    conn = up.accept()
    conn.expect()
    gw.reload(proxied(""))
    assert "stop 0" not in gw.stderr
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.response().get("X-File") == "hello"
    gw.wait_stderr("stop 0")
    gw.wait_stderr("discarded hello")


@pytest.mark.threads
def test_a_followed_file_is_read_again(gateway, tmp_path):
    said = tmp_path / "said"
    said.write_text("one\n")
    gw = gateway(answers(("a", f'keeper {{ file = "{said}" }}')), env=ENV)
    assert gw.get("/a").get("X-File") == "one"
    said.write_text("two, in place\n")
    until(lambda: gw.get("/a").get("X-File") == "two, in place", "it was told")
    for text in ("three", "four"):
        (tmp_path / "new").write_text(text + "\n")
        os.rename(tmp_path / "new", said)
        until(lambda: gw.get("/a").get("X-File") == text, "it was told")
    said.unlink()
    said.write_text("five\n")
    until(lambda: gw.get("/a").get("X-File") == "five", "it was told")


def test_a_hook_that_blocks_is_named(gateway, tmp_path):
    (tmp_path / "said").write_text("\n")
    gw = gateway(answers(("a", "waiter { how = block  after = 30ms }"),
                         ("b", f'keeper {{ file = "{tmp_path}/said"  block = 15ms }}'),
                         ("c", "waiter { how = now }")), env=ENV)
    for _ in range(3):
        assert gw.get("/a").status == 200
    assert gw.get("/c").status == 200
    found = gw.wait_stderr(r"warn plugin waiter: its on_request held a worker for (\d+) ms; "
                           r"nothing else was served meanwhile")
    assert int(found[1]) >= 29
    gw.wait_stderr("warn plugin keeper: its timer held a worker for")


SLOW = """
#include <postern_plugin.h>
static const struct postern_api *api;
static bool load(const struct postern_api *a) { api = a; return true; }
static void block(void) { for (uint64_t end = api->now_ns() + 20000000; api->now_ns() < end;); }
static void on_turn(void *i, postern_worker *w) { (void)i, (void)w; block(); }
static void on_word(void *i, postern_request *r) { (void)i, (void)r; block(); }
static enum postern_verdict on_ask(void *i, postern_request *r) { (void)i, (void)r; block(); return POSTERN_GO_ON; }
static enum postern_verdict on_wait(void *i, postern_request *r) { (void)i; api->wait(r); return POSTERN_WAIT; }
static int one;
static bool configure(postern_setup *s, const struct postern_values *v, void **ret) { (void)s, (void)v; *ret = &one; return true; }
const struct postern_plugin postern_plugin = {
    .size = sizeof(postern_plugin), .abi_major = POSTERN_ABI_MAJOR, .name = "%(name)s", .version = "1",
    .summary = "Slow.", .load = load, .configure = configure, .%(hook)s = %(code)s, %(more)s};
"""


@pytest.mark.parametrize("hook, code, more", [
    ("start", "on_turn", ""), ("stop", "on_turn", ""), ("on_request", "on_ask", ""), ("on_preflight", "on_ask", ""),
    ("on_response", "on_word", ""), ("on_log", "on_word", ""), ("on_cancel", "on_word", ".on_request = on_wait")])
def test_every_hook_that_blocks_is_named(gateway, tmp_path, hook, code, more):
    path = build(tmp_path, "slow", SLOW % {"name": "slow", "hook": hook, "code": code, "more": more})
    gw = gateway(f'plugins {{ load = {{"{path}"}} }}\n' +
                 answers(("a", "slow { deadline = 50ms }")).replace('path = "/a"', 'path = "/a" methods = GET'))
    gw.get("/a")
    gw.get("/a", method="OPTIONS", fields=[("Origin", "https://x"), ("Access-Control-Request-Method", "GET")])
    if hook == "stop":
        gw.reload(answers(("a", "")))
    gw.wait_stderr(f"warn plugin slow: its {hook} held a worker for")


# faults of a configuration


def fault(tmp_path, section, env=None, before=""):
    status, said = check(tmp_path, before + 'listener "l" { listen = "127.0.0.1:1" }\nroute "r" {\n'
                         f'respond {{ status = 200 }}\n{section}\n}}\n', env=env)
    assert status == 1
    return said.replace("postern: checked.conf has faults\n", "")


@pytest.mark.parametrize("section, said", [
    ("probe { nubmer = 3 }", '4: unknown option "nubmer" in probe, did you mean "number"?'),
    ("probe { number = 11 }", "4: probe.number is 11, expected a number from 1 to 10"),
    ("probe { rate = 5 }",
     "4: probe.rate is 5, expected a rate (100/s, 6000/m, 10/h, 5/d) from 1 to 1000"),
    ("probe { size = 2m }", "4: probe.size is 2m, expected a size (512, 16k, 10m) from 0 to 1m"),
    ("probe { time = 5 }", "4: probe.time is 5, expected a time (250ms, 5s, 2m) from 0s to 1m"),
    ("probe { share = 200% }", "4: probe.share is 200%, expected a share from 0% to 100%"),
    ("probe { word = pink }", "4: probe.word is pink, expected red, green or blue"),
    ('probe { file = "" }', "4: probe.file is empty, expected the name of a file"),
    ('probe { secret = "a\\nb" }',
     "4: probe.secret is unusable, expected 1 to 4096 bytes without control characters"),
    ('probe { token = "a b" }',
     "4: probe.token is a b, expected a name of letters, digits and dashes"),
    ('probe { remove = {"ok", "not ok"} }',
     "4: probe.remove has not ok, expected a name of letters, digits and dashes"),
    ("probe { enabled = maybe }", "4: probe.enabled is maybe, expected false or true"),
    ("probe { fail = never }", "4: probe.fail is never, expected closed or open"),
    ("probe { deadline = 0s }", "4: probe.deadline is 0s, expected a time (250ms, 5s, 2m) from 1ms to 24h"),
    ("probe { refuse = true }",
     "4: probe: refuse is true, expected false at route r"),
    ("waiter { }", "4: waiter has no how, expected thread, timer, nobody, now, call, late, block, "
     "untold or abroad"),
    ('waiter { how = call  origin = "ftp://x" }',
     '4: waiter: "ftp://x" is nothing that can be called, expected http://HOST[:PORT], '
     'https://HOST[:PORT] or the name of an upstream'),
    ("prob { }", '4: unknown option "prob" in route, did you mean "probe"?'),
    ("probe { }\nprobe { }", "5: probe stands twice in this route, first at checked.conf:4"),
    ("respond { probe { } }", "4: respond stands twice in this route, first at checked.conf:3"),
])
def test_faults_name_their_place(tmp_path, section, said):
    assert fault(tmp_path, section) == f"checked.conf:{said}\n"


def test_every_fault_of_a_section_is_told(tmp_path):
    said = fault(tmp_path, "probe {\nnumber = 0\nword = pink\n}\nwaiter { how = soon }")
    assert [line.split(" is ")[0] for line in said.splitlines()] == [
        "checked.conf:5: probe.number", "checked.conf:6: probe.word", "checked.conf:8: waiter.how"]


def test_a_disabled_section_needs_nothing_and_a_warning_is_no_fault(tmp_path):
    status, said = check(tmp_path, answers(("a", "waiter { enabled = false }  probe { warn = true }"))
                         .replace("@http@", "127.0.0.1:1"))
    assert status == 0
    assert said == "checked.conf:2: warning: probe: warned\npostern: checked.conf is good\n"


def test_the_dump_loads_again_and_masks_secrets(tmp_path):
    config = ("plugins { load = {\"%s/waiter.so\"} }\n" % ENV["POSTERN_PLUGINS"] +
              answers(("a", 'probe { number = 3  secret = "hush"  file = "keys.json" }'),
                      ("b", 'waiter { how = call  origin = "http://127.0.0.1:2" }'))
              .replace("@http@", "127.0.0.1:1"))
    status, dumped = check(tmp_path, config, "-T")
    assert status == 0 and "hush" not in dumped
    for line in ("  number = 3", f'  secret = "{"*" * 32}"', "  word = green", "  enabled = true",
                 "  fail = closed", "  deadline = 1s", "  see = {}", "  rate = \"5/s\"",
                 f'  file = "keys.json"', '  origin = "http://127.0.0.1:2"'):
        assert re.search(rf"^ *{re.escape(line.strip())}$", dumped, re.M), (line, dumped)
    assert dumped.count("upstream ") == 0
    again = check(tmp_path, dumped, "-T")
    assert again == (0, dumped)


@pytest.mark.parametrize("section, said", [
    ("nobody { x = 1 }", '"nobody" in route, and there is no plugin nobody.so in @'),
    ("nobody = 1", '"nobody" in route'),
    ("Nobody { }", '"Nobody" in route'), # no plugin can have that name
    ("limits { x { } }", '"limits" in route, and there is no plugin limits.so in @'),
    (f"{'n' * 49} {{ }}", f'"{"n" * 40}..." in route'),
])
def test_a_plugin_that_is_not_there_is_a_fault_with_its_folder(tmp_path, section, said):
    said = f"checked.conf:4: unknown option {said.replace('@', '/away')}\n"
    assert fault(tmp_path, section, env={"POSTERN_PLUGINS": "/away"}) == said
    assert fault(tmp_path, section, before='plugins { directory = "/away" } ') == said


# faults of an object


@pytest.mark.parametrize("source, said", [
    (minimal("odd", major="7"),
     "odd.so is built for version 7.2 of the plugin interface, this gateway has 1.2: build it anew "
     "with the header of this gateway"),
    (minimal("odd", size="8"), "odd.so: its postern_plugin begins with the size 8, which is none"),
    (minimal("other"), 'odd.so has the plugin "other", expected its file to be other.so'),
    (minimal("odd", configure="NULL"), "odd.so has no configure, expected one"),
    (minimal("odd", configure="refuse", more="").replace("static int one;", """static int one;
static bool refuse(struct postern_setup *s, const struct postern_values *v, void **r) { (void)s, (void)v, (void)r; return false; }"""),
     "odd: odd.so refuses this section without a word"),
    (minimal("odd", more='.option_count = 65'), "odd.so has 65 options, expected at most 64"),
    (minimal("odd", more='.reasons = (struct postern_reason[]){{"No", "t"}}, .reason_count = 1'),
     "odd.so: its reason number 0 is none: expected a name ([a-z0-9_.], at most 63 bytes), a title "
     "without quotation marks, and no more than 256 reasons of all plugins"),
    ("int nothing;", "odd.so has no symbol postern_plugin, so it is no plugin"),
    ("void gone(void); void (*here)(void) = gone;",
     "cannot load odd.so: undefined symbol: gone"),
    (None, "cannot load odd.so: file too short"),
])
def test_an_object_that_is_no_plugin_is_a_fault(tmp_path, source, said):
    if source is None:
        (tmp_path / "odd.so").write_text("")
    else:
        build(tmp_path, "odd", source)
    assert fault(tmp_path, "odd { }", env={"POSTERN_PLUGINS": str(tmp_path)}) == \
        f"checked.conf:4: {said}\n"


def test_a_faulty_reload_leaves_the_old_configuration(gateway, tmp_path):
    build(tmp_path, "odd", minimal("odd", major="2"))
    build(tmp_path, "none", "int nothing;")
    build(tmp_path, "lost", "void gone(void); void (*here)(void) = gone;")
    for name in ("probe", "waiter"):
        shutil.copy(os.path.join(ENV["POSTERN_PLUGINS"], name + ".so"), tmp_path)
    gw = gateway(answers(("a", 'probe { answer_set = {"X-Any: old"} }')),
                 env={"POSTERN_PLUGINS": str(tmp_path)})
    for section, said in (("odd { }", f"{tmp_path}/odd.so is built for version 2.2"),
                          ("none { }", f"{tmp_path}/none.so has no symbol postern_plugin"),
                          ("lost { }", f"cannot load {tmp_path}/lost.so: undefined symbol: gone"),
                          ("away { }", f"no plugin away.so in {tmp_path}"),
                          ("probe { refuse = true }", "refuse is true"),
                          ("probe { number = 0 }", "probe.number is 0")):
        state = gw.reload(answers(("a", section)), ok=False)
        assert said in state["last_reload"]["faults"][0]["message"]
        assert gw.get("/a").get("X-Any") == "old"
    gw.reload(answers(("a", 'probe { answer_set = {"X-Any: new"} }')))
    assert gw.get("/a").get("X-Any") == "new"


# the command line


def test_a_plugin_tells_about_itself(tmp_path):
    status, said, _ = run("--help-plugin", "probe", env=dict(os.environ, **ENV))
    assert status == 0
    assert said.startswith(f"probe 1 ({ENV['POSTERN_PLUGINS']}/probe.so, interface 1.2)\n"
                           "Does to a request what its options say.\n")
    for line in ("  number = ...\n      A number.\n      a number from 1 to 10; default 7\n",
                 "  remove = {...}\n      Headers taken away.\n      a list, each a name of",
                 "  deadline = ...\n", "  probe.refused            The probe refuses\n"):
        assert line in said
    status, said, _ = run("--help-plugin", "waiter", env=dict(os.environ, **ENV))
    assert "  how = ...   (required)\n" in said
    status, said, _ = run("--help-plugin", "nobody", env=dict(os.environ, **ENV))
    assert (status, said) == (1, 'postern: there is no plugin "nobody"; POSTERN_PLUGINS may name '
                                 'their directory\n')
    status, said, _ = run("--help-plugin", f"{ENV['POSTERN_PLUGINS']}/probe.so")
    assert status == 0
    assert re.search(r"^plugin ABI 1\.2$", run("-V")[1], re.M)


# those of others


@pytest.mark.threads
def test_plugins_of_the_first_release_work(gateway, upstream, tmp_path):
    (tmp_path / "said").write_text("hello\n")
    up = upstream()
    gw = gateway(proxied(f'''probe {{ see = {{"field 7"}}  set = {{"X-U: v"}}  credential = "me" }}
        waiter {{ how = thread  times = 2 }}  editor {{ request = upper  response = tail }}
        keeper {{ file = "{tmp_path}/said" }}'''), app=up,
                 env={"POSTERN_PLUGINS": os.path.join(ENV["POSTERN_PLUGINS"], "abi1")})
    client = gw.client()
    client.send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
    conn = up.accept()
    request = conn.expect()
    assert (request.get("X-U"), request.body) == ("v", b"ABC")
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    response = client.response("POST")
    assert response.body == b"okthe end"
    assert response.all("X-Waited") == ["thread"] * 2
    assert (response.get("X-File"), response.get("X-Seen")) == ("hello", "field 7 = /x")
    assert gw.wait_log(1)[0]["credential"] == "me"


def test_the_example_builds_from_what_is_installed(gateway, tmp_path):
    meson, build_root = shutil.which("meson"), os.path.dirname(BINARY)
    if not meson or not os.path.exists(os.path.join(build_root, "build.ninja")):
        pytest.skip("no meson, or the binary is in no build folder")

    def sh(*args, cwd=None, **env):
        done = subprocess.run(args, cwd=cwd, env=dict(os.environ, **env), capture_output=True,
                              text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    root = tmp_path / "root"
    sh(meson, "install", "-C", build_root, "--no-rebuild", "--tags", "devel", DESTDIR=str(root))
    found = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
    pc = next(path for path in found if path.endswith("/postern-plugin.pc"))
    assert any(path.endswith("/include/postern_plugin.h") for path in found)
    shutil.copytree(os.path.join(ROOT, "plugins", "example"), tmp_path / "example")
    env = {"PKG_CONFIG_PATH": os.path.dirname(pc), "PKG_CONFIG_SYSROOT_DIR": str(root)}
    sh(meson, "setup", "build", cwd=tmp_path / "example", **env)
    sh("ninja", "-C", "build", cwd=tmp_path / "example", **env)
    lines = open(tmp_path / "example" / "example.c").read().count("\n")
    assert lines < 80
    gw = gateway(f'plugins {{ load = {{"{tmp_path}/example/build/example.so"}} }}\n' +
                 answers(("a", 'example { value = "red" }')))
    refused = gw.get("/a", fields=[("X-Team", "blue")])
    assert (refused.status, json.loads(refused.body)["reason"]) == (403, "auth.team")
    assert gw.get("/a", fields=[("X-Team", "red")]).status == 200
    assert [line["credential"] for line in gw.wait_log(2)] == [None, "red"]
    gw.wait_metric(1, "postern_plugin_example_refused_total", plugin="example", place="route a")


def test_explain_names_the_plugins_in_their_order(tmp_path):
    config = ('probe { }\n' + answers(("a", "waiter { how = now }"), ("b", "probe { enabled = false }"))
              ).replace("@http@", "127.0.0.1:1")
    for target, lines in (("/a", ["plugin probe of the top level",
                                  "plugin waiter of route a"]),
                          ("/b", []), ("/c", ["plugin probe of the top level"])):
        status, said = check(tmp_path, config, "--explain", f"GET {target}")
        assert status == 0
        assert [line.strip() for line in said.splitlines() if "plugin " in line] == lines


# where they are found


def test_plugins_can_be_named_and_their_directory_too(tmp_path):
    (tmp_path / "mine").mkdir()
    build(tmp_path / "mine", "odd", minimal("odd"))
    text = 'listener "l" { listen = "127.0.0.1:1" }\nodd { }\n'
    nowhere = {"POSTERN_PLUGINS": str(tmp_path / "none")}
    assert check(tmp_path, text, env=nowhere)[0] == 1
    assert check(tmp_path, 'plugins { load = {"mine/odd.so"} }\n' + text, env=nowhere)[0] == 0
    assert check(tmp_path, 'plugins { directory = "mine" }\n' + text, env=nowhere)[0] == 0
    status, said = check(tmp_path, text + 'plugins { load = {"mine/odd.so"} }\n',
                         env={"POSTERN_PLUGINS": str(tmp_path / "mine")})
    assert (status, said.splitlines()[0]) == (
        1, "checked.conf:3: plugins stands behind sections of plugins, expected it before them")
    status, said = check(tmp_path, 'plugins {\nload = {"mine/odd.so",\n"gone.so"}\n}\n' + text,
                         env=nowhere)
    assert said.splitlines()[0] == \
        "checked.conf:3: plugins.load: cannot load gone.so: cannot open shared object file: " \
        "No such file or directory"
    # beside the file, not where the dynamic linker looks for libraries
    (tmp_path / "mine/odd.so").rename(tmp_path / "odd.so")
    (tmp_path / "checked.conf").write_text('plugins { load = {"odd.so"} }\n' + text)
    status, said, shown = run("-c", "checked.conf", "-T", cwd=tmp_path)
    assert status == 0 and f'load = {{"{tmp_path}/odd.so"}}' in shown, said


@pytest.mark.parametrize("name", ["cors", "key_auth", "jwt", "forward_auth", "access", "rate_limit", "concurrency"])
def test_the_manual_has_every_option_of_a_plugin(name):
    """config/gateway.conf is the manual: each option stands there, commented, in its plugin's section."""
    status, text, _ = run("--help-plugin", name)
    assert status == 0, text
    options = set(re.findall(r"^  (\w+) = ", text, re.M)) - {"enabled", "fail", "deadline"}
    assert options
    with open(f"{ROOT}/config/gateway.conf") as file:
        section = re.search(rf"^#( *){name} \{{\n(.*?)^#\1\}}", file.read(), re.M | re.S)
    assert section, f"no section {name}"
    shown = set(re.findall(r"^ *# *(\w+) *= ", section[2], re.M))
    assert options == shown
