"""Slow clients by the hundred, as slowhttptest makes them: they go when their time is up, and
nobody else notices."""

import shutil
import subprocess

import pytest

from conftest import HTTP
from gateway import is_sanitized, until

CONFIG = HTTP.replace("}\n", "timeouts { header = 2s body = 2s write = 2s idle = 4s rate = 100 rate_window = 2s } }\n") + \
    'upstream "app" { server "@app@" {} }\nroute "all" { path = "/{rest...}" upstream = app }\n' \
    'route "ok" { path = "/ok" respond { body = "ok" } }\n'

MODES = {"heads": (["-H", "-i", "1"], "/", "client.timeout_head"),
         "bodies": (["-B", "-i", "1", "-s", "8192"], "/form", "client.timeout_body"),
         "readers": (["-X", "-w", "10", "-y", "20", "-n", "1", "-z", "32", "-k", "3"], "/large", "client.timeout_write"),
         "ranges": (["-R"], "/", None)}

CONNECTIONS = 200
LARGE = b"x" * (8 << 20)  # more than the kernel takes for a client that reads nothing


def answer(request):
    body = LARGE if request.target == "/large" else b"ok"
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@pytest.mark.skipif(not shutil.which("slowhttptest"), reason="slowhttptest is not installed")
@pytest.mark.parametrize("mode", MODES)
def test_slow_clients_go_and_others_are_served(gateway, backend, mode):
    options, path, reason = MODES[mode]
    gw = gateway(CONFIG, app=backend(answer=answer))
    honest = gw.client()
    assert honest.get("/ok").status == 200
    before = gw.rss_kib()
    attack = subprocess.Popen(["slowhttptest", *options, "-c", str(CONNECTIONS), "-r", "200", "-l", "8", "-p", "60",
                               "-u", "http://%s:%d%s" % (*gw.address(), path)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: gw.metric("postern_requests_total") + gw.metric("postern_downstream_connections") > 20,
              "the attack has begun")
        served = 0
        while attack.poll() is None:
            assert honest.get("/ok").status == 200
            served += 1
        assert served > 10
        # both directions are bounded by some 200 KiB, whatever an answer's size is
        assert is_sanitized() or gw.rss_kib() - before < CONNECTIONS * 400
    finally:
        if attack.poll() is None:
            attack.terminate()
        attack.wait(30)
    until(lambda: gw.metric("postern_downstream_connections") <= 1, "they are gone", 60)
    if reason:
        assert gw.metric("postern_responses_total", reason=reason) > 0
