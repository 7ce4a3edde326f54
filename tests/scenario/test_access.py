"""The plugin access: who may pass."""

import json

import pytest

from gateway import own_host, run

HTTP = 'listener "http" { listen = {"@http@"}  trusted_proxies = {"127.0.0.0/8"} }\n'
OK = 'respond { status = 200  body = "ok" }'


def one(rules, more=""):
    return HTTP + f'route "all" {{ path = "/{{rest...}}" {OK} access {{ {rules} }} {more} }}\n'


def asked(gw, address, **options):
    fields = [("X-Forwarded-For", address), *options.pop("fields", ())]
    return gw.get("/", fields=fields, **options).status


def test_addresses(gateway):
    gw = gateway(one('allow = {"10.0.0.0/8", "2001:db8::/32"}  deny = {"10.1.0.0/16", "10.0.0.66"}'))
    for address, status in (("10.0.0.1", 200), ("10.0.0.66", 403), ("10.1.2.3", 403),
                            ("11.0.0.1", 403), ("2001:db8::1", 200), ("2001:db9::1", 403)):
        assert asked(gw, address) == status, address
    line = gw.wait_log(1, client_ip="10.0.0.66")[0]
    assert (line["status"], line["reason"], line["credential"]) == (403, "auth.address", None)
    gw.wait_metric(4, "postern_responses_total", reason="auth.address")


def test_the_narrowest_range_decides(gateway):
    gw = gateway(one('deny = {all, "10.1.2.3"}  allow = {"10.0.0.0/8", "10.1.2.3/32"}'))
    assert [asked(gw, a) for a in ("10.0.0.1", "10.1.2.3", "9.0.0.1")] == [200, 403, 403]


def test_denying_alone_lets_the_rest_pass(gateway):
    gw = gateway(one('deny = {"10.0.0.0/8", "method:DELETE"}'))
    assert asked(gw, "9.0.0.1") == 200
    assert asked(gw, "10.0.0.1") == 403
    response = gw.get("/", method="DELETE")
    problem = json.loads(response.body)
    assert (response.status, problem["status"], problem["reason"]) == (403, 403, "auth.method")
    assert response.get("Content-Type") == "application/problem+json"


def test_a_unix_socket_is_no_address(gateway, tmp_path):
    gw = gateway(one('allow = {"unix:"}').replace(
        '"@http@"', f'"@http@", "unix:{tmp_path}/front.sock"').replace(
        'trusted_proxies = {"127.0.0.0/8"}', ""), front=f"unix:{tmp_path}/front.sock")
    assert gw.get("/", name="front").status == 200
    assert gw.get("/").status == 403


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [
        {"key": "a", "consumer": "alice", "scopes": ["read", "write"]},
        {"key": "b", "consumer": "bob", "scopes": ["read"]},
        {"key": "m", "consumer": "mallory"}]}))
    return path


def with_keys(keys, rules, options=""):
    return one(rules, f'key_auth {{ file = "{keys}"  scheme = {{Bearer}} {options} }}')


def by(gw, key):
    return gw.get("/", fields=[("Authorization", f"Bearer {key}")] if key else [])


def test_consumers(gateway, keys):
    gw = gateway(with_keys(keys, 'allow = {"consumer:alice", "consumer:bob"}'))
    assert [by(gw, key).status for key in "ab"] == [200, 200]
    refused = by(gw, "m")
    assert (refused.status, json.loads(refused.body)["reason"]) == (403, "auth.consumer")
    assert not refused.has("WWW-Authenticate")
    line = gw.wait_log(1, status=403)[0]
    assert (line["credential"], line["reason"]) == ("mallory", "auth.consumer")


def test_scopes(gateway, keys):
    gw = gateway(with_keys(keys, 'allow = {"scope:admin", "scope:read write"}'))
    assert by(gw, "a").status == 200
    for key in "bm":
        refused = by(gw, key)
        assert (refused.status, json.loads(refused.body)["reason"]) == (403, "auth.scope")
        assert refused.get("WWW-Authenticate") == \
            'Bearer realm="postern", error="insufficient_scope", scope="admin"'


def test_somebody_is_needed(gateway, keys):
    gw = gateway(with_keys(keys, 'allow = {"consumer:*"}  deny = {"consumer:mallory"}',
                           "optional = true"))
    missing = by(gw, None)
    assert (missing.status, json.loads(missing.body)["reason"]) == (401, "auth.missing")
    assert missing.get("WWW-Authenticate") == 'Bearer realm="postern"'
    assert [by(gw, key).status for key in "abm"] == [200, 200, 403]
    assert json.loads(by(gw, "x").body)["reason"] == "auth.unknown"


def test_without_an_authenticator_nobody_is_known(gateway):
    gw = gateway(one('allow = {"consumer:*"}'))
    missing = gw.get("/")
    assert (missing.status, json.loads(missing.body)["reason"]) == (401, "auth.missing")
    assert missing.get("WWW-Authenticate") == 'ApiKey realm="postern"'


def test_no_certificate_is_no_subject(gateway):
    gw = gateway(one('allow = {"subject:CN=alice"}'))
    refused = gw.get("/")
    assert (refused.status, json.loads(refused.body)["reason"]) == (403, "auth.certificate")


def test_the_innermost_section_counts(gateway):
    gw = gateway(HTTP + f'''access {{ deny = {{all}} }}
        route "a" {{ path = "/a" {OK} }}
        route "b" {{ path = "/b" {OK} access {{ allow = {{"127.0.0.0/8"}} }} }}
        route "c" {{ path = "/c" {OK} access {{ enabled = false }} }}''')
    assert [gw.get(path).status for path in ("/a", "/b", "/c", "/none")] == [403, 200, 200, 403]


@pytest.mark.parametrize("rules, fault", [
    ("", "access says neither what to allow nor what to deny"),
    ('allow = {"localhost"}', '"localhost"; expected an address, a range'),
    ('allow = {"10.0.0.1"}  deny = {"user:bob"}', '"user:bob"; expected'),
    ('deny = {"10.0.0.0/64"}', '"10.0.0.0/64"; expected'),
    ('deny = {"consumer:"}', 'expected something behind the colon'),
    ('denied = {all}', "denied"),
])
def test_faults(tmp_path, rules, fault):
    path = tmp_path / "g.conf"
    path.write_text(one(rules).replace("@http@", f"{own_host()}:1"))
    status, said, _ = run("-t", "-c", str(path))
    assert status == 1 and f"{path}:2: " in said and fault in said, said


def test_warnings(tmp_path):
    path = tmp_path / "g.conf"
    path.write_text(one('allow = {"10.0.0.1/8", "method:get"}').replace("@http@", f"{own_host()}:1"))
    status, said, _ = run("-t", "-c", str(path))
    assert status == 0
    assert '"10.0.0.1/8" has bits behind its length' in said and '"method:get" is in lower' in said
