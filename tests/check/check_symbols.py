"""The program exports nothing but what plugins may call (postern_*), and a plugin nothing but
itself; and both are linked and compiled so that faults are hard to use. Looked at is the program of the release build named by POSTERN_RELEASE, else the one
given, and the plugins beside it."""

import glob
import os
import re
import sys

from tree import SKIPPED, finish, run

binary = os.path.abspath(os.environ.get("POSTERN_RELEASE") or sys.argv[1])
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

# What makes a fault of ours harder to use: fixed addresses, writable tables of the linker, a stack
# that runs or is not watched, calls that do not know the size of what they fill.
for path in (binary, *plugins):
    text = run("readelf", "-hldW", path)[1]
    calls = run("nm", "-D", "--undefined-only", path)[1]
    for what, found in {"position independent": re.search(r"Type: +DYN", text),
                        "read-only after relocation": "GNU_RELRO" in text,
                        "bound at once": re.search(r"BIND_NOW|FLAGS_1.*\bNOW\b", text),
                        "free of a stack that runs": re.search(r"GNU_STACK.* RW +0x", text),
                        "watching its stack": "__stack_chk_fail" in calls}.items():
        if not found:
            faults.append(f"{path}: not {what}")
if not re.search(r"__(v?snprintf|memcpy|vfprintf|fprintf|printf)_chk", run("nm", "-D", binary)[1]):
    faults.append(f"{binary}: calls of libc are not fortified")
finish(faults)
