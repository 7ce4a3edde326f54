#!/usr/bin/python3
"""The plots of a result of perf/compare, as SVG by gnuplot: CPU for each request as a ratio to nginx's and
requests/s, a group of bars a row, with the smallest and the largest of all rounds; latency at a fixed rate;
memory.

perf/plot.py RESULT.json: writes RESULT-cpu.svg and so on beside it."""
import json
import os
import shutil
import subprocess
import sys

COLOURS = {"postern": "#1b6ca8", "nginx": "#7a7a7a", "haproxy": "#d08c3f", "nghttpx": "#7fa650", "h2o": "#a05fa8",
           "envoy": "#c0504d", "caddy": "#5bb5b0", "relay": "#c8c8c8"}
CPU_ROWS = ("small", "echo", "64k", "1m", "upload", "c1000", "logged", "keyed", "routes", "unix", "tls", "h2",
            "tls-new", "tls-reuse")
RATE_ROWS = ("small", "echo", "c1000", "keyed", "logged", "tls", "h2")


def bars(path, groups, series, title, more=()):
    """series: {name: [{median, min, max} or None for each group]}"""
    series = {name: row for name, row in series.items() if any(row)}
    if not series:
        return None
    width = 0.84 / len(series)
    out = [f'set terminal svg size {max(560, 96 * len(groups) + 160)},420 font "sans,12" background "white"',
           f'set output "{path}"', f'set ylabel "{title}"', "set yrange [0:*]", "set grid ytics lc rgb '#dddddd'",
           "set key outside right top", f"set boxwidth {width * 0.9:.3f}", "set style fill solid",
           "set xtics (" + ", ".join(f'"{g}" {i}' for i, g in enumerate(groups)) + ") scale 0",
           f"set xrange [-0.6:{len(groups) - 0.4}]", *more]
    plots, data = [], []
    for n, (name, row) in enumerate(series.items()):
        shift = (n - (len(series) - 1) / 2) * width
        plots.append(f"'-' using 1:2 with boxes lc rgb '{COLOURS.get(name, '#000000')}' title '{name}'")
        plots.append("'-' using 1:3:(0):($4-$3) with vectors nohead lw 1.5 lc rgb '#333333' notitle")
        lines = [f"{i + shift:.3f} {v['median']} {v['min']} {v['max']}" for i, v in enumerate(row) if v]
        data += [*lines, "e"] * 2
    subprocess.run(["gnuplot"], input="\n".join([*out, "plot " + ", ".join(plots), *data]) + "\n", text=True, check=True)
    return path


def of_rows(result, wanted, key):
    """the groups that are there, and {gateway: a value for each}"""
    summary = result["summary"]
    groups = [w for w in wanted if any(key in line for line in summary.get(w, {}).values())]
    names = [n for n in COLOURS if any(n in summary[w] for w in groups)]
    return groups, {n: [summary[w].get(n, {}).get(key) for w in groups] for n in names}


def latency(result):
    """the better of the two generators' rows: the one that asks less of the core it shares"""
    lines = next((result["summary"][w] for w in ("rate", "vegeta") if result["summary"].get(w)), {})
    keys = ("p50_ms", "p99_ms", "p999_ms")
    return ["p50", "p99", "p99.9"], {n: [lines[n].get(k) for k in keys] for n in COLOURS if n in lines}


def memory(result):
    """KiB for each connection; one number each"""
    found = result.get("memory", {}).get("gateways", {})
    keys = ("idle_bytes", "tls_bytes", "active_bytes")

    def value(m, key):
        return dict.fromkeys(("median", "min", "max"), max(16, m[key]) / 1024) if m.get(key) is not None else None
    return ["idle", "idle, TLS", "active"], {n: [value(found[n], k) for k in keys] for n in COLOURS if n in found}


def draw_all(result, base):
    """the paths written"""
    if not shutil.which("gnuplot"):
        print("no plots: gnuplot is not there", file=sys.stderr)
        return []
    one = ["set yrange [0:3]", "set arrow from graph 0, first 1 to graph 1, first 1 nohead lc rgb '#888888' dt 2"]
    log = ["set logscale y", "set yrange [*:*]"]
    return [p for p in (
        bars(f"{base}-cpu.svg", *of_rows(result, CPU_ROWS, "cpu_us_vs_nginx"), "CPU for each request, nginx = 1 (cut at 3)", one),
        bars(f"{base}-rps.svg", *of_rows(result, RATE_ROWS, "rps"), "requests/s at saturation"),
        bars(f"{base}-latency.svg", *latency(result), "ms, at a fixed rate", log),
        bars(f"{base}-memory.svg", *memory(result), "KiB for each connection", log)) if p]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        print(*draw_all(json.load(file), os.path.splitext(sys.argv[1])[0]), sep="\n")
