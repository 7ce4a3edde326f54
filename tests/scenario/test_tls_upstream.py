"""TLS towards backends."""

import os
import shutil
import ssl
import threading

import pytest

from gateway import own_host, run, until
from nameserver import Nameserver
from tls import Authority, TlsUpstream, cut, server_context
from wire import Closed

HTTP = 'listener "http" { listen = {"@http@"} }\n'


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def local(ca):
    return ca.issue("localhost", own_host())


@pytest.fixture
def tls_upstream(opened):
    def make(certificate, **options):
        thing = TlsUpstream(own_host(), server_context(certificate, **options))
        opened.append(thing)
        return thing

    return make


def conf(tls, pool="warm = 0"):
    return (HTTP + f'upstream "app" {{ pool {{ {pool} }} server "@app@" {{}} tls {{ {tls} }} '
            'timeouts { connect = 5s } retry { attempts = 0 } }\n'
            'route "all" { upstream = app }\n')


def ask(gw, up, target="/"):
    """One request over a new connection; (client, connection)."""
    client = gw.client()
    client.send(f"GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    assert conn.expect().target == target
    conn.respond(b"well")
    assert client.response().body == b"well"
    return client, conn


def trust(ca, more="server_name = localhost"):
    return f'ca = "{ca.pem}" {more}'


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_request(gateway, tls_upstream, ca, local, version):
    up = tls_upstream(local, only=version)
    gw = gateway(conf(trust(ca)), app=up)
    client, conn = ask(gw, up)
    assert up.names == ["localhost"]
    client.send("GET /b HTTP/1.1\r\nHost: test\r\n\r\n")
    assert conn.expect().target == "/b"  # the same connection
    conn.respond()
    client.response()
    assert gw.metric("postern_upstream_connection_reuses_total") == 1


def test_the_servers_own_name_is_expected(gateway, tls_upstream, ca, local):
    """Its address is one of the names in the certificate; SNI has no place for addresses."""
    up = tls_upstream(local)
    gw = gateway(conf(f'ca = "{ca.pem}"'), app=up)
    ask(gw, up)
    assert up.names == [None]


def refused(gw, up, words):
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    thread = threading.Thread(target=up.accept_failing)
    thread.start()
    response = client.response()
    thread.join()
    assert response.status == 502
    assert b'"reason":"upstream.connect"' in response.body
    assert words.encode() in response.body, response.body
    gw.wait_stderr("warn .*" + words)
    gw.wait_log(reason="upstream.connect")


def test_another_name_is_refused(gateway, tls_upstream, ca, local):
    up = tls_upstream(local)
    gw = gateway(conf(trust(ca, "server_name = other.test")), app=up)
    refused(gw, up, "hostname mismatch")


def test_another_authority_is_refused(gateway, tls_upstream, ca, local, tmp_path):
    up = tls_upstream(local)
    gw = gateway(conf(trust(Authority(tmp_path / "other", "Other"))), app=up)
    refused(gw, up, "unable to get local issuer certificate")


def test_the_systems_authorities_are_the_default(gateway, tls_upstream, local):
    up = tls_upstream(local)
    gw = gateway(conf("server_name = localhost"), app=up)
    refused(gw, up, "unable to get local issuer certificate")


def test_an_expired_certificate_is_refused(gateway, tls_upstream, ca):
    up = tls_upstream(ca.issue("localhost", days=-1))
    gw = gateway(conf(trust(ca)), app=up)
    refused(gw, up, "certificate has expired")


def test_all_is_taken_when_told_to(gateway, tls_upstream, ca):
    up = tls_upstream(ca.issue("elsewhere.test", days=-1))
    gw = gateway(conf("verify = false"), app=up)
    ask(gw, up)


def test_a_backend_without_tls(gateway, upstream, ca):
    up = upstream()
    gw = gateway(conf(trust(ca)), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.send("HTTP/1.1 400 Bad Request\r\n\r\n")
    response = client.response()
    assert response.status == 502 and b"what came is not TLS" in response.body


def test_a_handshake_has_the_time_of_a_connect(gateway, upstream, ca):
    up = upstream()
    gw = gateway(conf(trust(ca)).replace("connect = 5s", "connect = 300ms"), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    up.accept()
    response = client.response()
    assert response.status == 504 and b"upstream.timeout_connect" in response.body


def test_our_own_certificate(gateway, tls_upstream, ca, local):
    ours = ca.issue("gateway.test")
    up = tls_upstream(local, client_ca=ca.pem)
    gw = gateway(conf(trust(ca) + f' certificate = "{ours.chain}" key = "{ours.key}"'), app=up)
    _, conn = ask(gw, up)
    subject = dict(pair[0] for pair in conn.sock.getpeercert()["subject"])
    assert subject["commonName"] == "gateway.test"


def test_without_one_the_backend_says_so(gateway, tls_upstream, ca, local):
    up = tls_upstream(local, client_ca=ca.pem, only=ssl.TLSVersion.TLSv1_2)
    gw = gateway(conf(trust(ca)), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    thread = threading.Thread(target=up.accept_failing)
    thread.start()
    response = client.response()
    thread.join()
    assert response.status == 502 and b"alert" in response.body, response.body


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sessions_go_on(gateway, tls_upstream, ca, local, version):
    up = tls_upstream(local, only=version)
    gw = gateway(conf(trust(ca), "warm = 0 requests = 1"), app=up)
    again = 0
    for _ in range(21):
        _, conn = ask(gw, up)
        again += conn.sock.session_reused
    assert again == 20


def test_warm_connections_have_shaken_hands(gateway, tls_upstream, ca, local):
    up = tls_upstream(local)
    gw = gateway(conf(trust(ca), "warm = 2"), app=up, wait=False)
    conns = [up.accept(), up.accept()]  # both handshakes are done
    gw.wait_ready()
    until(lambda: gw.upstream("app", up)["idle"] == 2, "both are idle")
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    for conn in conns:
        conn.sock.setblocking(False)

    def came():
        for conn in conns:
            try:
                if conn.sock.recv(1):
                    return conn
            except ssl.SSLWantReadError:
                continue
        return None

    conn = until(came, "the request came on one of them")
    conn.sock.settimeout(15)
    conn.buffer = b"G"
    conn.expect()
    conn.respond()
    assert client.response().status == 200
    assert gw.metric("postern_upstream_connections_opened_total") == 2


def test_a_body_until_the_end_ends_with_a_word(gateway, tls_upstream, ca, local):
    up = tls_upstream(local)
    gw = gateway(conf(trust(ca)), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\n\r\nall of it")
    conn.say_goodbye()
    conn.close()
    assert client.response().body == b"all of it"


def test_a_body_that_is_cut_is_not_whole(gateway, tls_upstream, ca, local):
    up = tls_upstream(local)
    gw = gateway(conf(trust(ca)), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\n\r\nhalf of it")
    cut(conn.sock)
    with pytest.raises(Closed):
        client.response()
    assert gw.wait_log()[0]["reason"] == "upstream.reset"


def test_big_bodies_both_ways(gateway, tls_upstream, ca, local):
    big = os.urandom(1 << 20)
    up = tls_upstream(local)
    gw = gateway(conf(trust(ca)), app=up)
    client = gw.client()
    thread = threading.Thread(target=client.send, args=(
        b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s" % (len(big), big),))
    thread.start()
    conn = up.accept()
    assert conn.expect().body == big
    thread.join()
    thread = threading.Thread(target=conn.respond, args=(big,))
    thread.start()
    assert client.response().body == big
    thread.join()


def test_an_idle_connection_that_the_server_closes_is_not_used(gateway, tls_upstream, ca, local):
    up = tls_upstream(local)
    gw = gateway(conf(trust(ca)), app=up)
    client, conn = ask(gw, up)
    conn.say_goodbye()
    conn.close()
    until(lambda: gw.upstream("app", up)["idle"] == 0, "it is gone")
    ask(gw, up)


def test_a_reload_with_other_files_connects_anew(gateway, tls_upstream, ca, local, tmp_path):
    trusted = tmp_path / "trusted.pem"
    other = Authority(tmp_path / "other", "Other")
    with open(ca.pem) as file:
        ours = file.read()
    with open(other.pem) as file:
        theirs = file.read()
    trusted.write_text(ours)
    up = tls_upstream(local)
    gw = gateway(conf(f'ca = "{trusted}" server_name = localhost'), app=up)
    client, conn = ask(gw, up)
    gw.reload()  # nothing has changed: the connection stays
    client.send("GET /b HTTP/1.1\r\nHost: test\r\n\r\n")
    assert conn.expect().target == "/b"
    conn.respond()
    client.response()
    trusted.write_text(theirs)
    gw.reload()
    refused(gw, up, "unable to get local issuer certificate")
    trusted.write_text(ours + theirs)
    gw.reload()
    ask(gw, up)


def test_upstreams_that_differ_share_no_connection(gateway, tls_upstream, ca, local):
    """One address behind three upstreams: its connections differ by the name that was asked for,
    and by whose certificate was shown."""
    ours = ca.issue("gateway.test")
    up = tls_upstream(ca.issue("a.test", "b.test"))
    up.ctx.load_verify_locations(ca.pem)
    up.ctx.verify_mode = ssl.CERT_OPTIONAL
    tls = {"a": trust(ca, "server_name = a.test"), "b": trust(ca, "server_name = b.test"),
           "c": trust(ca, f'server_name = a.test certificate = "{ours.chain}" key = "{ours.key}"')}
    gw = gateway(HTTP + "".join(
        f'upstream "{name}" {{ pool {{ warm = 0 }} server "@app@" {{}} tls {{ {text} }} timeouts {{ connect = 5s }} }}\n'
        f'route "{name}" {{ path = "/{name}" upstream = {name} }}\n' for name, text in tls.items()), app=up)
    conns = {}
    for name in tls:
        client, conns[name] = ask(gw, up, f"/{name}")
        client.close()
    assert up.names == ["a.test", "b.test", "a.test"]
    assert [bool(conns[name].sock.getpeercert()) for name in tls] == [False, False, True]
    for name in "cab":  # all are idle: each is used for its own
        client = gw.client()
        client.send(f"GET /{name} HTTP/1.1\r\nHost: test\r\n\r\n")
        assert conns[name].expect().target == f"/{name}"
        conns[name].respond()
        assert client.response().status == 200
    up.expect_no_connection(0.1)


def test_another_name_for_the_same_address_is_another_connection(gateway, tls_upstream, ca, opened):
    """Over a reload too: what was verified for one name is not used for another."""
    dns = Nameserver(own_host())
    opened.append(dns)
    dns.say("a.test", [own_host()])
    dns.say("b.test", [own_host()])
    up = tls_upstream(ca.issue("a.test", "b.test"))
    text = f'resolver = {{"@dns@"}}\n' + conf(trust(ca, "")).replace("@app@", "%s:" + str(up).rsplit(":", 1)[1])
    gw = gateway(text % "a.test", dns=dns)
    ask(gw, up)
    gw.reload(text % "b.test")
    ask(gw, up)
    assert up.names == ["a.test", "b.test"]


def test_what_t_says(ca, local, tmp_path):
    file = tmp_path / "t.conf"
    other = ca.issue("localhost")

    def check(tls, server="127.0.0.1:1"):
        file.write_text('listener "s" { listen = {"127.0.0.1:2"} }\n'
                        f'upstream "u" {{ server "{server}" {{}}\ntls {{\n{tls}\n}} }}\n'
                        'route "all" { upstream = u }\n')
        return run("-c", str(file), "-t")

    for tls, line, words in (
            ('ca = "/nowhere.pem"', 4, "cannot read /nowhere.pem"),
            (f'ca = "{local.key}"', 4, "holds no certificate"),
            (f'certificate = "{local.chain}"', 3, "tls has a certificate without a key"),
            (f'certificate = "{local.chain}" key = "{other.key}"', 4, "does not fit"),
            ('server_name = "a b"', 4, "expected a host name or an IP address"),
            ("verify = perhaps", 4, "expected false or true")):
        code, out, _ = check(tls)
        assert code == 1 and f"t.conf:{line}: " in out and words in out, (tls, out)
    code, out, _ = check("}\nproxy_protocol = v2\ntimeouts {")
    assert code == 1 and "t.conf:5: upstream.proxy_protocol is v2, expected off with tls" in out
    code, out, _ = check("verify = true", "unix:/run/x.sock")
    assert code == 1 and "tls has no server_name" in out
    assert check("server_name = localhost", "unix:/run/x.sock")[0] == 0
    assert check("", "unix:/run/x.sock")[0] == 1
    code, out, dumped = run("-c", str(file), "-T")
    assert code == 1
    assert check('server_name = localhost  ca = ""')[0] == 0
    assert "verify = true" in run("-c", str(file), "-T")[2]


@pytest.mark.threads
def test_changed_files_are_followed(gateway, tls_upstream, ca, local, tmp_path):
    """A client certificate that is renewed while the gateway runs; half of one is not used."""
    def who(conn):
        return dict(pair[0] for pair in conn.sock.getpeercert()["subject"])["commonName"]

    def install(certificate):
        for source, name in ((certificate.chain, "c.pem"), (certificate.key, "c.key")):
            shutil.copy(source, tmp_path / (name + ".new"))
            os.replace(tmp_path / (name + ".new"), tmp_path / name)

    def afresh():
        """Whom a new connection of the gateway's is shown as, and whether it goes on."""
        client, conn = ask(gw, up)
        result = who(conn), conn.sock.session_reused
        client.close()
        conn.close()
        until(lambda: gw.upstream("app")[0]["idle"] == 0, "its connection is gone")
        return result

    install(ca.issue("first.example", subject="/CN=first"))
    up = tls_upstream(local, client_ca=ca.pem)
    gw = gateway("workers = 1\n" + conf(trust(ca) + f' certificate = "{tmp_path}/c.pem" '
                                        f'key = "{tmp_path}/c.key"') +
                 'admin { listen = "@admin@" }\n', app=up)
    assert afresh()[0] == "first"
    (tmp_path / "c.pem").write_text("-----BEGIN CERTIFICATE-----\nhalf of")
    until(lambda: 'upstream "app" keeps the certificates it has' in gw.stderr, "a warning")
    assert afresh()[0] == "first"
    install(ca.issue("second.example", subject="/CN=second"))
    until(lambda: 'upstream "app": the files of its tls have changed and are in use' in gw.stderr,
          "the news")
    assert afresh() == ("second", False)  # a session of before would say who it was
    assert afresh()[0] == "second"
