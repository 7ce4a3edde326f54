"""Plugins that find out who asks, side by side and in front of `access`."""

import json

import pytest

from gateway import run
from test_key_auth import HTTP, echo, saw, write  # noqa: F401
from tokens import Key, bearer

TOKEN = Key("HS256")
KEYS = {"keys": [{"key": "secret", "consumer": "alice"}]}


@pytest.fixture
def both(gateway, echo, tmp_path):  # noqa: F811
    """both(what jwt has, what key_auth has, what access has) starts a gateway with these."""
    (tmp_path / "hs.key").write_bytes(TOKEN.secret)
    write(tmp_path / "keys.json", KEYS)

    def start(jwt=None, key=None, access=None):
        sections = ""
        if jwt is not None:
            sections += f'jwt {{ algorithms = HS256 secret_file = "{tmp_path}/hs.key" {jwt} }}\n'
        if key is not None:
            sections += f'key_auth {{ file = "{tmp_path}/keys.json" {key} }}\n'
        if access is not None:
            sections += f'access {{ {access} }}\n'
        return gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                       f'route "all" {{ path = "/{{rest...}}" upstream = app\n{sections} }}\n', app=echo)

    return start


def refused(response):
    return response.status, json.loads(response.body)["reason"], response.all("WWW-Authenticate")


def test_of_several_that_would_do_a_request_brings_one(both):
    """Else it could have the name of one credential and the scopes of another."""
    gw = both("optional = true", "optional = true", 'allow = {"consumer:*"}')
    token, key = bearer(TOKEN.token(sub="bob", scope="admin")), [("X-Api-Key", "secret")]
    assert saw(gw.get(fields=key))[1]["x-consumer"] == "alice"
    assert "x-consumer" not in saw(gw.get(fields=token))[1]
    assert refused(gw.get(fields=token + key))[:2] == (401, "auth.multiple")
    assert refused(gw.get(fields=bearer("a.b.c") + key))[:2] == (401, "auth.invalid")
    assert refused(gw.get(fields=token + [("X-Api-Key", "wrong")]))[:2] == (401, "auth.multiple")
    assert [line["credential"] for line in gw.wait_log(5)] == ["alice", "bob", "bob", None, "bob"]


def test_where_both_are_asked_for_both_must_come(both):
    gw = both("", "")
    token, key = bearer(TOKEN.token(sub="bob")), [("X-Api-Key", "secret")]
    assert gw.get(fields=token + key).status == 200
    assert refused(gw.get(fields=token))[:2] == (401, "auth.missing")
    assert refused(gw.get(fields=key))[:2] == (401, "auth.missing")


def test_access_asks_for_what_would_help(both):
    gw = both("optional = true realm = shop", "optional = true", 'allow = {"scope:admin"}')
    assert refused(gw.get()) == (401, "auth.missing", [
        'Bearer realm="shop", ApiKey realm="postern", in="header", name="X-Api-Key"'])
    for who in (bearer(TOKEN.token(scope="read")), [("X-Api-Key", "secret")]):
        assert refused(gw.get(fields=who)) == (403, "auth.scope", [
            'Bearer realm="shop", error="insufficient_scope", scope="admin"'])
    assert gw.get(fields=bearer(TOKEN.token(scope="admin"))).status == 200


def test_access_behind_tokens_alone(both):
    gw = both("optional = true", access='allow = {"consumer:bob"}')
    assert refused(gw.get()) == (401, "auth.missing", ['Bearer realm="postern"'])
    assert refused(gw.get(fields=bearer(TOKEN.token(sub="eve"))))[:2] == (403, "auth.consumer")
    assert gw.get(fields=bearer(TOKEN.token(sub="bob"))).status == 200


def test_several_keys_are_an_invalid_request(both):
    gw = both(key='scheme = Bearer header = "X-Api-Key"')
    assert refused(gw.get(fields=[("X-Api-Key", "secret"), ("Authorization", "Bearer secret")])) == (
        401, "auth.multiple", ['Bearer realm="postern", error="invalid_request"',
                               'ApiKey realm="postern", in="header", name="X-Api-Key"'])


OWN = ["Host", "connection", "Content-Length", "X-Forwarded-For", "x-request-id", "Via", "Traceparent", "Expect",
       "Forwarded", "X-SSL-Client-S-DN", "TE", "Keep-Alive", "Proxy-Connection"]


@pytest.mark.parametrize("section, fault", [
    ('jwt {{ algorithms = HS256 secret_file = "hs.key" claims_to_headers = {{"a: X-A", "sub: {0}"}} }}',
     "jwt: {0} is the gateway's own; expected another header"),
    ('key_auth {{ file = "keys.json" consumer_header = "{0}" }}',
     "key_auth: {0} has another meaning; expected a header of its own"),
    ('key_auth {{ file = "keys.json" metadata_headers = "{0}: plan" }}',
     'key_auth: "{0}: plan"; expected "Header: member", such as "X-Plan: plan", with a header of its own'),
    ('forward_auth {{ upstream = "http://127.0.0.1:1" response_headers = {{"X-A", "{0}"}} }}',
     "forward_auth: {0} is the gateway's own; expected other headers"),
])
def test_headers_that_nobody_may_write_are_faults(tmp_path, section, fault):
    """They would be told when the first request comes, and to its client."""
    (tmp_path / "hs.key").write_bytes(TOKEN.secret)
    write(tmp_path / "keys.json", KEYS)
    file = tmp_path / "gateway.conf"
    for name in OWN:
        file.write_text('listener "l" { listen = "127.0.0.1:1" }\nroute "r" { path = "/" respond { status = 200 }\n'
                        f'{section.format(name)} }}\n')
        assert run("-t", "-q", "-c", str(file))[:2] == (1, f"{file}:3: {fault.format(name)}\n")


@pytest.mark.parametrize("option", ["client_headers", "refusal_headers"])
def test_what_frames_an_answer_is_nobodys_to_copy(tmp_path, option):
    file = tmp_path / "gateway.conf"
    for name in ("Content-Length", "Transfer-Encoding", "Connection"):
        file.write_text('listener "l" { listen = "127.0.0.1:1" }\nroute "r" { path = "/" respond { status = 200 }\n'
                        f'forward_auth {{ upstream = "http://127.0.0.1:1" {option} = "{name}" }} }}\n')
        status, said, _ = run("-t", "-q", "-c", str(file))
        assert (status, said) == (
            1, f"{file}:3: forward_auth: {name} is the gateway's own; expected other headers\n")
