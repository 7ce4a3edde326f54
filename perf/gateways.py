"""The gateways under measurement, those of this tree and all others."""
import http.client
import json
import os
import subprocess

import rig
from front import KEY, KEYED, KEEP, LIMITED, RATE, TOKEN, TOKEN_HEADER, TOKEN_SECRET, Gateway, is_unix
from peers import Caddy, Envoy, H2o, Haproxy, Nghttpx, Nginx
from rig import ROOT, Trouble, first_line, free_port

NAMES = ["postern", "nginx", "haproxy", "nghttpx", "h2o", "envoy", "caddy", "relay"]


class Relay(Gateway):
    name = "relay"
    speaks_tls = False
    features = ("unix",)

    def version(self):
        return "perf/relay.c"

    def command(self):
        return [self.rig.tool("relay"), str(self.port), str(self.backends[0])]


class Postern(Gateway):
    name = "postern"
    features = ("limits", "tokens", "logged", "routes", "workers", "unix")
    warm = 64

    def __init__(self, rig, backends, **features):
        super().__init__(rig, backends, **features)
        self.admin = free_port()

    def version(self):
        asserts = ", BUILT WITH ASSERTIONS: no release" if rig.has_assertions(self.rig.postern) else ""
        return first_line(self.rig.postern, "-v") + asserts

    def config(self):
        servers = " ".join(f'server "{f"unix:{b}" if is_unix(b) else f"127.0.0.1:{b}"}" {{}}'
                           for b in self.backends)
        log = f"{self.dir}/access.log" if self.logged else "off"
        routes = "".join(f'route "r{n}" {{ path = "/r/{n}/{{rest...}}" upstream = app }}\n'
                         for n in range(self.routes))
        return f"""
workers = {self.workers}
admin {{ listen = "127.0.0.1:{self.admin}" }}
access_log {{ path = "{log}" }}
listener "front" {{ listen = {{"127.0.0.1:{self.port}"}} }}
listener "tls" {{
  listen = {{"127.0.0.1:{self.tls_port}"}}
  tls {{ certificate "localhost" {{ chain = "{self.chain}"  key = "{self.key}" }} }}
}}
upstream "app" {{ {servers} pool {{ warm = {self.warm} idle = {KEEP} }} }}
route "all" {{ path = "/{{rest...}}" upstream = app }}
""" + routes + (self.limit_config() if self.limits else "")

    def limit_config(self):
        """`headers = none`, for the others tell clients nothing either"""
        self.write("keys.json", json.dumps({"keys": [{"key": KEY, "consumer": "alice"}]}))
        self.write("secret", TOKEN_SECRET)
        os.chmod(f"{self.dir}/secret", 0o600)
        return f"""
route "limited" {{
  path = "/limited" upstream = app
  rate_limit {{ rate = "{RATE}/s" headers = none }}
}}
route "keyed" {{
  path = "/keyed" upstream = app
  key_auth {{ file = "keys.json" query = {{key}} consumer_header = off }}
  rate_limit {{ rate = "{RATE}/s" by = credential headers = none }}
}}
route "token" {{
  path = "/token" upstream = app
  jwt {{ secret_file = "secret" algorithms = {{HS256}} issuer = {{perf}} audience = {{small}} }}
}}
"""

    def write_config(self):
        self.write("gateway.conf", self.config())

    def command(self):
        return [self.rig.postern, "-c", f"{self.dir}/gateway.conf"]

    def ask(self, path):
        """(status, body) from the admin listener"""
        c = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=30)
        try:
            c.request("GET", path)
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def is_up(self):
        if self.process.poll() is not None:
            return True
        try:
            return self.ask("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False


class Plugged(Postern):
    """postern with three plugins that do nothing, in three phases each; measured when named."""
    name = "plugged"

    def config(self):
        names = [f"empty{i}" for i in range(3)]
        for name in names:
            subprocess.run(["cc", "-shared", "-fPIC", "-O2", f'-DNAME="{name}"',
                            f"-I{ROOT}/gateway/plugin", "-o", f"{self.dir}/{name}.so",
                            f"{ROOT}/perf/empty_plugin.c"], check=True)
        sections = "".join(f"{name} {{ }}\n" for name in names)
        return f'plugins {{ directory = "{self.dir}" }}\n{sections}{super().config()}'


KINDS = {k.name: k for k in (Postern, Plugged, Nginx, Haproxy, Nghttpx, H2o, Envoy, Caddy, Relay)}


def choose(only):
    """The kinds named by --only, in the order of the tables."""
    wanted = [n for n in only.split(",") if n] if only else NAMES
    for name in wanted:
        if name not in KINDS:
            raise Trouble(f"--only {name}: there is {', '.join(KINDS)}")
    return [kind for name, kind in KINDS.items() if name in wanted]


def programs(kinds):
    return [k.program for k in kinds if k.program]


def present(kinds, install):
    """The kinds that are here, and {name: how to get it} of those that are not."""
    if install:
        rig.install_peers(kinds)
    return [k for k in kinds if k.here()], {k.name: rig.how_to_get(k.name) for k in kinds if not k.here()}


def check_bodies(gateway, backend_port):
    """A gateway that changes bodies is not measured."""
    seen = {}
    for port in (backend_port, gateway.port):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for method, path, body in (("GET", "/small", None), ("GET", "/64k", None),
                                   ("GET", "/1m", None), ("POST", "/echo", b"[1]" * 341)):
            c.request(method, path, body)
            r = c.getresponse()
            answer = (r.status, r.read())
            if seen.setdefault(path, answer) != answer:
                raise Trouble(f"{gateway.name} changes {method} {path}: {r.status}")
        c.close()
