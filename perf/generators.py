"""The load generators of perf/compare. Each runs for a row's duration against one gateway and says
how many requests were done, how many failed, and what latency it saw."""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from rig import HERE, Trouble, cache, log

VEGETA = "github.com/tsenart/vegeta/v12@v12.13.0"


def seconds(text):
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[unit]


def wrk(bench, gateway, row):
    """wrk knows whole seconds only, and ends as well when it is interrupted"""
    script = ["-s", f"{HERE}/{row.script}"] if row.script else []
    header = ["-H", row.header] if row.header else []
    url = f"https://127.0.0.1:{gateway.tls_port}" if row.tls else f"http://127.0.0.1:{gateway.port}"
    command = ["taskset", "-c", str(bench.rig.load_core), "wrk", "-t1", f"-c{row.connections}", "-d1h", "--latency",
               *script, *header, url + row.path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        time.sleep(bench.duration)
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=60)[0]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    done = re.search(r"(\d+) requests in ", out)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", out)
    if not done or not rate:
        raise Trouble(f"wrk: {out}")
    errors = sum(int(n) for line in out.splitlines() if "Socket errors" in line for n in re.findall(r"\d+", line))
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    at = dict(re.findall(r"^ +(\d+)% +([\d.]+\w+) *$", out, re.M))
    if not {"50", "99"} <= at.keys():
        raise Trouble(f"wrk tells no percentiles: {out}")
    return {"requests": int(done[1]), "rps": float(rate[1]), "errors": errors + (int(refused[1]) if refused else 0),
            "p50_ms": seconds(at["50"]) * 1000, "p99_ms": seconds(at["99"]) * 1000}


def h2load(bench, gateway, row):
    r = bench.rig.run(["h2load", "-t1", f"-c{row.connections}", "-m32", f"-D{int(bench.duration * 1000)}ms",
                       f"https://127.0.0.1:{gateway.tls_port}{row.path}"])
    done = re.search(r"requests: \d+ total, \d+ started, \d+ done, (\d+) succeeded, "
                     r"(\d+) failed, (\d+) errored", r.stdout)
    rate = re.search(r"finished in .*, ([\d.]+) req/s", r.stdout)
    if not done or not rate or "Application protocol: h2" not in r.stdout:
        raise Trouble(f"h2load: {r.stdout[-300:]}{r.stderr[-300:]}")
    return {"requests": int(done[1]), "rps": float(rate[1]), "errors": int(done[2]) + int(done[3])}


def s_time(bench, gateway, row):
    """One connection after the other. Its own handshakes cost as much as the gateway's, so CPU
    for each is what tells, not how many there were."""
    kind = ["-new"] if row.name == "tls-new" else ["-reuse", "-tls1_2"]
    start = time.monotonic()
    r = bench.rig.run(["openssl", "s_time", "-connect", f"127.0.0.1:{gateway.tls_port}", *kind,
                       "-www", row.path, "-time", str(max(1, math.floor(bench.duration)))])
    done = re.findall(r"(\d+) connections in (\d+) real seconds", r.stdout)
    if not done:
        raise Trouble(f"openssl s_time: {r.stdout[-300:]}{r.stderr[-300:]}")
    count = int(done[-1][0])
    return {"requests": count, "rps": count / (time.monotonic() - start), "errors": 0}


def load(bench, gateway, row):
    """an open loop at a fixed rate; latency counts from the moment a request was due"""
    m = bench.rig.load("rate", gateway.port, row.path, row.connections, bench.rate, bench.duration)
    return {"requests": m["requests"], "errors": m["failed"],
            **{f"{p}_ms": m[f"{p}_us"] / 1000 for p in ("p50", "p99", "p999")}}


def vegeta(bench, gateway, row):
    """an open loop too, in Go: it needs more of the core that it shares with the backend"""
    results, targets = f"{bench.rig.dir}/vegeta.bin", f"{bench.rig.dir}/targets"
    with open(targets, "w") as f:
        f.write(f"GET http://127.0.0.1:{gateway.port}{row.path}\n")
    r = bench.rig.run([bench.vegeta, "attack", "-targets", targets, "-rate", str(bench.rate),
                       "-duration", f"{bench.duration}s", "-workers", "64", "-max-workers", "64",
                       "-connections", str(row.connections), "-max-body", "0", "-output", results])
    if r.returncode:
        raise Trouble(f"vegeta: {r.stderr.strip()}")

    def report(kind):
        return subprocess.run([bench.vegeta, "report", "-type", kind, results], capture_output=True, text=True,
                              check=True).stdout
    said = json.loads(report("json"))
    at = {share: ms for ms, share in re.findall(r"^([\d.]+) +([\d.]+) ", report("hdrplot"), re.M)}
    p999 = next((float(ms) for share, ms in at.items() if float(share) >= 0.999), said["latencies"]["max"] / 1e6)
    return {"requests": said["requests"], "errors": said["requests"] - said["status_codes"].get("200", 0),
            "p50_ms": said["latencies"]["50th"] / 1e6, "p99_ms": said["latencies"]["99th"] / 1e6, "p999_ms": p999}


def find_vegeta():
    """vegeta from PATH or the cache, else built into the cache when Go is there."""
    found = shutil.which("vegeta")
    if found:
        return found
    path = f"{cache()}/bin-v12.13.0/vegeta"
    if os.access(path, os.X_OK):
        return path
    if not shutil.which("go"):
        return None
    log(f"go install {VEGETA} into {os.path.dirname(path)}, once")
    try:
        subprocess.run(["go", "install", VEGETA], check=True, stdout=sys.stderr, timeout=600,
                       env=dict(os.environ, GOBIN=os.path.dirname(path)))
    except (subprocess.SubprocessError, OSError) as e:
        log(f"{e}: no vegeta")
        return None
    return path
