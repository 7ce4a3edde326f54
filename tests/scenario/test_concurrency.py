"""The plugin concurrency: how many requests of a client are on their way at a time."""

import json
import re
import threading

import pytest

from gateway import run
from storm import Storm

HTTP = 'listener "http" { listen = {"@http@"} }\n'


def one(options, route="", more=""):
    return HTTP + 'upstream "app" { server "@app@" {} }\n' \
        f'route "all" {{ path = "/{{rest...}}" upstream = app {route}' \
        f' concurrency {{ {options} }} }}\n{more}'


def ask(g, target="/", fields=()):
    """A request whose answer nobody has given yet."""
    client = g.client()
    lines = [f"GET {target} HTTP/1.1", "Host: test", *fields]
    client.send("\r\n".join(lines) + "\r\n\r\n")
    return client


def held(g, up, n=1, **options):
    """n requests that a scripted upstream has got: [(client, its connection)]"""
    pairs = []
    for _ in range(n):
        client = ask(g, **options)
        conn = up.accept()
        conn.expect()
        pairs.append((client, conn))
    return pairs


def test_one_more_than_the_limit_is_refused_until_one_ends(gateway, upstream):
    up = upstream()
    g = gateway(one("limit = 2"), app=up)
    (first, conn), _ = held(g, up, 2)
    refused = g.get()
    assert refused.status == 429
    assert refused.get("Retry-After") == "1"
    problem = json.loads(refused.body)
    assert problem["reason"] == "limit.concurrency"
    assert (problem["limit"], problem["actual"]) == (2, 3)
    up.expect_no_connection()
    conn.respond(b"done")
    assert first.response().body == b"done"
    g.wait_log(1, status=200)
    third = ask(g)
    conn.expect()  # on the connection that is free again
    conn.respond(b"next")
    assert third.response().body == b"next"
    assert g.wait_log(1, status=429)[0]["reason"] == "limit.concurrency"
    assert g.metric("postern_plugin_refused_total", plugin="concurrency", place="route all") == 1


def test_the_status_is_a_choice(gateway, upstream):
    up = upstream()
    g = gateway(one("limit = 1  status = 503  by = route"), app=up)
    held(g, up)
    refused = g.get()
    assert (refused.status, json.loads(refused.body)["reason"]) == (503, "limit.concurrency")


def test_requests_of_one_connection_take_turns_and_never_meet_the_limit(gateway, backend):
    g = gateway(one("limit = 1"), app=backend())
    client = g.client()
    assert [client.get().status for _ in range(20)] == [200] * 20


@pytest.mark.parametrize("end", ["client leaves", "upstream dies", "upstream is silent"])
def test_a_place_is_given_back_however_a_request_ends(gateway, upstream, end):
    up = upstream()
    g = gateway(one("limit = 1", "timeout = 300ms" if end == "upstream is silent" else ""), app=up)
    for turn in range(3):
        [(client, conn)] = held(g, up)
        assert g.get().status == 429
        if end == "client leaves":
            client.reset()
            conn.expect_closed()
        elif end == "upstream dies":
            conn.reset()
            up.accept().reset()  # it was tried once more
            assert client.response().status == 502
        else:
            assert client.response().status == 504
        g.wait_log(turn + 1, **{"status": {"client leaves": 499, "upstream dies": 502,
                                           "upstream is silent": 504}[end]})
    held(g, up)


def test_a_tunnel_counts_until_it_ends(gateway, upstream):
    up = upstream()
    g = gateway(one("limit = 1"), app=up)
    client = g.client()
    client.send("GET /ws HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    conn = up.accept()
    conn.expect()
    conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
    assert client.head().status == 101
    client.send("ping")
    assert conn.read_exact(4) == b"ping"
    assert g.get().status == 429
    client.close()
    conn.expect_closed()
    conn.close()
    g.wait_log(1, status=101)
    held(g, up)


def test_keys_are_apart(gateway, upstream):
    up = upstream()
    g = gateway(one('limit = 1  by = "header:X-Tenant"'), app=up)
    held(g, up, fields=["X-Tenant: a"])
    held(g, up, fields=["X-Tenant: b"])
    held(g, up)
    assert g.get(fields=[("X-Tenant", "a")]).status == 429
    assert g.get(fields=[("X-Tenant", "b")]).status == 429
    assert g.get().status == 429


def test_requests_in_flight_are_counted_over_a_reload(gateway, upstream):
    up = upstream()
    g = gateway(one("limit = 2"), app=up)
    (first, conn), _ = held(g, up, 2)
    g.reload(one("limit = 1"))
    assert g.get().status == 429
    conn.respond()
    first.response()
    g.wait_log(1, status=200)
    assert g.get().status == 429  # one is still on its way
    g.reload(one("limit = 2"))
    third = ask(g)
    conn.expect()
    conn.respond()
    assert third.response().status == 200


def test_dry_run_counts_and_lets_through(gateway, upstream):
    up = upstream()
    g = gateway(one("limit = 1  dry_run = true"), app=up)
    pairs = held(g, up, 3)
    assert g.metric("postern_plugin_would_refuse_total", plugin="concurrency") == 2
    for client, conn in pairs:
        conn.respond()
        client.response()
    g.wait_log(3, status=200)


def test_a_full_table_counts_some_together_and_loses_nothing(gateway, upstream):
    up = upstream()
    g = gateway(one('limit = 40  keys = 8  by = "header:X-Key"'), app=up)
    pairs = [held(g, up, fields=[f"X-Key: {i}"])[0] for i in range(30)]
    assert g.metric("postern_plugin_crowded_total", plugin="concurrency") == 30 - 16
    for client, conn in pairs:
        conn.respond()
        assert client.response().status == 200
    g.wait_log(30, status=200)


@pytest.mark.threads
def test_two_workers_never_have_one_more_on_their_way(gateway, backend, opened):
    """The backend sees at most so many at a time, and in the end all places are free."""
    lock, inside, seen = threading.Lock(), [0], []

    def answer(request):
        with lock:
            inside[0] += 1
            seen.append(inside[0])
        with lock:
            inside[0] -= 1
        return b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    g = gateway("workers = 2\n" + one("limit = 3  by = route"), app=backend(answer=answer))
    storm = Storm([g.address()], 32, depth=1)
    opened.append(storm)
    storm.run(2)
    assert set(storm.statuses) == {200, 429}
    assert max(seen) <= 3
    g.wait_log(storm.statuses[200], status=200)
    g.reload(one("limit = 1  by = route").replace("listener", "workers = 2\nlistener", 1))
    assert g.get().status == 200  # nothing was left behind


FAULTS = [
    ("", "limit"),
    ("limit = 0", "limit"),
    ("limit = 5  by = user", 'by has "user", expected client_ip'),
    ("limit = 5  status = 500", "status"),
    ("limit = 5  burst = 1", "burst"),
    ("limit = 5  ipv6_prefix = 63", "expected a multiple of 8"),
]


@pytest.mark.parametrize("options, said", FAULTS)
def test_faults_name_file_line_and_what_was_expected(tmp_path, options, said):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\n'
                    'route "all" {\n path = "/" respond { status = 204 }\n concurrency {\n'
                    f'{options}\n }} }}\n')
    status, text, _ = run("-t", "-q", "-c", str(file))
    assert status == 1
    assert re.fullmatch(rf"{re.escape(str(file))}:[345]: .*{said}.*\n", text), text
