"""What the checks of the source tree share."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIPPED = 77  # meson's exit status for a test that could not run


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def sources(*folders, ends=(".c", ".h")):
    """Paths below the folders, relative to the root and in order."""
    found = []
    for folder in folders:
        for directory, _, names in os.walk(os.path.join(ROOT, folder)):
            found += [os.path.relpath(os.path.join(directory, name), ROOT)
                      for name in names if name.endswith(ends)]
    return sorted(found)


def exceptions(name):
    """{path: reason} from a list beside the checks: a path, a colon, and why."""
    entries = {}
    for line in read(f"tests/check/{name}").splitlines():
        if line and not line.startswith("#"):
            path, _, reason = line.partition(": ")
            assert reason, f"{name}: {path} has no reason"
            entries[path] = reason
    return entries


def includes(path):
    """[(line number, "room/file.h")] of the quoted includes."""
    return [(text[:match.start()].count("\n") + 1, match[1])
            for text in [read(path)]
            for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', text, re.M)]


def finish(faults):
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


def run(*args):
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr
