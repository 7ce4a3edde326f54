"""TLS towards clients."""

import json
import os
import random
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import threading

import pytest

from gateway import is_sanitized, run, until
from tls import Authority, connect, context, openssl

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def local(ca):
    return ca.issue("localhost", "127.0.0.1")


def https(tls, more="", routes='upstream "app" { server "@app@" {} }\nroute "all" { upstream = app }\n'):
    return f'listener "https" {{ listen = {{"@https@"}} tls {{ {tls} }} {more} }}\n{routes}'


HELLO = 'route "hello" { respond { body = "hello" } }\n'


def subject_of(client):
    return dict(pair[0] for pair in client.sock.getpeercert()["subject"])["commonName"]


# ---- the plain way ----


@pytest.mark.parametrize("version", [V12, V13])
def test_a_request_over_tls(gateway, upstream, ca, local, version):
    up = upstream()
    gw = gateway(https(local.section(), "forwarded = both"), app=up)
    client = connect(gw, ca.context(only=version, alpn=["http/1.1"]))
    assert client.sock.selected_alpn_protocol() == "http/1.1"
    client.send("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.get("X-Forwarded-Proto") == "https"
    assert "proto=https" in request.get("Forwarded")
    assert not request.has("X-SSL-Client-S-DN")
    conn.respond(b"well")
    assert client.response().body == b"well"
    client.send("GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n")
    conn.expect()
    conn.respond()
    client.response()
    line = gw.wait_log(2)[0]
    assert line["tls"] is True and line["sni"] == "localhost"
    assert line["tls_version"] == client.sock.version()
    assert line["tls_cipher"] == client.sock.cipher()[0]
    assert line["client_subject"] is None
    gw.wait_metric(1, "postern_tls_handshakes_total", listener="https", outcome="full")


def test_plain_requests_are_logged_without(pair):
    gw, up = pair
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    assert conn.expect().get("X-Forwarded-Proto") == "http"
    conn.respond()
    client.response()
    line = gw.wait_log()[0]
    assert line["tls"] is False and line["sni"] is None and "tls_version" not in line


def test_bodies_of_a_mebibyte_both_ways(gateway, backend, ca, local):
    big = os.urandom(1 << 20)
    app = backend("app", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(r.body), r.body))
    gw = gateway(https(local.section()), app=app)
    client = connect(gw, ca.context())
    for _ in range(3):
        response = client.get("/", host="localhost", method="POST", body=big)
        assert response.status == 200 and response.body == big
    client.send(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    for at in range(0, len(big), 50000):
        part = big[at:at + 50000]
        client.send(b"%x\r\n%s\r\n" % (len(part), part))
    client.send(b"0\r\n\r\n")
    assert client.response().body == big


def test_pipelined_requests(gateway, backend, ca, local):
    app = backend("app", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(r.target), r.target.encode()))
    gw = gateway(https(local.section()), app=app)
    client = connect(gw, ca.context())
    client.send("".join(f"GET /{i} HTTP/1.1\r\nHost: localhost\r\n\r\n" for i in range(300)))
    for i in range(300):
        assert client.response().body == b"/%d" % i


def test_a_tunnel(gateway, upstream, ca, local):
    up = upstream()
    gw = gateway(https(local.section()), app=up)
    client = connect(gw, ca.context())
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\nhi")
    assert client.response().status == 101
    assert client.read_exact(2) == b"hi"
    for size in (1, 5000, 300000):
        data = os.urandom(size)
        thread = threading.Thread(target=client.send, args=(data,))
        thread.start()
        assert conn.read_exact(size) == data
        thread.join()
        thread = threading.Thread(target=conn.send, args=(data,))
        thread.start()
        assert client.read_exact(size) == data
        thread.join()
    conn.close()
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        assert client.recv_or_cut() == b"more"


def test_the_end_of_an_answer_is_told(gateway, upstream, ca, local):
    """HTTP/1.0 has no other end than the connection's: close_notify says that it is one."""
    up = upstream()
    gw = gateway(https(local.section()), app=up)
    client = connect(gw, ca.context())
    client.send("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwell\r\n0\r\n\r\n")
    assert client.head().status == 200
    got = client.buffer
    while True:
        data = client.recv_or_cut()
        if not data:
            break
        got += data
    assert got == b"well"


def test_a_cut_answer_is_cut(gateway, upstream, ca, local):
    up = upstream()
    gw = gateway(https(local.section()), app=up)
    client = connect(gw, ca.context())
    client.send("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    assert client.head().status == 200
    conn.close()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        while client.recv_or_cut():
            pass


def test_a_slow_reader_costs_little(gateway, backend, ca, local):
    if is_sanitized():
        pytest.skip("memory of a sanitizer")
    body = bytes(32 << 20)
    app = backend("app", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(body), body))
    gw = gateway(https(local.section()), app=app)
    connect(gw, ca.context()).get("/", host="localhost")
    before = gw.rss_kib()
    clients = [connect(gw, ca.context(), receive_buffer=4096) for _ in range(8)]
    for client in clients:
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.head().status == 200
    counts = lambda: gw.metric("postern_downstream_bytes_total", listener="https")
    until(lambda: app.count >= 9, "all requests came")
    assert gw.rss_kib() - before < 8 * 1024
    for client in clients[:2]:
        left = len(body)
        while left:
            left -= len(client.sock.recv(1 << 20)) if not client.buffer else len(client.buffer)
            client.buffer = b""
    assert counts() >= 0


# ---- versions, names, certificates ----


def test_old_versions_are_refused(gateway, ca, local):
    gw = gateway(https(local.section(), routes=HELLO))
    ctx = ca.context()
    ctx.set_ciphers("ALL:@SECLEVEL=0")
    ctx.minimum_version, ctx.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(gw, ctx)
    gw.wait_stderr("closed a connection from .* its TLS handshake failed: .*(protocol|version)")
    gw.wait_metric(1, "postern_tls_handshakes_total", outcome="failed")


def test_only_1_3(gateway, ca, local):
    gw = gateway(https('min_version = "1.3" ' + local.section(), routes=HELLO))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(gw, ca.context(only=V12))
    assert connect(gw, ca.context()).get("/", host="localhost").status == 200


def test_the_name_chooses_the_certificate(gateway, ca, local):
    api, wild = ca.issue("api.test"), ca.issue("*.wild.test", "wild.test")
    extra = ca.issue("inner.test")
    gw = gateway(https(" ".join([local.section(), api.section("api.test"),
                                 wild.section("*.wild.test"), extra.section("outer.test")]),
                       routes=HELLO))
    for name, expected in (("api.test", "api.test"), ("API.test", "api.test"),
                           ("a.wild.test", "*.wild.test"), ("wild.test", "*.wild.test"),
                           ("a.b.wild.test", "localhost"), ("nobody.test", "localhost"),
                           ("outer.test", "inner.test"), (None, "localhost")):
        ctx = ca.context()
        ctx.check_hostname = False
        client = connect(gw, ctx, name)
        assert subject_of(client) == expected, name
        assert client.get("/", host=name or "x.test").status == 200


def test_rsa_and_ecdsa_side_by_side(gateway, ca):
    one, two = ca.issue("both.test"), ca.issue("both.test", kind="rsa")
    gw = gateway(https(one.section("both.test") + " " + two.section("both.test"), routes=HELLO))
    for ciphers, kind in (("ECDHE-RSA-AES128-GCM-SHA256", "RSA"),
                          ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDSA")):
        client = connect(gw, ca.context(only=V12, ciphers=ciphers), "both.test")
        assert kind in client.sock.cipher()[0]
        assert client.get("/", host="both.test").body == b"hello"
    for kind in ("RSA", "ECDSA"):
        left = gw.metric("postern_certificate_expiry_seconds", listener="https",
                         certificate="both.test", kind=kind)
        assert 9 * 86400 < left < 11 * 86400


def test_ciphers_are_as_told(gateway, ca, local):
    gw = gateway(https('ciphers = "ECDHE-ECDSA-AES256-GCM-SHA384" '
                       'ciphersuites = "TLS_CHACHA20_POLY1305_SHA256" ' + local.section(),
                       routes=HELLO))
    assert connect(gw, ca.context(only=V12)).sock.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    assert connect(gw, ca.context()).sock.cipher()[0] == "TLS_CHACHA20_POLY1305_SHA256"


def test_an_unknown_protocol_is_refused(gateway, ca, local):
    gw = gateway(https(local.section(), routes=HELLO))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connect(gw, ca.context(alpn=["gopher"]))


def test_another_host_than_the_certificates(gateway, ca):
    """RFC 9110 7.4: a connection for one name is none for a name that is not in its certificate."""
    both = ca.issue("a.test", "b.test")
    gw = gateway(https(both.section("a.test"), routes=HELLO))
    client = connect(gw, ca.context(), "a.test")
    assert client.get("/", host="a.test").status == 200
    assert client.get("/", host="B.test:443").status == 200
    response = client.get("/", host="c.test")
    assert response.status == 421
    assert gw.wait_log(reason="client.misdirected")[0]["status"] == 421
    assert client.get("/", host="a.test").status == 200


# ---- what is not TLS ----


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
def test_plain_http_on_a_tls_port(gateway, ca, local, method):
    gw = gateway(https(local.section(), routes=HELLO))
    client = gw.client("https")
    client.send(f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    response = client.response()
    assert response.status == 400
    assert response.get("Content-Type") == "application/problem+json"
    assert b"bad_request.plain_http" in response.body and b"https" in response.body
    client.expect_closed()
    assert gw.wait_log(reason="bad_request.plain_http")[0]["tls"] is False


@pytest.mark.parametrize("start", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
def test_a_handshake_has_its_time(gateway, local, start):
    gw = gateway(https(local.section(), "timeouts { header = 500ms }", routes=HELLO))
    client = gw.client("https")
    client.send(start)
    client.expect_closed()
    gw.wait_stderr("TLS handshake was not done in time")


def test_who_leaves_at_once_is_not_worth_a_line(gateway, ca, local):
    gw = gateway(https(local.section(), routes=HELLO))
    gw.client("https").close()
    connect(gw, ca.context()).get("/", host="localhost")
    assert "handshake" not in gw.stderr


def test_rubbish_after_the_handshake(gateway, ca, local):
    gw = gateway(https(local.section(), routes=HELLO))
    client = connect(gw, ca.context())
    raw = socket.socket(fileno=os.dup(client.sock.fileno()))
    raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        while client.recv_or_cut():
            pass
    raw.close()
    assert connect(gw, ca.context()).get("/", host="localhost").status == 200


def test_handshakes_do_not_hold_up_requests(gateway, ca):
    """Sixty handshakes with RSA keys cost far more than a request, which does not wait for them
    all: it is sent when the first of them has been answered, and its answer comes before the
    last one's. (A machine that forgets us for the time of sixty signatures proves nothing: then
    once more.)"""
    rsa = ca.issue("localhost", kind="rsa")
    gw = gateway("workers = 1\n" + https(rsa.section(), routes=HELLO) +
                 'listener "http" { listen = {"@http@"} }\n')
    busy = gw.client()
    assert busy.get("/").status == 200
    ctx = context(only=V12, ciphers="ECDHE-RSA-AES128-GCM-SHA256")

    def begin():
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        side = ctx.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            side.do_handshake()
        return gw.client("https"), outgoing.read()

    def waiting_when_served():
        hellos = [begin() for _ in range(60)]
        os.kill(gw.proc.pid, signal.SIGSTOP)
        for client, hello in hellos:
            client.send(hello)
        os.kill(gw.proc.pid, signal.SIGCONT)
        select.select([client.sock for client, _ in hellos], [], [], 15)
        busy.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        assert busy.response().status == 200
        answered = select.select([client.sock for client, _ in hellos], [], [], 0)[0]
        for client, _ in hellos:
            client.close()
        return len(hellos) - len(answered)

    assert any(waiting_when_served() for _ in range(5))


def test_a_stop_lets_handshakes_end(gateway, ca, local):
    """Who has been accepted before the stop is served behind it."""
    gw = gateway(https(local.section(), routes=HELLO))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = ca.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    client = gw.client("https")

    def step(call):
        while True:
            try:
                return call()
            except ssl.SSLWantReadError:
                data = outgoing.read()
                if data:
                    client.send(data)
                incoming.write(client.sock.recv(65536))

    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    hello = outgoing.read()
    client.send(hello[:20])
    until(lambda: gw.metric("postern_downstream_connections", listener="https") == 1, "accepted")
    gw.signal(signal.SIGTERM)
    gw.wait_stderr("draining")
    client.send(hello[20:])
    incoming.write(client.sock.recv(65536))
    step(side.do_handshake)
    side.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    client.send(outgoing.read())
    assert step(lambda: side.read(1000)).startswith(b"HTTP/1.1 200 OK")
    assert gw.wait_exit() == 0


def test_renegotiation_is_refused(gateway, local):
    gw = gateway(https(local.section(), routes=HELLO))
    host, port = gw.address("https")
    done = subprocess.run(["openssl", "s_client", "-connect", f"{host}:{port}", "-tls1_2"],
                          input=b"R\n", capture_output=True, timeout=30)
    assert b"RENEGOTIATING" in done.stdout + done.stderr
    assert b"no renegotiation" in done.stderr
    assert b"Compression: NONE" in done.stdout


# ---- sessions ----


def resumed(gw, ctx, count, name="https"):
    """How many of `count` connections go on with the session of the one before."""
    session, got = None, 0
    for _ in range(count + 1):
        client = connect(gw, ctx, session=session, name=name)
        got += client.sock.session_reused
        assert client.get("/", host="localhost").status == 200  # brings the tickets of TLS 1.3
        session = client.sock.session
        client.close()
    return got


@pytest.mark.parametrize("version", [V12, V13])
def test_sessions_go_on(gateway, ca, local, version):
    gw = gateway("workers = 2\n" + https(local.section(), routes=HELLO))
    assert resumed(gw, ca.context(only=version), 40) >= 38
    assert gw.metric("postern_tls_handshakes_total", outcome="resumed") >= 38


def test_sessions_outlive_a_reload(gateway, ca, local):
    gw = gateway(https(local.section(), routes=HELLO))
    ctx = ca.context()
    client = connect(gw, ctx)
    client.get("/", host="localhost")
    session = client.sock.session
    gw.reload()
    assert connect(gw, ctx, session=session).sock.session_reused


def test_sessions_are_shared_by_a_file_of_keys(gateway, ca, local, tmp_path):
    keys = tmp_path / "tickets"
    keys.write_bytes(os.urandom(160))
    conf = https(f'ticket_keys = "{keys}" ' + local.section(), routes=HELLO)
    one, two = gateway(conf), gateway(conf)
    ctx = ca.context()
    client = connect(one, ctx)
    client.get("/", host="localhost")
    session = client.sock.session
    assert connect(two, ctx, session=session).sock.session_reused
    keys.write_bytes(os.urandom(80) + keys.read_bytes()[:80])
    two.reload()
    assert connect(two, ctx, session=session).sock.session_reused  # the old key still opens
    keys.write_bytes(os.urandom(80))
    two.reload()
    assert not connect(two, ctx, session=session).sock.session_reused


def test_s_time_reuses(gateway, local):
    gw = gateway(https(local.section(), routes=HELLO))
    host, port = gw.address("https")
    out = openssl("s_time", "-connect", f"{host}:{port}", "-reuse", "-time", "1", "-www", "/",
                  "-tls1_2").decode()
    assert re.search(r"\d+ connections in", out), out
    full = gw.metric("postern_tls_handshakes_total", outcome="full")
    again = gw.metric("postern_tls_handshakes_total", outcome="resumed")
    assert again >= 19 * full


# ---- certificates of clients ----


def test_who_may_come(gateway, upstream, ca, local):
    ann = ca.issue(subject="/O=Acme, Inc./CN=Ann")
    up = upstream()
    gw = gateway(https(f'client_ca = "{ca.pem}" ' + local.section()), app=up)
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        connect(gw, ca.context()).get("/", host="localhost")
    gw.wait_stderr("peer did not return a certificate")
    client = connect(gw, ca.context(certificate=ann))
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-SSL-Client-S-DN: CN=Root\r\n"
                "X_SSL_Client_S_DN: CN=Root\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    assert request.all("X-SSL-Client-S-DN") == ["CN=Ann,O=Acme\\, Inc."]
    assert not any("root" in value.lower() for _, value in request.fields)
    conn.respond()
    client.response()
    assert gw.wait_log()[0]["client_subject"] == "CN=Ann,O=Acme\\, Inc."


def test_who_is_asked_may_come_without(gateway, upstream, ca, local, tmp_path):
    stranger = Authority(tmp_path / "other", "Somebody Else").issue("eve.test")
    up = upstream()
    gw = gateway(https(f'client_ca = "{ca.pem}" client_auth = request ' + local.section()), app=up)
    client = connect(gw, ca.context())
    client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-SSL-Client-S-DN: CN=Root\r\n\r\n")
    conn = up.accept()
    assert not conn.expect().has("X-SSL-Client-S-DN")
    conn.respond()
    client.response()
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        connect(gw, ca.context(certificate=stranger)).get("/", host="localhost")


def test_a_plain_listener_vouches_for_nobody(pair):
    gw, up = pair
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: test\r\nX-SSL-Client-S-DN: CN=Root\r\n\r\n")
    conn = up.accept()
    assert not conn.expect().has("X-SSL-Client-S-DN")
    conn.respond()
    client.response()


def test_a_session_does_not_carry_a_certificate_elsewhere(gateway, ca, local, tmp_path):
    """A session of one authority's client is none under another's."""
    other = Authority(tmp_path / "other", "Other")
    ann = ca.issue(subject="/CN=Ann")
    text = https(f'client_ca = "{ca.pem}" ' + local.section(), routes=HELLO)
    gw = gateway(text)
    ctx = ca.context(certificate=ann)
    client = connect(gw, ctx)
    assert client.get("/", host="localhost").status == 200
    session = client.sock.session
    again = connect(gw, ctx, session=session)
    assert again.sock.session_reused
    assert again.get("/", host="localhost").status == 200
    assert gw.wait_log(2)[1]["client_subject"] == "CN=Ann"
    gw.reload(text.replace(ca.pem, other.pem))
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        connect(gw, ctx, session=session).get("/", host="localhost")


# ---- OCSP ----


def test_a_stapled_response(gateway, ca, local, tmp_path):
    response = tmp_path / "ocsp.der"
    serial = openssl("x509", "-in", local.chain, "-noout", "-serial").decode().split("=")[1].strip()
    index = tmp_path / "index.txt"
    index.write_text(f"V\t351231235959Z\t\t{serial}\tunknown\t/CN=localhost\n")
    openssl("ocsp", "-index", str(index), "-CA", ca.pem, "-rsigner", ca.pem, "-rkey", ca.key,
            "-issuer", ca.pem, "-cert", local.chain, "-ndays", "7", "-respout", str(response))
    section = local.section().replace(" }", f'  ocsp = "{response}" }}')
    gw = gateway(https(section, routes=HELLO))
    host, port = gw.address("https")
    out = openssl("s_client", "-connect", f"{host}:{port}", "-status", input=b"").decode()
    assert "OCSP Response Status: successful" in out and "Cert Status: good" in out
    other = ca.issue("localhost")
    code, text, _ = check(tmp_path, other.section().replace(" }", f'  ocsp = "{response}" }}'))
    assert code == 1 and "is about another certificate" in text, text
    with open(other.chain, "a") as chain, open(ca.pem) as issuer:
        chain.write(issuer.read())
    code, text, _ = check(tmp_path, other.section().replace(" }", f'  ocsp = "{response}" }}'))
    assert code == 1 and "is about another certificate" in text, text
    response.write_bytes(response.read_bytes()[:100])
    code, text, _ = check(tmp_path, section)
    assert code == 1 and "ocsp" in text, text


def test_a_session_needs_a_ticket(gateway, ca, local):
    """Nothing of a session is kept here: without tickets there is none to go on with."""
    gw = gateway(https(local.section(), routes=HELLO))
    ctx = ca.context(only=V12)
    ctx.options |= ssl.OP_NO_TICKET
    assert resumed(gw, ctx, 3) == 0


# ---- reloads, and files that change ----


def test_a_reload_reads_the_files_anew(gateway, ca, tmp_path):
    base = str(tmp_path / "c")
    made = ca.issue("localhost", subject="/CN=first", base=base)
    gw = gateway(https(made.section(), routes=HELLO))
    old = connect(gw, ca.context())
    assert subject_of(old) == "first"
    ca.issue("localhost", subject="/CN=second", base=base)
    gw.reload()
    assert subject_of(connect(gw, ca.context())) == "second"
    assert old.get("/", host="localhost").status == 200  # its connection lives on


def test_a_faulty_reload_keeps_the_old_ones(gateway, ca, local, tmp_path):
    other = ca.issue("localhost")
    old = ca.issue("localhost", days=-1)
    gw = gateway(https(local.section(), routes=HELLO))
    for section in (local.section().replace(local.key, other.key), old.section(),
                    local.section().replace(local.chain, "/nowhere.pem")):
        state = gw.reload(https(section, routes=HELLO), ok=False)
        assert state["last_reload"]["faults"][0]["line"] > 0
        assert connect(gw, ca.context()).get("/", host="localhost").status == 200


def test_a_listener_begins_and_ends_to_speak_tls(gateway, ca, local):
    gw = gateway(https(local.section(), routes=HELLO))
    gw.reload('listener "https" { listen = {"@https@"} }\n' + HELLO)
    assert gw.get("/", name="https").status == 200
    gw.reload(https(local.section(), routes=HELLO))
    assert connect(gw, ca.context()).get("/", host="localhost").status == 200


def test_changed_files_are_followed(gateway, ca, tmp_path):
    base = str(tmp_path / "c")
    made = ca.issue("localhost", subject="/CN=first", base=base)
    gw = gateway(https(made.section(), routes=HELLO))
    generation = gw.config_state()["generation"]
    old = connect(gw, ca.context())
    ca.issue("localhost", subject="/CN=second", base=base, days=20)
    until(lambda: subject_of(connect(gw, ca.context())) == "second", "the new one is shown")
    assert gw.metric("postern_certificate_expiry_seconds") > 15 * 86400
    assert gw.config_state()["generation"] == generation
    assert old.get("/", host="localhost").status == 200


def test_a_half_written_file_changes_nothing(gateway, ca, tmp_path):
    base = str(tmp_path / "c")
    made = ca.issue("localhost", subject="/CN=first", base=base)
    gw = gateway(https(made.section(), routes=HELLO))
    next_one = ca.issue("localhost", subject="/CN=second", base=str(tmp_path / "n"))
    with open(next_one.chain) as file:
        text = file.read()
    with open(made.chain, "w") as file:
        file.write(text[:len(text) // 2])
    gw.wait_stderr("warn .*gateway.conf:.* holds no certificate.*keeps the certificates it has")
    assert subject_of(connect(gw, ca.context())) == "first"
    with open(made.chain, "w") as file:
        file.write(text)
    gw.wait_stderr("warn .*gateway.conf:.* does not fit the certificate.*keeps the certificates")
    shutil.copy(next_one.key, made.key)
    until(lambda: subject_of(connect(gw, ca.context())) == "second", "the whole one is shown")


# ---- the command line ----


def check(tmp_path, tls, *args):
    file = tmp_path / "t.conf"
    file.write_text('listener "s" { listen = {"127.0.0.1:1"}\n tls {\n' + tls + "\n} }\n" + HELLO)
    return run("-c", str(file), *(args or ["-t"]))


def test_what_t_says(ca, local, tmp_path):
    other, old = ca.issue("localhost", kind="rsa"), ca.issue("old.test", days=-1)
    cases = [
        (local.section().replace(local.key, other.key), 3, "does not fit the certificate"),
        (local.section().replace(local.chain, "/nowhere.pem"), 3, "cannot read /nowhere.pem"),
        (local.section().replace(local.chain, local.key), 3, "holds no certificate"),
        (old.section("old.test"), 3, "expired on 2021-01-01"),
        (local.section() + '\nciphers = "ECDHE-RSA-AES128-GCM-SHA256:ROT13"', 4, "ROT13"),
        (local.section() + '\nciphersuites = "TLS_ROT13"', 4, "TLS_ROT13"),
        (local.section() + "\nclient_auth = require", 4, "client_ca"),
        (local.section() + '\nclient_ca = "nowhere.pem"', 4, "cannot read"),
        (local.section() + '\nmin_version = "1.1"', 4, "expected 1.2 or 1.3"),
        (local.section() + f'\nticket_keys = "{local.key}"', 4, "80 random bytes"),
        (local.section() + "\n" + ca.issue("localhost").section(), 4, "second ECDSA certificate"),
        ("min_version = 1.2", 2, "tls has no certificate"),
    ]
    for tls, line, words in cases:
        code, out, _ = check(tmp_path, tls)
        assert code == 1, (tls, out)
        assert re.search(rf"t\.conf:{line}: .*{re.escape(words)}", out), (tls, out)


def test_what_is_dumped_loads_again(ca, local, tmp_path):
    tls = local.section() + f'\nclient_ca = "{ca.pem}" client_auth = request min_version = "1.3"'
    code, _, dumped = check(tmp_path, tls, "-T")
    assert code == 0 and f'client_ca = "{ca.pem}"' in dumped and "client_auth = request" in dumped
    again = tmp_path / "again.conf"
    again.write_text(dumped)
    assert run("-c", str(again), "-T")[2] == dumped
    with open(local.key) as file:
        assert file.read().split("\n")[1] not in dumped


def test_a_start_with_an_expired_certificate_warns(gateway, ca):
    old = ca.issue("localhost", days=-1)
    gw = gateway(https(old.section(), routes=HELLO))
    gw.wait_stderr("warn .*expired on 2021-01-01")
    assert connect(gw, context()).get("/", host="localhost").status == 200
    assert gw.metric("postern_certificate_expiry_seconds") < 0
    gw.reload()  # another line has changed, say: the certificate is no worse than it was


def test_explain_goes_by_the_scheme(ca, local, tmp_path):
    file = tmp_path / "e.conf"
    file.write_text('listener "plain" { listen = {"127.0.0.1:80"} }\n'
                    'listener "tls" { listen = {"127.0.0.1:443"} tls { ' + local.section() + " } }\n"
                    + HELLO)
    out = run("-c", str(file), "--explain", "GET https://localhost/")[2]
    assert 'listener "tls"' in out and 'listener "plain"' not in out
    out = run("-c", str(file), "--explain", "GET http://localhost/")[2]
    assert 'listener "plain"' in out and 'listener "tls"' not in out
    out = run("-c", str(file), "--explain", "GET https://localhost:80/")[2]
    assert "no listener with TLS has port 80" in out


def test_the_version_names_openssl():
    assert re.search(r"^OpenSSL 3\.\d", run("-V")[2], re.M)


# ---- through both sides of TLS, with what goes wrong on demand ----


@pytest.mark.parametrize("fault, most", [("", 300000), ("short-read", 3000), ("eagain", 100000)])
def test_bodies_of_all_sizes(gateway, backend, ca, fault, most):
    """Two hops, so both sides of TLS, and the client speaks TLS as well."""
    app = backend("app", lambda r: b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(r.body), r.body))
    made = ca.issue("test", "inner.test")
    gw = gateway(https(made.section(), routes="") + f'''
upstream "self" {{ server "@inner@" {{}} tls {{ ca = "{ca.pem}" server_name = inner.test }}
                   host = inner.test timeouts {{ connect = 10s }} }}
upstream "real" {{ server "@app@" {{}} }}
route "outer" {{ listener = {{https}} upstream = self }}
route "inner" {{ listener = {{inner}} upstream = real }}
listener "inner" {{ listen = {{"@inner@"}} tls {{ {made.section()} }} }}
''', app=app, env={"POSTERN_FAULT": fault})
    pick = random.Random(1)
    client = connect(gw, ca.context(), "test")
    for i in range(25):
        body = pick.randbytes(pick.choice([0, 1, 100, 5000, 17000, most]) % (most + 1))
        if pick.randrange(2):
            head = f"Content-Length: {len(body)}\r\n\r\n".encode()
            framed = body
        else:
            head, framed = b"Transfer-Encoding: chunked\r\n\r\n", b""
            at = 0
            while at < len(body):
                part = body[at:at + pick.choice([1, 700, 20000])]
                framed += b"%x\r\n%s\r\n" % (len(part), part)
                at += len(part)
            framed += b"0\r\n\r\n"
        data = f"POST /{i} HTTP/1.1\r\nHost: test\r\n".encode() + head + framed
        client.send(data)  # not while we read: an SSL object is for one thread
        response = client.response()
        assert response.status == 200 and response.body == body, (i, len(body), response.status)
    assert app.count == 25


# ---- what others say of it ----


def test_testssl(gateway, ca, local, tmp_path):
    tool = shutil.which("testssl") or shutil.which("testssl.sh")
    if not tool:
        pytest.skip("testssl.sh is not installed")
    gw = gateway(https(local.section(), routes=HELLO))
    host, port = gw.address("https")
    found = tmp_path / "found.json"
    done = subprocess.run([tool, "--quiet", "--color", "0", "--warnings", "batch", "-p", "-s", "-f",
                           "-U", "--severity", "MEDIUM", "--jsonfile", str(found), "--add-ca", ca.pem, f"{host}:{port}"], capture_output=True,
                          timeout=540, stdin=subprocess.DEVNULL)
    out = done.stdout.decode(errors="replace")
    assert "TLS 1.3" in out, out[-3000:]
    assert "VULNERABLE (NOT ok)" not in out, [l for l in out.splitlines() if "NOT ok" in l]
    assert not re.search(r"(SSLv2|SSLv3|TLS 1|TLS 1\.1) +offered", out)
    faults = [fault for fault in json.loads(found.read_text()) if fault["severity"] != "WARN"]
    assert not faults, faults  # of medium severity or worse
