"""The plugin jwt: who brings a good token goes on."""

import base64
import json
import threading
import time

import pytest

from gateway import own_host, run, until
from tls import Authority, TlsUpstream, server_context
from tokens import Key, bearer, jwks

HTTP = 'listener "http" { listen = {"@http@"} }\n'
SECRET = "s" * 64
HS = f'algorithms = {{HS256}} secret = "{SECRET}"'
ALGS = [family + size for family in ("HS", "RS", "PS", "ES") for size in ("256", "384", "512")]


def local(options):
    return HTTP + 'route "all" { path = "/{rest...}" respond { status = 200 body = "in" } ' \
        f'jwt {{ {options} }} }}\nroute "free" {{ path = "/free" ' \
        'respond { status = 200 body = "free" } }\n'


def proxied(options):
    return HTTP + 'upstream "app" { server "@app@" {} }\n' \
        f'route "all" {{ path = "/{{rest...}}" upstream = app jwt {{ {options} }} }}\n'


def reason(response):
    return json.loads(response.body)["reason"]


def ask(gw, token, **options):
    return gw.get(fields=bearer(token), **options)


class Provider:
    """Publishes keys: `body` with `status`, after `gate` has been opened."""

    def __init__(self, backend, *keys, cache="max-age=3600"):
        self.status, self.body, self.cache = "200 OK", jwks(*keys), cache
        self.gate = threading.Event()
        self.gate.set()
        self.seen = []
        self.backend = backend("provider", self.answer)

    def answer(self, request):
        self.seen.append(request.target)
        self.gate.wait(30)
        body = self.body(request) if callable(self.body) else self.body
        return (f"HTTP/1.1 {self.status}\r\nCache-Control: {self.cache}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body

    def __str__(self):
        return str(self.backend)


def url(more="", algorithms="ES256", path="/keys"):
    return f'algorithms = {{{algorithms}}} jwks_url = "http://@idp@{path}" {more}'


# keys that are at hand


@pytest.mark.parametrize("alg", [*ALGS, "EdDSA"])
def test_each_algorithm_with_a_jwk_file(gateway, tmp_path, alg):
    key = Key(alg, "one")
    (tmp_path / "keys.json").write_bytes(jwks(Key("ES256", "other"), key))
    gw = gateway(local(f'algorithms = {{{alg}}} keys_file = "{tmp_path}/keys.json"'))
    assert ask(gw, key.token()).status == 200
    other = Key(alg, "one", secret=b"t" * 64) if alg[:2] not in ("RS", "PS") else None
    if other:
        refused = ask(gw, other.token())
        assert (refused.status, reason(refused)) == (401, "auth.signature")
    refused = ask(gw, key.token(header={"alg": "none"}))
    assert (refused.status, reason(refused)) == (401, "auth.algorithm")


@pytest.mark.parametrize("alg", ["RS256", "ES384", "EdDSA"])
def test_a_key_in_pem_is_followed(gateway, tmp_path, alg):
    first, second = Key(alg), Key("ES384" if alg == "ES384" else alg)
    (tmp_path / "key.pem").write_bytes(first.pem)
    gw = gateway(local(f'algorithms = {{{alg}}} key = "{tmp_path}/key.pem"'))
    assert ask(gw, first.token(header={"kid": "any"})).status == 200
    (tmp_path / "key.pem").write_bytes(b"broken")
    gw.wait_stderr("no public key or certificate in PEM; the old keys stay in use")
    assert ask(gw, first.token()).status == 200
    (tmp_path / "key.pem").write_bytes(second.pem)
    until(lambda: ask(gw, second.token()).status == 200, "the new key counts")
    if alg != "RS256":
        assert reason(ask(gw, first.token())) == "auth.signature"


def test_what_the_backend_and_the_log_get(gateway, upstream):
    up = upstream()
    gw = gateway(proxied(HS + ' claims_to_headers = {"sub: X-User", "org.roles: X-Roles", '
                         '"mail: X-Mail"} '), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: h\r\nX-User: forged\r\nx-mail: forged\r\nX_Mail: forged\r\n"
                f"Authorization: Bearer {Key('HS256').token(org={'roles': ['a', 'b']})}\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    conn.respond()
    assert client.response().status == 200
    assert request.all("X-User") == ["ann"]
    assert request.get("X-Roles") == '["a","b"]'
    assert not request.has("X-Mail") and not request.has("X_Mail")
    assert request.get("Authorization").startswith("Bearer ")
    assert gw.wait_log()[0]["credential"] == "ann"


def test_a_token_elsewhere_that_the_backend_does_not_get(gateway, upstream):
    up = upstream()
    gw = gateway(proxied(HS + ' header = off query = "access_token" cookie = "session" '
                         'forward_token = false'), app=up)
    token = Key("HS256").token()
    client = gw.client()
    client.send(f"GET /p?access_token={token}&a=1 HTTP/1.1\r\nHost: h\r\n\r\n")
    conn = up.accept()
    assert conn.expect().target == "/p?a=1"
    conn.respond()
    assert client.response().status == 200
    client.send(f"GET /p HTTP/1.1\r\nHost: h\r\nCookie: a=1; session={token}\r\n\r\n")
    assert conn.expect().all("Cookie") == ["a=1"]
    conn.respond()
    assert client.response().status == 200
    assert token not in gw.raw_log().decode()


def test_challenges_say_what_is_wrong(gateway):
    gw = gateway(local(HS + ' issuer = {"me"} audience = {"api"} scopes = {"read", "write"} '
                       'required_claims = {"org: acme"} leeway = 0s'))
    good = dict(iss="me", aud=["x", "api"], scope="write read", org="acme")
    key, now = Key("HS256"), int(time.time())
    assert ask(gw, key.token(**good)).status == 200
    cases = [({"exp": now - 1}, 401, "auth.expired"), ({"nbf": now + 500}, 401, "auth.not_yet"),
             ({"iat": now + 500}, 401, "auth.not_yet"), ({"exp": None}, 401, "auth.invalid"),
             ({"iss": "you"}, 401, "auth.issuer"), ({"aud": "y"}, 401, "auth.audience"),
             ({"org": "other"}, 403, "auth.claim"), ({"scope": "read"}, 403, "auth.scope")]
    for change, status, why in cases:
        refused = ask(gw, key.token(**{**good, **change}))
        assert (refused.status, reason(refused)) == (status, why), change
        error = "invalid_token" if status == 401 else "insufficient_scope"
        assert f'Bearer realm="postern", error="{error}"' in refused.get("WWW-Authenticate")
    assert refused.get("WWW-Authenticate").endswith(', scope="read write"')
    missing = gw.get()
    assert (missing.status, reason(missing)) == (401, "auth.missing")
    assert missing.get("WWW-Authenticate") == 'Bearer realm="postern"'
    twice = gw.get(fields=bearer("a.b.c") * 2)
    assert (twice.status, reason(twice)) == (401, "auth.multiple")
    gw.wait_metric(1, "postern_responses_total", reason="auth.scope")
    assert gw.get("/free").status == 200


def test_broken_tokens(gateway):
    gw = gateway(local(HS))
    key = Key("HS256")
    good = key.token()
    for token in ["a", "a.b", "a.b.c", "..", good + ".x", good[:-1], good + "=", "." + good,
                  key.token(header={"crit": ["exp"]}), good.replace(".", "..", 1)]:
        refused = ask(gw, token)
        assert refused.status == 401, token
        assert reason(refused) in ("auth.invalid", "auth.signature"), token


def test_long_tokens_are_refused_unread(gateway):
    gw = gateway(local(HS).replace("listen =", "limits { header_bytes = 60k } listen ="))
    refused = ask(gw, "e30." * 12000)
    assert (refused.status, reason(refused)) == (401, "auth.invalid")
    problem = json.loads(refused.body)
    assert (problem["limit"], problem["actual"]) == (8192, 48000)
    refused = ask(gw, "a" * 1000000)
    assert refused.status == 431  # it never gets so far
    assert ask(gw, Key("HS256").token()).status == 200


def test_a_token_optional(gateway, upstream):
    up = upstream()
    gw = gateway(proxied(HS + ' optional = true claims_to_headers = {"sub: X-User"}'), app=up)
    client = gw.client()
    client.send("GET / HTTP/1.1\r\nHost: h\r\nX-User: forged\r\n\r\n")
    conn = up.accept()
    assert not conn.expect().has("X-User")
    conn.respond()
    assert client.response().status == 200
    assert ask(gw, "a.b.c").status == 401


# keys from a URL


def test_keys_come_from_a_url(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    gw = gateway(local(url()), idp=idp)
    assert ask(gw, key.token()).status == 200
    assert reason(ask(gw, Key("ES256", "a").token())) == "auth.signature"
    assert idp.seen == ["/keys"]


def test_keys_are_found_by_the_issuer(gateway, backend):
    key = Key("RS256", "a")
    idp = Provider(backend, key)

    def body(request):
        if request.target == "/realm/.well-known/openid-configuration":
            return json.dumps({"issuer": f"http://{idp}/realm",
                               "jwks_uri": f"http://{idp}/realm/keys"}).encode()
        return jwks(key)

    idp.body = body
    gw = gateway(local('algorithms = {RS256} issuer = "http://@idp@/realm"'), idp=idp)
    assert ask(gw, key.token(iss=f"http://{idp}/realm")).status == 200
    assert reason(ask(gw, key.token(iss="http://other"))) == "auth.issuer"
    assert idp.seen == ["/realm/.well-known/openid-configuration", "/realm/keys"]


def test_keys_come_over_tls_from_who_can_prove_it(gateway, opened, tmp_path):
    key, ca = Key("ES256", "a"), Authority(tmp_path / "ca")
    for authority, good in ((ca, True), (Authority(tmp_path / "other"), False)):
        idp = TlsUpstream(own_host(), server_context(authority.issue(own_host())))
        opened.append(idp)
        gw = gateway(local(url("wait = 5s").replace("http://@idp", "https://@idp")), idp=idp,
                     env={"SSL_CERT_FILE": ca.pem})
        if good:
            conn = idp.accept()
            assert conn.expect().target == "/keys"
            conn.respond(jwks(key))
            assert ask(gw, key.token()).status == 200
        else:
            idp.accept_failing()
            gw.wait_stderr("keys from https://.*/keys: .*; there are none yet")


@pytest.mark.threads
def test_requests_wait_for_slow_keys_and_nobody_else_does(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    idp.gate.clear()
    gw = gateway("workers = 2\n" + local(url("wait = 20s deadline = 30s fetch_timeout = 25s")), idp=idp)
    clients = [gw.client() for _ in range(8)]
    for client in clients:
        client.send("GET / HTTP/1.1\r\nHost: h\r\n"
                    f"Authorization: Bearer {key.token()}\r\n\r\n")
    until(lambda: idp.seen, "the keys are asked for")
    for _ in range(20):
        assert gw.get("/free").status == 200
    leaver = clients.pop()
    leaver.close()
    idp.gate.set()
    for client in clients:
        assert client.response().status == 200
    assert idp.seen == ["/keys"]


@pytest.mark.parametrize("how", ["500", "json", "huge", "slow", "away"])
def test_without_keys_the_answer_says_so(gateway, backend, how):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    if how == "500":
        idp.status = "500 Oops"
    elif how == "json":
        idp.body = b"<html>no</html>"
    elif how == "huge":
        idp.body = b'{"keys":[' + b'{"kty":"new"},' * 40000 + b'{}]}'
    elif how == "slow":
        idp.gate.clear()
    else:
        idp.backend.stop()
    gw = gateway(local(url("wait = 300ms fetch_timeout = 200ms")), idp=idp)
    refused = ask(gw, key.token())
    assert (refused.status, reason(refused)) == (503, "auth.keys_unavailable")
    assert refused.get("Retry-After")
    gw.wait_stderr("keys from http://.*/keys: .*; there are none yet")
    assert gw.get("/free").status == 200
    if how in ("500", "json", "huge"):  # and when it comes back, so do the keys
        idp.status, idp.body = "200 OK", jwks(key)
        until(lambda: ask(gw, key.token()).status == 200, "the keys are there")
    idp.gate.set()


def test_a_failed_fetch_never_drops_good_keys(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key, cache="no-store")
    gw = gateway(local(url("floor = 1s cache = 0")), idp=idp)
    assert ask(gw, key.token()).status == 200
    idp.status = "500 Oops"
    gw.wait_stderr("status 500; the old ones stay in use")
    assert ask(gw, key.token()).status == 200


@pytest.mark.threads
def test_keys_rotate(gateway, backend):
    old, new = Key("ES256", "old"), Key("ES256", "new")
    idp = Provider(backend, old)
    gw = gateway("workers = 2\n" + local(url("floor = 1s grace = 1m")), idp=idp)
    assert ask(gw, old.token()).status == 200
    idp.body = jwks(new)
    # An unknown key is looked for once the floor has passed; the request waits for it.
    until(lambda: ask(gw, new.token()).status == 200, "the new key is found")
    assert ask(gw, old.token()).status == 200  # the grace
    gw.wait_stderr("1 older kept")


def test_a_key_that_goes_is_good_for_the_grace_only(gateway, backend):
    old, new = Key("ES256", "old"), Key("ES256", "new")
    idp = Provider(backend, old, cache="no-store")
    gw = gateway(local(url("floor = 1s grace = 0s")), idp=idp)
    token = old.token()
    assert ask(gw, token).status == 200
    idp.body = jwks(new)
    until(lambda: ask(gw, token).status == 401, "the old key is gone, out of the cache too")


def test_many_unknown_keys_are_one_fetch(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    gw = gateway(local(url("floor = 1h")), idp=idp)
    assert ask(gw, key.token()).status == 200
    client = gw.client()
    for i in range(300):
        refused = client.get(fields=bearer(key.token(header={"kid": f"k{i}"})))
        assert (refused.status, reason(refused)) == (401, "auth.key_unknown")
    assert idp.seen == ["/keys"]
    assert client.get(fields=bearer(key.token())).status == 200


@pytest.mark.threads
def test_ten_thousand_unknown_keys_stop_nobody_else(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    gw = gateway("workers = 2\n" + local(url("floor = 1h")), idp=idp)
    assert ask(gw, key.token()).status == 200
    unknown = key.token().split(".", 1)[1]

    def request(i):
        header = base64.urlsafe_b64encode(json.dumps({"alg": "ES256", "kid": f"k{i}"}).encode())
        return ("GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer "
                f"{header.decode().rstrip('=')}.{unknown}\r\n\r\n")

    clients = [gw.client() for _ in range(8)]
    honest, known = gw.client(), gw.client()
    token = bearer(key.token())
    served = 0
    for start in range(0, 10000, 80):
        for c, client in enumerate(clients): # ten on each connection, one behind the other
            client.send("".join(request(i) for i in range(start + 10 * c, start + 10 * c + 10)))
        served += honest.get("/free").status == 200
        served += known.get(fields=token).status == 200
        for client in clients:
            for _ in range(10):
                refused = client.response()
                assert (refused.status, reason(refused)) == (401, "auth.key_unknown"), gw.stderr
    assert served == 2 * 125
    assert idp.seen == ["/keys"]
    gw.wait_metric(10000, "postern_responses_total", reason="auth.key_unknown")


def test_keys_survive_a_reload(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    gw = gateway(local(url()), idp=idp)
    assert ask(gw, key.token()).status == 200
    idp.backend.stop()
    gw.reload(local(url('audience = {"api"}')))
    assert reason(ask(gw, key.token())) == "auth.audience"
    assert ask(gw, key.token(aud="api")).status == 200
    gw.reload(local(HS))
    assert ask(gw, Key("HS256").token()).status == 200


@pytest.mark.threads
def test_reloads_while_keys_are_slow(gateway, backend):
    key = Key("ES256", "a")
    idp = Provider(backend, key)
    idp.gate.clear()
    gw = gateway("workers = 2\n" + local(url("wait = 20s deadline = 30s fetch_timeout = 25s")), idp=idp)
    clients = [gw.client() for _ in range(4)]
    for client in clients:
        client.send("GET / HTTP/1.1\r\nHost: h\r\n"
                    f"Authorization: Bearer {key.token()}\r\n\r\n")
    until(lambda: idp.seen, "the keys are asked for")
    for realm in ("one", "two", "three"):
        gw.reload("workers = 2\n" +
                  local(url(f'realm = "{realm}" wait = 20s deadline = 30s fetch_timeout = 25s')))
    idp.gate.set()
    for client in clients:
        assert client.response().status == 200
    assert ask(gw, key.token()).status == 200


# faults of a configuration


@pytest.mark.parametrize("options,said", [
    ('secret = "x"', "algorithms"),
    ('algorithms = {none} secret = "x"', "HS256"),
    ("algorithms = {RS256}", "expected where keys come from"),
    ('algorithms = {RS256} key = "missing.pem"', "missing.pem: it cannot be opened"),
    (f'algorithms = {{RS256}} secret = "{SECRET}"', "no key serves"),
    ('algorithms = {HS256} secret = "short"', "32 bytes or more"),
    ('algorithms = {RS256} jwks_url = "nowhere"', "https://HOST"),
    (HS + ' claims_to_headers = {"sub"}', "claim: Header"),
    (HS + ' leeway = 2h', "leeway"),
    (HS + ' nonsense = 1', "nonsense"),
])
def test_faults_name_their_place(tmp_path, options, said):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\nroute "a" { path = "/"\n'
                    f'respond {{ status = 200 }}\njwt {{\n{options}\n}} }}\n')
    status, text, _ = run("-c", str(file), "-t")
    assert status == 1
    assert said in text and "gateway.conf:" in text


def test_secrets_are_masked(tmp_path):
    file = tmp_path / "gateway.conf"
    file.write_text(local(HS).replace("@http@", "127.0.0.1:1"))
    status, text, _ = run("-c", str(file), "-T")
    assert status == 0 and SECRET not in text and "HS256" in text
    file.write_text(text)
    assert run("-c", str(file), "-T")[:2] == (0, text) # what stands for a secret is long enough to be one
