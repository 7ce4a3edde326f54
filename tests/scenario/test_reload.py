"""SIGHUP: the new configuration takes effect whole or not at all, and nobody notices."""

import os
import random
import signal
import threading
import time

import pytest

import gateway as harness
from conftest import HTTP, ONE
from gateway import Gateway, free_address, own_host, until
from wire import Client, Closed

APP = 'upstream "app" { server "@app@" {} }\n'
ALL = 'route "all" { path = "/{rest...}"  upstream = app }\n'


def say(path, text):
    return f'route "{path[1:]}" {{ path = "{path}"  respond {{ status = 200  body = "{text}" }} }}\n'


@pytest.mark.threads
def test_new_routes_take_effect_on_open_connections(gateway):
    gw = gateway(HTTP + say("/a", "one"))
    client = gw.client()
    assert client.get("/a").body == b"one" and client.get("/b").status == 404
    state = gw.reload(HTTP + say("/a", "two") + say("/b", "new"))
    assert state["generation"] == 2
    assert client.get("/a").body == b"two" and client.get("/b").body == b"new"
    assert [line["generation"] for line in gw.wait_log(4)] == [1, 1, 2, 2]
    assert gw.metric("postern_config_generation") == 2


@pytest.mark.threads
def test_a_broken_file_changes_nothing_and_says_why(gateway):
    gw = gateway(HTTP + say("/a", "one"))
    state = gw.reload(HTTP + say("/a", "two") + "bananas = 3\nroute \"x\" { upstream = nowhere }\n",
                      ok=False)
    assert state["generation"] == 1
    faults = state["last_reload"]["faults"]
    assert len(faults) >= 2
    with open(gw.file) as file:
        lines = file.read().split("\n")
    for fault in faults:
        assert fault["file"] == gw.file and fault["message"]
    assert any("bananas" in f["message"] and "bananas" in lines[f["line"] - 1] for f in faults)
    assert any("nowhere" in f["message"] and "nowhere" in lines[f["line"] - 1] for f in faults)
    for fault in faults:
        assert f"{fault['file']}:{fault['line']}: {fault['message']}" in gw.stderr
    assert gw.get("/a").body == b"one"
    assert gw.metric("postern_config_last_reload_success") == 0
    state = gw.reload(HTTP + say("/a", "three"))
    assert state["last_reload"]["faults"] == []
    assert gw.get("/a").body == b"three"
    assert gw.metric("postern_config_last_reload_success") == 1


def test_a_file_that_is_gone_changes_nothing(gateway):
    gw = gateway(HTTP + say("/a", "one"))
    os.unlink(gw.file)
    gw.reload(ok=False)
    assert gw.get("/a").body == b"one"


def test_an_address_that_cannot_be_bound_changes_nothing(gateway, upstream):
    taken = upstream()
    gw = gateway(HTTP + say("/a", "one"))
    state = gw.reload('listener "http" { listen = {"@http@", "@taken@"} }\n'.replace(
        "@taken@", str(taken)) + say("/a", "two"), ok=False)
    assert str(taken) in state["last_reload"]["faults"][0]["message"]
    assert gw.get("/a").body == b"one"


def test_a_listener_is_added_and_removed(gateway):
    gw = gateway(HTTP + say("/a", "one"))
    more = 'listener "more" { listen = {"@more@"} }\n'
    gw.reload(HTTP + more + say("/a", "two"))
    assert gw.get("/a", name="more").body == b"two"
    old = gw.client("more")
    assert old.get("/a").body == b"two"
    gw.reload(HTTP + say("/a", "three"))
    with pytest.raises(OSError):
        Client.to(gw.address("more"))
    assert gw.get("/a").body == b"three"
    # A connection that was open may finish or be closed, but not be left hanging.
    try:
        old.get("/a")
    except Closed:
        pass


def test_an_exchange_under_way_ends_as_it_began(gateway, upstream):
    up, other = upstream(), upstream()
    gw = gateway(HTTP + APP + ALL, app=up, other=other)
    client = gw.client()
    client.send(b"GET /1 HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    gw.reload(HTTP + 'upstream "app" { server "@other@" {} }\n' + ALL)
    conn.respond(b"from the old one")
    assert client.response().body == b"from the old one"
    client.send(b"GET /2 HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = other.accept()
    conn.expect()
    conn.respond(b"from the new one")
    assert client.response().body == b"from the new one"


def test_an_unchanged_upstream_keeps_its_connections_and_its_turn(gateway, backend):
    a, b = backend("a"), backend("b")
    servers = 'upstream "app" { server "@a@" {} server "@b@" {} pool { warm = 2 } }\n'
    gw = gateway(HTTP + servers + ALL, a=a, b=b)
    client = gw.client()
    assert [client.get().body for _ in range(3)] == [b"a", b"b", b"a"]
    gw.reload(HTTP + servers + ALL + say("/new", "route"))
    assert client.get().body == b"b", "the counter goes on where it was"
    assert (a.opened, b.opened) == (2, 2), "no connection was opened anew"
    assert gw.upstream("app", a)["requests"] == 2


def test_a_changed_upstream_is_warm_before_it_takes_effect(gateway, backend):
    old, new = backend("old"), backend("new")
    gw = gateway(HTTP + 'upstream "app" { server "@old@" {} }\n' + ALL, old=old, new=new)
    client = gw.client()
    assert client.get().body == b"old"
    gw.reload(HTTP + 'upstream "app" { server "@new@" {} pool { warm = 3 } }\n' + ALL)
    until(lambda: new.opened >= 3, "the backend's thread has taken them from its queue")
    assert new.opened == 3
    assert client.get().body == b"new"
    assert new.opened == 3
    until(lambda: not old.open, "the old upstream's connections were closed")


def test_the_old_upstreams_warm_connections_end(gateway, backend):
    old, new = backend("old"), backend("new")
    gw = gateway(HTTP + 'upstream "app" { server "@old@" {} pool { warm = 2 } }\n' + ALL,
                 old=old, new=new)
    gw.reload(HTTP + 'upstream "app" { server "@new@" {} }\n' + ALL)
    until(lambda: not old.open, "closed")


def test_changed_limits_take_effect(gateway, upstream):
    up = upstream()
    gw = gateway(app=up)
    gw.reload(ONE.replace("listen =", "limits { target_bytes = 64 } listen ="))
    assert gw.get("/" + "x" * 64).status == 414


def test_log_destination_changes(gateway):
    gw = gateway('access_log { path = "one.log" }\n' + HTTP + say("/a", "one"))
    gw.get("/a")
    gw.wait_log(1, file=f"{gw.tmp}/one.log")
    gw.reload('access_log { path = "two.log" }\n' + HTTP + say("/a", "one"))
    gw.get("/a")
    gw.wait_log(1, file=f"{gw.tmp}/two.log")
    assert len(gw.log_lines(f"{gw.tmp}/one.log")) == 1


def test_many_hups_at_once_end_in_the_last_file(gateway):
    gw = gateway(HTTP + say("/a", "0"))
    for i in range(1, 20):
        gw.write(HTTP + say("/a", str(i)))
        gw.signal(signal.SIGHUP)
    until(lambda: gw.get("/a").body == b"19", "the last file is in force")


def test_hup_while_draining_does_no_harm(gateway, upstream):
    up = upstream()
    gw = gateway(app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    gw.signal(signal.SIGTERM)
    gw.signal(signal.SIGHUP)
    conn.respond(b"done")
    assert client.response().body == b"done"
    assert gw.wait_exit() == 0


class Load:
    """Clients that ask without a pause and note everything that is not a plain 200."""

    def __init__(self, gw, count=3, every=20):
        self.gw, self.every = gw, every
        self.failures, self.done, self.stopping = [], 0, False
        self.threads = [threading.Thread(target=self.ask, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def ask(self, number):
        rng = random.Random(number)
        client = None
        try:
            while not self.stopping:
                client = client or Client.to(self.gw.address())
                body = rng.choice([None, b"x" * 1000])
                response = client.get("/load", method="POST" if body else "GET", body=body)
                if response.status != 200:
                    self.failures.append((response.status, response.body))
                self.done += 1
                closing = (response.get("Connection") or "").lower() == "close"
                if closing or rng.randrange(self.every) == 0:
                    client.close()
                    client = None
        except (AssertionError, OSError) as error:
            self.failures.append(repr(error))
        finally:
            if client:
                client.close()

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(30)
        assert not self.failures, self.failures[:5]


@pytest.mark.threads
def test_two_hundred_reloads_under_load_are_not_noticed(gateway, backend, upstream):
    """Half of them with other routes and servers, some of them broken, a tunnel all along."""
    apps = [backend(name) for name in "ab"]
    tunnel_up = upstream()
    tunnel = 'upstream "chat" { server "@chat@" {} }\nroute "chat" { path = "/chat"  upstream = chat }\n'

    def config(i):
        servers = 'server "@a@" {} server "@b@" {}' if i % 4 < 2 else 'server "@b@" {}'
        return ("workers = 2\n" + HTTP + f'upstream "app" {{ {servers} pool {{ warm = 2 }} }}\n' +
                ALL + tunnel + (say(f"/r{i}", str(i)) if i % 4 >= 2 else "") +
                ("bananas = 3\n" if i % 10 == 9 else ""))

    gw = gateway(config(0), a=apps[0], b=apps[1], chat=tunnel_up)
    client = gw.client()
    client.send(b"GET /chat HTTP/1.1\r\nHost: t\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    conn = tunnel_up.accept()
    conn.expect()
    conn.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
              b"Upgrade: websocket\r\n\r\n")
    assert client.head().status == 101
    load = Load(gw)
    try:
        for i in range(1, 201):
            gw.reload(config(i), ok=i % 10 != 9)
            if i % 50 == 0:
                client.send(b"ping%d" % (i % 7))
                assert conn.read_exact(5) == b"ping%d" % (i % 7)
    finally:
        load.stop()
    assert load.done > 200
    conn.send(b"alive after the last")
    assert client.read_exact(20) == b"alive after the last"
    assert gw.config_state()["generation"] == 181
    assert gw.metric("postern_requests_total", route="all") >= load.done


def plain_binary():
    """Sanitizers keep freed memory, so what is measured is the release build, when there is one."""
    release = os.environ.get("POSTERN_RELEASE")
    if release:
        return os.path.abspath(release)
    if harness.is_sanitized():
        pytest.skip("memory means nothing under a sanitizer; POSTERN_RELEASE names no other build")
    return harness.BINARY


def test_memory_is_flat_over_a_thousand_reloads(tmp_path, backend, monkeypatch):
    monkeypatch.setattr(harness, "BINARY", plain_binary())
    app = backend()

    def config(i):
        routes = "".join(say(f"/r{n}", "x" * 50) for n in range(20 + i % 2))
        return ("workers = 2\n" + HTTP + 'upstream "app" { server "@app@" {} pool { warm = %d } }\n'
                % (1 + i % 2) + ALL + routes)

    gw = Gateway(tmp_path, config(0), {"app": app})
    try:
        load = Load(gw, 1)

        def reloads(count):
            for i in range(count):
                gw.reload(config(i + 1))

        reloads(400)  # what is needed once has been allocated, and the log's rings were once through
        before, files = gw.rss_kib(), gw.descriptors()
        reloads(1000)
        after = gw.rss_kib()
        load.stop()
        assert after <= before * 1.05, f"{before} KiB before, {after} KiB after 1000 reloads"
        assert abs(gw.descriptors() - files) <= 8
        assert gw.config_state()["generation"] == 1401
    finally:
        gw.finish()


@pytest.mark.threads
def test_series_of_what_the_file_has_no_more_go_too(gateway, backend):
    """Of routes and of upstreams, by reloads with other names each time; those that stay count on,
    and so does one that an exchange is still under way on."""
    gw = gateway("workers = 2\n" + named("r0", "u0"), app=backend())

    def names(label):
        return {has[label] for _, has, _ in gw.metrics() if label in has} - {""}

    kept = gw.client()
    for i in range(1, 6):
        assert gw.get("/app").status == 200 and kept.get("/kept").status == 200
        gw.reload(named(f"r{i}", f"u{i}"))
        until(lambda: names("route") == {"kept"}, "only the routes that there are, and had requests")
        until(lambda: names("upstream") == {f"u{i}"}, "only the upstreams that there are")
        assert gw.get("/app").status == 200
        gw.wait_metric(1, "postern_requests_total", route=f"r{i}")
        gw.wait_metric(1, "postern_upstream_duration_seconds_count", upstream=f"u{i}")
        gw.wait_metric(i, "postern_request_duration_seconds_count", route="kept")


def named(route, upstream):
    return HTTP + f'''
upstream "{upstream}" {{ server "@app@" {{}} }}
route "{route}" {{ path = "/app" upstream = {upstream} }}
route "kept" {{ path = "/kept" respond {{}} }}
'''


def test_descriptors_are_not_leaked_by_broken_reloads(gateway, upstream):
    taken = upstream()
    gw = gateway(HTTP + say("/a", "one"))
    broken = HTTP + f'listener "b" {{ listen = {{"{free_address(own_host())}", "{taken}"}} }}\n' + \
        say("/a", "two")
    gw.reload(broken, ok=False)
    time.sleep(0.1)
    before = gw.descriptors()
    for _ in range(20):
        gw.reload(broken, ok=False)
    until(lambda: gw.descriptors() <= before, "as many as before")


def test_the_file_of_a_unix_listener_goes_with_it(gateway, tmp_path):
    path, admin = tmp_path / "more.sock", tmp_path / "admin.sock"
    gw = gateway(HTTP + say("/a", "one"))
    more = f'listener "more" {{ listen = {{"unix:{path}"}} }}\n'
    gw.reload(HTTP + more + say("/a", "two"))
    gw.reload(HTTP + more + say("/a", "three"))
    assert path.is_socket()
    gw.reload(HTTP + say("/a", "four"))
    assert not path.exists()
    # nor does a reload that fails leave one behind
    gw.reload(f'admin {{ listen = "unix:{admin}" }}\n' + HTTP + more + say("/a", "five") +
              'listener "far" { listen = {"192.0.2.1:80"} }\n', ok=False)
    assert not path.exists() and not admin.exists()
    assert gw.get("/a").body == b"four"


def test_workers_that_a_reload_cannot_change_are_told_as_long_as_they_differ(gateway):
    gw = gateway("workers = 2\n" + HTTP + say("/a", "one"))
    for count, told in ((1, 1), (1, 2), (2, 2)):
        gw.reload(f"workers = {count}\n" + HTTP + say("/a", str(told)))
        assert gw.stderr.count("workers = 1 takes effect at the next start, "
                               "until then there are 2") == told
    assert "workers = 2 takes effect" not in gw.stderr
