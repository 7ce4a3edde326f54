"""Every test that FAULTS.md names is there."""

import os
import re

from tree import ROOT, finish, read

faults = []
text = read("tests/FAULTS.md")
folders = {".py": "tests/scenario", ".c": "tests/unit"}
named = re.findall(r"(test_\w+(\.py|\.c))::(\w+)", text)
if len(named) < 40:
    faults.append(f"tests/FAULTS.md: names {len(named)} tests; its table is not read as it should be")
for file, end, test in named:
    path = f"{folders[end]}/{file}"
    if not os.path.isfile(os.path.join(ROOT, path)):
        faults.append(f"tests/FAULTS.md: there is no {path}")
    elif not re.search(rf"^def {test}\(" if end == ".py" else rf"^static void {test}\(", read(path), re.M):
        faults.append(f"tests/FAULTS.md: {path} has no {test}")
for file in re.findall(r"\| (check_\w+\.py) \|", text):
    if not os.path.isfile(os.path.join(ROOT, "tests/check", file)):
        faults.append(f"tests/FAULTS.md: there is no tests/check/{file}")
finish(faults)
