"""The access log and the error log."""

import json
import os
import re
import signal

import pytest

from conftest import HTTP, ONE
from gateway import free_address, own_host, until
from wire2 import Client2

SAY = HTTP + 'route "ok" { path = "/ok"  respond { status = 200  body = "hello" } }\n'
MEMBERS = """ts req_id trace_id client_ip proto tls sni method host path route status reason
bytes_in bytes_out dur_ms gw_ms connect_ms ttfb_ms upstream server upstream_status attempts reused
credential user_agent generation""".split()


def test_every_member(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"POST /a?b=c HTTP/1.1\r\nHost: Shop.example\r\nContent-Length: 7\r\n"
                b"User-Agent: probe/1\r\n\r\nseven..")
    conn = up.accept()
    request = conn.expect()
    conn.respond(b"elevenbytes", status="201 Created")
    client.response()
    line = gw.wait_log()[0]
    assert sorted(line) == sorted(MEMBERS)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["ts"])
    assert line["req_id"] == request.get("X-Request-Id")
    assert line["trace_id"] == request.get("traceparent").split("-")[1]
    expected = {"client_ip": "127.0.0.1", "tls": False, "method": "POST", "path": "/a?b=c",
                "route": "all", "status": 201, "bytes_in": 7, "bytes_out": 11, "upstream": "app",
                "server": str(up), "upstream_status": 201, "attempts": 1, "reused": False,
                "user_agent": "probe/1", "generation": 1}
    assert {name: line[name] for name in expected} == expected
    assert line["proto"] in ("HTTP/1.1", "http/1.1")
    assert line["host"].lower() == "shop.example"
    assert not line["reason"]
    assert 0 <= line["connect_ms"] and 0 <= line["ttfb_ms"] <= line["dur_ms"]
    assert 0 <= line["gw_ms"] <= line["dur_ms"]


def test_line_of_an_answer_without_a_backend(gateway):
    gw = gateway(SAY)
    gw.get("/ok")
    line = gw.wait_log()[0]
    assert line["status"] == 200 and line["attempts"] == 0
    assert not line["upstream"] and not line["server"] and not line["upstream_status"]


def test_foreign_bytes_stay_valid_json(pair):
    gw, up = pair
    client = gw.client()
    client.send(b"GET /%FF HTTP/1.1\r\nHost: test\r\nUser-Agent: \xff\xfe\"\\\xc3\xa9\tx\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.respond()
    client.response()
    line = gw.wait_log()[0]  # wait_log decodes UTF-8 and JSON strictly
    assert "\u00e9" in line["user_agent"] and '"' in line["user_agent"]
    assert gw.raw_log().count(b"\n") == 1


def test_credentials_in_query_strings_are_masked(gateway):
    gw = gateway(SAY)
    gw.get("/ok?a=1&access_token=sekret1&Password=sekret2&api_key=sekret3&b=2&token=sekret4")
    line = gw.wait_log()[0]
    assert "sekret" not in gw.raw_log().decode()
    assert line["path"].startswith("/ok?a=1&access_token=") and "b=2" in line["path"]


def test_sampling_keeps_every_failure(gateway):
    gw = gateway(SAY + 'access_log { path = "@log@"  sample = "1/10" }\n' +
                 'upstream "dead" { server "@dead@" {} }\n'
                 'route "dead" { path = "/dead"  upstream = dead }',
                 log="access.log", dead=free_address(own_host()))
    client = gw.client()
    for i in range(50):
        client.get("/ok")
        if i % 10 == 0:
            client.get("/dead")
    gw.wait_log(5, status=502)
    lines = gw.wait_log(5, status=200)
    assert len(lines) == 5
    assert len(gw.log_lines()) == 10


def test_slower_than_keeps_every_failure_and_the_slow(gateway, upstream):
    up = upstream()
    gw = gateway(SAY + 'access_log { path = "access.log"  slower_than = 300ms }\n'
                 'upstream "app" { server "@app@" {} }\n'
                 'route "slow" { path = "/slow"  upstream = app }', app=up)
    client = gw.client()
    client.get("/ok")
    client.get("/none")
    client.send(b"GET /slow HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    client.expect_silence(0.4)
    conn.respond()
    client.response()
    gw.wait_log(route="slow")
    assert [line["path"] for line in gw.log_lines()] == ["/none", "/slow"]


def test_combined(gateway):
    gw = gateway(SAY + 'access_log { path = "access.log"  format = combined }\n')
    client = gw.client()
    client.get("/ok?x=1", fields=[("User-Agent", 'a"b'), ("Referer", "http://r/")])
    until(lambda: gw.raw_log().endswith(b"\n"), "a line")
    line = gw.raw_log().decode()
    assert re.fullmatch(
        r'127\.0\.0\.1 - - \[\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\] '
        r'"GET /ok\?x=1 HTTP/1\.1" 200 5 "http://r/" "a\S+b"\n', line), line


def test_standard_output_is_the_default(gateway):
    gw = gateway(SAY + 'access_log { path = "-" }\n')
    gw.get("/ok")
    until(lambda: gw.stdout.endswith("\n"), "a line on standard output")
    assert json.loads(gw.stdout)["path"] == "/ok"
    assert '"path"' not in gw.stderr


def test_off(gateway):
    gw = gateway(SAY + 'access_log { path = "off" }\n')
    gw.get("/ok")
    assert gw.get("/none").status == 404
    assert gw.stdout == "" and not os.path.exists(os.path.join(gw.tmp, "off"))


def test_usr1_reopens_the_files(gateway):
    gw = gateway(SAY + 'access_log { path = "access.log" }\nerror_log { path = "error.log" }\n')
    gw.get("/ok")
    gw.wait_log(1)
    moved = gw.access_log + ".1"
    os.rename(gw.access_log, moved)
    os.rename(os.path.join(gw.tmp, "error.log"), os.path.join(gw.tmp, "error.log.1"))
    gw.get("/ok")
    gw.wait_log(2, file=moved)
    gw.signal(signal.SIGUSR1)
    until(lambda: os.path.exists(gw.access_log), "a new file")
    until(lambda: os.path.exists(os.path.join(gw.tmp, "error.log")), "a new error log")
    gw.get("/ok")
    assert len(gw.wait_log(1)) == 1
    assert len(gw.log_lines(moved)) == 2


def test_no_line_is_lost_or_torn_under_load(gateway, backend):
    app = backend()
    gw = gateway("workers = 2\n" + ONE, app=app)
    clients = [gw.client() for _ in range(4)]
    for i in range(100):
        for client in clients:
            client.get(f"/{i}?{'x' * (i * 7)}")
    assert len(gw.wait_log(400)) == 400
    assert gw.metric("postern_access_log_dropped_total") == 0


def test_nothing_a_client_sends_is_logged_as_a_warning(gateway, upstream):
    gw = gateway(app=upstream())
    for data in (b"\x16\x03\x01", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100):
        client = gw.client()
        client.send(data)
        client.half_close()
        client.read_to_end()
    assert not re.search(r" (warn|error) ", gw.stderr), gw.stderr


def test_log_file_is_not_for_everybody(gateway):
    gw = gateway(SAY)
    gw.get("/ok")
    gw.wait_log()
    assert os.stat(gw.access_log).st_mode & 0o007 == 0


SECRET = "planted-secret"
ASKED = [  # none of them may say it, whether it lets the request through or not
    "GET /k?own=%s HTTP/1.1\r\nHost: t", "GET /k?%%6fWN=%sgood HTTP/1.1\r\nHost: t",
    "GET /k?a=1&own=%sgood&b=2 HTTP/1.1\r\nHost: t", "GET /j?user.own=%s HTTP/1.1\r\nHost: t",
    "GET /nowhere?own=%s HTTP/1.1\r\nHost: t",  # no route, so no plugin is asked
    "POST /k?own=%s HTTP/1.1\r\nHost: t\r\nContent-Length: 99999999",
    "GET /open HTTP/1.1\r\nHost: t\r\nReferer: http://t/k?own=%s&user.own=%s",
    "GET /k HTTP/1.1\r\nHost: t\r\nX-Key: %s", "GET /k HTTP/1.1\r\nHost: t\r\nCookie: ck=%s",
    "GET /k HTTP/1.1\r\nHost: t\r\nAuthorization: Key %s", "GET /j HTTP/1.1\r\nHost: t\r\nCookie: jc=%s",
    "GET /j HTTP/1.1\r\nHost: t\r\nAuthorization: Bearer %s.a.b",
    "GET /open HTTP/1.1\r\nHost: t\r\nProxy-Authorization: Basic %s",
    "GET http://u:%s@t/open HTTP/1.1\r\nHost: t", "GET /open HTTP/1.1\r\nHost: u:%s@t",
    "GET /open HTTP/1.1\r\nHost: t\r\nAuthorization: \1%s", "GET /open HTTP/1.1\r\nHost: t\r\nX-Key : %s",
    "GET /open HTTP/1.1\r\nHost: t\r\nAuthorization: " + 3000 * "%s"]


@pytest.mark.parametrize("form", ["json", "combined"])
def test_no_log_shows_a_credential(gateway, tmp_path, form):
    keys, secret = tmp_path / "keys.json", tmp_path / "hs.key"
    keys.write_text(json.dumps({"keys": [{"key": SECRET + "good", "consumer": "alice"}]}))
    secret.write_text(SECRET + 32 * "x")
    log = tmp_path / "log"
    gw = gateway(f'''error_log {{ level = debug }}
access_log {{ path = "{log}"  format = {form} }}
listener "http" {{ listen = {{"@http@"}} }}
route "k" {{ path = "/k" respond {{ body = a }}
            key_auth {{ file = "{keys}" query = own header = X-Key cookie = ck scheme = Key }} }}
route "j" {{ path = "/j" respond {{ body = a }}
            jwt {{ algorithms = {{HS256}} secret_file = "{secret}" query = "user.own" cookie = jc }} }}
route "open" {{ path = "/open" respond {{ body = a }} }}
''')
    passed = 0
    for asked in ASKED:
        client = gw.client()
        client.send(asked.replace("%s", SECRET).replace("%%", "%") + "\r\n\r\n")
        passed += client.response().status == 200
    assert passed == 3
    until(lambda: gw.raw_log(log).count(b"\n") == len(ASKED), "a line for each")
    assert SECRET not in gw.raw_log(log).decode() and SECRET not in gw.stderr
    assert "own=***" in gw.raw_log(log).decode()
    for path in ("/config", "/upstreams", "/metrics"):
        assert SECRET not in gw.admin(path).body.decode()


def test_a_request_that_cannot_be_read_is_logged_with_what_it_asked_for(gateway):
    gw = gateway(SAY)
    for asked, path in ((b"GET /big?token=sekret&a=1 HTTP/1.1\r\nHost: t\r\nX: " + bytes(40000).replace(b"\0", b"x"),
                         "/big?token=***&a=1"),
                        (b"GET /odd HTTP/1.1\r\nHost: t\r\nX : 1\r\n\r\n", "/odd"),
                        (b"GET http://u:sekret@t/ HTTP/1.1\r\nHost: t\r\n\r\n", None),
                        (b"GET /" + 9000 * b"y" + b" HTTP/1.1\r\nHost: t\r\n\r\n", "/" + 2047 * "y"),
                        (b"(GET / HTTP/1.1\r\n\r\n", None)):
        client = gw.client()
        client.send(asked)
        assert client.response().status >= 400
        line = gw.wait_log()[-1]
        assert line["path"] == path or path and len(path) > 2000 and line["path"].startswith(path[:500]), line
        assert line["method"] == (None if asked[:1] == b"(" else "GET")
        os.truncate(gw.access_log, 0)
    assert gw.metric("postern_requests_total", method="GET", route="") == 4


# Each of them tries to end its line, to begin another, to leave its string or to talk to a terminal.
ODD = ['"', "\\", '","status":1,"x":"', "\r\n{}", "\n", "\r", "\x1b]0;owned\x07\x1b[2J", "\0", "\x7f", "\x85", "\xff\xfe",
       "\xe2\x80\xa8", "%0a%0d%1b%22", " ", "\t", "x" * 65536, '" 200 1 "-" "', "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1")]
# where a client's own bytes may come into a line
WHERE = ["GET /a{}b HTTP/1.1\r\nHost: t\r\n\r\n", "GET /a?b={}&c=d HTTP/1.1\r\nHost: t\r\n\r\n", "GE{}T / HTTP/1.1\r\nHost: t\r\n\r\n",
         "GET / HTTP/1.1{}\r\nHost: t\r\n\r\n", "GET / HTTP/1.1\r\nHost: a{}b\r\n\r\n", "GET http://a{}b/ HTTP/1.1\r\nHost: t\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: t\r\nUser-Agent: a{}b\r\n\r\n", "GET / HTTP/1.1\r\nHost: t\r\nX-Request-Id: a{}b\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: t\r\nX-Forwarded-For: 1.2.3.4{}\r\n\r\n", "GET / HTTP/1.1\r\nHost: t\r\nReferer: a{}b\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: t\r\ntraceparent: 00-{}-b7ad6b7169203331-01\r\n\r\n", "GET / HTTP/1.1\r\nHost: t\r\nX{}Y: 1\r\n\r\n",
         "GET / HTTP/1.1\r\nHost: t\r\nX-Key: a{}b\r\n\r\n"]
OPEN_TO_ALL = """listener "http" { listen = {"@http@"}  trusted_proxies = {"127.0.0.0/8"} }
access_log { path = "@log@"  format = @form@ }
error_log { level = debug }
route "all" { path = "/{rest...}"  respond { status = 200  body = "hello" } }
route "keyed" { path = "/k/{rest...}"  respond { body = a }  key_auth { file = "@keys@"  header = X-Key } }
"""


COMBINED = (rb'\S+ - \S+ \[[^]"]+\] "(?:[^"\\]|\\.)*" \d{3} (?:\d+|-) '
            rb'"(?:[^"\\]|\\.)*" "(?:[^"\\]|\\.)*"')


def lines_of(gw, path, count):
    until(lambda: gw.raw_log(path).count(b"\n") >= count, "a line for each")
    return gw.raw_log(path).split(b"\n")[:-1]


@pytest.mark.parametrize("form", ["json", "combined"])
def test_whatever_a_client_sends_is_one_line(gateway, tmp_path, form):
    """In both forms, over both versions, and in the error log, where a fault of a request is told too."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"key": "good", "consumer": "alice"}]}))
    log = tmp_path / "log"
    gw = gateway(OPEN_TO_ALL, keys=keys, log=log, form=form)
    count = 0
    for where in WHERE:
        for odd in ODD:
            client = gw.client()
            try:
                client.send(where.replace("{}", odd))
                client.half_close()
                client.read_to_end()
            except (AssertionError, OSError):
                pass  # refused while the rest was still coming
            client.close()
            # each connection is served before the next begins, so its first line is there
            count += 1
            count = len(lines_of(gw, log, count))
    for odd in ODD:
        client = Client2(gw.address())
        for fields in ([(":path", "/a" + odd)], [(":authority", "a" + odd)], [(":method", "GET" + odd)],
                       [("user-agent", odd)], [("x-request-id", odd)], [("x" + odd, "1")]):
            base = [(n, v) for n, v in client.fields("/") if n not in dict(fields)]
            pseudo = [f for f in fields if f[0][0] == ":"]
            if len(odd) < 9000:
                client.response(client.request(fields=pseudo + base + [f for f in fields if f[0][0] != ":"]))
        client.close()
    gw.get("/last")
    until(lambda: b"/last" in gw.raw_log(log), "the last line")
    assert count > len(WHERE) * len(ODD) * 0.9
    for text in lines_of(gw, log, count):
        assert not re.search(rb"[\x00-\x1f\x7f]", text) and len(text) < 16384, text[:200]
        if form == "json":
            line = json.loads(text.decode("utf-8"))
            assert set(MEMBERS) <= set(line) <= {*MEMBERS, "offset"}, line
            assert line["status"] in (200, 400, 401, 414, 417, 431, 499, 501, 505), line
        else:
            assert re.fullmatch(COMBINED, text), text[:300]
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", gw.stderr)
