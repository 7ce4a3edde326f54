"""The program exports nothing but what plugins may call (postern_*). Looked at is the release
build named by POSTERN_RELEASE, else the one given."""

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
# The C library's own business: copies of its variables that the program refers to.
LIBC = {"stdin", "stdout", "stderr", "environ", "__environ", "_environ", "optarg", "optind",
        "opterr", "optopt", "program_invocation_name", "program_invocation_short_name",
        "__progname", "__progname_full"}
finish([f"{binary}: exports {name}" for name in names
        if not name.startswith("postern_") and name not in LIBC])
