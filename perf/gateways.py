"""The gateways under measurement, configured alike: one worker, no access log, upstream
connections kept open (at most KEEP unused for each server), X-Forwarded-For added, bodies
passed on as they come.

With `limits` there are three more paths: /limited counts each request by the client's address,
/keyed?key=KEY finds out who asks and counts by that, and /token lets through who brings TOKEN; limits
are so high that nothing meets them. nginx has no tokens, nghttpx and h2o have none of the three."""
import base64
import getpass
import grp
import hmac
import http.client
import json
import os
import subprocess
import tempfile

from rig import ROOT, Trouble, first_line, free_port, is_listening, read, tree, wait_for

KEEP = 128 # unused upstream connections a gateway may keep
NAMES = ["postern", "nginx", "haproxy", "nghttpx", "h2o", "relay"]
KEY = "0123456789abcdef0123456789abcdef"
LIMITED, KEYED = "/limited", f"/keyed?key={KEY}"
RATE = 1000000 # requests a second


def sign(secret, **claims):
    """A JSON Web Token, HS256."""
    def text(part):
        return base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    parts = (json.dumps(part, separators=(",", ":")).encode()
             for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    start = ".".join(map(text, parts))
    return f"{start}.{text(hmac.digest(secret.encode(), start.encode(), 'sha256'))}"


TOKEN = "/token"
TOKEN_SECRET = KEY + KEY
TOKEN_HEADER = "Authorization: Bearer " + sign(TOKEN_SECRET, sub="alice", iss="perf", aud="small",
                                               exp=4102444800, iat=1700000000, scope="read write")


def certificate(folder):
    """One for all of them, of the kind that costs least: chain, key, and both in one file."""
    chain, key, both = (f"{folder}/{name}.pem" for name in ("chain", "key", "both"))
    if not os.path.exists(both):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", chain,
                        "-days", "30", "-subj", "/CN=localhost"], check=True, capture_output=True)
        with open(both, "w") as out:
            out.write(read(chain) + read(key))
        for path in (chain, key, both): # a throw-away key, read by gateways that change user
            os.chmod(path, 0o644)
    return chain, key, both


class Gateway:
    """One gateway in front of some backends (ports)."""
    program = None     # what must be on PATH
    tls_port = None    # none: it has no TLS
    start_seconds = 10
    speaks_tls = True
    limits = False     # it has /limited, /keyed and /token
    has_limits = True  # /limited and /keyed are more there than other paths
    has_tokens = True  # and so is /token

    def __init__(self, rig, backends):
        self.rig, self.backends = rig, backends
        self.process = None

    def start(self, wrap=(), single=False):
        """`wrap` stands before the command (valgrind); `single` asks for one process."""
        self.port = free_port()
        if self.speaks_tls:
            self.tls_port = free_port()
        self.dir = tempfile.mkdtemp(prefix=self.name + "-", dir=self.rig.dir)
        os.chmod(self.dir, 0o755)
        self.single = single
        self.chain, self.key, self.both = certificate(self.rig.dir)
        self.write_config()
        self.process = self.rig.spawn([*wrap, *self.command()], self.rig.gateway_core,
                                      cwd=self.dir)
        seconds = 60 if wrap else self.start_seconds
        if not wait_for(self.is_up, seconds) or self.process.poll() is not None:
            self.stop()
            raise Trouble(f"{self.name} did not start: " + read(f"{self.dir}/out")[-800:])
        return self

    def is_up(self):
        return self.process.poll() is not None or is_listening(self.port)

    def stop(self, seconds=5):
        if self.process:
            self.rig.stop(self.process, seconds)

    def pids(self):
        return tree(self.process.pid)

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w") as f:
            f.write(text)

    def write_config(self):
        pass


class Relay(Gateway):
    name = "relay"
    speaks_tls = False

    def version(self):
        return "perf/relay.c"

    def command(self):
        return [self.rig.tool("relay"), str(self.port), str(self.backends[0])]


class Nginx(Gateway):
    name = program = "nginx"
    has_tokens = False

    def version(self):
        return first_line("nginx", "-v")

    def write_config(self):
        servers = " ".join(f"server 127.0.0.1:{p};" for p in self.backends)
        user = f"user {getpass.getuser()} {grp.getgrgid(os.getgid()).gr_name};"
        temp = " ".join(f"{k}_temp_path {self.dir}/{k};" for k in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        proxy = """
      proxy_pass http://app; proxy_http_version 1.1;
      proxy_set_header Connection $hop; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"""
        zones = places = ""
        if self.limits:
            zones = f"""
  map $arg_key $consumer {{ default ""; "{KEY}" alice; }}
  limit_req_zone $binary_remote_addr zone=addresses:10m rate={RATE}r/s;
  limit_req_zone $consumer zone=consumers:10m rate={RATE}r/s;"""
            places = f"""
    location = /limited {{ limit_req zone=addresses burst={RATE // 100} nodelay; {proxy} }}
    location = /keyed {{
      if ($consumer = "") {{ return 401; }}
      limit_req zone=consumers burst={RATE // 100} nodelay; {proxy} }}"""
        self.write("nginx.conf", f"""
daemon off;
master_process {'off' if self.single else 'on'};
worker_processes 1;
{user if os.geteuid() == 0 else ''}
pid {self.dir}/nginx.pid;
error_log {self.dir}/error.log warn;
events {{ worker_connections 12000; }}
http {{
  access_log off;
  {temp}
  keepalive_timeout 60s; keepalive_requests 100000000;
  proxy_max_temp_file_size 0; client_max_body_size 16m;
  upstream app {{ {servers} keepalive {KEEP}; keepalive_requests 100000000; }}
  map $http_upgrade $hop {{ default upgrade; "" ""; }}
  {zones}
  server {{
    listen 127.0.0.1:{self.port} backlog=8192;
    listen 127.0.0.1:{self.tls_port} ssl http2 backlog=8192;
    ssl_certificate {self.chain}; ssl_certificate_key {self.key};
    ssl_protocols TLSv1.2 TLSv1.3;
    location / {{ {proxy} }}
    {places}
  }}
}}
""")

    def command(self):
        return ["nginx", "-p", self.dir, "-e", f"{self.dir}/error.log", "-c",
                f"{self.dir}/nginx.conf"]


class Haproxy(Gateway):
    name = program = "haproxy"

    def version(self):
        return first_line("haproxy", "-v")

    def write_config(self):
        servers = "\n  ".join(f"server s{i} 127.0.0.1:{p} pool-max-conn {KEEP}"
                              for i, p in enumerate(self.backends))
        limits = tables = ""
        if self.limits:
            limits = f"""
  acl limited path /limited
  acl keyed path /keyed
  acl token path /token
  http-request deny deny_status 401 if token !{{ http_auth_bearer,jwt_verify("HS256","{TOKEN_SECRET}") -m int 1 }}
  http-request deny deny_status 401 if keyed !{{ url_param(key) -m str {KEY} }}
  http-request track-sc0 src table addresses if limited
  http-request track-sc0 url_param(key) table consumers if keyed
  http-request deny deny_status 429 if limited {{ sc_http_req_rate(0,addresses) gt {RATE} }}
  http-request deny deny_status 429 if keyed {{ sc_http_req_rate(0,consumers) gt {RATE} }}"""
            tables = """
backend addresses
  stick-table type ip size 64k expire 10s store http_req_rate(1s)
backend consumers
  stick-table type string len 64 size 64k expire 10s store http_req_rate(1s)"""
        self.write("haproxy.cfg", f"""
global
  nbthread 1
  maxconn 6000
defaults
  mode http
  option http-keep-alive
  option forwardfor
  http-reuse always
  timeout client 60s
  timeout server 60s
  timeout connect 5s
  timeout http-keep-alive 60s
  timeout tunnel 1h
frontend front
  bind 127.0.0.1:{self.port} backlog 8192
  bind 127.0.0.1:{self.tls_port} ssl crt {self.both} alpn h2,http/1.1 ssl-min-ver TLSv1.2 backlog 8192
  {limits}
  default_backend app
backend app
  balance roundrobin
  {servers}
{tables}
""")

    def command(self):
        return ["haproxy", "-db", "-f", f"{self.dir}/haproxy.cfg"]


class Nghttpx(Gateway):
    name = program = "nghttpx"
    has_limits = has_tokens = False

    def version(self):
        return first_line("nghttpx", "-v")

    def command(self):
        single = ["--single-process", "--single-thread"] if self.single else []
        return ["nghttpx", "--conf=/dev/null", *single, "--workers=1", "--no-ocsp",
                "--add-x-forwarded-for", "--backlog=8192", "--rlimit-nofile=65536",
                f"--errorlog-file={self.dir}/error.log", f"--pid-file={self.dir}/pid",
                "--frontend-keep-alive-timeout=75", "--backend-keep-alive-timeout=60",
                f"--backend-connections-per-host={KEEP}",
                f"--frontend=127.0.0.1,{self.port};no-tls",
                f"--frontend=127.0.0.1,{self.tls_port}",
                *[f"--backend=127.0.0.1,{p}" for p in self.backends], self.key, self.chain]


class H2o(Gateway):
    name = program = "h2o"
    has_limits = has_tokens = False

    def version(self):
        return first_line("h2o", "-v")

    def write_config(self):
        self.write("h2o.conf", f"""
num-threads: 1
max-connections: 20000
user: {getpass.getuser()}
listen: {{host: 127.0.0.1, port: {self.port}}}
listen:
  host: 127.0.0.1
  port: {self.tls_port}
  ssl: {{certificate-file: {self.chain}, key-file: {self.key}, minimum-version: TLSv1.2, ocsp-update-interval: 0}}
http1-request-timeout: 75
hosts:
  default:
    paths:
      "/":
        proxy.reverse.url: "http://127.0.0.1:{self.backends[0]}/"
        proxy.preserve-host: ON
        proxy.timeout.keepalive: 60000
""")

    def command(self):
        return ["h2o", "-m", "worker", "-c", f"{self.dir}/h2o.conf"]


class Postern(Gateway):
    name = "postern"
    warm = 64

    def __init__(self, rig, backends):
        super().__init__(rig, backends)
        self.admin = free_port()

    def version(self):
        return first_line(self.rig.postern, "-v")

    def config(self):
        servers = " ".join(f'server "127.0.0.1:{p}" {{}}' for p in self.backends)
        return f"""
workers = 1
admin {{ listen = "127.0.0.1:{self.admin}" }}
access_log {{ path = "off" }}
listener "front" {{ listen = {{"127.0.0.1:{self.port}"}} }}
listener "tls" {{
  listen = {{"127.0.0.1:{self.tls_port}"}}
  tls {{ certificate "localhost" {{ chain = "{self.chain}"  key = "{self.key}" }} }}
}}
upstream "app" {{ {servers} pool {{ warm = {self.warm} idle = {KEEP} }} }}
route "all" {{ path = "/{{rest...}}" upstream = app }}
""" + (self.limit_config() if self.limits else "")

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
        c = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=5)
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


KINDS = {k.name: k for k in (Postern, Plugged, Nginx, Haproxy, Nghttpx, H2o, Relay)}


def choose(only):
    """The kinds named by --only, in the order of the tables."""
    wanted = [n for n in only.split(",") if n] if only else NAMES
    for name in wanted:
        if name not in KINDS:
            raise Trouble(f"--only {name}: there is {', '.join(KINDS)}")
    return [kind for name, kind in KINDS.items() if name in wanted]


def programs(kinds):
    return [k.program for k in kinds if k.program]


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
