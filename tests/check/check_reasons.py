"""Each reason of http/reason.h and of the plugins is explained to users and reached by a scenario test."""

import re

from tree import exceptions, finish, read, sources

reasons = [name for name in re.findall(r'X\(\w+,\s*\d+,\s*"([^"]*)"', read("gateway/http/reason.h"))
           if name]
reasons += sorted({name for path in sources("plugins", ends=(".c",))
                   for name in re.findall(r'\{"([a-z_]+\.[a-z_]+)", "', read(path))})
documents = {path: read(path) for path in
             [p for p in sources(".", ends=(".md",)) if "/" not in p] +
             sources("config", ends=(".conf",))}
scenarios = "".join(read(path) for path in sources("tests/scenario", ends=(".py",)))
unreached = exceptions("unreached.txt")

faults = [] if len(reasons) > 30 else [f"only {len(reasons)} reasons were found in reason.h"]
for name in reasons:
    word = re.compile(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)")
    if not any(word.search(text) for text in documents.values()):
        faults.append(f"{name}: no document names it")
    reached = f'"{name}"' in scenarios
    if not reached and name not in unreached:
        faults.append(f"{name}: no scenario test reaches it, and no reason in unreached.txt")
    if reached and name in unreached:
        faults.append(f"{name}: is reached, so unreached.txt must not name it")
for name in unreached.keys() - set(reasons):
    faults.append(f"unreached.txt: {name} is no reason")
finish(faults)
