"""A cookie of the gateway's own leads a client back to the server it had."""

import re

import pytest

from gateway import until
from test_balance import config

SECRET = 'secret = "0123456789abcdef"'


def sticky(more="", balance=""):
    return config('server "@a@" {} server "@b@" {} server "@c@" {}',
                  f"{balance} sticky_cookie {{ name = at {more} }}", workers=2)


def cookie_of(response):
    match = re.fullmatch(r"(at=[0-9a-f]{16}); Path=/; HttpOnly; SameSite=Lax",
                         response.get("Set-Cookie"))
    assert match, response.raw_head
    return match[1]


@pytest.fixture
def apps(backend):
    return {name: backend(name) for name in "abc"}


def ask(gw, cookie=None):
    return gw.get(fields=[("Cookie", f"x=y; {cookie}; z=1")] if cookie else [])


@pytest.mark.threads
@pytest.mark.parametrize("balance", ["", "balance = least_requests", "balance = hash"])
def test_each_client_stays_where_it_was(gateway, apps, balance):
    gw = gateway(sticky(balance=balance), **apps)
    first = [ask(gw) for _ in range(6)]
    for response in first:
        for _ in range(4):
            again = ask(gw, cookie_of(response))
            assert again.body == response.body
            assert not again.has("Set-Cookie"), "told once"


def test_every_server_has_a_cookie_of_its_own(gateway, apps):
    gw = gateway(sticky(), **apps)
    told = {}
    for _ in range(9):
        response = ask(gw)
        assert told.setdefault(response.body, cookie_of(response)) == cookie_of(response)
    assert len(set(told.values())) == 3
    assert not any(str(app.port) in cookie for app in apps.values() for cookie in told.values())


def test_when_its_server_is_gone_a_client_moves_and_stays_there(gateway, apps):
    gw = gateway(sticky(), **apps)
    first = ask(gw)
    apps[first.body.decode()].stop()
    second = ask(gw, cookie_of(first))
    assert second.status == 200 and second.body != first.body
    for _ in range(4):
        assert ask(gw, cookie_of(second)).body == second.body


def test_what_a_client_made_up_is_ignored(gateway, apps):
    gw = gateway(sticky(), **apps)
    for cookie in ("at=", "at=ffffffffffffffff", "at=" + "f" * 4000, "at=../../x"):
        response = ask(gw, cookie)
        assert response.status == 200
        cookie_of(response)


def test_with_a_secret_cookies_hold_beyond_a_restart(gateway, apps):
    before = gateway(sticky(SECRET), **apps)
    first = ask(before)
    after = gateway(sticky(SECRET), **apps)
    other = gateway(sticky(), **apps)
    for _ in range(4):
        assert ask(after, cookie_of(first)).body == first.body
    assert ask(other, cookie_of(first)).has("Set-Cookie"), "without it they do not"


def test_cookies_hold_beyond_a_reload(gateway, apps):
    gw = gateway(sticky(), **apps)
    first = ask(gw)
    gw.reload(sticky().replace("sticky_cookie", "timeouts { total = 9s } sticky_cookie"))
    for _ in range(4):
        assert ask(gw, cookie_of(first)).body == first.body


def test_the_backends_own_cookies_stay(gateway, backend):
    app = backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\n"
                  b"Content-Length: 0\r\n\r\n")
    gw = gateway(config('server "@a@" {}', "sticky_cookie { name = at }"), a=app)
    values = gw.get().all("Set-Cookie")
    assert values[0] == "own=1" and values[1].startswith("at=") and len(values) == 2
    until(lambda: app.count == 1, "asked")
