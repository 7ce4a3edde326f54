"""perf/chaos for a short time: errors are counted, times are not."""

import json
import os
import subprocess
import sys
import threading

import pytest

from backend2 import Conn2
from conftest import HTTP
from gateway import BINARY, SANITIZER

CHAOS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perf", "chaos")


@pytest.mark.threads
@pytest.mark.parametrize("options", [[], ["--h2"]], ids=["http1", "h2"])
def test_backends_come_and_go_and_clients_do_not_notice(tmp_path, options):
    here = os.path.dirname(os.path.abspath(__file__))
    environment = dict(os.environ, UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
                       TSAN_OPTIONS=f"exitcode=66:suppressions={here}/tsan.supp")
    done = subprocess.run([sys.executable, "-B", CHAOS, "--seconds", "4", "--calm", "0.3",
                           "--rate", "80", "--reloads", "10", "--json", *options, "--postern", BINARY], cwd=tmp_path,
                          capture_output=True, text=True, timeout=150, env=environment)
    assert not SANITIZER.search(done.stdout + done.stderr), done.stderr
    assert done.returncode in (0, 1) and done.stdout.startswith("{"), done.stderr
    result = json.loads(done.stdout)
    assert [row["phase"] for row in result["phases"]] == [
        "quiet", "kill", "stop", "fill", "race", "names", "drain", "reload"]
    for row in result["phases"]:
        assert row["requests"] > 10, row
        assert not row["failed"], row
    assert result["posts"] > 20 and result["executed"] > 20
    assert not result["executed_twice"] and not result["answered_but_not_executed"]
    # That no POST fails where no backend dies is perf/chaos's own to ask: on a busy machine a connect takes too long.


def test_a_server_that_hangs_up_behind_its_first_answer(gateway, upstream):
    """Over HTTP/2, without a goodbye, whatever else is under way on the connection. What tries
    again must not do so together on the next one, or all but one fail as often as they try."""
    up = upstream()
    gw = gateway(HTTP + '''upstream "app" { server "@app@" {} protocol = h2 retry { attempts = 3  budget = 100% } }
route "all" { path = "/{rest...}"  upstream = app }''', app=up)
    clients = [gw.client() for _ in range(8)]
    for client in clients:
        client.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")

    def serve(sock, count):
        h2 = Conn2(sock)
        streams = [h2.whole_request() for _ in range(count)]
        try:
            sock.expect_silence(0.1)  # whoever else would come on this one is here by now
        except AssertionError:
            pass
        h2.answer(streams[0])
        h2.close()

    def serve_all():
        serve(up.accept(), len(clients))
        while True:
            try:
                sock = up.accept()
            except (AssertionError, OSError):
                return
            threading.Thread(target=serve, args=(sock, 1), daemon=True).start()

    threading.Thread(target=serve_all, daemon=True).start()
    assert [client.response().status for client in clients] == [200] * len(clients)
