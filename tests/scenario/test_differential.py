"""What is passed on is read alike by everybody; see differential.py, which does more of it by hand."""

import pytest

import differential
from conftest import ONE
from gateway import Gateway, own_host
from recorder import Recorder

COUNT = 300
pytestmark = pytest.mark.undisturbed


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    opened = []
    echo, up = differential.Echo(own_host()), Recorder(own_host())
    opened.extend((echo, up))
    try:
        peers, missing = differential.servers(str(tmp_path_factory.mktemp("peers")), echo, opened)
        gw = Gateway(tmp_path_factory.mktemp("requests"), ONE, {"app": up})
        yield gw, up, peers, missing
        gw.finish()
    finally:
        for thing in reversed(opened):
            thing.close()


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    opened = []
    up = differential.Mutant(own_host())
    opened.append(up)
    try:
        peers, missing = differential.clients(str(tmp_path_factory.mktemp("peers")), opened)
        gw = Gateway(tmp_path_factory.mktemp("answers"), ONE, {"app": up})
        yield gw, up, peers, missing
        gw.finish()
    finally:
        for thing in reversed(opened):
            thing.close()


def run(compare, gw, up, peers, missing, name, seed):
    if name not in peers:
        pytest.skip(next((text for text in missing if name in text), f"{name} is not there"))
    passed, faults = differential.run(compare, gw, up, {name: peers[name]}, COUNT, seed)
    assert not faults, "\n".join(faults)
    assert passed > COUNT / 4, "too few were passed on to compare anything"


@pytest.mark.parametrize("name", ["nginx", "haproxy", "h2o", "nghttpx", "node", "go", "h11"])
def test_requests_are_read_alike(behind, name):
    run(differential.compare_requests, *behind, name, seed=20_000)


@pytest.mark.parametrize("name", ["curl", "http.client", "node", "h11"])
def test_answers_are_read_alike(before, name):
    run(differential.compare_answers, *before, name, seed=30_000)


def test_another_reading_would_be_noticed(behind, before):
    """The comparison itself, with bytes that do not mean what is held against them."""
    none = differential.digest(b"")
    for name, peer in behind[2].items():
        get = b"GET /a HTTP/1.1\r\nHost: t\r\n\r\n"
        assert peer.read(get + differential.LAST, False)[0] == [("GET", "/a", 0, none), ("GET", "/last", 0, none)], name
        swallowed = b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(differential.LAST)
        whole = swallowed + differential.LAST
        assert peer.read(whole + differential.LAST, False)[0][0][2] == len(differential.LAST), name
        assert not peer.read(whole[:-1], True)[0], name
    for name, peer in before[2].items():
        assert peer("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")[1] == 3, name
        assert peer("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc") is None, name
        assert peer("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n") is None, name
