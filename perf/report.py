"""What perf/compare says of its cells: medians and ranges, ratios formed inside a round, tables."""
import statistics

import rig
import rows

OTHERS = ("nginx", "relay") # ratios are to these, and to the row's control
RANGED = ("rps", "cpu_us", "user_us", "system_us", "p50_ms", "p99_ms", "p999_ms") # the others hardly vary
COLUMNS = [ # key, heading, format, is a ratio worth showing
    ("rps", "req/s", "{:.0f}", True),
    ("cpu_us", "CPU us/req", "{:.2f}", True),
    ("user_us", "user", "{:.1f}", False),
    ("system_us", "system", "{:.1f}", False),
    ("p50_ms", "p50 ms", "{:.2f}", True),
    ("p99_ms", "p99 ms", "{:.2f}", True),
    ("p999_ms", "p99.9 ms", "{:.2f}", True),
    ("opened", "opened", "{:.0f}", False),
    ("reuse", "reuse", "{:.2%}", False),
    ("pss_kb", "PSS KiB", "{:.0f}", True),
    ("rss_kb", "RSS KiB", "{:.0f}", True),
    ("busy", "busy", "{:.0%}", False),
    ("load_busy", "load busy", "{:.0%}", False),
    ("errors", "errors", "{:.0f}", False),
]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(cells, key, mine, other):
    """of `mine` to `other`, round by round"""
    pairs = [cells[mine, n][key] / cells[other, n][key] for name, n in cells
             if name == mine and cells.get((other, n), {}).get(key) and cells[mine, n].get(key)]
    return spread(pairs) if pairs else None


def summarise_row(row, cells):
    """{label: {column: median, min, max; column_vs_X: the same of the ratio}}"""
    by = {(c["label"], c["round"]): c for c in cells}
    out = {}
    for name in dict.fromkeys(c["label"] for c in cells):
        line = {}
        for key, _, _, ratio in COLUMNS:
            values = [c[key] for c in cells if c["label"] == name and key in c]
            if values:
                line[key] = spread(values)
            for other in [*OTHERS, rows.label(row, name)] if ratio else ():
                found = ratios(by, key, name, other)
                if found:
                    line[f"{key}_vs_{other if other in OTHERS else 'control'}"] = found
        out[name] = line
    return out


def shown(line, key, form):
    if key not in line:
        return "-"
    s = line[key]
    text = form.format(s["median"])
    if key.split("_vs_")[0] in RANGED and form.format(s["min"]) != form.format(s["max"]):
        text += f" ({form.format(s['min'])}..{form.format(s['max'])})"
    return text


def table(headings, lines):
    all_lines = [headings, *lines]
    width = [max(len(r[i]) for r in all_lines) for i in range(len(headings))]

    def text(r):
        return "| " + " | ".join(c.ljust(w) if i == 0 else c.rjust(w)
                                 for i, (c, w) in enumerate(zip(r, width))) + " |"
    rule = "".join("|" + "-" * (w + 1) + (":" if i else "-") for i, w in enumerate(width)) + "|"
    return [text(headings), rule, *map(text, lines)]


def row_text(entry, lines):
    rate = f"; {entry['rate']} req/s" if "rate" in entry else ""
    used = [c for c in COLUMNS if any(c[0] in line for line in lines.values())]
    out = ["", f"## {entry['name']}: {entry['what']}{rate}", ""]
    if entry.get("skipped"):
        return [*out, f"Not measured: {entry['skipped']}."]
    out += table(["gateway", *[c[1] for c in used]],
                 [[name, *[shown(line, c[0], c[2]) for c in used]] for name, line in lines.items()] +
                 [[name, *(["not here"] + ["-"] * (len(used) - 1))] for name in entry["absent"]] +
                 [[name, *(["broken"] + ["-"] * (len(used) - 1))] for name in entry["broken"] if name not in lines])
    out += [line for name, why in entry["broken"].items() for line in ("", f"{name} broke: {why.splitlines()[0]}")]
    if entry["without"]:
        out += ["", f"No part in it have {', '.join(entry['without'])}: no such feature, or not with one program."]
    for other, what in (("nginx", "nginx's"), ("relay", "the relay's"), ("control", f"what it is {entry['control']}")):
        columns = [c for c in used if c[3]]
        found = {n: line for n, line in lines.items() if any(k.endswith("_vs_" + other) for k in line) and n != other}
        if found:
            out += ["", f"As a ratio to {what}:", ""]
            out += table(["gateway", *[c[1] for c in columns]],
                         [[n, *[shown(line, f"{c[0]}_vs_{other}", "{:.2f}") for c in columns]]
                          for n, line in found.items()])
    return out


def calls_text(part):
    out = ["", f"## System calls for a GET of 150 B (perf/syscalls, counted by {part['counted_by']})", ""]
    lines = []
    for name, modes in part["calls"].items():
        for connections, calls in modes.items():
            which = sorted(((k, v) for k, v in calls.items() if v >= 0.005), key=lambda kv: -kv[1])
            lines.append([name, connections, f"{sum(calls.values()):.2f}", ", ".join(f"{k} {v:.2f}" for k, v in which)])
    return out + table(["gateway", "connections", "per request", "which"], lines)


def instructions_text(part):
    return ["", "## Instructions in user space for a GET of 150 B (perf/instructions, callgrind)", "",
            *table(["gateway", "per request"], [[k, f"{v:.0f}"] for k, v in part["instructions"].items()])]


def cold_text(part):
    def median(rounds, key):
        return statistics.median(r[key] for r in rounds)
    out = ["", f"## The first 1,000 requests after a start, at {part['rate']} req/s (perf/coldstart)", ""]
    columns = ("before", "by_first", "first_p50_us", "first_p99_us", "steady_p50_us", "steady_p99_us", "failed")
    lines = [[name, *[f"{median(rounds, c):.0f}" for c in columns],
              f"{statistics.median(r['first_p99_us'] / r['steady_p99_us'] for r in rounds):.2f}"]
             for name, rounds in part["rounds"].items()]
    return out + table(["gateway", "connections before", "opened by them", "p50 us", "p99 us", "steady p50 us",
                        "steady p99 us", "failed", "p99, first to steady"], lines)


def memory_text(part):
    out = ["", f"## Memory (perf/memory): {part['idle']} idle connections, {part['active']} active ones, "
           f"{part['tls']} idle ones over TLS", ""]

    def number(m, key):
        return f"{m[key]:.0f}" if m.get(key) is not None else "-"
    keys = ("idle_bytes", "tls_bytes", "active_bytes", "start_rss_kb", "rss_kb")
    return out + table(["gateway", "bytes for an idle one", "over TLS", "for an active one", "RSS KiB at the start",
                        f"RSS KiB with {part['idle']}"],
                       [[name, *[number(m, k) for k in keys]] for name, m in part["gateways"].items()] +
                       [[name, "broken", *["-"] * (len(keys) - 1)] for name in part["broken"]])


PARTS = {"calls": calls_text, "instructions": instructions_text, "cold": cold_text, "memory": memory_text}


def markdown(result, noise):
    cells = result["cells"]
    noisy = sum(c["foreign"] + c["stolen"] >= noise for c in cells)
    out = ["# perf/compare", "", rig.machine_line(result["machine"]), "",
           f"{result['rounds']} rounds of {result['duration']} s; medians (smallest..largest). "
           f"Other work took over {noise:.0%} of a core in {noisy} of {len(cells)} measurements.", "",
           *[f"- {k}: {v}" for k, v in result["versions"].items()],
           *[f"- {k}: not here ({v})" for k, v in result["absent"].items()]]
    for entry in result["rows"]:
        out += row_text(entry, result["summary"].get(entry["name"], {}))
    for name, text in PARTS.items():
        if name in result:
            out += text(result[name]) if "skipped" not in result[name] else \
                ["", f"## {name}", "", f"Not measured: {result[name]['skipped']}."]
    return "\n".join(out) + "\n"
