"""Every source file has a unit test, or stands in untested.txt with the reason why not; and
every test that is there is built and run."""

import os

from tree import ROOT, exceptions, finish, read, sources

faults = []
untested = exceptions("untested.txt")
code = sources("gateway", ends=(".c",)) + sources("plugins", ends=(".c",))
meson = "".join(map(read, ["tests/meson.build", *sources("plugins", ends=("meson.build",))]))
seen = {}
for path in code:
    name = os.path.basename(path)[:-2]
    if seen.setdefault(name, path) != path:
        faults.append(f"{path}: {seen[name]} has that name; names are prefixes, so they are unique")
    has = os.path.isfile(os.path.join(ROOT, "tests", "unit", f"test_{name}.c"))
    if not has and path not in untested:
        faults.append(f"{path}: no tests/unit/test_{name}.c, and no reason in untested.txt")
    if has and path in untested:
        faults.append(f"{path}: has a test, so untested.txt must not name it")
for path in untested.keys() - set(code):
    faults.append(f"untested.txt: {path} does not exist")
for path in sources("tests/unit", ends=(".c",)):
    name = os.path.basename(path)[len("test_"):-2]
    if f"'{name}'" not in meson:
        faults.append(f"{path}: no meson.build builds it")
for path in sources("tests/fuzz", ends=(".c",)):
    name = os.path.basename(path)[:-2]
    if name != "replay" and f"'{name}'" not in meson:
        faults.append(f"{path}: no meson.build builds it")
finish(faults)
