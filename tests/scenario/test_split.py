"""One route's requests, shared out among upstreams."""

import collections

import pytest

from conftest import HTTP

TWO = HTTP + '''
upstream "stable" { server "@stable@" {} }
upstream "canary" { server "@canary@" {} }
route "all" { split { SHARES } }
'''


def start(gateway, backend, shares):
    return gateway(TWO.replace("SHARES", shares), stable=backend("stable"),
                   canary=backend("canary"))


def asked(gw, count, fields=lambda i: ()):
    client = gw.client()
    return [client.get("/", fields=fields(i)).body.decode() for i in range(count)]


def test_exact_over_time(gateway, backend):
    gw = start(gateway, backend, "stable = 95  canary = 5")
    for _ in range(2):
        assert collections.Counter(asked(gw, 100)) == {"stable": 95, "canary": 5}
    line = gw.wait_log(200)[0]
    assert line["route"] == "all" and line["upstream"] in ("stable", "canary")


@pytest.mark.threads
def test_exact_over_all_workers(gateway, backend):
    gw = gateway("workers = 2\n" + TWO.replace("SHARES", "stable = 3  canary = 1"),
                 stable=backend("stable"), canary=backend("canary"))
    clients = [gw.client() for _ in range(8)]
    counts = collections.Counter(clients[i % 8].get("/").body.decode() for i in range(80))
    assert counts == {"stable": 60, "canary": 20}


def test_a_weight_of_zero_gets_nothing(gateway, backend):
    gw = start(gateway, backend, "stable = 1  canary = 0")
    assert set(asked(gw, 20)) == {"stable"}


def test_goes_on_over_a_reload(gateway, backend):
    gw = start(gateway, backend, "stable = 3  canary = 1")
    text = TWO.replace("SHARES", "stable = 3  canary = 1")
    counts = collections.Counter()
    for i in range(10):
        counts.update(asked(gw, 2))
        gw.reload(f"# {i}\n" + text)
    assert counts == {"stable": 15, "canary": 5}


@pytest.mark.parametrize("sticky, field", [("cookie:user", "Cookie"), ("header:X-User", "X-User")])
def test_the_same_client_stays(gateway, backend, sticky, field):
    gw = start(gateway, backend, f'stable = 50  canary = 50  sticky = "{sticky}"')

    def of(user):
        return [(field, f"a=b; user={user}" if field == "Cookie" else user)]

    first = asked(gw, 60, lambda i: of(f"u{i}"))
    assert asked(gw, 60, lambda i: of(f"u{i}")) == first
    assert 15 < first.count("canary") < 45
    assert collections.Counter(asked(gw, 20)) == {"stable": 10, "canary": 10}, \
        "who has no such field goes by turns"


def test_the_same_address_stays(gateway, backend):
    config = TWO.replace("listen =", 'trusted_proxies = {"127.0.0.0/8"} listen =') \
        .replace("SHARES", "stable = 50  canary = 50  sticky = client_ip")
    gw = gateway(config, stable=backend("stable"), canary=backend("canary"))

    def of(i):
        return [("X-Forwarded-For", f"192.0.2.{i}")]

    first = asked(gw, 60, of)
    assert asked(gw, 60, of) == first
    assert 15 < first.count("canary") < 45
    assert len(set(asked(gw, 10))) == 1
