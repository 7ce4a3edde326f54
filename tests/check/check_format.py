"""clang-format has nothing to change."""

import shutil
import sys

from tree import SKIPPED, run, sources

if not shutil.which("clang-format-14"):
    print("clang-format-14 is not installed")
    sys.exit(SKIPPED)
status, text = run("clang-format-14", "--dry-run", "-Werror",
                   *sources("gateway", "plugins", "tests", "perf"))
print(text)
sys.exit(1 if status else 0)
