"""The plugin forward_auth: another service decides, and nobody else waits for it."""

import json
import threading

import pytest

from gateway import run, until

HTTP = 'listener "http" { listen = {"@http@"} }\n'


def config(options="", where="auth", more=""):
    return HTTP + 'upstream "app" { server "@app@" {} }\nupstream "auth" { server "@auth@" {} }\n' \
        f'route "all" {{ path = "/{{rest...}}" upstream = app forward_auth {{ upstream = "{where}" ' \
        f'path = "/verify?x=1" {options} }} }}\n' \
        'route "free" { path = "/free" respond { status = 200 body = "free" } }\n' + more


class Judge:
    """Decides by `answer(request)`: (status line, [fields], body)."""

    def __init__(self, backend, answer=None):
        self.seen = []
        self.gate = threading.Event()
        self.gate.set()
        self.decide = answer or (lambda request: ("200 OK", [("X-User", "ann")], b""))
        self.backend = backend("judge", self.reply)

    def reply(self, request):
        self.seen.append(request)
        self.gate.wait(30)
        status, fields, body = self.decide(request)
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}",
                 *(f"{name}: {value}" for name, value in fields)]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def __str__(self):
        return str(self.backend)


def test_a_yes_lets_through_with_its_headers(gateway, upstream, backend):
    judge, up = Judge(backend, lambda r: ("200 OK", [("X-User", "ann"), ("X-Role", "a"),
                                                     ("X-Role", "b"), ("Set-Cookie", "s=1"),
                                                     ("X-Internal", "x")], b"")), upstream()
    gw = gateway(config('response_headers = {"X-User", "X-Role"} client_headers = {"Set-Cookie"} '
                        'credential_header = "X-User"'), app=up, auth=judge)
    client = gw.client()
    client.send("POST /a?b=c HTTP/1.1\r\nHost: shop.example:80\r\nAuthorization: Basic x\r\n"
                "Cookie: c=1\r\nX-Other: 1\r\nx-user: forged\r\nX-Forwarded-Uri: /forged\r\n"
                "Content-Length: 4\r\n\r\nbody")
    conn = up.accept()
    request = conn.expect()
    conn.respond()
    response = client.response()
    assert response.status == 200 and response.all("Set-Cookie") == ["s=1"]
    assert request.body == b"body" and request.target == "/a?b=c"
    assert request.all("X-User") == ["ann"] and request.all("X-Role") == ["a", "b"]
    assert not request.has("X-Internal")
    asked = judge.seen[0]
    assert (asked.method, asked.target, asked.body) == ("GET", "/verify?x=1", b"")
    assert asked.get("Authorization") == "Basic x" and asked.get("Cookie") == "c=1"
    assert not asked.has("X-Other") and not asked.has("X-User")
    assert asked.get("X-Forwarded-Method") == "POST"
    assert asked.all("X-Forwarded-Uri") == ["/a?b=c"]
    assert asked.get("X-Forwarded-Host") == "shop.example:80"
    assert asked.get("X-Forwarded-Proto") == "http"
    assert asked.get("X-Forwarded-For").startswith("127.")
    assert gw.wait_log(1, method="POST")[0]["credential"] == "ann"


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "302 Found",
                                    "429 Too Many Requests"])
def test_a_no_is_the_clients_answer(gateway, upstream, backend, status):
    judge = Judge(backend, lambda r: (status, [("WWW-Authenticate", "Basic"), ("Location", "/in"),
                                               ("Content-Type", "text/x"), ("X-Internal", "x")],
                                      b"who are you?"))
    gw = gateway(config(), app=upstream(), auth=judge)
    response = gw.get()
    assert response.status == int(status[:3])
    assert response.body == b"who are you?" and response.get("Content-Type") == "text/x"
    assert response.get("WWW-Authenticate") == "Basic" and response.get("Location") == "/in"
    assert not response.has("X-Internal")
    line = gw.wait_log(1)[0]
    assert (line["status"], line["reason"]) == (response.status, "auth.denied")
    grpc = gw.get("/", method="POST", body=b"", fields=[("Content-Type", "application/grpc"), ("TE", "trailers")])
    assert grpc.status == 200 and not grpc.body
    code = {401: "16", 403: "7", 302: "2", 429: "14"}[response.status]
    assert grpc.get("Grpc-Status") == code and grpc.get("WWW-Authenticate") == "Basic"


def test_what_is_decided_about_is_what_counts(gateway, upstream, backend):
    """A path that only looks harmless is named as what it is to routes, limits and the backend."""
    judge = Judge(backend, lambda r: ("403 No", [], b""))
    gw = gateway(config(), app=upstream(), auth=judge)
    for target, uri in (("/public/../admin?x=1", "/admin?x=1"), ("//admin", "/admin"), ("/%61dmin;v=1", "/admin"),
                        ("http://test/admin?", "/admin?"), ("/a%20b/%e2%98%83", "/a%20b/%E2%98%83")):
        assert gw.get(target).status == 403
        assert judge.seen[-1].all("X-Forwarded-Uri") == [uri]


@pytest.mark.parametrize("trusted", [True, False])
def test_a_proxy_in_front_says_how_the_client_came(gateway, upstream, backend, trusted):
    judge = Judge(backend, lambda r: ("403 No", [], b""))
    text = config()
    if trusted:
        text = text.replace('{"@http@"} }', '{"@http@"} trusted_proxies = {"127.0.0.0/8"} }', 1)
    gw = gateway(text, app=upstream(), auth=judge)
    assert gw.get("/", host="inside:81", fields=[("X-Forwarded-Proto", "https"), ("X-Forwarded-For", "192.0.2.7"),
                                                 ("X-Forwarded-Host", "shop.example:8443")]).status == 403
    asked = judge.seen[-1]
    assert [asked.get(f"X-Forwarded-{name}") for name in ("Proto", "Host")] == \
        (["https", "shop.example:8443"] if trusted else ["http", "inside:81"])
    assert (asked.get("X-Forwarded-For") == "192.0.2.7") == trusted


def test_a_no_without_a_body_is_a_problem(gateway, upstream, backend):
    gw = gateway(config(), app=upstream(), auth=Judge(backend, lambda r: ("403 No", [], b"")))
    response = gw.get()
    assert response.status == 403
    assert json.loads(response.body)["reason"] == "auth.denied"


@pytest.mark.parametrize("how", ["500", "slow", "huge", "away"])
@pytest.mark.parametrize("fail", ["closed", "open"])
def test_without_a_decision_fail_decides(gateway, backend, how, fail):
    judge, app = Judge(backend), backend("app")
    if how == "500":
        judge.decide = lambda r: ("500 Oops", [], b"")
    elif how == "slow":
        judge.gate.clear()
    elif how == "huge":
        judge.decide = lambda r: ("200 OK", [], b"x" * 2000)
    else:
        judge.backend.stop()
    gw = gateway(config(f"fail = {fail} timeout = 200ms body_bytes = 1k"), app=app, auth=judge)
    response = gw.get()
    assert response.status == (200 if fail == "open" else 503)
    assert app.count == (1 if fail == "open" else 0)
    assert gw.get("/free").status == 200
    judge.gate.set()


@pytest.mark.threads
def test_a_slow_judge_stops_nobody_else(gateway, backend):
    judge, app = Judge(backend), backend("app")
    judge.gate.clear()
    gw = gateway("workers = 2\n" + config("timeout = 20s deadline = 30s"), app=app, auth=judge)
    clients = [gw.client() for _ in range(8)]
    for client in clients:
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    until(lambda: len(judge.seen) == 8, "all are asked about")
    for _ in range(20):
        assert gw.get("/free").status == 200
    assert app.count == 0
    leaver = clients.pop()
    leaver.reset()
    gw.reload("workers = 2\n" + config("timeout = 19s deadline = 30s"))
    judge.gate.set()
    for client in clients:
        assert client.response().status == 200
    assert gw.get().status == 200


def test_a_yes_counts_for_a_while(gateway, backend):
    judge, app = Judge(backend), backend("app")
    gw = gateway(config('cache = 1h response_headers = {"X-User"}'), app=app, auth=judge)
    client = gw.client()
    for _ in range(5):
        assert client.get("/a", fields=[("Authorization", "a")]).status == 200
    assert len(judge.seen) == 1
    for more in [dict(target="/b", fields=[("Authorization", "a")]),
                 dict(target="/a", fields=[("Authorization", "b")]),
                 dict(target="/a", fields=[("Authorization", "a")], method="PUT", body=b""),
                 dict(target="/a", fields=[("Authorization", "a"), ("Cookie", "c=1")]),
                 dict(target="/a", fields=[("Authorization", "a")], host="other")]:
        before = len(judge.seen)
        assert client.get(**more).status == 200
        assert len(judge.seen) == before + 1, more
    assert app.count == 10


def test_a_no_is_not_remembered_and_no_store_is_obeyed(gateway, backend):
    judge, app = Judge(backend), backend("app")
    judge.decide = lambda r: ("403 No", [], b"")
    gw = gateway(config('cache = 1h cache_key = {"header:Authorization"}'), app=app, auth=judge)
    client = gw.client()
    assert [client.get().status for _ in range(2)] == [403, 403]
    judge.decide = lambda r: ("200 OK", [("Cache-Control", "no-store")], b"")
    assert [client.get().status for _ in range(2)] == [200, 200]
    assert len(judge.seen) == 4
    judge.decide = lambda r: ("200 OK", [], b"")
    assert [client.get(target).status for target in ("/a", "/b", "/c")] == [200] * 3
    assert len(judge.seen) == 5


def test_by_url_and_with_all_headers(gateway, backend):
    judge, app = Judge(backend), backend("app")
    gw = gateway(config('request_headers = {"*"} method = same', where="http://@auth@"), app=app,
                 auth=judge)
    client = gw.client()
    assert client.get(fields=[("X-Other", "1"), ("Connection", "keep-alive"),
                              ("X-Forwarded-For", "6.6.6.6")], method="DELETE").status == 200
    asked = judge.seen[0]
    assert asked.method == "DELETE" and asked.get("X-Other") == "1"
    assert asked.get("Host") == str(judge)
    assert "6.6.6.6" not in asked.get("X-Forwarded-For")


@pytest.mark.parametrize("options,said", [
    ('upstream = "nobody"', "nobody"),
    ('upstream = "app" path = "verify"', 'begins with "/"'),
    ('upstream = "app" cache_key = {"host"}', "without cache"),
    ('upstream = "app" request_headers = {"*"} cache = 5s', "no two requests"),
    ('path = "/"', "upstream"),
])
def test_faults_name_their_place(tmp_path, options, said):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\n'
                    'upstream "app" { server "127.0.0.1:2" {} }\nroute "a" { path = "/"\n'
                    f'upstream = app\nforward_auth {{\n{options}\n}} }}\n')
    status, text, _ = run("-c", str(file), "-t")
    assert status == 1
    assert said in text and "gateway.conf:" in text
