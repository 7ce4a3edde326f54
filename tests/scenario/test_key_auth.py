"""The plugin key_auth and the tool postern-keys: who asks, by a key."""

import base64
import hashlib
import json
import os
import stat
import subprocess
import threading

import pytest

from gateway import BINARY, SANITIZER, run, until

TOOL = os.path.join(os.path.dirname(BINARY), "plugins", "key_auth", "postern-keys")
HTTP = 'listener "http" { listen = {"@http@"} }\n'
PLAIN = {"keys": [{"key": "secret", "consumer": "alice", "scopes": ["read", "write"],
                   "metadata": {"plan": "gold", "seats": 12}},
                  {"key": "other", "consumer": "bob"},
                  {"key": "off", "consumer": "carol", "enabled": False},
                  {"key": "old", "consumer": "dave", "expires": "2001-01-01"}]}


def write(path, keys):
    """Replaces the file as postern-keys does, whole."""
    with open(f"{path}.new", "w") as file:
        file.write(keys if isinstance(keys, str) else json.dumps(keys, indent=1))
    os.rename(f"{path}.new", path)


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.json"
    write(path, PLAIN)
    return path


def config(keys, options="", route=""):
    return HTTP + f'''upstream "app" {{ server "@app@" {{}} }}
route "all" {{ path = "/{{rest...}}"  upstream = app
    key_auth {{ file = "{keys}"  {options} }} {route} }}
'''


def tool(*args, stdin=None):
    done = subprocess.run([TOOL, *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=30)
    assert not SANITIZER.search(done.stderr), done.stderr
    return done.returncode, done.stdout, done.stderr


def add(*args, **options):
    status, out, err = tool("add", *args, **options)
    assert status == 0, err
    return out.strip()


@pytest.fixture
def echo(backend):
    """A backend whose answer's body is the head it got."""
    def answer(request):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (
            len(request.raw_head), request.raw_head)

    return backend(answer=answer)


def saw(response):
    """What the backend got: (target, {name: value})"""
    assert response.status == 200, response.body
    lines = response.body.decode().split("\r\n")
    return lines[0].split(" ")[1], dict(
        (n.lower(), v) for n, v in (line.split(": ", 1) for line in lines[1:] if line))


def assert_refused(response, reason):
    assert response.status == 401
    problem = json.loads(response.body)
    assert (problem["status"], problem["reason"]) == (401, reason)
    assert response.has("WWW-Authenticate")
    return response.all("WWW-Authenticate")


def test_a_key_opens_and_says_who_it_is(gateway, echo, keys):
    gw = gateway(config(keys, 'header = "X-Api-Key"'), app=echo)
    target, head = saw(gw.get("/x?a=1", fields=[("X-Api-Key", "secret"), ("X-Consumer", "root")]))
    assert target == "/x?a=1"
    assert head["x-consumer"] == "alice" and "x-api-key" not in head
    line = gw.wait_log(1, status=200)[0]
    assert line["credential"] == "alice" and line["reason"] is None
    assert b"secret" not in gw.raw_log()


def test_refusals(gateway, echo, keys):
    gw = gateway(config(keys), app=echo)
    challenge = ['ApiKey realm="postern", in="header", name="X-Api-Key"']
    assert assert_refused(gw.get("/"), "auth.missing") == challenge
    for key, reason in (("wrong", "auth.unknown"), ("off", "auth.disabled"),
                        ("old", "auth.expired"), ("", "auth.missing"), ("Secret", "auth.unknown"),
                        ("secret,secret", "auth.unknown"), ("k" * 2000, "auth.unknown")):
        assert assert_refused(gw.get("/", fields=[("X-Api-Key", key)]), reason) == challenge
    two = [("X-Api-Key", "secret"), ("x-api-key", "secret")]
    assert_refused(gw.get("/", fields=two), "auth.multiple")
    assert echo.count == 0
    lines = gw.wait_log(9, status=401)
    assert all(line["credential"] is None for line in lines)
    assert {line["reason"] for line in lines} == {
        "auth.missing", "auth.unknown", "auth.disabled", "auth.expired", "auth.multiple"}
    gw.wait_metric(4, "postern_responses_total", reason="auth.unknown", route="all")


def test_the_connection_lives_on(gateway, echo, keys):
    client = gateway(config(keys), app=echo).client()
    for _ in range(3):
        assert client.get("/").status == 401
        assert client.get("/", fields=[("X-Api-Key", "secret")]).status == 200
    assert client.get("/", method="POST", body=b"x" * 1000).status == 401
    assert client.get("/", fields=[("X-Api-Key", "other")]).status == 200


def test_a_key_in_the_query_is_seen_by_nobody_else(gateway, echo, keys):
    gw = gateway(config(keys, 'query = {"k", "api key"}'), app=echo)
    assert saw(gw.get("/x?a=1&k=secret&b=%20"))[0] == "/x?a=1&b=%20"
    assert saw(gw.get("/y?k=%73ecret"))[0] == "/y"
    assert saw(gw.get("/z?api%20key=secret&c"))[0] == "/z?c"
    assert saw(gw.get("/z?api+key=secret&kk=1"))[0] == "/z?kk=1"
    assert saw(gw.get("/z?%6b=secret&K=1&=k&k%3d"))[0] == "/z?K=1&=k&k%3d"
    assert saw(gw.get("/z?&&k=s%65cret&"))[0] == "/z"
    assert gw.get("/z?k%3dx=y&k").status == 401 # an empty one, and another name
    assert gw.get("/z?k=secret&%6B=secret").status == 401
    assert_refused(gw.get("/x?k=topsecret&a=2"), "auth.unknown")
    assert_refused(gw.get("/x?k=secret&k=topsecret"), "auth.multiple")
    assert_refused(gw.get("/x", fields=[("X-Api-Key", "secret")]), "auth.missing")
    gw.wait_log(6)
    assert b"secret" not in gw.raw_log() and b"topsecret" not in gw.raw_log()
    assert "secret" not in gw.stderr


def test_a_key_in_a_cookie(gateway, echo, keys):
    gw = gateway(config(keys, 'cookie = "session"'), app=echo)
    _, head = saw(gw.get("/", fields=[("Cookie", "a=1; session=secret; b=2")]))
    assert head["cookie"] == "a=1; b=2" and head["x-consumer"] == "alice"
    _, head = saw(gw.get("/", fields=[("Cookie", "session=secret")]))
    assert "cookie" not in head
    assert_refused(gw.get("/", fields=[("Cookie", "session=secret; session=other")]),
                   "auth.multiple")


def test_a_key_behind_a_scheme(gateway, echo, keys):
    gw = gateway(config(keys, 'scheme = {Bearer}  header = "X-Api-Key"  realm = "shop"'), app=echo)
    _, head = saw(gw.get("/", fields=[("Authorization", "bearer secret")]))
    assert "authorization" not in head and head["x-consumer"] == "alice"
    challenges = assert_refused(gw.get("/", fields=[("Authorization", "Bearer wrong")]),
                                "auth.unknown")
    assert challenges == ['Bearer realm="shop", error="invalid_token"',
                          'ApiKey realm="shop", in="header", name="X-Api-Key"']
    basic = ("Authorization", "Basic " + base64.b64encode(b"a:b").decode())
    _, head = saw(gw.get("/", fields=[basic, ("X-Api-Key", "secret")]))
    assert head["authorization"] == basic[1]
    assert_refused(gw.get("/", fields=[("Authorization", "Bearer secret"), ("X-Api-Key", "secret")]),
                   "auth.multiple")


def test_the_backend_is_told_what_it_may_know(gateway, echo, keys):
    gw = gateway(config(keys, '''consumer_header = "X-Who"  scope_header = "X-Scopes"
        metadata_headers = {"X-Plan: plan", "X-Seats: seats"}  forward_key = true'''), app=echo)
    forged = [("X-Scopes", "admin"), ("X-Plan", "platinum"), ("x_plan", "platinum")]
    _, head = saw(gw.get("/", fields=[("X-Api-Key", "secret"), *forged]))
    assert (head["x-who"], head["x-scopes"], head["x-plan"], head["x-seats"]) == \
        ("alice", "read write", "gold", "12")
    assert head["x-api-key"] == "secret" and "x_plan" not in head
    _, head = saw(gw.get("/", fields=[("X-Api-Key", "other"), *forged]))
    assert head["x-who"] == "bob" and not {"x-scopes", "x-plan", "x_plan"} & head.keys()


def test_optional(gateway, echo, keys):
    gw = gateway(config(keys, "optional = true"), app=echo)
    _, head = saw(gw.get("/", fields=[("X-Consumer", "root"), ("x_consumer", "root")]))
    assert "x-consumer" not in head and "x_consumer" not in head
    _, head = saw(gw.get("/", fields=[("X-Api-Key", "secret")]))
    assert head["x-consumer"] == "alice"
    assert_refused(gw.get("/", fields=[("X-Api-Key", "wrong")]), "auth.unknown")


def test_switched_off_for_one_route(gateway, keys):
    ok = 'respond { status = 200  body = "ok" }'
    gw = gateway(HTTP + f'''key_auth {{ file = "{keys}" }}
        route "open" {{ path = "/open" {ok} key_auth {{ enabled = false }} }}
        route "closed" {{ path = "/closed" {ok} }}''')
    assert gw.get("/open").status == 200
    assert_refused(gw.get("/closed"), "auth.missing")
    assert gw.get("/closed", fields=[("X-Api-Key", "secret")]).status == 200


def hashed(salt, key, consumer):
    text = hashlib.sha256((salt + key).encode()).hexdigest()
    return {"hash": f"sha256:{text}", "consumer": consumer}


@pytest.mark.parametrize("file", [
    {"salt": "pepper", "keys": [hashed("pepper", "secret", "alice")]},
    [{**hashed("mine", "secret", "alice"), "salt": "mine"}, hashed("", "x", "bob")],
    {"keys": [{"sha256": hashlib.sha256(b"secret").hexdigest().upper(), "name": "alice"}]},
])
def test_hashed_keys(gateway, echo, keys, file):
    write(keys, file)
    gw = gateway(config(keys), app=echo)
    client = gw.client()
    for _ in range(3):
        assert saw(client.get("/", fields=[("X-Api-Key", "secret")]))[1]["x-consumer"] == "alice"
        assert_refused(client.get("/", fields=[("X-Api-Key", "pepper")]), "auth.unknown")
    assert "plain text" not in gw.stderr


def test_the_file_is_followed(gateway, echo, keys):
    gw = gateway(config(keys), app=echo)

    def ask(key):
        return gw.get("/", fields=[("X-Api-Key", key)]).status

    assert ask("new") == 401
    write(keys, {"keys": [{"key": "new", "consumer": "zoe"}]})
    until(lambda: ask("new") == 200, "the new key opens")
    assert ask("secret") == 401
    gw.wait_stderr(r"keys\.json: 1 key in force")
    write(keys, '{"keys": [\n{"key": "newer", "consumer": "zoe"},\n{"key": "x", "consumr": "y"}]}')
    gw.wait_stderr(r'keys\.json:3: entry 2: unknown member "consumr"')
    gw.wait_stderr(r"the keys it had stay in force")
    assert ask("new") == 200 and ask("newer") == 401
    write(keys, {"keys": [{"key": "newer", "consumer": "zoe"}]})
    until(lambda: ask("newer") == 200, "and what comes then counts again")
    assert gw.config_state()["generation"] == 1


def test_a_reload_reads_it_too(gateway, echo, keys):
    text = config(keys)
    gw = gateway(text, app=echo)
    write(keys, {"keys": [{"key": "new", "consumer": "zoe"}]})
    gw.reload(text)
    assert gw.get("/", fields=[("X-Api-Key", "new")]).status == 200
    write(keys, "nothing")
    state = gw.reload(text, ok=False)
    assert "keys.json:1: no JSON" in state["last_reload"]["faults"][0]["message"]
    assert gw.get("/", fields=[("X-Api-Key", "new")]).status == 200
    write(keys, {"keys": [{"key": "newer", "consumer": "zoe"}]})
    gw.reload(text)
    assert gw.get("/", fields=[("X-Api-Key", "newer")]).status == 200
    assert gw.get("/", fields=[("X-Api-Key", "new")]).status == 401


@pytest.mark.threads
def test_keys_change_under_load(gateway, backend, keys):
    """Whatever is in force, the key that is in all versions opens, and the one in none does not."""
    gw = gateway("workers = 2\n" + config(keys), app=backend())
    stop = threading.Event()
    faults, asked = [], []

    def ask():
        client = gw.client()
        while not stop.is_set():
            statuses = [client.get("/", fields=[("X-Api-Key", key)]).status
                        for key in ("always", "never", "hashed")]
            asked.append(1)
            if statuses != [200, 401, 200]:
                faults.append(statuses)

    def version(i):
        return {"salt": f"s{i}", "keys": [{"key": "always", "consumer": f"c{i}"},
                                          hashed(f"s{i}", "hashed", "h")]}

    write(keys, version(0))
    gw.reload()
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(1, 4):
        write(keys, version(i))
        until(lambda: gw.log_lines()[-1:] and any(
            line["credential"] == f"c{i}" for line in gw.log_lines()[-50:]), f"version {i}")
        gw.reload()
    stop.set()
    for thread in threads:
        thread.join()
    assert asked and not faults, faults[:3]


def test_plain_keys_are_warned_of(keys, tmp_path):
    path = tmp_path / "g.conf"
    path.write_text(config(keys).replace("@http@", "127.0.0.1:1").replace("@app@", "127.0.0.1:2"))
    os.chmod(keys, 0o644)
    status, said, _ = run("-t", "-c", str(path))
    assert status == 0
    assert f"{path}:4: warning: " in said and "4 keys stand in plain text, for every user" in said
    os.chmod(keys, 0o640)
    assert "every user" not in run("-t", "-c", str(path))[1]
    assert tool("hash", keys)[0] == 0
    assert "warning" not in run("-t", "-c", str(path))[1]


@pytest.mark.parametrize("options, fault", [
    ("", "keys.json: No such file or directory"),
    ('header = "X Api"', 'key_auth.header has X Api, expected'),
    ('header = "Authorization"', "expected scheme = Bearer"),
    ('headr = "X"', 'headr'),
    ('consumer_header = "X-Api-Key"', "X-Api-Key has another meaning"),
    ('metadata_headers = {"X-Plan"}', 'expected "Header: member"'),
])
def test_faults_of_the_section(tmp_path, options, fault):
    path = tmp_path / "g.conf"
    if options:
        write(tmp_path / "keys.json", PLAIN)
    path.write_text(config("keys.json", options).replace("@http@", "127.0.0.1:1")
                    .replace("@app@", "127.0.0.1:2"))
    status, said, _ = run("-t", "-c", str(path))
    assert status == 1
    assert f"{path}:4: " in said and fault in said, said


@pytest.mark.parametrize("text, fault", [
    ("", "keys.json:1: no JSON"),
    ('{"keys": [\n{"key": "k", "consumer": "a"}\n{', "keys.json:3: no JSON"),
    ("{}", 'keys.json:1: expected {"keys": ['),
    ('{"keys": [\n{"key": "k"}]}', 'keys.json:2: entry 1: no "consumer"'),
    ('{"keys": [{"key": "k", "consumer": "a"},\n{"key": "k", "consumer": "b"}]}',
     "keys.json:2: entry 2: the same key as entry 1"),
    ('[{"key": "k", "consumer": "a", "expires": "soon"}]', "entry 1: expires: expected a time"),
    ('[{"key": "a b", "consumer": "a"}]', "entry 1: key: expected"),
    ('[{"key": "k", "consumer": "a\\r\\nX: y"}]', "entry 1: consumer: expected"),
])
def test_faults_of_the_file(tmp_path, text, fault):
    path = tmp_path / "g.conf"
    write(tmp_path / "keys.json", text)
    path.write_text(config("keys.json").replace("@http@", "127.0.0.1:1")
                    .replace("@app@", "127.0.0.1:2"))
    status, said, _ = run("-t", "-c", str(path))
    assert status == 1 and f"{path}:4: " in said and fault in said, said


def test_all_faults_of_a_file_are_told(tmp_path):
    path = tmp_path / "g.conf"
    write(tmp_path / "keys.json", json.dumps([{"key": "k"}] * 30))
    path.write_text(config("keys.json").replace("@http@", "127.0.0.1:1")
                    .replace("@app@", "127.0.0.1:2"))
    said = run("-t", "-c", str(path))[1]
    assert said.count('no "consumer"') == 20 and "and 10 faults more" in said


# the tool


def test_tool_adds_a_key_that_opens(gateway, echo, tmp_path):
    file = tmp_path / "keys.json"
    key = add(file, "alice", "--scope", "read", "--scope", "write", "--meta", "plan=gold",
              "--expires", "2099-01-01", "--id", "a1")
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o640
    assert key not in file.read_text() and key.startswith("postern_") and len(key) > 40
    gw = gateway(config(file, 'scope_header = "X-Scopes"'), app=echo)
    _, head = saw(gw.get("/", fields=[("X-Api-Key", key)]))
    assert (head["x-consumer"], head["x-scopes"]) == ("alice", "read write")
    assert "warning" not in gw.stderr
    second = add(file, "bob")
    until(lambda: gw.get("/", fields=[("X-Api-Key", second)]).status == 200, "it takes effect")
    assert tool("revoke", file, "a1")[0] == 0
    until(lambda: gw.get("/", fields=[("X-Api-Key", key)]).status == 401, "and revoking does")
    assert gw.get("/", fields=[("X-Api-Key", second)]).status == 200


def test_tool_disables_and_lists(tmp_path):
    file = tmp_path / "keys.json"
    add(file, "alice", "--id", "a1")
    add(file, "alice", "--id", "a2", "--expires", "2001-01-01T00:00:00Z")
    add(file, "bob", "--id", "b1", "--scope", "x")
    assert tool("disable", file, "--consumer", "bob")[0] == 0

    def listed():
        status, out, _ = tool("list", file)
        assert status == 0
        return {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}

    assert listed() == {
        "a1": ["alice", "active", "never", "hashed", "-"],
        "a2": ["alice", "expired", "2001-01-01T00:00:00Z", "hashed", "-"],
        "b1": ["bob", "disabled", "never", "hashed", "x"]}
    assert tool("enable", file, "b1")[0] == 0
    assert tool("revoke", file, "--consumer", "alice")[0] == 0
    assert listed() == {"b1": ["bob", "active", "never", "hashed", "x"]}


def test_tool_takes_a_key_that_is_there_already(gateway, echo, tmp_path):
    file = tmp_path / "keys.json"
    status, out, err = tool("add", file, "alice", "--stdin", stdin="my-old-key\n")
    assert (status, out) == (0, "") and "my-old-key" not in err
    gw = gateway(config(file), app=echo)
    assert gw.get("/", fields=[("X-Api-Key", "my-old-key")]).status == 200
    assert tool("add", file, "bob", "--stdin", stdin="my-old-key\n")[0] == 1
    assert tool("add", file, "bob", "--stdin", stdin="")[0] == 1
    assert tool("add", file, "bob", "--stdin", stdin="a b\n")[0] == 1


def test_tool_keeps_mode_and_what_it_does_not_change(tmp_path):
    file = tmp_path / "keys.json"
    write(file, {"comment": "ours", "keys": [{"key": "plain", "consumer": "p", "comment": {"a": 1}}]})
    os.chmod(file, 0o600)
    link = tmp_path / "link.json"
    link.symlink_to("keys.json")
    add(link, "alice")
    assert link.is_symlink() and stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert json.loads(file.read_text())["comment"] == "ours"
    assert json.loads(file.read_text())["keys"][0] == \
        {"key": "plain", "consumer": "p", "comment": {"a": 1}}
    assert tool("hash", file) == (0, "", "hashed 1 key\n")
    assert "plain" not in file.read_text()
    assert sorted(os.listdir(tmp_path)) == ["keys.json", "link.json"]


def test_tools_do_not_lose_each_other_s_keys(tmp_path):
    file = tmp_path / "keys.json"
    add(file, "first")
    running = [subprocess.Popen([TOOL, "add", str(file), f"c{i}"], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL) for i in range(12)]
    keys = {process.communicate(timeout=30)[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(keys) == 12 and len(json.loads(file.read_text())["keys"]) == 13


@pytest.mark.parametrize("args, said", [
    ((), "usage"), (("add",), "usage"), (("add", "F"), "usage"), (("list", "F", "x"), "usage"),
    (("frob", "F"), "usage"), (("list", "F", "--scope", "x"), "usage"),
    (("add", "F", "a", "--consumer", "b"), "usage"), (("revoke", "F"), "usage"),
    (("add", "F", "a", "--meta", "x"), "usage"), (("add", "F", "a", "--what"), "usage")])
def test_tool_says_how_it_is_used(tmp_path, args, said):
    file = tmp_path / "keys.json"
    status, out, err = tool(*[file if arg == "F" else arg for arg in args])
    assert status == 2 and said in err and not out
    assert not file.exists()


@pytest.mark.parametrize("args, said", [
    (("revoke", "nobody"), "no key with that id"),
    (("revoke", "--consumer", "nobody"), "no key of that consumer"),
    (("add", "alice", "--id", "a1"), "a key with that id"),
    (("add", "alice", "--expires", "soon"), "expires: expected a time"),
    (("add", "alice", "--scope", "a b"), "scopes: expected"),
    (("add", "bad\nname"), "consumer: expected"),
])
def test_tool_changes_nothing_when_it_refuses(tmp_path, args, said):
    file = tmp_path / "keys.json"
    add(file, "alice", "--id", "a1")
    before = file.read_bytes()
    status, out, err = tool(args[0], file, *args[1:])
    assert status == 1 and said in err and not out
    assert file.read_bytes() == before


def test_tool_leaves_a_file_alone_that_it_does_not_understand(tmp_path):
    file = tmp_path / "keys.json"
    write(file, '{"keys": [\n{"key": "k", "consumr": "a"}]}')
    for command in (("add", file, "a"), ("list", file), ("hash", file)):
        status, out, err = tool(*command)
        assert status == 1 and f'{file}:2: entry 1: unknown member "consumr"' in err and not out
    os.chmod(file, 0o666)
    write(file, PLAIN)
    os.chmod(file, 0o666)
    status, _, err = tool("add", file, "a")
    assert status == 1 and "chmod o-w" in err
    os.chmod(file, 0o644)
    status, _, err = tool("list", file)
    assert status == 0 and "chmod o-r" in err
    assert tool("list", tmp_path / "none.json")[2].endswith("No such file or directory\n")
