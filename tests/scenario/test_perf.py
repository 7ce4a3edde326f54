"""The programs of perf/ do what they say: for moments, on whatever is here, and without a look at the numbers."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from gateway import BINARY, SANITIZER

PERF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "perf")
# What the suite does not install: without them there is nothing to see here.
needs_wrk = pytest.mark.skipif(not shutil.which("wrk", path="/usr/bin"), reason="no wrk here")


def run(*command, folder):
    """Nothing is fetched or built for a test: no Go is in the path."""
    environment = dict(os.environ, XDG_CACHE_HOME=str(folder), PATH="/usr/sbin:/usr/bin:/sbin:/bin")
    done = subprocess.run([sys.executable, "-B", os.path.join(PERF, command[0]), *command[1:], "--postern", BINARY],
                          cwd=folder, capture_output=True, text=True, timeout=240, env=environment)
    assert not SANITIZER.search(done.stdout + done.stderr), done.stderr
    assert done.returncode == 0, done.stderr
    return done


def written(folder, ends):
    return [name for name in os.listdir(folder) if name.endswith(ends)]


@needs_wrk
def test_compare_measures_what_is_asked_of_who_is_here(tmp_path):
    done = run("compare", "--quick", "--only", "postern,relay,envoy", "--out", "out", "--workloads",
               "small,echo,upload,rate,vegeta,logged,keyed,token,routes,unix,workers,tls-new", folder=tmp_path)
    (name,) = written(tmp_path / "out", ".json")
    result = json.loads((tmp_path / "out" / name).read_text())
    assert list(result["absent"]) == ["envoy"]
    seen = {row["name"]: row for row in result["rows"]}
    assert not [row for row in result["rows"] if row["broken"]], done.stderr
    for row, lines in result["summary"].items():
        assert "skipped" in seen[row] or lines["postern"]["cpu_us"]["median"] > 0, row
        assert all(line["errors"]["max"] == 0 for line in lines.values()), row
    assert "cpu_us_vs_control" in result["summary"]["keyed"]["postern"]
    assert "cpu_us_vs_relay" in result["summary"]["small"]["postern"]
    assert seen["rate"]["rate"] > 0
    assert "## unix" in done.stdout and "not here" in done.stdout


def test_memory_and_the_first_requests(tmp_path):
    told = json.loads(run("memory", "--json", "--only", "postern,relay", "--idle", "300", "--tls", "50", "--active",
                          "100", folder=tmp_path).stdout)
    assert not told["broken"]
    assert told["gateways"]["postern"]["rss_kb"] > 0 and told["gateways"]["relay"]["tls_bytes"] is None
    told = json.loads(run("coldstart", "--json", "--only", "postern", "--rounds", "1", "--max-wait", "0", folder=tmp_path).stdout)
    assert [r["failed"] for r in told["rounds"]["postern"]] == [0]
    assert told["rounds"]["postern"][0]["before"] == 32, "warm connections"


def test_train_gives_work_of_every_kind(tmp_path):
    told = run("train", "--requests", "100", folder=tmp_path).stderr
    assert told.count("learning:") == 8, told


def test_ladder_climbs_two_steps(tmp_path):
    run("ladder", "--steps", "connections,bodies", "--rounds", "1", "--requests", "200", "--seconds", "0.2", "--max-wait",
        "0", "--out", "out", folder=tmp_path)
    (name,) = written(tmp_path / "out", ".json")
    result = json.loads((tmp_path / "out" / name).read_text())
    connections, bodies = result["steps"]
    assert [row["reuse"] for row in connections["rows"]][::2] == [0, 1]
    parsed, raw = bodies["rows"]
    assert parsed["rps"] > 0 and raw["rps"] > 0
    if raw["allocs"] is not None:
        assert parsed["allocs"] > raw["allocs"] + 10, "nothing was parsed"


def test_readme_shows_what_was_measured():
    done = subprocess.run([sys.executable, "-B", os.path.join(PERF, "readme"), "--check"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr


def test_overload_syscalls_and_plots_say_how_they_are_used():
    for name in sorted(os.listdir(PERF)):
        path = os.path.join(PERF, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and "argparse" in open(path, encoding="utf-8").read():
            done = subprocess.run([sys.executable, "-B", path, "--help"], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0 and "usage" in done.stdout, name
