"""The plugin cors: what pages of other origins may do."""

import json

import pytest

from gateway import run

HTTP = 'listener "http" { listen = {"@http@"} }\n'
APP = "https://app.example.com"
EVIL = "https://evil.example"


def proxied(options, route="", listener=""):
    return HTTP + f'''{listener}
upstream "app" {{ server "@app@" {{}} }}
route "all" {{ path = "/api"  upstream = app  cors {{ {options} }} {route} }}
'''


@pytest.fixture
def app(backend):
    """A backend with an opinion of its own, which does not count."""
    def answer(request):
        return (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAccess-Control-Allow-Origin: *\r\n"
                b"Access-Control-Allow-Credentials: true\r\nVary: Accept\r\n\r\nok")

    return backend(answer=answer)


def preflight(gw, origin=APP, method="PUT", headers=None, path="/api", more=()):
    fields = [("Origin", origin), ("Access-Control-Request-Method", method), *more]
    if headers:
        fields.append(("Access-Control-Request-Headers", headers))
    return gw.get(path, method="OPTIONS", fields=fields)


def says(response):
    """{"Allow-Origin": value, ...}"""
    return {name[len("access-control-"):]: response.get(name) for name in response.names
            if name.startswith("access-control-")}


def vary(response):
    return {word.strip().lower() for value in response.all("Vary") for word in value.split(",")}


def test_a_preflight_is_answered_here(gateway, app):
    gw = gateway(proxied(f'origins = {{"{APP}"}}'), app=app)
    response = preflight(gw, headers="x-one, authorization")
    assert response.status == 204 and response.body == b""
    assert says(response) == {
        "allow-origin": APP, "allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
        "allow-headers": "x-one, authorization", "max-age": "600"}
    assert vary(response) == {"origin", "access-control-request-method",
                              "access-control-request-headers"}
    assert app.count == 0
    line = gw.wait_log(1)[0]
    assert (line["status"], line["method"], line["reason"]) == (204, "OPTIONS", None)


def test_also_where_the_route_does_not_take_options(gateway, app):
    gw = gateway(proxied(f'origins = {{"{APP}"}}', "methods = {GET, PUT}"), app=app)
    assert says(preflight(gw))["allow-origin"] == APP
    assert preflight(gw, method="PATCH").status == 405
    assert gw.get("/api", method="OPTIONS").status == 405
    assert app.count == 0


@pytest.mark.parametrize("asked, reason", [
    ({"origin": EVIL}, "cors.origin"), ({"origin": "null"}, "cors.origin"),
    ({"method": "PURGE"}, "cors.method"), ({"headers": "x-one, x-two"}, "cors.header")])
def test_a_preflight_is_refused_here(gateway, app, asked, reason):
    gw = gateway(proxied(f'origins = {{"{APP}"}}  headers = {{"X-One"}}'), app=app)
    response = preflight(gw, **asked)
    assert response.status == 403 and json.loads(response.body)["reason"] == reason
    assert "allow-methods" not in says(response)
    assert ("allow-origin" in says(response)) == (asked.get("origin") is None)
    assert "origin" in vary(response)
    assert app.count == 0
    gw.wait_metric(1, "postern_responses_total", reason=reason)


def test_answers_are_marked_for_their_origin(gateway, app):
    gw = gateway(proxied(f'origins = {{"{APP}", "http://localhost:*", "https://*.example.org"}}'
                         '  expose = {"X-One", "X-Two"}'), app=app)
    for origin in (APP, "http://localhost:5173", "https://a.b.example.org"):
        response = gw.get("/api", fields=[("Origin", origin)])
        assert response.status == 200
        assert says(response) == {"allow-origin": origin, "expose-headers": "X-One, X-Two"}
        assert vary(response) == {"accept", "origin"}
    for fields in ([("Origin", EVIL)], [("Origin", "https://example.org")], [],
                   [("Origin", APP), ("Origin", APP)]):
        response = gw.get("/api", fields=fields)
        assert response.status == 200, "others are served, their browsers keep the answer back"
        assert says(response) == {}
        assert vary(response) == {"accept", "origin"}


def test_credentials(gateway, app):
    gw = gateway(proxied(f'origins = {{"{APP}"}}  credentials = true  max_age = 1h'), app=app)
    assert says(gw.get("/api", fields=[("Origin", APP)])) == {
        "allow-origin": APP, "allow-credentials": "true"}
    response = says(preflight(gw))
    assert response["allow-credentials"] == "true" and response["max-age"] == "3600"
    assert says(gw.get("/api", fields=[("Origin", EVIL)])) == {}


def test_everybody(gateway, app):
    gw = gateway(proxied('origins = {"*"}'), app=app)
    response = gw.get("/api", fields=[("Origin", EVIL)])
    assert says(response) == {"allow-origin": "*"}
    assert vary(response) == {"accept"}
    assert says(gw.get("/api"))["allow-origin"] == "*" # a cache may give it to a page
    assert says(preflight(gw, EVIL))["allow-origin"] == "*"


def test_private_networks(gateway, app):
    ask = [("Access-Control-Request-Private-Network", "true")]
    gw = gateway(proxied(f'origins = {{"{APP}"}}  private_network = true'), app=app)
    assert says(preflight(gw, more=ask))["allow-private-network"] == "true"
    assert "allow-private-network" not in says(preflight(gw))
    gw = gateway(proxied(f'origins = {{"{APP}"}}'), app=app)
    assert "allow-private-network" not in says(preflight(gw, more=ask))


def test_refusals_of_others_can_be_read_too(gateway, app, tmp_path):
    (tmp_path / "keys.json").write_text('{"keys": [{"key": "secret", "consumer": "alice"}]}')
    gw = gateway(proxied(f'origins = {{"{APP}"}}',
                         f'key_auth {{ file = "{tmp_path}/keys.json" }}'), app=app)
    response = gw.get("/api", fields=[("Origin", APP)])
    assert response.status == 401 and says(response) == {"allow-origin": APP}
    assert vary(response) == {"origin"}
    assert preflight(gw).status == 204, "a preflight carries no key"
    response = gw.get("/api", fields=[("Origin", APP), ("X-Api-Key", "secret")])
    assert response.status == 200 and says(response) == {"allow-origin": APP}


def test_the_gateway_s_own_refusals_can_be_read_too(gateway, upstream):
    up = upstream()
    up.close()
    gw = gateway(proxied(f'origins = {{"{APP}"}}', "body_bytes = 1k"), app=up)
    response = gw.get("/api", fields=[("Origin", APP)])
    assert response.status == 502 and says(response) == {"allow-origin": APP}
    response = gw.get("/api", method="POST", body=b"x" * 2000, fields=[("Origin", APP)])
    assert response.status == 413 and says(response) == {"allow-origin": APP}


def test_for_all_routes_and_none(gateway, app):
    gw = gateway(proxied(f'origins = {{"{APP}"}}').replace("cors {", "cors { enabled = false ")
                 + f'cors {{ origins = {{"{EVIL}"}} }}', app=app)
    response = gw.get("/none", fields=[("Origin", EVIL)])
    assert response.status == 404 and says(response) == {"allow-origin": EVIL}
    assert gw.get("/api", fields=[("Origin", EVIL)]).get("Access-Control-Allow-Origin") == "*"


@pytest.mark.parametrize("options, fault", [
    ("", "cors has no origins"),
    ('origins = {"*"}  credentials = true', "with * among origins every page could act"),
    ('origins = {"https://example.com/"}', "expected an origin without a path"),
    ('origins = {"example.com"}', "expected an origin without a path"),
    ('origins = {"*"}  methods = {"G T"}', "cors.methods has G T"),
    ('origins = {"*"}  max_age = 48h', "cors.max_age"),
])
def test_faults(tmp_path, options, fault):
    path = tmp_path / "g.conf"
    path.write_text(proxied(options).replace("@http@", "127.0.0.1:1").replace("@app@", "127.0.0.1:2"))
    status, said, _ = run("-t", "-c", str(path))
    assert status == 1 and f"{path}:4: " in said and fault in said, said
