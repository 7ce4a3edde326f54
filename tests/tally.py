#!/usr/bin/python3
"""Adds up the junit files of meson and pytest: failures and skips with their reasons, then one
line "N passed, N failed" (and ", N skipped"). Exit status 0 when something passed and nothing
failed.

meson counts the scenario suite as one test; its single tests stand in pytest's own file, which
is why that one entry is left out; when pytest leaves no file behind, that is a failure."""

import os
import re
import sys
import xml.etree.ElementTree as xml


def first_line(*nodes):
    """Of the message, or else of what the test printed."""
    texts = [(node.get("message") or node.text or "").strip() for node in nodes if node is not None]
    text = next(filter(None, texts), "")
    return text.splitlines()[0][:300] if text else "no reason given"


def cases(path):
    """(name, outcome, reason) of each test in one junit file."""
    for suite in xml.parse(path).getroot().iter("testsuite"):
        for case in suite.findall("testcase"):
            name = f"{case.get('classname') or suite.get('name')}: {case.get('name')}"
            for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
                node = case.find(kind)
                if node is not None:
                    yield name, outcome, first_line(node, case.find("system-out"))
                    break
            else:
                yield name, "passed", ""


def main(paths):
    totals = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        if not os.path.exists(path):
            print(f"failed: {path} was not written")
            totals["failed"] += 1
            continue
        for name, outcome, reason in cases(path):
            if re.search(r"[:/] scenario$", name) and path.endswith("testlog.junit.xml"):
                continue
            totals[outcome] += 1
            if outcome != "passed":
                print(f"{outcome}: {name}: {reason}")
    line = f"{totals['passed']} passed, {totals['failed']} failed"
    print(line + (f", {totals['skipped']} skipped" if totals["skipped"] else ""))
    return 0 if totals["passed"] and not totals["failed"] else 1


sys.exit(main(sys.argv[1:]))
