"""The program: flags, exit statuses, and what it says about a broken file."""

import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import HTTP, ONE
from gateway import BINARY, free_address, own_host, run

GOOD = '''listener "http" { listen = {"127.0.0.1:18080"} }
upstream "app" { server "127.0.0.1:19000" {} }
route "all" { path = "/{rest...}"  upstream = app }
'''
BROKEN = '''listener "http" { listen = {"127.0.0.1:18080"} }
upstream "app" { server "127.0.0.1:99999" {} }
bananas = 3
upstream "app" { server "127.0.0.1:9000" {} }
route "a" { path = "/a"  upstream = nowhere }
route "b" { path = "/b"  upstream = app  timeout = 5parsecs }
'''


@pytest.fixture
def conf(tmp_path):
    def write(text, name="gateway.conf"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return str(path)

    return write


def test_check_of_a_good_file(conf):
    path = conf(GOOD)
    status, _, _ = run("-c", path, "-t")
    assert status == 0
    status, text, _ = run("-c", path, "-t", "-q")
    assert status == 0 and text == ""


def test_check_names_every_fault_with_file_and_line(conf):
    path = conf(BROKEN)
    status, text, _ = run("-c", path, "-t", "-q")
    assert status == 1
    lines = {int(n) for n in re.findall(rf"^{re.escape(path)}:(\d+): \S.*$", text, re.M)}
    assert {2, 3, 4, 5, 6} <= lines, text


@pytest.mark.parametrize("line, fault", [
    ('route "b" { path = "/a" upstream = app }', 'can never be told apart from route "a"'),
    ('route "b" { path = "/a" match_header "X" { equals = "1" } upstream = app }\n'
     'route "c" { path = "/a" match_header "x" { equals = "1" } upstream = app }',
     'can never be told apart from route "b"'),
    ('route "b" { path = "/b/{x}" upstream = app rewrite = "/{y}" }', "uses {y}"),
    ('route "b" { path = "/b" upstream = nowhere }', 'names upstream "nowhere"'),
    ('route "b" { path = "/b" split { app = 1 nowhere = 2 } }', 'names upstream "nowhere"'),
    ('route "b" { path = "/b" split { app = 0 } }', "the weights of split sum to 0"),
    ('route "b" { path = "/b" redirect { to = "javascript:alert(1)" } }', "redirect.to is"),
    ('route "b" { path = "/b" redirect { to = "{rest}" } }', "{rest}"),
    ('route "b" { path = "/b" respond { file = "/nonexistent/page" } }', "cannot read"),
    ('route "b" { path = "/b" match_header "X" { regex = "(" } upstream = app }',
     "does not compile"),
    ('route "b" { path = "/b" match_query "x" { } upstream = app }', "has none of equals"),
    ('listener "b" { listen = "127.0.0.1:2" forwarded = no }', "expected x_forwarded"),
])
def test_bad_routes_are_faults_with_their_line(conf, line, fault):
    path = conf('listener "http" { listen = {"127.0.0.1:1"} }\n'
                'upstream "app" { server "127.0.0.1:9" {} }\n'
                'route "a" { path = "/a" upstream = app }\n' + line + "\n")
    status, text, _ = run("-c", path, "-t", "-q")
    last = 4 + line.count("\n")
    assert status == 1
    assert re.search(rf"^{re.escape(path)}:{last}: .*{re.escape(fault)}", text, re.M), text


def test_check_of_a_syntax_error(conf):
    path = conf('listener "http" {\n  listen = {"127.0.0.1:1"}\nroute "x" {\n')
    status, text, _ = run("-c", path, "-t")
    assert status == 1 and re.search(rf"^{re.escape(path)}:\d+: ", text, re.M)


def test_check_follows_includes(conf, tmp_path):
    (tmp_path / "conf.d").mkdir()
    conf('upstream "app" { server "127.0.0.1:9" {} }\n', "conf.d/10.conf")
    bad = conf('\n\nroute "all" { upstream = nowhere }\n', "conf.d/20.conf")
    path = conf('listener "http" { listen = {"127.0.0.1:1"} }\ninclude("conf.d/*.conf")\n')
    status, text, _ = run("-c", path, "-t")
    assert status == 1 and re.search(r"20\.conf:3: .*nowhere", text), text
    conf('route "all" { upstream = app }\n', "conf.d/20.conf")
    assert run("-c", path, "-t")[0] == 0
    assert bad


def test_file_that_is_not_there(tmp_path):
    status, text, _ = run("-c", str(tmp_path / "none.conf"), "-t")
    assert status == 1 and "none.conf" in text


def test_effective_configuration_loads_again_and_stays_the_same(conf):
    status, _, first = run("-c", conf(GOOD), "-T")
    assert status == 0
    for text in ("drain_timeout", "header_bytes", "round_robin", "idle_timeout"):
        assert text in first, f"defaults are filled in: {text}"
    config = first[first.index("\n") + 1:] if "syntax" in first.split("\n")[0] else first
    status, text, second = run("-c", conf(config, "again.conf"), "-T")
    assert status == 0, text
    assert second.replace("again.conf", "gateway.conf") == first


def test_effective_configuration_of_a_broken_file(conf):
    assert run("-c", conf(BROKEN), "-T")[0] == 1


def test_version():
    status, text, _ = run("-v")
    assert status == 0 and re.search(r"\b\d+\.\d+\.\d+\b", text)
    assert len(text.strip().splitlines()) == 1
    status, text, _ = run("-V")
    assert status == 0
    for word in ("libevent", "confuse", "jansson", "nghttp2", "pcre2"):
        assert word in text.lower()
    assert re.search(r"gcc|clang", text, re.I)


def test_help():
    status, text, out = run("-h")
    assert status == 0 and out
    for flag in ("-c", "-t", "-T", "-q", "-v", "-V", "-h", "--explain"):
        assert flag in text


@pytest.mark.parametrize("args", [["-x"], ["--bananas"], ["-c"], ["--explain"], ["surplus"]])
def test_usage_errors(args):
    status, text, out = run(*args)
    assert status == 2 and text and not out


@pytest.mark.parametrize("request_line", ["nonsense", "GET", "GET not-a-url", ""])
def test_explain_needs_a_method_and_a_url(conf, request_line):
    assert run("-c", conf(GOOD), "--explain", request_line)[0] == 2


def test_explain(conf):
    path = conf('listener "http" { listen = {"127.0.0.1:18080"} }\n'
                'upstream "users" { server "127.0.0.1:9" {} }\n'
                'route "by id" { host = {"api.example.com"} path = "/users/{id}" upstream = users }\n'
                'route "rest" { path = "/{rest...}" respond { status = 404 } }\n')
    status, text, _ = run("-c", path, "--explain", "GET http://api.example.com:18080/users/7")
    assert status == 0
    for word in ("http", "by id", "users"):
        assert word in text, text
    assert run("-c", path, "--explain", "GET http://other:18080/x")[1].count("rest")


def test_explain_conditions_and_splits(conf):
    path = conf('listener "http" { listen = {"127.0.0.1:18080"} }\n'
                'upstream "stable" { server "127.0.0.1:9" {} }\n'
                'upstream "canary" { server "127.0.0.1:8" {} }\n'
                'route "new" { match_header "X-Canary" { equals = "1" } upstream = canary }\n'
                'route "old" { match_query "v" { equals = "1" } upstream = stable }\n'
                'route "rest" { split { stable = 95 canary = 5 } }\n')

    def said(request):
        status, text, _ = run("-c", path, "--explain", request)
        assert status == 0
        return text

    assert "\"new\"" in said("GET http://h/\nX-Canary: 1") and \
        'upstream "canary"\n' in said("GET http://h/\r\nX-Canary: 1\r\n\r\n")
    text = said("GET http://h/?v=1#x")
    assert 'asks for more: match_header "X-Canary" { equals = "1" }' in text
    assert 'upstream "stable"\n' in text
    assert 'split: upstream "stable" 95 of 100, upstream "canary" 5 of 100, by turns' in \
        said("GET http://h/")
    assert run("-c", path, "--explain", "GET /\nno field")[0] == 2


@pytest.mark.parametrize("url", ["http://API.example.com./x", "https://api.example.com.:443/x",
                                 "http://api.example.com/./x", "http://api.example.com/%78?q#f"])
def test_explain_reads_hosts_as_requests_have_them(conf, url):
    path = conf('listener "http" { listen = {"127.0.0.1:18080"} }\n'
                'route "api" { host = {"api.example.com"} path = "/x" respond { } }\n'
                'route "six" { host = {"[::1]"} respond { } }\n')
    assert 'route "api"' in run("-c", path, "--explain", f"GET {url}")[1]
    assert 'route "six"' in run("-c", path, "--explain", "GET http://[0:0::0:1]:80/x")[1]


def test_explain_names_the_plugins(conf):
    path = conf('rate_limit { rate = "10/s" }\n'
                'listener "http" { listen = {"127.0.0.1:18080"} }\n'
                'route "mine" { path = "/mine" respond { } cors { origins = {"*"} } }\n'
                'route "off" { path = "/off" respond { } rate_limit { enabled = false } }\n')
    text = run("-c", path, "--explain", "GET http://h/mine")[1]
    assert text.index("plugin cors of route mine") < text.index("plugin rate_limit of the top level"), text
    assert "    plugin " not in run("-c", path, "--explain", "GET http://h/off")[1]
    assert "plugin rate_limit" in run("-c", path, "--explain", "GET http://h/none")[1]


def test_explain_takes_each_listeners_own_paths(conf):
    path = conf('listener "strict" { listen = {"127.0.0.1:18080"} paths { double_slash = refuse } }\n'
                'listener "merging" { listen = {"127.0.0.1:18081"} paths { double_slash = merge } }\n'
                'route "deep" { path = "/a/b" respond { } }\n')
    status, text, _ = run("-c", path, "--explain", "GET http://h/a//b")
    assert status == 0
    strict, merging = text.split('listener "merging"')
    assert "refused with 400 bad_request.path: the path has a doubled slash (//) at byte " in strict, text
    assert "is taken" in merging and "is taken" not in strict
    assert "above the root" in run("-c", path, "--explain", "GET http://h/../x")[1]


def test_broken_file_at_start(conf):
    path = conf(BROKEN)
    status, text, _ = run("-c", path)
    assert status == 1
    assert len(set(re.findall(rf"{re.escape(path)}:(\d+): ", text))) >= 5, text


def test_port_in_use(gateway, upstream, conf):
    """Also by another gateway of the same user, which SO_REUSEPORT alone would not notice."""
    first = gateway(app=upstream())
    text = ONE.replace("@http@", "%s:%d" % first.address()).replace("@app@", "127.0.0.1:9")
    status, said, _ = run("-c", conf(text))
    assert status == 1
    assert "%s:%d" % first.address() in said and re.search(r"in use", said, re.I), said
    assert first.admin("/healthz").status == 200


def test_port_in_use_by_something_else(upstream, conf):
    up = upstream()
    status, said, _ = run("-c", conf(ONE.replace("@http@", str(up)).replace("@app@", "127.0.0.1:9")))
    assert status == 1
    assert len([line for line in said.splitlines() if str(up) in line]) == 1, said


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give up rights")
def test_missing_user(conf):
    good = GOOD.replace("127.0.0.1:18080", free_address(own_host()))
    status, said, _ = run("-c", conf('user = "no-such-user-here"\n' + good))
    assert status == 1 and "no-such-user-here" in said


def test_address_of_nobody(conf):
    status, said, _ = run("-c", conf(GOOD.replace("127.0.0.1:18080", "192.0.2.1:80")))
    assert status == 1 and "192.0.2.1:80" in said


def test_server_name_that_does_not_resolve_is_a_warning(conf):
    path = conf(GOOD.replace("127.0.0.1:19000", "no-such-name.invalid:80"))
    status, said, _ = run("-t", "-c", path, timeout=120)
    assert status == 0
    assert re.search(rf"{re.escape(path)}:2: warning: .*no-such-name\.invalid", said), said


def test_too_few_descriptors(conf):
    good = GOOD.replace("127.0.0.1:18080", free_address(own_host()))
    status, said, _ = run("-c", conf("workers = 2\n" + good), preexec_fn=lambda: limit(10))
    assert status == 1
    assert re.search(r"file descriptors|open files", said, re.I), said


def limit(number):
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))


def test_log_directory_that_is_not_there(conf):
    good = GOOD.replace("127.0.0.1:18080", free_address(own_host()))
    status, said, _ = run("-c", conf('access_log { path = "/nonexistent/dir/log" }\n' + good))
    assert status == 1 and "/nonexistent/dir/log" in said


def test_examples_load():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "config")
    examples = [os.path.join(root, name) for name in os.listdir(root) if name.endswith(".conf")]
    assert examples
    for path in examples:
        status, text, _ = run("-c", path, "-t")
        assert status == 0, text


@pytest.mark.parametrize("flags, fault", [
    (["-t", "more"], 'unexpected argument "more"'),
    (["-q"], "-q goes with -t and -T"),
    (["-q", "--explain", "GET http://h/"], "-q goes with -t and -T"),
    (["-t", "--explain", "GET http://h/"], "--explain does not go with -t"),
    (["--explain", "GET http://h/", "-T"], "-T does not go with --explain"),
    (["--help-plugin", "jwt", "--explain", "GET http://h/"], "--explain does not go with --help-plugin"),
])
def test_flags_that_do_not_go_together(conf, flags, fault):
    status, said, out = run("-c", conf(GOOD), *flags)
    assert status == 2 and fault in said and not out, said


@pytest.mark.parametrize("flags", [["-t", "-T"], ["-T", "-t"], ["-q", "-T"], ["-T", "-T"]])
def test_of_two_checks_the_one_that_shows_more_counts(conf, flags):
    status, said, out = run("-c", conf(GOOD), *flags)
    assert status == 0 and said == out and "drain_timeout = 30s" in out


@pytest.mark.parametrize("path, why", [
    ("", "it is a directory, expected a file"),
    ("/dev/null", "it is a device, a pipe or a socket, expected a file"),
    ("none.conf", "No such file or directory"),
])
def test_a_file_that_is_none(tmp_path, path, why):
    path = os.path.join(tmp_path, path)
    for flags in (["-t"], []):
        status, said, _ = run("-c", path, *flags)
        assert status == 1 and f"{path}:0: cannot read {path}: {why}\n" in said, said


@pytest.mark.parametrize("line, said", [
    ('access_log { path = "/nonexistent/a.log" }', 'access_log: cannot open "/nonexistent/a.log": No such'),
    ('access_log {\n path = "/nonexistent/a.log" }', 'access_log: cannot open "/nonexistent/a.log": No such'),
    ('error_log { path = "/" }', 'error_log: cannot open "/": Is a directory'),
    ('pid_file = "/nonexistent/pid"', 'cannot write pid_file "/nonexistent/pid": No such'),
])
def test_what_only_a_start_can_try_names_its_line(conf, line, said):
    path = conf(GOOD.replace("127.0.0.1:18080", free_address(own_host())) + line + "\n")
    status, text, _ = run("-c", path)
    assert status == 1 and f"{path}:{4 + line.count(chr(10))}: {said}" in text, text


def test_a_user_that_is_not_there_is_a_warning(conf):
    path = conf(GOOD + 'user = "no-such-user-here"\n')
    status, text, _ = run("-t", "-c", path)
    assert status == 0 and f'{path}:4: warning: user "no-such-user-here" does not exist' in text
    assert "warning" not in run("-t", "-c", conf(GOOD + "user = root\n"))[1]


def test_a_byte_order_mark_is_stepped_over(conf):
    assert run("-t", "-c", conf("\ufeff" + GOOD))[0] == 0


def test_semicolons_are_called_what_they_are(conf):
    path = conf(GOOD + 'route "q" {\n path = "/q";\n upstream = app;\n}\n')
    status, text, _ = run("-t", "-c", path)
    assert status == 1 and f"{path}:5: unexpected ';', an option ends by itself" in text, text
    assert "unknown option" not in text


def test_effective_configuration_has_the_defaults_of_routes(conf):
    lines = run("-T", "-c", conf(GOOD + 'route "x" { path = "/x" respond { body = a } }'))[2]
    proxied, answered = lines.split('route "x"')
    assert "  timeout = 0s\n  retry = idempotent\n" in proxied.split('route "all"')[1]
    assert "timeout" not in answered and "retry" not in answered


def test_a_check_touches_nothing(gateway, backend, tmp_path):
    """Not what the file names, nor a gateway that runs with the same file."""
    front = tmp_path / "front.sock"
    gw = gateway(ONE, app=backend(), http=f"unix:{front}")
    text = gw.render(f'''pid_file = "{tmp_path}/pid"
access_log {{ path = "{tmp_path}/a.log" }}
error_log {{ path = "{tmp_path}/e.log" }}
admin {{ listen = "unix:{tmp_path}/admin.sock" }}
''' + ONE.replace("listen =", f'listen = "unix:{tmp_path}/more.sock" listen +=', 1))
    checked = tmp_path / "checked.conf"
    checked.write_text(text)
    before = sorted(os.listdir(tmp_path)), front.stat().st_ino
    for flag in ("-t", "-T"):
        assert run(flag, "-c", str(checked))[0] == 0
    assert run("-c", str(checked), "--explain", "GET http://t/")[0] == 0
    assert (sorted(os.listdir(tmp_path)), front.stat().st_ino) == before
    assert gw.get("/").status == 200


def test_the_installed_unit_starts_the_installed_program(tmp_path):
    meson, build_root = shutil.which("meson"), os.path.dirname(BINARY)
    if not meson or not os.path.exists(os.path.join(build_root, "build.ninja")):
        pytest.skip("no meson, or the binary is in no build folder")

    def ask(*args, **env):
        return subprocess.run([meson, *args], env={**os.environ, **env}, check=True,
                              capture_output=True, text=True).stdout

    options = {o["name"]: o["value"] for o in json.loads(ask("introspect", "--buildoptions", build_root))}
    ask("install", "-C", build_root, "--no-rebuild", "--tags", "systemd", DESTDIR=str(tmp_path))
    unit = open(f"{tmp_path}{options['prefix']}/lib/systemd/system/postern.service").read()
    program = os.path.join(options["prefix"], options["bindir"], "postern")
    assert f"\nExecStart={program} -c {options['sysconfdir']}/postern/gateway.conf\n" in unit
    assert f"\nExecStartPre={program} -t -q -c {options['sysconfdir']}/postern/gateway.conf\n" in unit
    assert "@" not in re.sub("SystemCallFilter=@.*", "", unit)
