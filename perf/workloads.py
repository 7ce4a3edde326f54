"""Small pieces of work that perf/instructions counts and perf/train trains with."""
import dataclasses
import re

import gateways

CONNECTIONS = 64
H2_CONNECTIONS, H2_STREAMS = 4, 32


@dataclasses.dataclass(frozen=True)
class Workload:
    what: str
    path: str = "/small"
    options: tuple = ()  # of perf/load
    features: tuple = () # what a gateway must have, and is asked for
    h2: bool = False     # h2load over TLS instead of perf/load


WORKLOADS = {
    "small": Workload("GET of 150 B"),
    "echo": Workload("POST of 1 KiB JSON, echoed", "/echo", ("-p", "1024")),
    "64k": Workload("GET of 64 KiB", "/64k"),
    "logged": Workload("GET of 150 B with an access log in a file", features=("logged",)),
    "limited": Workload("GET of 150 B with a rate limit", gateways.LIMITED, features=("limits",)),
    "keyed": Workload("GET of 150 B with a key and a rate limit", gateways.KEYED, features=("limits",)),
    "token": Workload("GET of 150 B with a token", gateways.TOKEN, ("-H", gateways.TOKEN_HEADER),
                      ("limits", "tokens")),
    "h2": Workload("GET of 150 B over HTTP/2 and TLS", h2=True),
}


def takes_part(workload, kind):
    if workload.h2 and not kind.speaks_tls:
        return False
    return all(f in kind.features for f in workload.features)


def features(workload):
    """what a gateway is made with"""
    return {f: True for f in workload.features if f != "tokens"}


def describe(workload):
    if workload.h2:
        return f"{workload.what}, {H2_STREAMS} at a time on each of {H2_CONNECTIONS} connections"
    return f"{workload.what}, {CONNECTIONS} connections, keep-alive"


def send(the_rig, gateway, workload, requests):
    """how many of them were answered well"""
    if not workload.h2:
        return the_rig.load(*workload.options, "count", gateway.port, workload.path, CONNECTIONS, requests,
                            timeout=300)["requests"]
    r = the_rig.run(["h2load", "-t1", f"-c{H2_CONNECTIONS}", f"-m{H2_STREAMS}", f"-n{requests}",
                     f"https://127.0.0.1:{gateway.tls_port}{workload.path}"])
    done = re.search(r" (\d+) succeeded", r.stdout)
    return int(done[1]) if done and "Application protocol: h2" in r.stdout else 0
