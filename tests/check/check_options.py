"""The manual (config/gateway.conf) has every option of the grammar at its place, and no other; and
every metric and every field of the access log."""

import re

from tree import finish, read, sources

grammar = read("gateway/conf/grammar.c")
manual = read("config/gateway.conf")


def tables():
    """{table: {option: table of the section, or None}}"""
    found = {}
    for name, body in re.findall(r"cfg_opt_t (\w+)\[\] = \{(.*?)CFG_END\(\)", grammar, re.S):
        options = {option: None for option in re.findall(r'(?:ONE|LIST)\("(\w+)"\)', body)}
        options |= {option: option if table == "NULL" else table
                    for option, table in re.findall(r'SECTION\("(\w+)", (\w+)\)', body)}
        found[name] = options
    return found


def of_grammar(found, table, path=()):
    for option, sub in found[table].items():
        yield path + (option,)
        if sub:
            yield from of_grammar(found, sub, path + (option,))


def of_manual():
    """The options that stand there, behind "#" where they show a default; not those of plugins,
    whose own tables are compared by a scenario."""
    text = re.split(r"^# Sections of plugins stand", manual, maxsplit=1, flags=re.M)[0]
    place = []
    for line in text.split("\n\n# ----", 1)[1].splitlines():
        line = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)  # names and values may look like options
        line = re.sub(r"= \{[^}]*\}", "= ", line)
        code = re.match(r"^ *#? ?((?:\w+ (?:\"\" )?\{|\w+ \+?= |\}).*)$", line)
        if not code:
            continue
        for token in re.findall(r"(\w+) (?:\"\" )?(\{)|(\w+) \+?= |(\})", code[1].split(" #")[0]):
            if token[3]:
                place = place[:-1]
                continue
            yield tuple(place) + (token[0] or token[2],)
            if token[1]:
                place.append(token[0])


wanted, shown = set(of_grammar(tables(), "top")), set(of_manual())
if len(wanted) < 100:
    finish([f"only {len(wanted)} options found in grammar.c: this check does not read it any more"])
# what a condition may test is explained once for both kinds, and a split has names of upstreams
for kind in ("match_header", "match_query"):
    shown |= {("route", kind, test) for test in re.findall(r"^ *#   (\w+) = ", manual, re.M)
              if test in tables()["condition"]}
shown -= {path for path in shown if path[:2] == ("route", "split") and path not in wanted}
faults = [f"config/gateway.conf: nothing about {'.'.join(path)}" for path in sorted(wanted - shown)]
faults += [f"config/gateway.conf: {'.'.join(path)} is no option of grammar.c"
           for path in sorted(shown - wanted)]

# in quotation marks in a source: what /metrics says; "postern_" alone begins those of plugins
metrics = {name for path in sources("gateway", ends=(".c",)) for name in re.findall(
    r'"(postern_\w+_(?:total|seconds|info|up|connections|generation|success))[",{]', read(path))}
access = read("gateway/proxy/access.c")
fields = set(re.findall(r'[,{]\\"([a-z_]+)\\"', access)) | set(re.findall(r" STRING\((\w+),", access))
fields |= {name + "_ms" for name in re.findall(r" MS\((\w+)\);", access)}
if len(metrics) < 20 or len(fields) < 20:
    faults.append(f"{len(metrics)} metrics, {len(fields)} fields of the log: found too few of them")
faults += [f"config/gateway.conf: nothing about {name}" for name in sorted(metrics | fields)
           if not re.search(rf"^#.*\b{name}\b", manual, re.M)]
finish(faults)
