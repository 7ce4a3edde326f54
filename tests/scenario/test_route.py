"""Which route wins, and what it does."""

import json

import pytest

from conftest import HTTP

APP = 'upstream "app" { server "@app@" {} }\n'


def say(name, **options):
    """A route that answers with its own name."""
    text = "".join(f" {key} = {value}" for key, value in options.items())
    return f'route "{name}" {{ {text} respond {{ status = 200 body = "{name}" }} }}\n'


def which(gw, target="/", **options):
    response = gw.get(target, **options)
    return response.body.decode() if response.status == 200 else response.status


def test_hosts(gateway):
    gw = gateway(HTTP + say("exact", host='{"api.example.com"}') +
                 say("deep", host='{"*.eu.example.com"}') + say("wild", host='{"*.example.com"}') +
                 say("any"))
    assert which(gw, host="api.example.com") == "exact"
    assert which(gw, host="API.Example.COM:8080") == "exact"
    assert which(gw, host="api.example.com.") == "exact"
    assert which(gw, host="x.eu.example.com") == "deep"
    assert which(gw, host="x.example.com") == "wild"
    assert which(gw, host="example.com") == "any"
    assert which(gw, host="evil-example.com") == "any"


def test_paths_most_specific_first(gateway):
    gw = gateway(HTTP + say("rest", path='"/{rest...}"') + say("users", path='"/users"') +
                 say("id", path='"/users/{id}"') + say("me", path='"/users/me"') +
                 say("posts", path='"/users/{id}/posts"') + say("tree", path='"/users/{all...}"') +
                 say("slash", path='"/dir/"') + say("dir", path='"/dir"'))
    for target, name in (("/", "rest"), ("/users", "users"), ("/users/7", "id"),
                         ("/users/me", "me"), ("/users/7/posts", "posts"),
                         ("/users/me/posts", "posts"), ("/users/7/8/9", "tree"),
                         ("/dir", "dir"), ("/dir/", "slash"), ("/dirx", "rest"),
                         ("/users/7?x=/users/me", "id"), ("/%75sers/me", "me"),
                         ("/x/../users/me", "me")):
        assert which(gw, target) == name, target


def test_methods_and_conditions(gateway):
    gw = gateway(HTTP + say("any", path='"/x"') + say("get", path='"/x"', methods="{GET}") +
                 say("post", path='"/y"', methods="{POST}"))
    assert which(gw, "/x") == "get"
    assert which(gw, "/x", method="PUT") == "any"
    assert which(gw, "/y", method="POST") == "post"
    response = gw.get("/y")
    assert response.status == 405 and response.get("Allow") == "POST"


def test_file_order_decides_last(gateway):
    gw = gateway(HTTP + say("first", path='"/x"', methods="{GET, PUT}") +
                 say("second", path='"/x"', methods="{GET, POST}"))
    assert which(gw, "/x") == "first"
    assert which(gw, "/x", method="POST") == "second"


def condition(kind, name, test):
    return {f'match_{kind} "{name}" {{ {test} }} path': '"/x"'}


def test_header_conditions(gateway):
    gw = gateway(HTTP + say("any", path='"/x"') +
                 say("one", **condition("header", "X-Canary", 'equals = "1"')) +
                 say("some", **condition("header", "X-Canary", "present = true")) +
                 say("regex", **condition("header", "Accept", r"regex = 'v[23]\+json$'")) +
                 say("absent", **condition("header", "User-Agent", "present = false"),
                     methods="{PUT}"))
    for fields, name in (((), "any"), ((("x-canary", "1"),), "one"), ((("X-Canary", "11"),), "some"),
                         ((("X-Canary", ""),), "some"),
                         ((("X-Canary", "2"), ("X-Canary", "1")), "one"),
                         ((("Accept", "application/v3+json"),), "regex"),
                         ((("Accept", "application/v4+json"),), "any")):
        assert which(gw, "/x", fields=fields) == name, fields
    assert which(gw, "/x", method="PUT") == "absent"
    assert which(gw, "/x", method="PUT", fields=[("User-Agent", "t")]) == "any"


def test_query_conditions(gateway):
    gw = gateway(HTTP + say("any", path='"/x"') +
                 say("two", **condition("query", "v", 'equals = "a b"')) +
                 say("digits", **condition("query", "id", "regex = '^[0-9]+$'")) +
                 say("debug", **condition("query", "debug", "present = true")))
    for query, name in (("", "any"), ("?v=a+b", "two"), ("?x=1&v=a%20b", "two"), ("?v=a", "any"),
                        ("?id=12", "digits"), ("?id=1%32", "digits"), ("?id=", "any"),
                        ("?debug", "debug"), ("?debug=0", "debug"), ("?de%62ug", "debug")):
        assert which(gw, "/x" + query) == name, query


def test_more_conditions_win_and_a_wrong_method_only_counts_where_they_hold(gateway):
    gw = gateway(HTTP + say("get", path='"/x"', methods="{GET}") +
                 say("both", **condition("header", "X-A", 'equals = "1"'), methods="{GET}") +
                 say("put", **condition("header", "X-A", 'equals = "1"'), methods="{PUT}"))
    assert which(gw, "/x") == "get"
    assert which(gw, "/x", fields=[("X-A", "1")]) == "both"
    assert which(gw, "/x", method="PUT", fields=[("X-A", "1")]) == "put"
    assert gw.get("/x", method="PUT").get("Allow") == "GET"
    allow = gw.get("/x", method="POST", fields=[("X-A", "1")]).get("Allow")
    assert set(allow.split(", ")) == {"GET", "PUT"}


def test_conditions_on_fields_that_the_connection_has(gateway):
    """Upgrade, Content-Length and Host count although they are not among the fields then."""
    gw = gateway(HTTP + say("any", path='"/x"') +
                 say("websocket", **condition("header", "Upgrade", 'equals = "websocket"')) +
                 say("empty", **condition("header", "Content-Length", 'equals = "0"')) +
                 say("there", **condition("header", "Host", 'equals = "there:80"')))
    assert which(gw, "/x") == "any"
    assert which(gw, "/x", fields=[("Connection", "upgrade"), ("Upgrade", "websocket")]) == "websocket"
    assert which(gw, "/x", fields=[("Upgrade", "websocket")]) == "any"
    assert which(gw, "/x", method="POST", fields=[("Content-Length", "0")]) == "empty"
    assert which(gw, "http://there:80/x", host="here") == "there"
    assert which(gw, "http://here/x", host="there:80") == "any"


def test_addresses_as_hosts(gateway):
    gw = gateway(HTTP + say("six", host='{"[0:0::1]"}') + say("four", host="127.0.0.1") + say("any"))
    for host, name in (("[::1]", "six"), ("[::1]:8080", "six"), ("[0000:0:0:0::1]:1", "six"), ("[::2]", "any"),
                       ("127.0.0.1:80", "four"), ("127.0.0.1.", "four"), ("127.1", "any")):
        assert which(gw, host=host) == name, host


def test_a_cruel_expression_costs_no_time(gateway):
    gw = gateway(HTTP + say("any", path='"/x"') +
                 say("cruel", **condition("header", "X-A", "regex = '^(a|a)*$'")))
    before = gw.cpu_seconds()
    for _ in range(20):
        assert which(gw, "/x", fields=[("X-A", "a" * 60 + "!")]) == "any"
    assert gw.cpu_seconds() - before < 2
    assert which(gw, "/x", fields=[("X-A", "aaaa")]) == "cruel"


def test_routes_of_one_listener(gateway):
    gw = gateway(HTTP + 'listener "inner" { listen = {"@inner@"} }\n' +
                 say("outer", path='"/x"', listener="{http}") + say("both", path='"/both"') +
                 say("secret", path='"/secret"', listener="{inner}"))
    assert which(gw, "/both") == which(gw, "/both", name="inner") == "both"
    assert which(gw, "/secret", name="inner") == "secret"
    assert which(gw, "/secret") == 404
    assert which(gw, "/x", name="inner") == 404


def forwarded(gateway, upstream, route, target, **options):
    up = upstream()
    gw = gateway(HTTP + APP + f'route "r" {{ {route} upstream = app }}\n', app=up)
    client = gw.client()
    client.send("\r\n".join([f"GET {target} HTTP/1.1", "Host: test", *options.get("fields", ())]) +
                "\r\n\r\n")
    conn = up.accept()
    request = conn.expect()
    conn.respond(fields=[("Server", "theirs"), ("X-Old", "1"), ("X-Keep", "1")])
    return request, client.response()


@pytest.mark.parametrize("prefix, target, sent", [
    ("/api", "/api/users/7?x=1", "/users/7?x=1"),
    ("/api", "/api", "/"),
    ("/api", "/api?q", "/?q"),
    ("/api", "/api/", "/"),
    ("/api", "/api/a%20b", "/a%20b"),
])
def test_strip_prefix(gateway, upstream, prefix, target, sent):
    request, _ = forwarded(gateway, upstream,
                           f'path = "/{{rest...}}" strip_prefix = "{prefix}"', target)
    assert request.target == sent


@pytest.mark.parametrize("rewrite, target, sent", [
    ("/v2/users/{id}", "/api/users/7", "/v2/users/7"),
    ("/v2/users/{id}", "/api/users/7?a=b", "/v2/users/7?a=b"),
    ("/v2/users/{id}", "/api/users/a%20b", "/v2/users/a%20b"),
    ("/x/{id}/{id}", "/api/users/7", "/x/7/7"),
])
def test_rewrite(gateway, upstream, rewrite, target, sent):
    request, _ = forwarded(gateway, upstream,
                           f'path = "/api/users/{{id}}" rewrite = "{rewrite}"', target)
    assert request.target == sent


def test_rewrite_of_the_rest(gateway, upstream):
    request, _ = forwarded(gateway, upstream, 'path = "/old/{rest...}" rewrite = "/new/{rest}"',
                           "/old/a/b/c")
    assert request.target == "/new/a/b/c"


def test_request_header_edits(gateway, upstream):
    request, _ = forwarded(
        gateway, upstream, 'request_headers { set = {"X-Tenant: a", "X-Ip: {client_ip}"} '
        'add = {"X-Many: 2"} remove = {"X-Debug"} }', "/",
        fields=["X-Tenant: forged", "X-Many: 1", "X-Debug: 1", "x-debug: 2", "X-Other: 3"])
    assert request.get("X-Tenant") == "a"
    assert request.get("X-Ip") == "127.0.0.1"
    assert request.all("X-Many") == ["1", "2"]
    assert not request.has("X-Debug")
    assert request.get("X-Other") == "3"


def test_response_header_edits(gateway, upstream):
    _, response = forwarded(
        gateway, upstream, 'response_headers { set = {"X-Old: 2"} '
        'add = {"Strict-Transport-Security: max-age=63072000"} remove = {"Server"} }', "/")
    assert response.get("X-Old") == "2"
    assert response.get("Strict-Transport-Security") == "max-age=63072000"
    assert not response.has("Server")
    assert response.get("X-Keep") == "1"


def test_header_values_from_the_request(gateway, upstream):
    request, _ = forwarded(
        gateway, upstream, 'path = "/u/{id}" request_headers { set = {"X-Id: {id}", '
        '"X-Host: {host}", "X-Path: {path}", "X-Req: {request_id}", "X-From: {header:X-In}"} }',
        "/u/42?q", fields=["X-In: inside"])
    assert request.get("X-Id") == "42"
    assert request.get("X-Host") == "test"
    assert request.get("X-Path") == "/u/42"
    assert request.get("X-Req") == request.get("X-Request-Id")
    assert request.get("X-From") == "inside"


def test_captures_cannot_split_a_header(gateway, upstream):
    """Encoded line ends in a path are refused before they could reach a header."""
    gw = gateway(HTTP + APP + 'route "r" { path = "/u/{id}" upstream = app '
                 'request_headers { set = {"X-Id: {id}"} } }', app=upstream())
    assert gw.get("/u/a%0d%0aX-Evil:1").status == 400


@pytest.mark.parametrize("hostile", ["a\tb", "caf\xe9", "\xff\xfe", "{id}", "x: y", "%0d%0aX: 1",
                                     "\x80\x0b"[:1]])
def test_hostile_values_stay_in_their_header(gateway, upstream, hostile):
    request, _ = forwarded(
        gateway, upstream, 'path = "/u/{id}" request_headers { set = {"X-A: <{header:X-In}>", '
        '"X-B: {host}|{id}|{path}"} }', "/u/1", fields=[f"X-In: {hostile}", "X-Last: 1"])
    assert request.get("X-A") == f"<{hostile}>".replace("\t", " ") or \
        request.get("X-A") == f"<{hostile}>"
    assert request.get("X-B") == "test|1|/u/1"
    assert request.get("X-Last") == "1" and not request.has("X")


@pytest.mark.parametrize("line_end", ["\r", "\n", "\0", "\r\n "])
def test_line_ends_in_a_value_are_refused_before_they_get_anywhere(gateway, upstream, line_end):
    up = upstream()
    gw = gateway(HTTP + APP + 'route "r" { upstream = app '
                 'request_headers { set = {"X-A: {header:X-In}"} } }', app=up)
    client = gw.client()
    client.send(f"GET / HTTP/1.1\r\nHost: test\r\nX-In: a{line_end}X-Evil: 1\r\n\r\n")
    assert client.response().status == 400
    up.expect_no_connection(0.1)


def test_respond(gateway):
    gw = gateway(HTTP + r'''route "health" { path = "/ping"
    respond { status = 200  type = "application/json"  body = "{\"ok\":true}" } }
route "gone" { path = "/gone"  respond { status = 410 } }
route "empty" { path = "/empty"  respond { status = 204 } }
''')
    response = gw.get("/ping")
    assert response.status == 200 and response.get("Content-Type") == "application/json"
    assert json.loads(response.body) == {"ok": True}
    assert response.has("Date")
    assert gw.get("/gone").status == 410
    response = gw.get("/empty")
    assert response.status == 204 and response.body == b"" and not response.has("Content-Length")


def test_respond_to_head_and_after_a_body(gateway):
    gw = gateway(HTTP + say("x"))
    client = gw.client()
    response = client.get(method="HEAD")
    assert response.length == 1 and response.body == b""
    assert client.get(method="POST", body=b"y" * 5000).body == b"x"
    assert client.get().body == b"x"


@pytest.mark.parametrize("type, body, header, expected", [
    ("application/json", '{"you": "{header:X-In}"}', 'a"b\\c\t', b'{"you": "a\\u0022b\\u005cc"}'),
    ("text/html", "<p>{header:X-In}</p>", "<script>'\"&", b"<p>&lt;script&gt;&#39;&#34;&amp;</p>"),
    ("text/plain", "{header:X-In} {path} {{x}", "<b>", b"<b> /r {x}"),
    ("application/problem+json", "{header:X-None}", "x", b""),
    ("Application/JSON; charset=utf-8", '"{header:X-In}"', 'a"\xe9', b'"a\\u0022\\ufffd"'),
    ("text/html; profile=json", "{header:X-In}", "<b>", b"&lt;b&gt;"),
    ("image/svg+xml", "<text>{header:X-In}</text>", "<b>&", b"<text>&lt;b&gt;&amp;</text>"),
    ("text/javascript", 'f("{header:X-In}")', "');g(\"</b>", b'f("\\u0027);g(\\u0022\\u003c/b\\u003e")'),
])
def test_respond_escapes_for_its_content_type(gateway, type, body, header, expected):
    gw = gateway(HTTP + f"""route "r" {{ respond {{ type = "{type}"  body = '{body}' }} }}""")
    assert gw.get("/r", fields=[("X-In", header)]).body == expected


def test_respond_with_a_file(gateway, tmp_path):
    page = tmp_path / "page.html"
    page.write_bytes(b"<h1>{path} \xff\0</h1>\n")
    config = HTTP + (f'route "r" {{ respond {{ status = 503 type = "text/html" file = "{page}" }} }}\n'
                     f'route "raw" {{ path = "/raw" respond {{ file = "{page}" template = false }} }}\n')
    gw = gateway(config)
    response = gw.get("/<r>'&")
    assert response.status == 503 and response.body == b"<h1>/&lt;r&gt;&#39;&amp; \xff\0</h1>\n"
    assert gw.get("/raw").body == b"<h1>{path} \xff\0</h1>\n"
    page.write_bytes(b"new")
    assert gw.get("/r").body.startswith(b"<h1>")
    gw.reload(config + "\n# again\n")
    assert gw.get("/r").body == b"new"
    page.unlink()
    state = gw.reload(config, ok=False)
    assert "cannot read" in state["last_reload"]["faults"][0]["message"]
    assert gw.get("/r").body == b"new"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect(gateway, status):
    gw = gateway(HTTP + f'route "old" {{ path = "/v1/{{rest...}}" '
                 f'redirect {{ status = {status}  to = "/v2/{{rest}}" }} }}')
    response = gw.get("/v1/a/b?c=d")
    assert response.status == status
    assert response.get("Location") == "/v2/a/b?c=d"
    assert gw.get("/v1/a").get("Location") == "/v2/a"


@pytest.mark.parametrize("to, target, location", [
    ("/{rest}", "//evil.example/x", "/evil.example/x"),
    ("/{rest}", "///evil.example", "/evil.example"),
    ("{path}", "//evil.example/", "/evil.example/"),
    ("/{rest}", "/%2f%2fevil.example", None),
    ("/{rest}", "/\\evil.example", None),
    ("/{rest}", "/%5cevil.example", None),
    ("/in?next={header:X-In}", "/a?b=c", "/in?next=%0d&b=c"),
    ("https://{host}/{rest}", "/a", "https://test/a"),
])
def test_redirect_is_not_open(gateway, to, target, location):
    """What a client puts into the path never names another host."""
    gw = gateway(HTTP + f'route "r" {{ redirect {{ status = 307  to = "{to}" }} }}')
    response = gw.get(target, fields=[("X-In", "%0d")])
    if location is None:
        assert response.status == 400
    else:
        assert response.get("Location") == location.replace("%0d", "%250d")


def test_redirect_joins_queries(gateway):
    gw = gateway(HTTP + 'route "r" { redirect { to = "/x?a=1" } }')
    assert gw.get("/?b=2").get("Location") == "/x?a=1&b=2"
    assert gw.get("/?").get("Location") in ("/x?a=1&", "/x?a=1")


def test_the_rest_may_be_empty(gateway):
    gw = gateway(HTTP + 'route "r" { path = "/p/{a}/{rest...}" respond { body = "[{a}][{rest}]" } }\n' + say("any"))
    for target, body in (("/p/x/", "[x][]"), ("/p/x/y/", "[x][y/]"), ("/p/x", "any"), ("/p//y", "any"),
                         ("/p/a%2Bb/%7E", "[a%2Bb][~]"), ("/p/J%c3%b6rg/", "[J%C3%B6rg][]"),
                         ("/p/a;v=1/b;w", "[a][b]")):
        assert gw.get(target).body.decode() == body, target


def test_redirect_keeps_queries_in_front_of_a_fragment(gateway):
    gw = gateway(HTTP + 'route "r" { redirect { to = "/x#top" } }\n'
                 'route "s" { path = "/s" redirect { to = "/x?a=1#top" } }')
    assert gw.get("/").get("Location") == "/x#top"
    assert gw.get("/?b=2").get("Location") == "/x?b=2#top"
    assert gw.get("/s?b=2").get("Location") == "/x?a=1&b=2#top"


@pytest.mark.parametrize("to, target, host, location", [
    ("/find?q={id}", "/a&admin=1", "test", "/find?q=a%26admin%3D1"),
    ("/find?q={id}", "/a+b%20c", "test", "/find?q=a%2Bb%20c"),
    ("/find?q={id}#{id}", "/a'\"b", "test", "/find?q=a'%22b#a'%22b"),
    ("/in?next={path}", "/a;b", "test", "/in?next=/a"),
    ("/in?next={header:X-In}", "/a", "test", "/in?next=/%3Cx%3E%26y%3D%25"),
    ("https://{host}/{id}", "/a", "[2001:DB8:0::1]:8080", "https://[2001:db8::1]/a"),
    ("https://{id}.example.com/", "/evil.com:80@x", "test", "https://evil.com%3A80%40x.example.com/"),
    ("https://{id}.example.com/", "/a(b)&", "test", "https://a%28b%29%26.example.com/"),
])
def test_redirect_escapes_for_its_place(gateway, to, target, host, location):
    gw = gateway(HTTP + f'route "r" {{ path = "/{{id}}" redirect {{ to = "{to}" }} }}')
    assert gw.get(target, host=host, fields=[("X-In", "/<x>&y=%")]).get("Location") == location


def test_redirect_to_another_host(gateway):
    gw = gateway(HTTP + 'route "old" { path = "/{rest...}" '
                 'redirect { status = 308  to = "https://{host}/{rest}" } }')
    response = gw.get("/a/b", host="shop.example")
    assert response.get("Location").startswith("https://shop.example/a/b")


def test_no_access_log_for_a_route(gateway):
    gw = gateway(HTTP + 'route "quiet" { path = "/quiet"  access_log = false  '
                 'respond { status = 200 } }\n' + say("loud", path='"/loud"'))
    gw.get("/quiet")
    gw.get("/loud")
    gw.get("/quiet")
    gw.get("/loud")
    assert {line["route"] for line in gw.wait_log(2)} == {"loud"}


def test_timeout_and_body_limit_of_a_route(gateway, upstream, backend):
    up, big = upstream(), backend()
    gw = gateway(HTTP + APP + 'upstream "big" { server "@big@" {} }\n'
                 'route "quick" { path = "/quick" upstream = app timeout = 200ms }\n'
                 'route "small" { path = "/small" upstream = app body_bytes = 10 }\n'
                 'route "large" { path = "/large" upstream = big body_bytes = 0 }\n', app=up, big=big)
    client = gw.client()
    client.send("GET /quick HTTP/1.1\r\nHost: test\r\n\r\n")
    up.accept().expect()
    assert client.response().status == 504
    gw.wait_log(reason="upstream.timeout_total", route="quick")
    response = gw.get("/small", method="POST", body=b"x" * 11)
    assert response.status == 413
    assert json.loads(response.body)["limit"] == 10
    assert gw.get("/large", method="POST", body=b"x" * 11000000).status == 200
    assert big.requests == [("POST", "/large", 11000000)]


def test_the_route_is_in_log_and_metric(gateway):
    gw = gateway(HTTP + say("one", path='"/1"'))
    gw.get("/1")
    assert gw.wait_log()[0]["route"] == "one"
    assert gw.metric("postern_requests_total", route="one", method="GET", code="200",
                     listener="http") == 1
