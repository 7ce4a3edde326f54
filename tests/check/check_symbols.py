"""The program exports nothing but what plugins may call (postern_*), and a plugin nothing but
itself. Looked at is the program of the release build named by POSTERN_RELEASE, else the one
given, and the plugins beside it."""

import glob
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
plugins = sorted(glob.glob(os.path.join(os.path.dirname(os.path.abspath(binary)), "plugins", "*.so")))
if not plugins:
    faults.append(f"{binary}: no plugins beside it")
for plugin in plugins:
    status, text = run("nm", "-D", "--defined-only", plugin)
    exported = [line.split()[-1] for line in text.splitlines()]
    if status or exported != ["postern_plugin"]:
        faults.append(f"{plugin}: exports {text.split() if status else exported}, expected postern_plugin alone")
finish(faults)
