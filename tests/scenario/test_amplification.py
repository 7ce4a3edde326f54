"""No client's deed costs the gateway more than 16 times its bytes of memory, nor more than 20 times
the CPU of an ordinary request (amplification.py, which prints the figures by hand)."""

import pytest

import amplification
import gateway as harness
from backend import Backend
from gateway import own_host
from test_reload import plain_binary

pytestmark = pytest.mark.undisturbed


@pytest.fixture
def measured(gateway, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "BINARY", plain_binary())
    app, silent = Backend(own_host()), amplification.Silent()
    opened.extend((app, silent))
    gw = gateway(amplification.configuration(str(tmp_path)), app=app, silent=silent)
    assert gw.get("/").status == 200
    return gw


@pytest.mark.parametrize("name", amplification.HELD)
def test_memory_for_a_byte(measured, name):
    a_byte, alone, _ = amplification.held(measured, *amplification.HELD[name])
    assert a_byte < amplification.MEMORY_MOST
    assert alone < 80 << 10


@pytest.mark.parametrize("name", amplification.ONES)
def test_memory_for_one(measured, name):
    case = amplification.ONES[name]
    assert amplification.held(measured, *case)[2] < case[5]


@pytest.mark.parametrize("name", amplification.TIMED)
def test_time(measured, name):
    case = amplification.TIMED[name]
    ns, size = amplification.per_unit(measured, *case)
    base = amplification.ordinary(measured)
    assert ns / (base if case[5] else size * base / 300) < amplification.TIME_MOST


def test_time_of_a_tls_hello(measured):
    ns, plain = amplification.handshake(measured)
    assert ns / plain < amplification.TIME_MOST
