"""HTTP/2 over TLS: ALPN chooses it."""

import shutil
import subprocess

import pytest

from backend import Backend
from gateway import own_host
from tls import Authority

HTTPS = 'listener "https" {{ listen = {{"@https@"}} tls {{ {} }} {} }}\n'
APP = 'upstream "app" { server "@app@" {} }\nroute "all" { upstream = app }\n'


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


def curl(gw, ca, *args, host="localhost"):
    address, port = gw.address("https")
    return subprocess.run(["curl", "-sS", "--cacert", ca.pem, "--resolve", f"{host}:{port}:{address}",
                           "-w", "%{http_version} %{http_code}", *args,
                           f"https://{host}:{port}/"], capture_output=True, text=True, timeout=60)


@pytest.fixture
def secure(gateway, opened, ca):
    back = Backend(own_host())
    opened.append(back)
    return gateway(HTTPS.format(ca.issue("localhost").section(), "") + APP, app=back)


def test_alpn_chooses(secure, ca):
    assert curl(secure, ca, "--http2").stdout == "backend2 200"
    assert curl(secure, ca, "--http1.1").stdout == "backend1.1 200"
    line = secure.wait_log(proto="HTTP/2.0")[0]
    assert line["tls"]


def test_http2_off(gateway, opened, ca):
    back = Backend(own_host())
    opened.append(back)
    gw = gateway(HTTPS.format(ca.issue("localhost").section(), "http2 = false") + APP, app=back)
    assert curl(gw, ca, "--http2").stdout == "backend1.1 200"


def test_another_host_than_the_certificates(secure, ca):
    done = curl(secure, ca, "--http2", "-H", "Host: elsewhere.example")
    assert done.stdout.endswith("2 421"), done
    assert secure.wait_log(reason="client.misdirected")


def test_prior_knowledge_is_not_for_tls(secure, ca):
    """Who has agreed on HTTP/1.1 cannot begin with HTTP/2 after all."""
    from tls import connect
    client = connect(secure, ca.context(alpn=["http/1.1"]))
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    response = client.response()
    assert response.status == 400 and b"bad_request.http2" in response.body


def test_bodies(secure, ca):
    done = curl(secure, ca, "--http2", "--data-binary", "@/bin/bash")
    assert done.stdout == "backend2 200", done


@pytest.mark.skipif(not shutil.which("h2spec"), reason="h2spec is not on PATH")
def test_h2spec(secure):
    host, port = secure.address("https")
    done = subprocess.run(["h2spec", "-S", "-t", "-k", "-h", host, "-p", str(port), "-o", "5"],
                          capture_output=True, text=True, timeout=600)
    assert " 0 skipped, 0 failed" in done.stdout, done.stdout
