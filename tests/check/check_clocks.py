"""The time of day may jump, so only these ask for it, each for a date that somebody reads or wrote;
whatever waits goes by the monotonic clock."""

import re

from tree import finish, read, sources

MAY = {
    "gateway/base/clock.h": "the one function for dates: logs, Date fields, plugins' tokens and keys",
    "gateway/net/tls_cert.c": "until when an OCSP response is good",
    "gateway/net/tls_front.c": "the same",
    "gateway/app/follow.c": "until when certificates are valid",
    "gateway/app/status.c": "how long they still are",
    "gateway/conf/snapshot.c": "until when certificates are valid",
    "gateway/proxy/proc.c": "when the process began",
    "plugins/key_auth/postern_keys.c": "until when keys are valid",
}
ASKS = re.compile(r"CLOCK_REALTIME|\bgettimeofday\(|\btime\((NULL|0)\)|\bftime\(")

faults, found = [], set()
for path in [*sources("gateway", ends=(".c", ".h")), *sources("plugins", ends=(".c", ".h"))]:
    if not ASKS.search(read(path)):
        continue
    found.add(path)
    if path not in MAY:
        faults.append(f"{path}: asks for the time of day; CLOCK_MONOTONIC (loop->now) does not jump, "
                      "base/clock.h is for dates")
for path in MAY.keys() - found:
    faults.append(f"check_clocks.py: {path} does not ask any more")
finish(faults)
