"""The admin listener."""

import json
import re
import subprocess
import time

import pytest

from conftest import HTTP, ONE
from gateway import free_address, own_host, parse_metrics, until

METRICS = {
    "postern_requests_total": {"listener", "route", "method", "code"},
    "postern_request_duration_seconds_bucket": {"route", "le"},
    "postern_responses_total": {"route", "reason"},
    "postern_gateway_duration_seconds_bucket": {"route", "le"},
    "postern_upstream_requests_total": {"upstream", "server", "code"},
    "postern_upstream_duration_seconds_bucket": {"upstream", "le"},
    "postern_upstream_connections_opened_total": {"upstream", "server"},
    "postern_upstream_connection_reuses_total": {"upstream", "server"},
    "postern_upstream_connections": {"upstream", "server", "state"},
    "postern_upstream_server_up": {"upstream", "server"},
    "postern_upstream_ejections_total": {"upstream", "server"},
    "postern_upstream_probes_total": {"upstream", "server", "result"},
    "postern_upstream_retries_total": {"upstream"},
    "postern_downstream_connections": {"listener"},
    "postern_downstream_bytes_total": {"listener", "direction"},
    "postern_config_generation": set(),
    "postern_config_last_reload_success": set(),
    "postern_access_log_dropped_total": set(),
    "postern_build_info": {"version"},
    "process_cpu_seconds_total": set(),
    "process_open_fds": set(),
    "process_max_fds": set(),
    "process_resident_memory_bytes": set(),
    "process_virtual_memory_bytes": set(),
    "process_virtual_memory_max_bytes": set(),
    "process_threads": set(),
    "process_start_time_seconds": set(),
}


def test_health_and_readiness(gateway, upstream):
    gw = gateway(app=upstream())
    assert gw.admin("/healthz").status == 200
    assert gw.admin("/readyz").status == 200


def test_unknown_paths_and_methods(gateway, upstream):
    gw = gateway(app=upstream())
    assert gw.admin("/nothing").status == 404
    assert gw.admin("/").status in (200, 404)
    assert gw.admin("/config", method="DELETE").status in (405, 501)
    assert gw.admin("/healthz", method="HEAD").status == 200


def test_every_metric_with_its_labels(gateway, backend):
    app = backend(answer=lambda request: b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody")
    dead = free_address(own_host())
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} health {} outlier {} }\nupstream "dead" { server "@dead@" {} }\n'
                 'route "all" { path = "/{rest...}"  upstream = app }\n'
                 'route "dead" { path = "/dead"  upstream = dead }\n', app=app, dead=dead)
    client = gw.client()
    for _ in range(3):
        client.get(method="POST", body=b"123")
    refused = client.get("/dead")
    gw.wait_log(path="/dead")  # an answer may arrive before its worker has counted it
    response = gw.admin("/metrics")
    assert response.get("Content-Type").startswith("text/plain; version=0.0.4")
    text = response.body.decode()
    samples = parse_metrics(text)
    for name, labels in METRICS.items():
        found = [has for sample, has, _ in samples if sample == name]
        assert found, f"{name} is missing"
        assert all(has.keys() == labels for has in found), (name, found[0])
    for name, _, _ in samples:
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert f"# TYPE {name} " in text or f"# TYPE {family} histogram" in text, name
        assert f"# HELP {name} " in text or f"# HELP {family} " in text, name
    assert gw.metric("postern_requests_total", code="200", method="POST", route="all") == 3
    assert gw.metric("postern_requests_total", code="502", route="dead") == 1
    assert gw.metric("postern_responses_total", reason="upstream.connect", route="dead") == 1
    assert gw.metric("postern_upstream_requests_total", upstream="app", code="200") == 3
    assert gw.metric("postern_downstream_connections", listener="http") == 1
    assert gw.metric("postern_downstream_bytes_total", listener="http", direction="in") == 9
    assert gw.metric("postern_downstream_bytes_total", listener="http",
                     direction="out") == 12 + len(refused.body)
    assert gw.metric("postern_upstream_connections", upstream="app", state="idle") == 1
    assert gw.metric("postern_upstream_connections", upstream="app", state="active") == 0
    assert gw.metric("postern_upstream_server_up", upstream="app") == 1
    assert gw.metric("postern_config_generation") == 1
    assert gw.metric("postern_config_last_reload_success") == 1


def test_no_sample_stands_twice_and_families_stand_together(gateway, backend):
    gw = gateway("workers = 2\n" + ONE, app=backend())
    for _ in range(8):
        gw.get()
    text = gw.admin("/metrics").body.decode()
    keys = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line and line[0] != "#"]
    assert len(keys) == len(set(keys))
    types = re.findall(r"^# TYPE (\S+)", text, re.M)
    assert len(types) == len(set(types))


def test_histograms_add_up(gateway, backend):
    gw = gateway(app=backend())
    client = gw.client()
    for _ in range(20):
        client.get()
    samples = gw.metrics()
    buckets = [(has["le"], n) for name, has, n in samples
               if name == "postern_request_duration_seconds_bucket" and has["route"] == "all"]
    counts = [n for _, n in buckets]
    assert counts == sorted(counts) and buckets[-1] == ("+Inf", 20)
    bounds = [float(le) for le, _ in buckets]
    assert bounds == sorted(bounds) and len(bounds) >= 8
    total = gw.metric("postern_request_duration_seconds_sum", route="all")
    own = gw.metric("postern_gateway_duration_seconds_sum", route="all")
    assert 0 < own <= total < 60
    assert gw.metric("postern_request_duration_seconds_count", route="all") == 20


def test_a_route_has_series_when_it_has_requests(gateway):
    """Thousands of routes cost nobody the time to look all of theirs up, before and behind a reload."""
    config = HTTP + "".join(f'route "r{i}" {{ path = "/{i}" respond {{ }} }}\n' for i in range(50))
    gw = gateway(config)

    def routes():
        return {has["route"]: n for name, has, n in gw.metrics()
                if name in ("postern_request_duration_seconds_count", "postern_gateway_duration_seconds_count")}

    assert routes() == {}
    gw.get("/7")
    gw.wait_metric(1, "postern_request_duration_seconds_count")
    gw.reload(config + 'route "more" { path = "/more" respond { } }\n')
    gw.get("/7")
    gw.get("/8")
    gw.wait_metric(3, "postern_gateway_duration_seconds_count")
    assert routes() == {"r7": 2, "r8": 1}


def test_metrics_of_unknown_routes_and_methods_stay_bounded(gateway, upstream):
    gw = gateway(HTTP + 'upstream "app" { server "@app@" {} }\n'
                 'route "a" { path = "/only"  upstream = app }', app=upstream())
    for i in range(20):
        gw.get(f"/no/{i}", method=f"METHOD{i}", host=f"host{i}")
    families = [has for name, has, _ in gw.metrics() if name == "postern_requests_total"]
    assert len(families) <= 3, families


def test_upstreams(gateway, backend, upstream):
    a, b = backend("a"), backend("b")
    gw = gateway(HTTP + '''upstream "app" { server "@a@" { weight = 3 } server "@b@" {}
  balance = least_requests  pool { warm = 1 } }
route "all" { path = "/{rest...}"  upstream = app }''', a=a, b=b)
    gw.get()
    response = gw.admin("/upstreams")
    assert response.get("Content-Type").startswith("application/json")
    [app] = json.loads(response.body)
    assert app.keys() >= {"name", "balance", "servers"}
    assert (app["name"], app["balance"]) == ("app", "least_requests")
    assert [(s["address"], s["weight"]) for s in app["servers"]] == [(a.address, 3), (b.address, 1)]
    for server in app["servers"]:
        assert server.keys() >= {"address", "state", "weight", "requests", "idle", "active",
                                 "opened", "reused"}
        assert server["state"] == "up"
        assert (server["opened"], server["idle"], server["active"]) == (1, 1, 0)
    assert sum(s["requests"] for s in app["servers"]) == 1


def test_active_connections_are_counted(gateway, upstream):
    up = upstream()
    gw = gateway(app=up)
    client = gw.client()
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
    conn = up.accept()
    conn.expect()
    until(lambda: gw.upstream("app", up)["active"] == 1, "one active")
    conn.respond()
    client.response()
    until(lambda: gw.upstream("app", up)["active"] == 0, "none active")


def test_config(gateway, upstream):
    gw = gateway(app=upstream())
    response = gw.admin("/config")
    assert response.get("Content-Type").startswith("application/json")
    state = json.loads(response.body)
    assert state["generation"] == 1 and state["file"] == gw.file
    assert re.match(r"\d{4}-\d\d-\d\dT", state["loaded_at"])
    assert state["last_reload"]["ok"] is True and state["last_reload"]["faults"] == []


def test_on_a_unix_socket(gateway, upstream, tmp_path):
    gw = gateway(app=upstream(), admin=f"unix:{tmp_path}/admin.sock")
    assert gw.admin("/healthz").status == 200


def test_build_info(gateway, upstream):
    gw = gateway(app=upstream())
    [labels] = [has for name, has, _ in gw.metrics() if name == "postern_build_info"]
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", labels["version"])


def test_a_service_that_sees_only_processes_knows_when_it_began(gateway, upstream):
    """packaging/postern.service.in has ProcSubset=pid."""
    only = ["unshare", "--mount", "sh", "-c", 'mount -t proc -o subset=pid proc /proc && exec "$@"', "sh"]
    if subprocess.run([*only, "true"], capture_output=True).returncode:
        pytest.skip("no /proc of its own can be mounted here")
    before = time.time()
    gw = gateway(app=upstream(), prefix=only)
    values = {name: value for name, _, value in gw.metrics() if name.startswith("process_")}
    assert before - 1 < values["process_start_time_seconds"] < time.time() + 1
    assert values["process_start_time_seconds"] == gw.metric("process_start_time_seconds")
    assert values["process_resident_memory_bytes"] > 1 << 20 and values["process_open_fds"] > 5
