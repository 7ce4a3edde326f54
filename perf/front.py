"""What a gateway under measurement is, whoever wrote it: configured alike, one worker, no access
log, upstream connections kept open (at most KEEP unused for each server), X-Forwarded-For added,
bodies passed on as they come.

Features are what a row can ask for besides: `limits` has three more paths (/limited counts each
request by the client's address, /keyed?key=KEY finds out who asks and counts by that, /token lets
through who brings TOKEN; limits are so high that nothing meets them), `logged` an access log,
`routes` so many more routes, /r/N/, `workers` more than one. A backend that is a path is a unix
socket (feature `unix`)."""
import base64
import hmac
import json
import os
import shutil
import subprocess
import tempfile

from rig import Trouble, free_port, is_listening, read, tree, wait_for

KEEP = 128 # unused upstream connections a gateway may keep
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
    """One gateway in front of some backends: ports, or paths of unix sockets."""
    program = None     # what must be on PATH
    features = ()      # what it can be asked for beyond the plain thing
    tls_port = None    # none: it has no TLS
    start_seconds = 10
    speaks_tls = True
    limits = False     # it has /limited, /keyed and /token
    logged = False     # an access log, in the file access.log
    routes = 0         # so many more, /r/N/
    workers = 1

    def __init__(self, rig, backends, **features):
        self.rig, self.backends = rig, backends
        self.process = None
        for name, value in features.items():
            setattr(self, name, value)

    @classmethod
    def here(cls):
        return cls.program is None or shutil.which(cls.program) is not None

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
        self.process = self.rig.spawn([*wrap, *self.command()], self.rig.cores(self.workers),
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


def is_unix(backend):
    return isinstance(backend, str)
