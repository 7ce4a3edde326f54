"""A file includes its own room and the rooms below it, never one above.

base < net < http < up, plugin < conf < proxy < app; up and plugin do not know each other.
The libraries' own headers stay where they are spoken: libconfuse in conf, libevent's HTTP
server in proxy and app."""

import os
import re

from tree import ROOT, finish, includes, read, sources

FLOOR = {"base": 0, "net": 1, "http": 2, "up": 3, "plugin": 3, "conf": 4, "proxy": 5, "app": 6}
ONLY = {r"confuse\.h": {"conf", "app"}, r"event2/(http|buffer|keyvalq).*": {"proxy", "app"},
        r"event2/.*": {"net", "proxy", "app"}}


def check(path):
    room = path.split(os.sep)[1]
    if room not in FLOOR:
        yield f"{path}: {room} is no room"
        return
    inner = includes(path)
    for line, name in inner:
        other = name.split("/")[0]
        if not os.path.isfile(os.path.join(ROOT, "gateway", name)):
            yield f"{path}:{line}: {name} is not in gateway/; includes are \"room/file.h\""
        elif other != room and FLOOR[other] >= FLOOR[room]:
            yield f"{path}:{line}: {room} includes {name}, which is not below it"
    own = path[len("gateway/"):-2] + ".h"
    if path.endswith(".c") and own in [name for _, name in inner] and inner[0][1] != own:
        yield f"{path}: {own} does not stand first"
    for match in re.finditer(r"^#include <([^>]+)>", read(path), re.M):
        for pattern, rooms in ONLY.items():
            if re.fullmatch(pattern, match[1]):
                if room not in rooms:
                    yield f"{path}: <{match[1]}> belongs to {', '.join(sorted(rooms))}"
                break


finish([fault for path in sources("gateway") for fault in check(path)])
