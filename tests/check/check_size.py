"""Files have at most 700 lines, functions at most 60 between their braces."""

from tree import finish, read, sources

FILE, FUNCTION = 700, 60


def check(path):
    lines = read(path).split("\n")
    if len(lines) - 1 > FILE:
        yield f"{path}: {len(lines) - 1} lines, at most {FILE}"
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":  # Linux braces: only functions open at column 0
            start = number
        elif line == "}" and start:
            if number - start - 1 > FUNCTION:
                yield f"{path}:{start}: a function of {number - start - 1} lines, at most {FUNCTION}"
            start = None


finish([fault for path in sources("gateway", "plugins", "tests", "perf") for fault in check(path)])
