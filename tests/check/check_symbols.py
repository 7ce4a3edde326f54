"""The program exports nothing but what plugins may call (postern_*), and a plugin nothing but
itself. Looked at is the program of the release build named by POSTERN_RELEASE, else the first
one given; the others are plugins."""

import os
import re
import sys

from tree import SKIPPED, finish, run

binary = os.environ.get("POSTERN_RELEASE") or sys.argv[1]
status, text = run("nm", "-D", "--defined-only", binary)
if status:
    finish([text])
names = [line.split()[-1].split("@")[0] for line in text.splitlines()]
if any(re.match(r"_*(asan|tsan|ubsan|sanitizer)_", name) for name in names):
    print("a sanitizer exports its own symbols; POSTERN_RELEASE names no other build")
    sys.exit(SKIPPED)
# Copies of a library's variables that the program refers to are the linker's doing.
copied = {line.split()[4].split("@")[0]
          for line in run("readelf", "-rW", binary)[1].splitlines() if "_COPY" in line}
faults = [f"{binary}: exports {name}" for name in names
          if not name.startswith("postern_") and name not in copied]
for plugin in sys.argv[2:]:
    status, text = run("nm", "-D", "--defined-only", plugin)
    exported = [line.split()[-1] for line in text.splitlines()]
    if status or exported != ["postern_plugin"]:
        faults.append(f"{plugin}: exports {exported or text}, expected postern_plugin alone")
finish(faults)
