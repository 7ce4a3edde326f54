"""One normal form of a path for everything, and what has two readings is refused."""

import json
import re

import pytest

from cases.path_cases import SPELLINGS, guarded_readings
from conftest import HTTP
from gateway import Gateway, own_host
from recorder import Recorder
from wire2 import Client2

TWO = HTTP + '''
upstream "app" { server "@app@" {} }
route "guarded" { path = "/admin"  respond { status = 403 } }
route "below"   { path = "/admin/{rest...}"  respond { status = 403 } }
route "open"    { path = "/{rest...}"  upstream = app }
'''
H = b"Host: test\r\n"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    up = Recorder(own_host())
    gw = Gateway(tmp_path_factory.mktemp("path"), TWO, {"app": up})
    yield gw, up
    gw.finish()
    up.close()


def test_no_spelling_of_a_guarded_path_comes_by_the_open_route(guarded):
    """Whatever reached the backend must be open in each of the ways backends read paths."""
    gw, up = guarded
    assert len(SPELLINGS) >= 200
    outcomes = {}
    for spelling in SPELLINGS:
        mark = up.mark()
        client = gw.client()
        client.send(b"GET " + spelling.encode("latin-1") + b" HTTP/1.1\r\n" + H + b"\r\n")
        status = client.response().status
        client.close()
        outcomes[status] = outcomes.get(status, 0) + 1
        assert status in (200, 400, 403), (spelling, status)
        seen = up.since(mark)
        assert (status == 200) == bool(seen), spelling
        for one in seen:
            assert not guarded_readings(one.request.target), \
                f"{spelling} reached the backend as {one.request.target}: {guarded_readings(one.request.target)}"
    assert outcomes[403] >= 50 and outcomes[400] >= 100, outcomes


def test_nor_over_http2(guarded):
    """The same spellings as :path, which a client may fill with what it likes."""
    gw, up = guarded
    client, asked, outcomes = None, 0, {}
    for spelling in SPELLINGS:
        if asked % 20 == 0:  # refused streams count against a connection
            client and client.close()
            client = Client2(gw.address())
        asked += 1
        mark = up.mark()
        answer = client.get(spelling)
        outcomes[answer.status] = outcomes.get(answer.status, 0) + 1
        assert answer.status in (200, 400, 403, None), (spelling, answer.status)
        assert (answer.status == 200) == bool(up.since(mark)), spelling
        for one in up.since(mark):
            assert not guarded_readings(one.request.target), f"{spelling} came as {one.request.target}"
    client.close()
    assert outcomes[403] >= 50 and outcomes.get(400, 0) + outcomes.get(None, 0) >= 100, outcomes


GUARDED_HOST = HTTP + '''
upstream "app" { server "@app@" {} }
route "guarded" { host = "admin.example"  path = "/{rest...}"  respond { status = 403 } }
route "open"    { path = "/{rest...}"  upstream = app }
'''
HOSTS = ["admin.example", "ADMIN.EXAMPLE", "Admin.exAmple", "admin.example.", "ADMIN.example.", "admin.example:80",
         "admin.example:8080", "admin.example.:80", "admin.example.:65535", "admin.example:0", "admin.example:00080"]
# what some programs take for that name, and others for none
ODD_HOSTS = ["admin.example..", ".admin.example", "admin..example", "admin%2eexample", "admin.example:", "admin.example:80:80",
             "admin.example@test", "test@admin.example", "admin.example/", "admin.example#", "admin.example?", "admin.example\\",
             "admin.example,test", "admin.example test", "admin.example\t", "[admin.example]", "admin.example\x7f", "admin.example;x"]


def test_no_spelling_of_a_guarded_host_comes_by_the_open_route(tmp_path, opened):
    """Nothing that reads as this host, once case, last dot and port are gone, goes by the other route."""
    up = Recorder(own_host())
    opened.append(up)
    gw = Gateway(tmp_path, GUARDED_HOST, {"app": up})
    for host in HOSTS + ODD_HOSTS:
        asked = [f"GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n", f"GET http://{host}/x HTTP/1.1\r\nHost: test\r\n\r\n",
                 f"GET http://{host} HTTP/1.1\r\nHost: {host}\r\n\r\n", f"GET /x HTTP/1.0\r\nHost: {host}\r\n\r\n"]
        statuses = []
        for data in asked:
            client = gw.client()
            client.send(data)
            statuses.append(client.response().status)
            client.close()
        client = Client2(gw.address())
        statuses.append(client.get("/x", authority=host).status)
        client.close()
        assert not set(statuses) - {403, 400, None, 200}, (host, statuses)
        if host in HOSTS:
            assert set(statuses) <= {403}, (host, statuses)
    for one in up.since((0, 0, 0, 0)):
        name = re.sub(r":\d+$", "", one.request.get("Host")).lower().rstrip(".")
        assert name != "admin.example", one
    gw.finish()


def ask(gw, target):
    client = gw.client()
    client.send(b"GET " + target + b" HTTP/1.1\r\n" + H + b"\r\n")
    response = client.response()
    client.close()
    return response


CLASSES = {
    "encoded_slash": b"/a%2fb", "backslash": b"/a%5cb", "encoded_nul": b"/a%00", "encoded_control": b"/a%0ab",
    "encoded_dot": b"/a/%2e%2e/b", "encoded_delimiter": b"/a%252fb", "overlong_utf8": b"/%c0%ae",
    "dots_behind_double_slash": b"/a//../b",
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_refused_by_name_unless_its_listener_lets_it_pass(gateway, name):
    up = Recorder(own_host())
    word = "resolve" if name.startswith("dots") else "pass"
    gw = gateway(TWO + f'listener "lax" {{ listen = {{"@lax@"}} paths {{ {name} = {word} }} }}', app=up)
    response = ask(gw, CLASSES[name])
    problem = json.loads(response.body)
    assert (response.status, problem["reason"]) == (400, "bad_request.path")
    assert "it has a" in problem["detail"] or "it has overlong" in problem["detail"], problem
    assert gw.wait_log(reason="bad_request.path")[0]["offset"] > 0
    mark = up.mark()
    response = gw.get(CLASSES[name].decode(), name="lax")
    assert response.status == 200
    resolved = {"encoded_dot": "/b", "dots_behind_double_slash": "/b"}
    assert up.since(mark)[0].request.target == resolved.get(name, CLASSES[name].decode())
    up.close()


@pytest.mark.parametrize("option, target", [
    ("double_slash = refuse", b"/a//b"), ("parameter = refuse", b"/a;b"), ("dot_segment = refuse", b"/a/./b"),
    ("bad_utf8 = refuse", b"/%ff")])
def test_what_passes_can_be_refused(gateway, option, target):
    up = Recorder(own_host())
    gw = gateway(TWO + f'listener "strict" {{ listen = {{"@strict@"}} paths {{ {option} }} }}', app=up)
    assert ask(gw, target).status == 200
    response = gw.get(target.decode(), name="strict")
    assert response.status == 400 and b"bad_request.path" in response.body
    up.close()


@pytest.mark.parametrize("target, forwarded", [
    (b"/a//b/%7e%2c;v=1?x=//..", "/a//b/%7e%2c;v=1?x=//.."), (b"/a/./b", "/a/./b"), (b"/a/../b;v=1//c?q", "/b;v=1//c?q"),
    (b"http://test//a", "//a"), (b"/%61", "/%61")])
def test_a_target_is_forwarded_as_it_came_but_for_what_climbs(guarded, target, forwarded):
    gw, up = guarded
    mark = up.mark()
    assert ask(gw, target).status == 200
    assert up.since(mark)[0].request.target == forwarded


def test_a_stripped_prefix_takes_nothing_else_away(gateway):
    up = Recorder(own_host())
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                 'route "api" { path = "/api/{rest...}"  upstream = app  strip_prefix = "/api" }', app=up)
    for target, forwarded in ((b"/api/a;v=1//b", "/a;v=1//b"), (b"/api//evil", "/evil"), (b"//api/x", "/x"),
                              (b"/api;v=1/x", "/x"), (b"/%61pi/", "/"), (b"/x/../api/y", "/y")):
        mark = up.mark()
        assert ask(gw, target).status == 200
        assert up.since(mark)[0].request.target == forwarded, target
    up.close()


def test_keep_makes_other_paths_of_doubled_slashes_and_parameters(gateway):
    up = Recorder(own_host())
    gw = gateway(TWO.replace("listen =", "paths { double_slash = keep  parameter = keep } listen ="), app=up)
    assert ask(gw, b"/admin").status == 403
    for target in (b"//admin", b"/admin;x"):
        assert ask(gw, target).status == 200
    up.close()
