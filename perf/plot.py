#!/usr/bin/python3
"""The plot of perf/compare: CPU for each request as a ratio to nginx's, one group of bars a workload,
with the smallest and the largest of all rounds. Needs gnuplot.

perf/plot.py RESULT.json PLOT.svg"""
import json
import subprocess
import sys

KEY = "cpu_us_vs_nginx"
COLOURS = ["#1b6ca8", "#7a7a7a", "#d08c3f", "#7fa650", "#a05fa8", "#c0c0c0"]


def series(result):
    """{gateway: [(median, min, max) or None for each workload]}, and the workloads"""
    summary = result["summary"]
    workloads = [w for w, lines in summary.items() if any(KEY in line for line in lines.values())]
    names = dict.fromkeys(g for w in workloads for g in summary[w])
    rows = {g: [summary[w].get(g, {}).get(KEY) for w in workloads] for g in names}
    return {g: row for g, row in rows.items() if any(row)}, workloads


def script(result, path):
    rows, workloads = series(result)
    width = 0.8 / max(1, len(rows))
    out = [f'set terminal svg size {max(500, 110 * len(workloads) + 160)},420 font "sans,12" background "white"',
           f'set output "{path}"', 'set ylabel "CPU for each request, nginx = 1"',
           "set yrange [0:*]", "set grid ytics lc rgb '#dddddd'", "set key outside right top",
           "set boxwidth " + f"{width * 0.9:.3f}", "set style fill solid",
           "set xtics (" + ", ".join(f'"{w}" {i}' for i, w in enumerate(workloads)) + ") scale 0",
           f"set xrange [-0.6:{len(workloads) - 0.4}]",
           "set arrow from graph 0, first 1 to graph 1, first 1 nohead lc rgb '#888888' dt 2"]
    plots, data = [], []
    for n, (name, row) in enumerate(rows.items()):
        shift = (n - (len(rows) - 1) / 2) * width
        colour = COLOURS[n % len(COLOURS)]
        plots.append(f"'-' using 1:2 with boxes lc rgb '{colour}' title '{name}'")
        plots.append("'-' using 1:2:3:4 with yerrorbars ps 0 lc rgb '#333333' notitle")
        lines = [f"{i + shift:.3f} {v['median']} {v['min']} {v['max']}" for i, v in enumerate(row) if v]
        data += [*lines, "e"] * 2
    return "\n".join([*out, "plot " + ", ".join(plots), *data]) + "\n"


def draw(result, path):
    subprocess.run(["gnuplot"], input=script(result, path), text=True, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        draw(json.load(file), sys.argv[2])
