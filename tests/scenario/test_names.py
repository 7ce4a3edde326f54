"""Names of servers: all addresses are used, and looked up again while the gateway runs."""

import collections
import itertools
import random
import signal
import socket
import threading
import time

import pytest

import backend as backends
from conftest import HTTP
from gateway import own_host, run, until
from nameserver import Nameserver

NAME = "users.test"
RESOLVER = 'resolver = {"@dns@"}\n'
ROUTE = 'route "all" { path = "/{rest...}"  upstream = app }\n'


def config(port, pool="", more=""):
    return (RESOLVER + HTTP + f'upstream "app" {{ server "{NAME}:{port}" {{}} {pool} }}\n' + ROUTE +
            more)


@pytest.fixture
def dns(opened):
    thing = Nameserver(own_host())
    opened.append(thing)
    return thing


@pytest.fixture
def servers(opened):
    """servers(n): backends on n loopback addresses and one port, by address."""
    def make(n):
        net = own_host().split(".", 2)[2]  # below own_host()'s, and as much this process's own
        port, made = 0, {}
        for host in sorted(f"127.{k}.{net}" for k in random.sample(range(1, 63), n)):
            made[host] = backends.Backend(host, host, port=port)
            port = made[host].port
            opened.append(made[host])
        return made, port

    return make


@pytest.fixture
def traffic():
    """traffic(gateway): steady requests in the background; .stop() says who answered and what
    went wrong."""
    running = []

    class Traffic:
        def __init__(self, gw, threads=2):
            self.ended, self.bad, self.by = threading.Event(), [], collections.Counter()
            self.recent = collections.deque(maxlen=20)
            self.threads = [threading.Thread(target=self.run, args=(gw.client(),))
                            for _ in range(threads)]
            running.append(self)
            for thread in self.threads:
                thread.start()

        def run(self, client):
            try:
                while not self.ended.is_set():
                    response = client.get()
                    if response.status != 200:
                        self.bad.append((response.status, response.body))
                    self.by[response.body.decode()] += 1
                    self.recent.append(response.body.decode())
            except Exception as error:
                self.bad.append(error)

        def moved_to(self, hosts):
            return until(lambda: len(self.recent) == 20 and set(self.recent) == set(hosts),
                         f"the last requests go to {hosts} only: {self.recent} {self.bad}")

        def stop(self):
            self.ended.set()
            for thread in self.threads:
                thread.join()
            assert not self.bad, self.bad[:5]
            return self.by

    yield Traffic
    for thing in running:
        thing.ended.set()


def addresses(gw):
    return sorted(server["address"].rsplit(":", 1)[0] for server in gw.upstream("app"))


@pytest.mark.threads
def test_all_addresses_are_used_evenly(gateway, dns, servers):
    made, port = servers(4)
    dns.say(NAME, list(made))
    gw = gateway(config(port), dns=dns)
    client = gw.client()
    counts = collections.Counter(client.get().body.decode() for _ in range(40))
    assert counts == {host: 10 for host in made}


@pytest.mark.threads
def test_a_changed_answer_moves_the_traffic_without_a_failed_request(gateway, dns, servers,
                                                                     traffic):
    made, port = servers(3)
    a, b, c = made
    dns.say(NAME, [a, b])
    gw = gateway("workers = 2\n" + config(port, "pool { warm = 4 }"), dns=dns)
    before = gw.config_state()
    load = traffic(gw)
    load.moved_to([a, b])
    opened = made[b].opened
    dns.say(NAME, [c, b])
    load.moved_to([b, c])
    until(lambda: made[a].open == set(), "nothing is open to the address that has gone")
    dns.say(NAME, [c])
    load.moved_to([c])
    load.stop()
    assert made[b].opened == opened, "a server that stays keeps its connections"
    assert addresses(gw) == [c]
    assert gw.config_state() == before, "it is the same configuration"
    assert 'upstream "app": its names have changed; 1 addresses, before 2' in gw.stderr


def test_counters_of_a_server_that_stays_go_on(gateway, dns, servers):
    made, port = servers(2)
    a, b = made
    dns.say(NAME, [a])
    gw = gateway(config(port), dns=dns)
    client = gw.client()
    for _ in range(5):
        assert client.get().body.decode() == a
    dns.say(NAME, [a, b])
    until(lambda: len(addresses(gw)) == 2, "two addresses")
    for _ in range(4):
        assert client.get().status == 200
    server = gw.upstream("app", f"{a}:{port}")
    assert (server["requests"], server["opened"], server["reused"]) == (7, 1, 6), server


def test_order_in_the_answer_is_no_change(gateway, dns, servers):
    made, port = servers(3)
    dns.say(NAME, list(made))
    gw = gateway(config(port), dns=dns)
    for order in itertools.islice(itertools.permutations(made), 1, 4):
        asked = dns.say(NAME, list(order))
        until(lambda: dns.count(NAME) >= asked + 4, "asked again, both families")
    assert "have changed" not in gw.stderr


@pytest.mark.parametrize("bad", ["nxdomain", "servfail", "silence", "garbage", []])
def test_a_failed_look_up_keeps_the_addresses(gateway, dns, servers, traffic, bad):
    made, port = servers(3)
    a, b, c = made
    dns.say(NAME, [a, b])
    gw = gateway(config(port), dns=dns)
    load = traffic(gw, 1)
    asked = dns.say(NAME, bad)
    gw.wait_stderr(rf"the name {NAME} cannot be resolved: .*keeps the addresses it had \(2\)")
    until(lambda: dns.count(NAME) >= asked + 6, "tried again", 30)
    load.moved_to([a, b])
    dns.say(NAME, [c])
    load.moved_to([c])
    load.stop()
    assert gw.stderr.count("cannot be resolved") == 1, "told once"
    assert gw.stderr.count("can be resolved again") == 1


def test_a_family_that_fails_keeps_its_addresses(gateway, dns, servers):
    """AAAA in silence must neither hold up the start nor take the IPv4 addresses away."""
    made, port = servers(1)
    whole = dns.answer
    dns.answer = lambda packet: None if packet[-3] == 28 else whole(packet)
    dns.say(NAME, list(made))
    start = time.monotonic()
    gw = gateway(config(port), dns=dns)
    assert time.monotonic() - start < 8
    assert gw.get().status == 200
    asked = dns.count(NAME)
    until(lambda: dns.count(NAME) > asked, "asked again", 30)
    assert gw.get().status == 200 and addresses(gw) == list(made)


def test_a_name_that_is_absent_at_the_start_appears(gateway, dns, servers):
    made, port = servers(1)
    gw = gateway(config(port), dns=dns)
    assert "left out: its name cannot be resolved: there is no such name" in gw.stderr
    refused = gw.get()
    assert refused.status == 503 and b"upstream.none" in refused.body
    dns.say(NAME, list(made))
    until(lambda: gw.get().status == 200, "it serves")
    assert addresses(gw) == list(made)


def test_ipv6_and_ipv4_of_one_name(gateway, dns, opened):
    try:
        six = backends.Backend("::1", "six")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    opened.append(six)
    opened.append(backends.Backend(own_host(), "four", port=six.port))
    dns.say(NAME, ["::1", own_host()])
    gw = gateway(config(six.port), dns=dns)
    client = gw.client()
    assert collections.Counter(client.get().body for _ in range(10)) == {b"four": 5, b"six": 5}


@pytest.fixture
def silent(opened):
    """silent(host, port): an address that answers no connect at all, its queue being full."""
    def make(host, port):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        full = socket.socket(family)
        full.bind((host, port))
        full.listen(0)
        opened.append(full)
        for _ in range(4):
            filler = socket.socket(family)
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
            opened.append(filler)

    return make


def test_a_silent_address_costs_a_moment_and_no_request(gateway, dns, servers, silent):
    """Not the time to connect, which would be longer than this test waits."""
    made, port = servers(1)
    dead = f"127.63.{own_host().split('.', 2)[2]}"
    silent(dead, port)
    dns.say(NAME, [dead, *made])
    gw = gateway(config(port, "timeouts { connect = 60s } retry { attempts = 0 }"), dns=dns)
    client = gw.client()
    for _ in range(6):
        assert client.get().status == 200
    lines = gw.wait_log(6)
    assert all(line["server"].startswith(next(iter(made))) for line in lines)
    assert {line["attempts"] for line in lines} == {1, 2}
    assert gw.metric("postern_upstream_retries_total", upstream="app") == 0, "it is no retry"


def test_a_dead_family_costs_a_moment_and_no_request(gateway, dns, opened, silent):
    try:
        four = backends.Backend(own_host(), "four")
        opened.append(four)
        silent("::1", four.port)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    dns.say(NAME, ["::1", own_host()])
    gw = gateway(config(four.port, "timeouts { connect = 60s } retry { attempts = 0 }"), dns=dns)
    for _ in range(4):
        assert gw.get(method="POST", body=b"once").body == b"four"
    assert four.count == 4


def test_an_address_without_a_route_fails_no_request(gateway, dns, servers):
    made, port = servers(1)
    dns.say(NAME, list(made) + ["fe80::1", "fe80::2", "fe80::3", "fe80::4"])
    gw = gateway(config(port), dns=dns)
    client = gw.client()
    for _ in range(20):
        assert client.get().status == 200
    assert addresses(gw) == list(made)


def test_of_very_many_addresses_the_lowest_are_used(gateway, dns):
    """More than a datagram holds: the answer comes by TCP, in any order."""
    many = [f"127.0.0.{k}" for k in range(1, 91)]
    random.shuffle(many)
    dns.say(NAME, many)
    gw = gateway(config(9), dns=dns)
    asked = dns.count(NAME)
    assert set(addresses(gw)) == {f"127.0.0.{k}" for k in range(1, 65)} and dns.streams
    dns.say(NAME, many[::-1])
    until(lambda: dns.count(NAME) >= asked + 4, "asked again")
    assert "have changed" not in gw.stderr


def test_a_server_that_is_down_stays_so_through_changes(gateway, dns, servers):
    """What is known of a server that stays goes over to the new set."""
    made, port = servers(2)
    (a, b), dead = made, f"127.63.{own_host().split('.', 2)[2]}"
    dns.say(NAME, [a, dead])
    gw = gateway("workers = 2\n" + config(port, "pool { warm = 2 }"), dns=dns)

    def state():
        return {s["address"].rsplit(":", 1)[0]: s["state"] for s in gw.upstream("app")}

    assert state() == {a: "up", dead: "down"}
    dns.say(NAME, [a, b, dead])
    until(lambda: len(addresses(gw)) == 3, "three addresses")
    assert state() == {a: "up", b: "up", dead: "down"}
    late = backends.Backend(dead, "late", port=port)
    until(lambda: state()[dead] == "up", "it is up")
    until(lambda: late.opened >= 2, "and warm")
    late.stop()


def test_series_of_addresses_that_are_gone_go_too(gateway, dns, servers):
    made, port = servers(6)
    dns.say(NAME, list(made)[:1])
    gw = gateway("workers = 2\n" + config(port), dns=dns)

    def labels():
        return {has["server"].rsplit(":", 1)[0] for name, has, _ in gw.metrics() if "server" in has}

    for host in made:
        dns.say(NAME, [host])
        until(lambda: addresses(gw) == [host], "moved")
        for _ in range(3):
            assert gw.get().body.decode() == host
        until(lambda: labels() == {host}, "only what there is")
    host = next(iter(made))
    dns.say(NAME, [host])
    until(lambda: addresses(gw) == [host], "back at the first")
    assert gw.get().status == 200
    server = gw.upstream("app", f"{host}:{port}")
    assert (server["requests"], server["opened"]) == (1, 1), "counted from new"


def test_gauges_are_right_after_changes(gateway, dns, servers, traffic):
    made, port = servers(3)
    hosts = list(made)
    dns.say(NAME, hosts)
    gw = gateway("workers = 2\n" + config(port, "pool { warm = 4 }"), dns=dns)
    load = traffic(gw)
    for now in (hosts[:2], hosts[1:], hosts[:1], hosts):
        dns.say(NAME, now)
        load.moved_to(now)
    load.stop()
    for host in hosts:
        until(lambda: gw.upstream("app", f"{host}:{port}")["active"] == 0, "nothing runs")
        until(lambda: gw.upstream("app", f"{host}:{port}")["idle"] == len(made[host].open),
              f"idle is what is open: {gw.upstream('app')} {len(made[host].open)}")


@pytest.mark.parametrize("args", [(), ("-t",)])
def test_a_dead_nameserver_holds_up_nothing_for_long(gateway, dns, servers, tmp_path, args):
    names = [f"n{i}.test" for i in range(100)]
    text = RESOLVER + HTTP + "".join(
        f'upstream "u{i}" {{ server "{name}:80" {{}} }}\n' for i, name in enumerate(names)) + \
        'route "r" { respond { status = 204 } }\n'
    for name in names:
        dns.say(name, "silence")
    start = time.monotonic()
    gw = gateway(text, dns=dns, args=args, wait=not args)
    if args:
        assert gw.wait_exit() == 0
        assert gw.stderr.count("warning: ") == 100
    else:
        assert gw.get().status == 204
    assert time.monotonic() - start < 10


def test_a_reload_that_waits_for_names_holds_up_nobody(gateway, dns, servers):
    """The main thread answers all the time, and the reload goes on without them."""
    made, port = servers(1)
    dns.say(NAME, list(made))
    dns.say("silent.test", "silence")
    gw = gateway(config(port), dns=dns)
    gw.write(config(port, more='upstream "s" { server "silent.test:80" {} }\n'
                    'route "s" { path = "/s"  upstream = s }\n'))
    gw.signal(signal.SIGHUP)
    until(lambda: dns.count("silent.test"), "it is being looked up")
    answers = 0
    while gw.config_state()["generation"] == 1:
        assert gw.get().status == 200
        answers += 1
    assert answers > 10, "two seconds long"
    assert 'server "silent.test:80" of upstream "s" is left out' in gw.stderr
    assert gw.get("/s").status == 503
    dns.say("silent.test", list(made))
    until(lambda: gw.get("/s").status != 503, "found later")


def test_a_stop_while_a_reload_waits_for_names(gateway, dns, servers):
    made, port = servers(1)
    dns.say(NAME, list(made))
    dns.say("silent.test", "silence")
    gw = gateway(config(port), dns=dns)
    gw.write(config(port, more='upstream "s" { server "silent.test:80" {} }\n'
                    'route "s" { path = "/s"  upstream = s }\n'))
    gw.signal(signal.SIGHUP)
    until(lambda: dns.count("silent.test"), "it is being looked up")
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0


@pytest.mark.threads
def test_reloads_while_a_look_up_is_under_way(gateway, dns, servers, traffic):
    made, port = servers(2)
    a, b = made
    dns.say(NAME, [a])
    gw = gateway(config(port), dns=dns)
    load = traffic(gw, 1)
    dns.say(NAME, "silence")
    asked = dns.count(NAME)
    until(lambda: dns.count(NAME) > asked, "a look-up is under way")
    state = gw.reload()
    assert state["generation"] == 2
    assert "keeps the addresses it had (1): its name cannot be resolved" in gw.stderr
    dns.say(NAME, [a, b])
    load.moved_to([a, b])
    load.stop()


@pytest.mark.threads
def test_a_storm_of_signals_and_changes(gateway, dns, servers, traffic):
    made, port = servers(4)
    hosts = list(made)
    dns.say(NAME, hosts[:2])
    gw = gateway("workers = 2\n" + config(port, "pool { warm = 2 }"), dns=dns)
    load = traffic(gw)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        dns.say(NAME, random.sample(hosts, random.randint(1, 4)))
        gw.signal(signal.SIGHUP)
        time.sleep(random.random() / 10)
    dns.say(NAME, [hosts[3]])
    load.moved_to([hosts[3]])
    load.stop()
    assert gw.config_state()["last_reload"]["ok"]


@pytest.mark.threads
def test_drains_while_a_look_up_is_under_way(gateway, dns, servers):
    made, port = servers(1)
    dns.say(NAME, list(made))
    gw = gateway(config(port), dns=dns)
    assert gw.get().status == 200
    asked = dns.say(NAME, "silence")
    until(lambda: dns.count(NAME) > asked, "a look-up is under way")
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0


def test_a_tunnel_lives_through_changes(gateway, dns, upstream, servers):
    """An exchange that began with an address goes on with it when the name has left it."""
    up = upstream()
    host, port = up.address.rsplit(":", 1)
    dns.say(NAME, [host])
    gw = gateway(config(port), dns=dns)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    for other in ("127.0.0.9", "127.0.0.10"):
        dns.say(NAME, [other])
        until(lambda: addresses(gw) == [other], "moved")
    conn.respond(b"late")
    assert client.response().body == b"late"


def test_a_changed_resolver_is_used_after_a_reload(gateway, dns, servers, opened):
    made, port = servers(2)
    a, b = made
    other = Nameserver(own_host())
    opened.append(other)
    dns.say(NAME, [a])
    other.say(NAME, [b])
    gw = gateway(config(port), dns=dns, other=other)
    assert gw.get().body.decode() == a
    gw.reload(config(port).replace("@dns@", "@other@"))
    assert gw.get().body.decode() == b


SERVICE = "_http._tcp.users.test"


def service(more="", server="{}"):
    return RESOLVER + HTTP + f'upstream "app" {{ server "{SERVICE}" {server} {more} }}\n' + ROUTE


@pytest.fixture
def targets(dns, servers):
    """targets(n): backends with a name each, and what an SRV record says of one of them."""
    def make(n):
        made, port = servers(n)
        for host in made:
            dns.say(target(host), [host])
        return list(made), made, lambda host, priority=0, weight=1: (priority, weight, port,
                                                                     target(host))

    def target(host):
        return f"n{host.replace('.', '-')}.users.test"

    return make


def share(gw, requests):
    client = gw.client()
    return collections.Counter(client.get().body.decode() for _ in range(requests))


@pytest.mark.threads
def test_weights_of_a_service_are_honoured_and_followed(gateway, dns, targets, traffic):
    (a, b, c), made, record = targets(3)
    dns.say(SERVICE, [record(a, weight=3), record(b), record(c, weight=0)])
    gw = gateway("workers = 2\n" + service(), dns=dns)
    before = gw.config_state()
    assert share(gw, 50) == {a: 30, b: 10, c: 10}
    opened = made[b].opened
    load = traffic(gw)
    dns.say(SERVICE, [record(a), record(b, weight=8), record(c)])  # and no address changes
    until(lambda: {s["address"].rsplit(":", 1)[0]: s["weight"] for s in gw.upstream("app")} ==
          {a: 1, b: 8, c: 1}, "the new weights")
    dns.say(SERVICE, [record(b, weight=8)])
    load.moved_to([b])
    load.stop()
    assert made[b].opened <= opened + 4, "a server that stays keeps its connections"
    assert gw.config_state() == before, "it is the same configuration"


def test_lower_priorities_are_asked_when_the_first_is_down(gateway, dns, targets):
    (a, b, c), made, record = targets(3)
    dns.say(SERVICE, [record(c, priority=30), record(a, priority=10), record(b, priority=20)])
    gw = gateway(service(), dns=dns)
    assert share(gw, 10) == {a: 10}
    made[a].stop()
    client = gw.client()
    client.get()
    until(lambda: client.get().body.decode() in (b, c), "a backup answers")
    assert set(share(gw, 10)) <= {b, c}
    dns.say(SERVICE, [record(a, priority=10), record(c, priority=5)])
    until(lambda: share(gw, 5) == {c: 5}, "a priority alone is a change")


@pytest.mark.parametrize("bad", ["nxdomain", "servfail", "silence", "garbage", []])
def test_a_service_that_vanishes_keeps_its_addresses(gateway, dns, targets, traffic, bad):
    (a, b, c), _, record = targets(3)
    dns.say(SERVICE, [record(a), record(b)])
    gw = gateway(service(), dns=dns)
    load = traffic(gw, 1)
    dns.say(SERVICE, bad)
    gw.wait_stderr(rf"the name {SERVICE} cannot be resolved: .*keeps the addresses it had \(2\)")
    load.moved_to([a, b])
    dns.say(SERVICE, [record(c)])
    load.moved_to([c])
    load.stop()


def test_a_target_that_has_no_address_does_not_hold_up_the_others(gateway, dns, targets):
    (a,), _, record = targets(1)
    dns.say(SERVICE, [record(a), (0, 1, 9, "none.test")])
    gw = gateway(service(), dns=dns)
    assert "a target of its SRV records has no address" in gw.stderr
    assert share(gw, 5) == {a: 5}


def test_a_service_that_is_none_is_left_out_until_it_is_one(gateway, dns, targets):
    (a,), _, record = targets(1)
    dns.say(SERVICE, [(0, 0, 0, ".")])
    gw = gateway(service(), dns=dns)
    assert "is left out: its name cannot be resolved: its SRV record says that there is no such " \
        "service" in gw.stderr
    assert gw.get().status == 503
    dns.say(SERVICE, [record(a)])
    until(lambda: gw.get().status == 200, "it serves")
    dns.say(SERVICE, [(0, 0, 0, ".")])
    until(lambda: gw.get().status == 503, "it says that it is none")


def test_of_very_many_records_the_first_are_used(gateway, dns):
    """More than a datagram holds, and than are used."""
    many = [(k, 1, 1000 + k, "many.test") for k in range(1, 91)]
    random.shuffle(many)
    dns.say("many.test", ["127.0.0.1"])
    dns.say(SERVICE, many)
    gw = gateway(service(), dns=dns)
    assert {s["address"] for s in gw.upstream("app")} == {f"127.0.0.1:{1000 + k}"
                                                          for k in range(1, 65)}
    assert dns.streams


def test_what_a_service_is_called_in_host(gateway, dns, upstream):
    up = upstream()
    host, port = up.address.rsplit(":", 1)
    dns.say(SERVICE, [(0, 1, int(port), "n.users.test")])
    dns.say("n.users.test", [host])
    gw = gateway(service("host = upstream"), dns=dns)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    assert conn.expect().get("Host") == "users.test"
    conn.respond(b"ok")
    assert client.response().body == b"ok"


@pytest.mark.parametrize("text, server, fault", [
    (SERVICE + ":80", "{}", f'server "{SERVICE}:80" has a port, expected _SERVICE'),
    (SERVICE, "{ weight = 2 }", "server.weight is 2, expected none with"),
])
def test_what_records_say_must_not_stand_in_the_file(tmp_path, text, server, fault):
    conf = tmp_path / "gateway.conf"
    conf.write_text(f'\nupstream "app" {{ server "{text}" {server} }}\n')
    status, said, _ = run("-t", "-c", str(conf))
    assert status == 1 and f"gateway.conf:2: {fault}" in said


def test_etc_hosts_comes_first(gateway, dns, opened):
    local = backends.Backend("127.0.0.1", "local")
    opened.append(local)
    gw = gateway(config(local.port).replace(NAME, "localhost"), dns=dns)
    assert gw.get().body == b"local"
    assert dns.count("localhost") == 0
