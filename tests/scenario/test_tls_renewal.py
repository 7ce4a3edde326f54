"""What the connections to an upstream do when the files of its tls change: those that began with
what the files held before serve no more."""

import os
import ssl

import pytest

from backend2 import Backend2
from gateway import own_host, until
from tls import Authority, TlsUpstream, server_context

NEWS = 'upstream "app": the files of its tls have changed and are in use'


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


class Files:
    """Our certificate and whom we trust, where the gateway reads them."""

    def __init__(self, folder, ca):
        self.folder, self.ca, self.changes = folder, ca, 0
        with open(ca.pem) as file:
            self.put("trusted", file.read())
        self.become("first")

    def put(self, name, text):
        path = self.folder / name
        (self.folder / "new").write_text(text)
        os.replace(self.folder / "new", path)

    def become(self, name):
        made = self.ca.issue(subject=f"/CN={name}")
        for source, target in ((made.chain, "chain"), (made.key, "key")):
            with open(source) as file:
                self.put(target, file.read())

    def trust_more(self, tmp_path):
        other = Authority(tmp_path / "other", "Other")
        with open(self.ca.pem) as ours, open(other.pem) as theirs:
            self.put("trusted", ours.read() + theirs.read())

    def conf(self, more):
        return f'''workers = 1
admin {{ listen = "@admin@" }}
listener "http" {{ listen = {{"@http@"}} }}
upstream "app" {{
  server "@app@" {{}}
  tls {{ ca = "{self.folder}/trusted" server_name = localhost
         certificate = "{self.folder}/chain" key = "{self.folder}/key" }}
  retry {{ attempts = 0 }}
  timeouts {{ connect = 5s }}
  {more}
}}
route "all" {{ upstream = app }}
'''


def news(gw, count):
    until(lambda: gw.stderr.count(NEWS) == count, "the news")


@pytest.fixture
def files(tmp_path, ca):
    folder = tmp_path / "files"
    folder.mkdir()
    return Files(folder, ca)


def server(ca):
    return server_context(ca.issue("localhost"), client_ca=ca.pem)


def who(sock):
    return dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"]


def send(gw, target):
    client = gw.client()
    client.send(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")
    return client


@pytest.mark.threads
@pytest.mark.parametrize("what", ["certificate", "authorities"])
def test_http1(gateway, opened, ca, files, tmp_path, what):
    up = TlsUpstream(own_host(), server(ca))
    opened.append(up)
    gw = gateway(files.conf("pool { warm = 0 }"), app=up)
    clients, conns = [], []
    for i in range(3):
        clients.append(send(gw, f"/{i}"))
        conns.append(up.accept())
        assert conns[i].expect().target == f"/{i}" and who(conns[i].sock) == "first"
    for i in (1, 2):  # two are idle, one is not
        conns[i].respond()
        assert clients[i].response().status == 200
    until(lambda: gw.upstream("app", up)["idle"] == 2, "two are idle")
    if what == "certificate":
        files.become("second")
    else:
        files.trust_more(tmp_path)
    news(gw, 1)
    for conn in conns[1:]:
        assert conn.recv_or_cut() == b""  # nobody had to ask for that
    again = send(gw, "/again")
    conn = up.accept()
    assert conn.expect().target == "/again" and not conn.sock.session_reused
    assert who(conn.sock) == ("second" if what == "certificate" else "first")
    conns[0].respond(b"finished")
    assert clients[0].response().body == b"finished"
    assert conns[0].recv_or_cut() == b""
    conn.respond()
    assert again.response().status == 200
    again.send("GET /more HTTP/1.1\r\nHost: test\r\n\r\n")  # the new one stays
    assert conn.expect().target == "/more"
    conn.respond()
    assert again.response().status == 200
    assert gw.upstream("app", up)["opened"] == 4


def test_the_warm_floor_is_opened_anew(gateway, opened, ca, files):
    """Without a request in between."""
    up = TlsUpstream(own_host(), server(ca))
    opened.append(up)
    gw = gateway(files.conf("pool { warm = 1 }"), app=up, wait=False)
    conn = up.accept()
    gw.wait_ready()
    assert who(conn.sock) == "first"
    files.become("second")
    assert who(up.accept().sock) == "second"
    assert conn.recv_or_cut() == b""


@pytest.mark.threads
def test_http2(gateway, opened, ca, files):
    ctx = server(ca)
    ctx.set_alpn_protocols(["h2"])
    up = Backend2(own_host(), ctx=ctx)
    opened.append(up)
    gw = gateway(files.conf("protocol = h2 pool { warm = 0 }"), app=up)
    clients = [send(gw, "/busy")]
    old = up.accept()
    busy, _ = old.asked()
    clients.append(send(gw, "/done"))
    done, fields = old.asked()
    assert fields[":path"] == "/done" and who(old.sock) == "first"
    old.answer(done, b"done")
    assert clients[1].response().body == b"done"
    files.become("second")
    news(gw, 1)
    clients.append(send(gw, "/again"))
    new = up.accept()
    assert who(new.sock) == "second"
    stream, fields = new.asked()
    assert fields[":path"] == "/again"
    new.answer(stream, b"again")
    assert clients[2].response().body == b"again"
    assert old.goaway is None  # a request is under way
    old.answer(busy, b"finished")
    assert clients[0].response().body == b"finished"
    old.expect_goaway(0)
    files.become("third")  # nothing is under way: it leaves by itself
    new.expect_goaway(0)
    clients.append(send(gw, "/last"))
    last = up.accept()
    assert who(last.sock) == "third"
    last.answer(last.asked()[0])
    assert clients[3].response().status == 200


def test_a_handshake_that_the_change_overtakes(gateway, opened, ca, files):
    """It began with the old certificate and ends when there is another: it serves nobody."""
    up = TlsUpstream(own_host(), server(ca))
    opened.append(up)
    gw = gateway(files.conf("pool { warm = 0 }"), app=up)
    client = send(gw, "/x")
    plain, _ = up.sock.accept()
    files.become("second")
    news(gw, 1)
    with up.ctx.wrap_socket(plain, server_side=True) as late:
        conn = up.accept()
        assert who(conn.sock) == "second"
        assert conn.expect().target == "/x"
        conn.respond(b"well")
        assert client.response().body == b"well"
        late.settimeout(15)
        try:
            assert late.recv(100) == b""
        except ssl.SSLError:
            pass
