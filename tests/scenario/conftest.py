import os

import pytest

from backend import Backend
from gateway import BINARY, Gateway, own_host
from wire import Upstream

HTTP = 'listener "http" { listen = {"@http@"} }\n'
ONE = HTTP + '''
upstream "app" { server "@app@" {} }
route "all" { path = "/{rest...}"  upstream = app }
'''


def pytest_configure(config):
    config.addinivalue_line("markers", "threads: also runs under ThreadSanitizer")
    config.addinivalue_line("markers", "undisturbed: counts what POSTERN_FAULT would change, or sets it itself")


@pytest.fixture(scope="session", autouse=True)
def binary():
    assert os.access(BINARY, os.X_OK), f"POSTERN names no program: {BINARY}"


@pytest.fixture
def opened():
    """What must be closed when the test ends, in any case."""
    things = []
    yield things
    for thing in things:
        thing.close()


@pytest.fixture
def upstream(opened, tmp_path):
    """upstream() makes a scripted one; upstream(unix=True) on a unix socket."""
    def make(unix=False, **options):
        path = str(tmp_path / f"up{len(opened)}.sock") if unix else None
        thing = Upstream(own_host(), path, **options)
        opened.append(thing)
        return thing

    return make


@pytest.fixture
def backend(opened):
    """backend(name, answer) makes one that answers by itself."""
    def make(name="backend", answer=None, **options):
        thing = Backend(own_host(), name, answer, **options)
        opened.append(thing)
        return thing

    return make


@pytest.fixture
def gateway(tmp_path, opened):
    """gateway(config, name=thing, ...) starts one. After the test it must stop cleanly."""
    started = []

    def start(config=ONE, args=(), env=None, prefix=(), fill=True, preexec=None, wait=True,
              **names):
        directory = tmp_path / f"gateway{len(started)}"
        directory.mkdir()
        thing = Gateway.__new__(Gateway)
        started.append(thing)
        thing.__init__(directory, config, names, args, env, prefix, fill, preexec, wait)
        return thing

    yield start
    faults = []
    for thing in started:
        if getattr(thing, "proc", None):
            try:
                thing.finish()
            except AssertionError as error:
                faults.append(str(error))
    assert not faults, "\n".join(faults)


@pytest.fixture
def pair(gateway, upstream):
    """The commonest start: a gateway with one worker in front of one scripted upstream."""
    up = upstream()
    return gateway(ONE, app=up), up


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A gateway and a scripted upstream for a whole module's small independent cases."""
    up = Upstream(own_host())
    thing = Gateway(tmp_path_factory.mktemp("shared"), ONE, {"app": up})
    yield thing, up
    up.close()
    thing.finish()
