"""The plugin rate_limit: how often the same client may ask."""

import json
import re

import pytest

from gateway import run, until
from storm import Storm

HTTP = 'listener "http" { listen = {"@http@"} }\n'
OK = 'respond { status = 200  body = "ok" }'


def one(options, more=""):
    return HTTP + f'route "all" {{ path = "/{{rest...}}" {OK} rate_limit {{ {options} }} }}\n' + more


def statuses(client, n, **options):
    return [client.get(**options).status for _ in range(n)]


def items(field):
    """A list of strings with integer parameters (RFC 9651): [(name, {key: number})]"""
    found = []
    for item in field.split(", "):
        match = re.fullmatch(r'"([\x20-\x21\x23-\x5b\x5d-\x7e]+)"((?:;[a-z]+=\d{1,15})*)', item)
        assert match, field
        found.append((match[1], {k: int(v) for k, v in re.findall(r";([a-z]+)=(\d+)", match[2])}))
    return found


def test_a_burst_passes_and_the_next_is_told_when_to_come_again(gateway):
    g = gateway(one('rate = "3/m"'))
    client = g.client()
    assert statuses(client, 3) == [200, 200, 200]
    refused = client.get("/x?secret=1")
    assert refused.status == 429
    assert refused.get("Content-Type") == "application/problem+json"
    assert 19 <= int(refused.get("Retry-After")) <= 20
    problem = json.loads(refused.body)
    assert problem["reason"] == "limit.rate"
    assert (problem["status"], problem["limit"], problem["actual"]) == (429, 3, 4)
    assert "3/m" in problem["detail"]
    assert client.get().status == 429  # the connection is as good as before
    assert g.wait_log(2, status=429)[0]["reason"] == "limit.rate"
    assert g.metric("postern_responses_total", reason="limit.rate") == 2
    assert g.metric("postern_plugin_refused_total", plugin="rate_limit", place="route all") == 2


def test_another_one_passes_when_it_said(gateway):
    client = gateway(one('rate = "20/s"  burst = 1')).client()
    assert client.get().status == 200
    until(lambda: client.get().status == 200, "the next one passes")


def test_fields_tell_what_is_left(gateway):
    client = gateway(one('rate = {"100/s", "5/m"}  headers = both')).client()
    first = client.get()
    assert first.get("RateLimit-Policy") == '"100/s";q=100;w=1, "5/m";q=5;w=60'
    assert items(first.get("RateLimit")) == [("100/s", {"r": 9, "t": 1}), ("5/m", {"r": 4, "t": 12})]
    assert [first.get(f"X-RateLimit-{n}") for n in ("Limit", "Remaining", "Reset")] == \
        ["5", "4", "12"]
    assert statuses(client, 4) == [200] * 4
    refused = client.get()
    assert refused.status == 429
    state = dict(items(refused.get("RateLimit")))
    assert state["5/m"]["r"] == 0
    assert state["5/m"]["t"] == int(refused.get("Retry-After")) == 12
    assert refused.get("X-RateLimit-Remaining") == "0"


@pytest.mark.parametrize("headers, draft, legacy", [
    ("draft", True, False), ("legacy", False, True), ("both", True, True), ("none", False, False)])
def test_fields_are_a_choice(gateway, headers, draft, legacy):
    client = gateway(one(f'rate = "1/m"  headers = {headers}')).client()
    for status in (200, 429):
        response = client.get()
        assert response.status == status
        for name in ("RateLimit", "RateLimit-Policy"):
            assert response.has(name) is draft
        for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"):
            assert response.has(name) is legacy
        assert response.has("Retry-After") is (status == 429)


def test_answers_of_a_backend_carry_the_fields_too(gateway, backend):
    app = backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nhi")
    g = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                'route "all" { path = "/{rest...}" upstream = app rate_limit { rate = "2/m" } }',
                app=app)
    client = g.client()
    first = client.get()
    assert (first.body, first.get("X-Own")) == (b"hi", "1")
    assert items(first.get("RateLimit")) == [("2/m", {"r": 1, "t": 30})]
    assert statuses(client, 2) == [200, 429]
    assert len(app.requests) == 2


def test_a_refused_request_takes_nothing_from_the_other_windows(gateway):
    client = gateway(one('rate = {"1000/h", "2/m"}  burst = {1000, 2}')).client()
    assert statuses(client, 50) == [200, 200] + [429] * 48
    state = dict(items(client.get().get("RateLimit")))
    assert state["1000/h"]["r"] == 998


def test_cost_counts_several_times(gateway):
    client = gateway(one('rate = "10/m"  cost = 4')).client()
    assert statuses(client, 3) == [200, 200, 429]
    assert items(client.get().get("RateLimit"))[0][1]["r"] == 2


def test_dry_run_counts_and_lets_through(gateway):
    g = gateway(one('rate = "2/m"  dry_run = true'))
    client = g.client()
    for _ in range(7):
        response = client.get()
        assert response.status == 200
        assert not response.has("RateLimit")
    assert g.metric("postern_plugin_would_refuse_total", plugin="rate_limit") == 5
    assert g.metric("postern_plugin_refused_total", plugin="rate_limit") == 0


# whose requests count together

PROXIED = '''
listener "http" { listen = {"@http@"}  trusted_proxies = {"127.0.0.0/8", "unix:"} }
'''


def from_client(client, address, target="/", fields=()):
    return client.get(target, fields=[("X-Forwarded-For", address), *fields]).status


def limited(options, path="/{rest...}"):
    return PROXIED + f'route "all" {{ path = "{path}" {OK} rate_limit {{ {options} }} }}\n'


def test_clients_are_told_apart_by_address(gateway):
    client = gateway(limited('rate = "1/m"')).client()
    assert [from_client(client, f"192.0.2.{i}") for i in range(5)] == [200] * 5
    assert [from_client(client, f"192.0.2.{i}") for i in range(5)] == [429] * 5


def test_an_ipv6_client_is_its_network(gateway):
    client = gateway(limited('rate = "1/m"')).client()
    assert from_client(client, "2001:db8:1:2::1") == 200
    assert from_client(client, "2001:db8:1:2:ffff::2") == 429
    assert from_client(client, "2001:db8:1:3::1") == 200
    assert from_client(client, "192.0.2.7") == 200
    assert from_client(client, "::ffff:192.0.2.7") == 429  # the same in other words
    assert from_client(client, "::ffff:192.0.2.8") == 200  # and not one network


def test_the_size_of_that_network_is_an_option(gateway):
    client = gateway(limited('rate = "1/m"  ipv6_prefix = 48')).client()
    assert from_client(client, "2001:db8:1:2::1") == 200
    assert from_client(client, "2001:db8:1:3::1") == 429
    assert from_client(client, "2001:db8:2:2::1") == 200


def test_by_header_and_without_it_by_address(gateway):
    client = gateway(limited('rate = "1/m"  by = "header:X-Tenant"')).client()
    assert from_client(client, "192.0.2.1", fields=[("X-Tenant", "a")]) == 200
    assert from_client(client, "192.0.2.2", fields=[("x-tenant", "a")]) == 429
    assert from_client(client, "192.0.2.1", fields=[("X-Tenant", "b")]) == 200
    assert from_client(client, "192.0.2.1") == 200
    assert from_client(client, "192.0.2.1") == 429
    assert from_client(client, "192.0.2.2") == 200
    assert from_client(client, "192.0.2.3", fields=[("X-Tenant", "192.0.2.1")]) == 200


def test_by_credential_and_without_it_by_address(gateway):
    client = gateway(limited('rate = "1/m"  by = credential')).client()
    assert from_client(client, "192.0.2.1") == 200
    assert from_client(client, "192.0.2.1") == 429
    assert from_client(client, "192.0.2.2") == 200


def test_who_is_known_counts_by_name_wherever_he_comes_from(gateway, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"key": "ka", "consumer": "alice"},
                                         {"key": "kb", "consumer": "bob"}]}))
    g = gateway(PROXIED + f'route "all" {{ path = "/{{rest...}}" {OK}\n'
                'rate_limit { rate = "2/m"  by = credential }\n'
                f'key_auth {{ file = "{keys}"  optional = true }} }}\n')
    client = g.client()

    def ask(address, *key):
        return from_client(client, address, fields=[("X-Api-Key", k) for k in key])

    assert [ask(f"192.0.2.{i}", "ka") for i in range(3)] == [200, 200, 429]
    assert [ask("192.0.2.1", "kb") for _ in range(3)] == [200, 200, 429]
    assert [ask("192.0.2.1") for _ in range(3)] == [200, 200, 429]
    assert ask("192.0.2.9", "wrong") == 401  # refused before it counts
    refused = g.wait_log(3, status=429)
    assert [line["credential"] for line in refused] == ["alice", "bob", None]


def test_by_path_in_its_normal_form(gateway):
    client = gateway(limited('rate = "1/m"  by = path')).client()
    assert from_client(client, "192.0.2.1", "/a/b") == 200
    assert from_client(client, "192.0.2.2", "/a/%62?x=1") == 429
    assert from_client(client, "192.0.2.2", "/a/../a/b") == 429
    assert from_client(client, "192.0.2.2", "/a/B") == 200


def test_by_route_everybody_together(gateway):
    g = gateway(PROXIED + 'rate_limit { rate = "1/m"  by = route }\n'
                f'route "a" {{ path = "/a/{{rest...}}" {OK} }}\n'
                f'route "b" {{ path = "/b/{{rest...}}" {OK} }}\n')
    client = g.client()
    assert from_client(client, "192.0.2.1", "/a/1") == 200
    assert from_client(client, "192.0.2.2", "/a/2") == 429
    assert from_client(client, "192.0.2.2", "/b/2") == 200


def test_several_parts_make_one_key(gateway):
    client = gateway(limited('rate = "1/m"  by = {client_ip, path}')).client()
    assert from_client(client, "192.0.2.1", "/a") == 200
    assert from_client(client, "192.0.2.1", "/b") == 200
    assert from_client(client, "192.0.2.2", "/a") == 200
    assert from_client(client, "192.0.2.1", "/a") == 429


def test_the_peers_of_a_unix_socket_have_a_key(gateway, tmp_path):
    path = f"unix:{tmp_path}/l.sock"
    g = gateway(one('rate = "2/m"').replace('"@http@"', '"@http@", "@sock@"'), sock=path)
    assert [g.get(name="sock").status for _ in range(3)] == [200, 200, 429]
    assert g.get().status == 200


# where it stands

def test_the_innermost_section_counts_and_can_be_switched_off(gateway):
    g = gateway(HTTP + 'rate_limit { rate = "2/m" }\n'
                f'route "a" {{ path = "/a" {OK} }}\n'
                f'route "b" {{ path = "/b" {OK} }}\n'
                f'route "own" {{ path = "/own" {OK} rate_limit {{ rate = "4/m" }} }}\n'
                f'route "free" {{ path = "/free" {OK} rate_limit {{ enabled = false }} }}\n')
    client = g.client()
    assert statuses(client, 5, target="/own") == [200] * 4 + [429]
    assert statuses(client, 9, target="/free") == [200] * 9
    # one section is one limit, whichever route a request takes
    assert [client.get(t).status for t in ("/a", "/b", "/a", "/b")] == [200, 200, 429, 429]


def test_state_survives_a_reload_and_a_new_rate_begins_anew(gateway):
    g = gateway(one('rate = "2/h"  burst = 2'))
    assert statuses(g.client(), 3) == [200, 200, 429]
    g.reload(one('rate = "2/h"  burst = 3  headers = none'))
    assert statuses(g.client(), 2) == [200, 429]  # one more at once, and two are spent
    g.reload(one('rate = "3/h"'))
    assert statuses(g.client(), 4) == [200, 200, 200, 429]


def test_more_keys_than_there_is_room_for(gateway):
    g = gateway(limited('rate = "1/h"  keys = 8  by = "header:X-Key"'))
    client = g.client()
    for i in range(200):
        assert from_client(client, "192.0.2.1", fields=[("X-Key", str(i))]) == 200
    assert g.metric("postern_plugin_displaced_total", plugin="rate_limit") == 200 - 16
    assert from_client(client, "192.0.2.1", fields=[("X-Key", "199")]) == 429


def test_long_and_odd_keys(gateway):
    client = gateway(limited('rate = "1/m"  by = "header:X-Key"')).client()
    for value in ("", "x" * 7000, "x" * 7001, "\xff\xfe", "a b"):
        assert from_client(client, "192.0.2.1", fields=[("X-Key", value)]) == 200
        assert from_client(client, "192.0.2.1", fields=[("X-Key", value)]) == 429


# how exact it is

@pytest.mark.threads
@pytest.mark.undisturbed
def test_two_workers_let_through_what_the_rate_says(gateway, opened):
    """burst + rate * time is exact whatever else the machine does: a burst of a second makes up
    for any time in which nobody asked."""
    g = gateway("workers = 2\n" + one('rate = "1000/s"  burst = 1000  by = route'))
    storm = Storm([g.address()], 64)
    opened.append(storm)
    storm.run(4)
    storm.check(1000, 1000, g.client(), 0.001)


@pytest.mark.threads
@pytest.mark.undisturbed
def test_the_default_burst_keeps_every_second_within_a_hundredth(gateway, opened):
    g = gateway("workers = 2\n" + one('rate = "1000/s"  by = route'))
    storm = Storm([g.address()], 64)
    opened.append(storm)
    took = storm.run(2)
    assert storm.statuses[200] <= 10 + 1000 * took + 1, (storm.statuses, took)
    assert g.metric("postern_plugin_refused_total") == storm.statuses[429]


# what -t says

FAULTS = [
    ('', r"rate"),
    ('rate = "100"', r"rate"),
    ('rate = "0/s"', r"rate"),
    ('rate = "100/s"  burst = 0', r"burst"),
    ('rate = {"1/s", "2/s"}', "rate has two for the same time"),
    ('rate = {"1/s", "2/m", "3/h", "4/d", "5/s"}', "rate has 5, expected 1 to 4"),
    ('rate = {"1/s", "2/m"}  burst = 5', "burst has 1, expected one for each of the 2 rates"),
    ('rate = "10/s"  burst = 2  cost = 3', "burst is 2, expected at least the cost"),
    ('rate = "1/h"  burst = 1000000', "a burst of 1000000 takes more than 400 days"),
    ('rate = "1/s"  by = clientip', 'by has "clientip", expected client_ip'),
    ('rate = "1/s"  by = "header:"', "header:NAME"),
    ('rate = "1/s"  by = "header:a b"', "header:NAME"),
    ('rate = "1/s"  by = {path, path}', 'by has "path" twice'),
    ('rate = "1/s"  by = {path, route, client_ip, credential, "header:a"}', "at most 4"),
    ('rate = "1/s"  ipv6_prefix = 60', "ipv6_prefix is 60, expected a multiple of 8"),
    ('rate = "1/s"  ipv6_prefix = 16', r"ipv6_prefix"),
    ('rate = "1/s"  headers = all', r"headers"),
    ('rate = "1/s"  keys = 1', r"keys"),
    ('rate = "1/s"  burts = 1', r"burts"),
]


@pytest.mark.parametrize("options, said", FAULTS)
def test_faults_name_file_line_and_what_was_expected(tmp_path, options, said):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\n'
                    f'route "all" {{\n path = "/" {OK}\n rate_limit {{\n{options}\n }} }}\n')
    status, text, _ = run("-t", "-q", "-c", str(file))
    assert status == 1
    assert re.fullmatch(rf"{re.escape(str(file))}:[345]: .*{said}.*\n", text), text


def test_t_prints_what_reads_the_same(tmp_path):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\n'
                    f'route "all" {{ path = "/" {OK} rate_limit {{ rate = {{"5/s", "100/m"}} '
                    'burst = {5, 20} by = {credential, "header:X-A"} dry_run = true } }\n')
    status, _, first = run("-T", "-c", str(file))
    assert status == 0 and 'burst = {5, 20}' in first
    file.write_text(first)
    assert run("-T", "-c", str(file))[2] == first
