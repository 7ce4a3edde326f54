"""The wall clock jumps, as when it is set: only what is told of the time changes."""

import datetime
import os
import shutil
import subprocess
from email.utils import parsedate_to_datetime

import pytest

from conftest import HTTP
from gateway import until

CONFIG = HTTP.replace("listen =", "timeouts { header = 600s  idle = 600s  body = 600s  write = 600s } listen =") + '''
upstream "app" { server "@app@" {} timeouts { response = 600s  total = 600s  idle = 600s } }
route "all" { path = "/{rest...}"  upstream = app }
route "limited" { path = "/limited"  respond { status = 200 } rate_limit { rate = "2/h"  burst = 2 } }
'''


@pytest.fixture
def jump(tmp_path):
    """jump(seconds) sets the clock of the gateway that has jump.env."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler for the clock that jumps")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers", "wallclock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(tmp_path / "wallclock.so"), source], check=True, timeout=60)

    def to(seconds):
        (tmp_path / "offset.new").write_text(str(seconds))
        os.rename(tmp_path / "offset.new", tmp_path / "offset")

    to(0)
    to.env = {"LD_PRELOAD": str(tmp_path / "wallclock.so"), "WALLCLOCK": str(tmp_path / "offset"),
              "ASAN_OPTIONS": "detect_leaks=1:verify_asan_link_order=0", "TSAN_OPTIONS": "halt_on_error=0"}
    return to


def shown(response):
    return parsedate_to_datetime(response.get("Date")).timestamp()


@pytest.mark.undisturbed
def test_the_wall_clock_jumps(gateway, upstream, jump):
    """Limits, deadlines, connections that wait and requests under way go by the time that passes."""
    up = upstream()
    gw = gateway(CONFIG, app=up, env=jump.env)
    client, idle = gw.client(), gw.client()
    assert [client.get("/limited").status for _ in range(3)] == [200, 200, 429]
    start = shown(idle.get("/limited"))
    slow = gw.client()
    slow.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
    conn = up.accept()
    conn.expect()
    for seconds in (3600, -3600, 86400 * 365, -86400 * 365, 0):
        jump(seconds)
        until(lambda: abs(shown(idle.get("/limited")) - start - seconds) < 600, "answers tell the new time")
        assert client.get("/limited").status == 429, f"after {seconds} s"
        slow.expect_silence(0.05)
        gw.reload()
        assert client.get("/limited").status == 429
        line = gw.wait_log()[-1]
        told = datetime.datetime.strptime(line["ts"], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        assert abs(told - start - seconds) < 600 and line["dur_ms"] < 60000
    conn.respond(b"at last")
    assert slow.response().body == b"at last"
    line = gw.wait_log(path="/slow")[0]
    assert 0 <= line["dur_ms"] < 120000
    assert gw.admin("/healthz").status == 200 and gw.metric("process_start_time_seconds") > 0
