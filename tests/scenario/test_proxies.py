"""Other proxies on both sides: nginx and HAProxy between us and the backend, and in front of us."""

import hashlib
import http.client
import os
import shutil
import subprocess

import pytest

from conftest import ONE
from gateway import free_address, own_host, until
from wire import Client

NGINX = """
daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log off; client_max_body_size 0; client_body_buffer_size 16k;
  client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
  upstream next {{ server {to}; keepalive 8; }}
  server {{
    listen {at};
    location / {{ proxy_pass http://next; proxy_http_version 1.1; proxy_set_header Connection "";
                  proxy_set_header Host $http_host; proxy_request_buffering {buffer}; }}
  }}
}}
"""

HAPROXY = """
global
  maxconn 256
defaults
  mode http
  timeout connect 15s
  timeout client 60s
  timeout server 60s
  option http-keep-alive
frontend in
  bind {at}
  default_backend out
backend out
  http-reuse always
  server next {to}
"""


def command(program, directory, at, to):
    if program.startswith("nginx"):
        path = directory / "nginx.conf"
        buffer = "off" if program == "nginx-streaming" else "on"
        path.write_text(NGINX.format(dir=directory, at=at, to=to, buffer=buffer))
        return ["nginx", "-p", str(directory), "-e", "stderr", "-c", str(path)]
    path = directory / "haproxy.cfg"
    path.write_text(HAPROXY.format(at=at, to=to))
    return ["haproxy", "-db", "-q", "-f", str(path)]


@pytest.fixture
def proxy(tmp_path):
    """proxy(program, to) starts one and gives its address."""
    started = []

    def start(program, to):
        name = program.split("-")[0]
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")
        directory = tmp_path / f"proxy{len(started)}"
        directory.mkdir()
        at = free_address(own_host())
        with open(directory / "stderr", "wb") as err:
            process = subprocess.Popen(command(program, directory, at, to), stdin=subprocess.DEVNULL,
                                       stdout=err, stderr=err)
        started.append(process)

        def listens():
            assert process.poll() is None, (directory / "stderr").read_text()
            try:
                Client.to((at.rsplit(":", 1)[0], int(at.rsplit(":", 1)[1]))).close()
                return True
            except OSError:
                return False

        until(listens, f"{name} listens")
        return at

    yield start
    for process in started:
        process.terminate()
        process.wait(15)


def mirror(request):
    """The body as it came, and what was asked in a field."""
    body = request.body
    head = b"HTTP/1.1 200 OK\r\nX-Asked: %s %s\r\nContent-Length: %d\r\n\r\n" % (
        request.method.encode(), request.target.encode(), len(body))
    return head if request.method == "HEAD" else head + body


def chain(gateway, backend, proxy, program, place):
    """client, gateway and proxy in that order or the other way round, backend; the first's
    address."""
    app = backend(answer=mirror)
    if place == "behind":
        gw = gateway(ONE, app=proxy(program, app))
        return gw, app, gw.address()
    gw = gateway(ONE, app=app)
    host, port = proxy(program, "%s:%d" % gw.address()).rsplit(":", 1)
    return gw, app, (host, int(port))


@pytest.mark.parametrize("place", ["behind", "in_front"])
@pytest.mark.parametrize("program", ["nginx", "nginx-streaming", "haproxy"])
def test_bodies_of_every_framing_arrive_as_sent(gateway, backend, proxy, program, place):
    gw, app, address = chain(gateway, backend, proxy, program, place)
    conn = http.client.HTTPConnection(*address, timeout=60)
    for i, size in enumerate([0, 1, 4096, 70000, 3 << 20]):
        body = os.urandom(size)
        for method, options in (("POST", {"body": body}),
                                ("PUT", {"body": iter([body[:7], body[7:]] if body else []), "encode_chunked": True,
                                         "headers": {"Transfer-Encoding": "chunked"}})):
            conn.request(method, f"/{i}?q=%2F", **options)
            answer = conn.getresponse()
            got = answer.read()
            assert answer.status == 200, got
            assert answer.headers["X-Asked"] == f"{method} /{i}?q=%2F"
            assert hashlib.sha256(got).digest() == hashlib.sha256(body).digest(), (method, size)
        conn.request("HEAD", f"/{i}")
        answer = conn.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
    conn.close()
    assert [method for method, *_ in app.requests] == ["POST", "PUT", "HEAD"] * 5
    assert gw.wait_log(15, status=200)


@pytest.mark.parametrize("place", ["behind", "in_front"])
@pytest.mark.parametrize("program", ["nginx", "haproxy"])
def test_connections_are_kept_between_the_proxies(gateway, backend, proxy, program, place):
    gw, app, address = chain(gateway, backend, proxy, program, place)
    client = Client.to(address)
    for i in range(40):
        assert client.get(f"/{i}").status == 200
    client.close()
    assert app.count == 40
    assert app.opened <= 4
    assert gw.metric("postern_upstream_connections_opened_total") <= 4


@pytest.mark.parametrize("program", ["nginx", "haproxy"])
def test_the_front_proxys_word_on_the_client_is_taken(gateway, backend, proxy, program):
    """Behind a trusted proxy the client is whom it names; nobody else is believed."""
    seen = []

    def note(request):
        seen.append(request.fields)
        return b"HTTP/1.1 204 No Content\r\n\r\n"

    app = backend(answer=note)
    gw = gateway(ONE.replace('listen = {"@http@"}', 'listen = {"@http@"} trusted_proxies = {"127.0.0.0/8"}'), app=app)
    host, port = proxy(program, "%s:%d" % gw.address()).rsplit(":", 1)
    client = Client.to((host, int(port)))
    assert client.get("/", fields=[("X-Forwarded-For", "203.0.113.9")]).status == 204
    client.close()
    assert gw.wait_log(client_ip="203.0.113.9", status=204)
    assert len(seen) == 1


wrk = pytest.mark.skipif(not shutil.which("wrk"), reason="wrk is not installed")


@wrk
@pytest.mark.threads
def test_wrk_sees_no_error(gateway, backend):
    gw = gateway(ONE, app=backend())
    done = subprocess.run(["wrk", "-t", "2", "-c", "32", "-d", "2s", "http://%s:%d/" % gw.address()],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Socket errors" not in done.stdout and "Non-2xx" not in done.stdout, done.stdout
    assert "requests in" in done.stdout
