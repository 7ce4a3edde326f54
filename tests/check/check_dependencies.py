"""Whatever the build asks for and the tests import stands in DECISIONS.md, and is a package of packaging/lib.sh."""

import ast
import os
import re
import sys

from tree import ROOT, finish, read, sources

decisions = read("DECISIONS.md").split("· Dependencies\n")[1].split("\n## ")[0]
packages = read("packaging/lib.sh")
faults = []

# of meson, and of what is installed with postern
OWN = {"threads", "postern-plugin"}
for path in ["meson.build", *sources("gateway", "plugins", "tests", "perf", ends=("meson.build",))]:
    for name in re.findall(r"\bdependency\('([^']+)'", read(path)):
        if name not in OWN and not re.search(rf"`{re.escape(name)}`|^\| {re.escape(name)} \|", decisions, re.M):
            faults.append(f"{path}: the dependency {name} is not among those of DECISIONS.md")

files = sources("tests", "perf", "packaging", ends=(".py",))
own = {os.path.splitext(os.path.basename(path))[0] for path in files} | \
      {name for folder in ("tests/scenario", "perf") for name in os.listdir(os.path.join(ROOT, folder))}
for path in files:
    for node in ast.walk(ast.parse(read(path))):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
            [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in {name.split(".")[0] for name in names} - own - set(sys.stdlib_module_names):
            known = {"grpc": "grpcio"}.get(name, name)
            if not re.search(rf"\b{known}\b", decisions):
                faults.append(f"{path}: the module {name} is not among the dependencies of DECISIONS.md")
            # hpack and hyperframe are what python3-h2 is made of
            if f"python3-{known}" not in packages and known not in ("hpack", "hyperframe"):
                faults.append(f"{path}: packaging/lib.sh installs no python3-{known}")
finish(faults)
