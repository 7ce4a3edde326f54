"""rate_limit with a real Redis: limits that several gateways share, and what happens without it."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess

import pytest

from gateway import free_address, own_host, run, split, until
from storm import Storm

SERVER = shutil.which("redis-server") or shutil.which("valkey-server")
pytestmark = pytest.mark.skipif(not SERVER, reason="no redis-server is installed")


@pytest.fixture(autouse=True)
def built(tmp_path_factory):
    """Skips where postern was built without Redis."""
    file = tmp_path_factory.mktemp("built") / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\nroute "all" { path = "/" '
                    'respond { status = 204 } rate_limit { rate = "1/s" redis = "127.0.0.1:1" } }')
    if "redis is not in this build" in run("-t", "-q", "-c", str(file))[1]:
        pytest.skip("this build is without Redis")


class Redis:
    """A server of the test's own, that can be killed, stopped and started again."""

    def __init__(self, tmp, args=(), unix=False):
        self.tmp, self.args = str(tmp), args
        self.path = os.path.join(self.tmp, "redis.sock") if unix else None
        self.address = f"unix:{self.path}" if unix else free_address(own_host())
        self.proc = None
        self.start()

    def __str__(self):
        return self.address

    def start(self):
        where = ["--port", "0", "--unixsocket", self.path] if self.path else \
            ["--bind", split(self.address)[0], "--port", str(split(self.address)[1])]
        with open(os.path.join(self.tmp, "redis.log"), "ab") as log:
            self.proc = subprocess.Popen(
                [SERVER, *where, "--save", "", "--appendonly", "no", "--dir", self.tmp, *self.args],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: (self.says("PING") or b"")[:1] in (b"+", b"-"), "Redis answers", 30)

    def says(self, *words):
        """The answer as it comes over the wire, or None."""
        try:
            if self.path:
                sock = socket.socket(socket.AF_UNIX)
                sock.connect(self.path)
            else:
                sock = socket.create_connection(split(self.address), 5)
            with sock:
                sock.settimeout(5)
                sock.sendall(b"*%d\r\n" % len(words) +
                             b"".join(b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
                return sock.recv(1 << 20)
        except OSError:
            return None

    def keys(self):
        return re.findall(r"\$\d+\r\n(.*?)\r\n", self.says("KEYS", "*").decode())

    def commands(self, name):
        """How often it has run that command."""
        text = self.says("INFO", "commandstats").decode()
        match = re.search(rf"cmdstat_{name}:calls=(\d+)", text)
        return int(match[1]) if match else 0

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def pause(self):
        self.proc.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.proc.send_signal(signal.SIGCONT)

    def close(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGCONT)
            self.kill()


@pytest.fixture
def redis(opened, tmp_path):
    def make(*args, unix=False):
        server = Redis(tmp_path, args, unix)
        opened.append(server)
        return server

    return make


def conf(options, workers=1):
    if "redis_timeout" not in options:
        options += "  redis_timeout = 9s  deadline = 10s" # a loaded machine is no failure
    return f'workers = {workers}\nlistener "http" {{ listen = {{"@http@"}} }}\n' \
        'route "all" { path = "/{rest...}" respond { status = 200  body = "ok" }\n' \
        f'rate_limit {{ redis = "@redis@" {options} }} }}\n'


def statuses(gateway, n):
    client = gateway.client()
    return [client.get().status for _ in range(n)]


def counted(gateway, name):
    return gateway.metric(f"postern_plugin_{name}_total", plugin="rate_limit")


def test_two_gateways_share_a_limit(gateway, redis):
    server = redis()
    one, two = (gateway(conf('rate = "5/m"'), redis=server) for _ in range(2))
    assert statuses(one, 3) == [200] * 3
    assert statuses(two, 3) == [200, 200, 429]
    refused = one.get()
    assert refused.status == 429
    problem = json.loads(refused.body)
    assert (problem["reason"], problem["limit"], problem["actual"]) == ("limit.rate", 5, 6)
    assert 11 <= int(refused.get("Retry-After")) <= 12
    assert refused.get("RateLimit") == f'"5/m";r=0;t={refused.get("Retry-After")}'
    assert counted(one, "without_redis") == counted(two, "without_redis") == 0


def test_fields_tell_what_is_left_over_all_gateways(gateway, redis):
    server = redis()
    one, two = (gateway(conf('rate = {"100/s", "8/m"}'), redis=server) for _ in range(2))
    left = [re.search(r'"8/m";r=(\d+)', g.get().get("RateLimit"))[1] for g in (one, two, one, two)]
    assert left == ["7", "6", "5", "4"]


def test_keys_are_apart_and_say_whose_they_are(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "1/h"  by = {"header:X-Key", client_ip}  redis_prefix = "mine"'),
                redis=server)
    assert g.get(fields=[("X-Key", "secret")]).status == 200
    assert g.get(fields=[("X-Key", "secret")]).status == 429
    assert g.get(fields=[("X-Key", "other")]).status == 200
    assert g.get().status == 200
    keys = server.keys()
    assert len(keys) == 3
    assert all(key.startswith("mine:route all:1/h:header:x-key,client_ip/64:") for key in keys)
    assert sum(key.endswith(":i=127.0.0.1") for key in keys) == 3
    assert not any("secret" in key for key in keys)
    ttl = int(server.says("PTTL", keys[0])[1:])
    assert 3_500_000 < ttl <= 3_601_000 # nothing stays for ever


def test_several_windows_and_a_refusal_takes_nothing(gateway, redis):
    server = redis()
    g = gateway(conf('rate = {"1000/h", "3/m"}  burst = {1000, 3}'), redis=server)
    assert statuses(g, 20) == [200] * 3 + [429] * 17
    assert '"1000/h";r=997' in g.get().get("RateLimit")


def test_cost_and_long_keys(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "10/h"  cost = 4  by = path'), redis=server)
    for path in ("/" + "x" * 3000, "/" + "x" * 2999 + "y", "/short"):
        assert [g.get(path).status for _ in range(3)] == [200, 200, 429]
    assert max(map(len, server.keys())) < 200


@pytest.mark.threads
@pytest.mark.undisturbed
def test_a_busy_key_does_not_cost_a_trip_each(gateway, redis, opened):
    server = redis()
    g = gateway(conf(f'rate = "100000/s"  burst = 20000  by = route', 2), redis=server)
    storm = Storm([g.address()], 16)
    opened.append(storm)
    storm.run(1.5)
    total = sum(storm.statuses.values())
    assert storm.statuses[200] > 0.99 * total, storm.statuses
    trips = counted(g, "redis_trips")
    assert trips < total / 4, (trips, total)
    assert server.commands("evalsha") == trips - server.commands("eval")


@pytest.mark.undisturbed
@pytest.mark.parametrize("burst", ["", "burst = 1000"])
def test_two_gateways_let_through_what_the_rate_says(gateway, redis, opened, burst):
    """Never more than burst + rate * time; and with a burst that makes up for any pause, 2 % less
    at most, for what workers have paid for and not used yet."""
    server = redis()
    both = [gateway(conf(f'rate = "1000/s"  by = route  {burst}', 2), redis=server)
            for _ in range(2)]
    storm = Storm([g.address() for g in both], 32, depth=4)
    opened.append(storm)
    took = storm.run(4)
    assert sum(counted(g, "without_redis") for g in both) == 0, both[0].stderr + both[1].stderr
    if burst:
        storm.check(1000, 1000, both[0].client(), 0.02)
    assert storm.statuses[200] <= (1000 if burst else 10) + 1000 * (took + 0.01) + 1
    trips = sum(counted(g, "redis_trips") for g in both)
    assert trips < sum(storm.statuses.values()), (trips, storm.statuses)


@pytest.mark.parametrize("down, then, reason", [
    ("local", [200, 200, 429, 429], "limit.rate"),
    ("open", [200, 200, 200, 200], None),
    ("closed", [503, 503, 503, 503], "limit.unavailable")])
def test_redis_is_killed_and_comes_back(gateway, redis, down, then, reason):
    server = redis()
    g = gateway(conf(f'rate = "2/h"  redis_down = {down}'), redis=server)
    assert statuses(g, 3) == [200, 200, 429]
    server.kill()
    g.wait_stderr(r"warn .*redis [^ ]+: .*; limits go by redis_down until it answers")
    assert statuses(g, 4) == then
    assert counted(g, "without_redis") == 4
    if reason:
        last = g.wait_log(1, reason=reason)[-1]
        assert last["status"] == then[-1]
    if down == "closed":
        refused = g.get()
        assert refused.get("Retry-After") == "1"
        assert json.loads(refused.body)["reason"] == "limit.unavailable"
    server.start()
    g.wait_stderr("info .*redis [^ ]+ answers again")
    # It has forgotten; what a worker knows of a refusal is forgotten within a second.
    until(lambda: g.get().status == 200, "the next one passes")
    assert statuses(g, 2) == [200, 429]
    assert counted(g, "without_redis") == (5 if down == "closed" else 4)
    assert g.stderr.count("limits go by redis_down") == 1
    assert g.stderr.count("answers again") == 1


@pytest.mark.threads
def test_two_workers_say_once_that_it_went(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "100/s"', 2), redis=server)
    for turn in range(1, 3):
        server.kill()
        until(lambda: g.stderr.count("limits go by") == turn, "it says that Redis is away")
        server.start()
        until(lambda: g.stderr.count("answers again") == turn, "it says that Redis is back")
    assert g.stderr.count("limits go by") == 2


def test_a_redis_that_is_not_there_at_the_start(gateway, redis, tmp_path):
    server = redis()
    server.kill()
    g = gateway(conf('rate = "2/h"'), redis=server)
    g.wait_stderr("redis .*refused.*limits go by redis_down")
    assert statuses(g, 3) == [200, 200, 429]
    server.start()
    g.wait_stderr("answers again")
    assert statuses(g, 3) == [200, 200, 429]


def test_a_redis_that_hangs_holds_up_only_who_waits(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "1000/s"  burst = 2  redis_down = open  redis_timeout = 200ms'
                     ) + 'route "free" { path = "/free" respond { status = 200  body = "ok" } }',
                redis=server)
    assert g.get().status == 200
    server.pause()
    waiting = g.client()
    waiting.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    assert g.get("/free").status == 200 # meanwhile
    assert waiting.response().status == 200
    g.wait_stderr("no answer within 200 ms; limits go by redis_down")
    line = g.wait_log(1, path="/")[-1]
    assert statuses(g, 5) == [200] * 5 # nobody else waits
    server.go_on()
    g.wait_stderr("answers again")
    assert line is not None
    assert counted(g, "redis_failures") >= 1


def test_a_client_that_leaves_while_it_waits(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "5/h"  redis_timeout = 10s  deadline = 10s'), redis=server)
    assert g.get().status == 200
    server.pause()
    clients = [g.client() for _ in range(5)]
    for client in clients:
        client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")
    for client in clients[:3]:
        client.reset()
    g.wait_log(3, status=499)
    server.go_on()
    assert [c.response().status for c in clients[3:]] == [200, 200]
    assert 200 in statuses(g, 3)


def test_a_deadline_of_the_section_ends_the_wait(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "5/h"  redis_timeout = 10s  deadline = 100ms  fail = open'),
                redis=server)
    assert g.get().status == 200
    server.pause()
    assert g.get().status == 200
    server.go_on()


def test_password_user_database_and_unix_socket(gateway, redis):
    server = redis("--requirepass", "hush", unix=True)
    good = 'rate = "1/h"  redis_password = "hush"  redis_db = 3'
    g = gateway(conf(good), redis=server)
    assert statuses(g, 2) == [200, 429]
    assert counted(g, "without_redis") == 0
    other = gateway(conf(good.replace("redis_db = 3", "redis_db = 4")), redis=server)
    assert statuses(other, 2) == [200, 429]
    assert counted(other, "without_redis") == 0
    named = gateway(conf(good + "  redis_user = default"), redis=server)
    assert statuses(named, 1) == [429]
    wrong = gateway(conf(good.replace("hush", "loud")), redis=server)
    wrong.wait_stderr("redis .*WRONGPASS.*limits go by redis_down")
    assert "loud" not in wrong.stderr
    none = gateway(conf('rate = "1/h"'), redis=server)
    none.wait_stderr("redis .*NOAUTH.*limits go by redis_down")
    status, _, text = run("-T", "-c", g.file)
    assert status == 0 and "hush" not in text


def test_a_script_that_redis_forgot_is_sent_again(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "3/h"'), redis=server)
    assert statuses(g, 1) == [200]
    assert server.says("SCRIPT", "FLUSH").startswith(b"+OK")
    assert statuses(g, 3) == [200, 200, 429]
    assert counted(g, "without_redis") == 0
    assert server.commands("eval") == 2


def test_errors_of_redis_count_as_away(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "1/h"  redis_down = open'), redis=server)
    assert statuses(g, 2) == [200, 429]
    [key] = server.keys()
    server.says("DEL", key)
    server.says("LPUSH", key, "x")
    g.reload()
    assert statuses(g, 2) == [200, 200]
    g.wait_stderr("WRONGTYPE.*limits go by redis_down")
    server.says("SET", key, "rubbish here") # what is no number is nothing
    until(lambda: g.get() and "answers again" in g.stderr, "it does what is asked again")
    assert statuses(g, 2) == [429, 429]


def test_a_redis_that_refuses_everything_is_said_to_be_away_once(gateway, redis):
    """It is full, and greets whoever comes: it is tried ever less often, and the log stays quiet."""
    server = redis("--maxmemory", "1", "--maxmemory-policy", "noeviction")
    g = gateway(conf('rate = "1000000/s"  burst = 1000000  by = route'), redis=server)
    client = g.client()

    def tries():
        assert client.get().status == 200
        return server.commands("ping")

    before = tries()
    until(lambda: tries() >= before + 4, "it is tried again")
    assert g.stderr.count("limits go by redis_down") == 1 and "OOM" in g.stderr
    assert "answers again" not in g.stderr
    assert server.says("CONFIG", "SET", "maxmemory", "0") == b"+OK\r\n"

    def is_back():
        assert client.get().status == 200
        return "answers again" in g.stderr

    until(is_back, "and is back when it does what is asked")
    assert g.stderr.count("limits go by redis_down") == 1


def test_state_is_kept_over_reloads_and_restarts(gateway, redis):
    server = redis()
    g = gateway(conf('rate = "4/h"'), redis=server)
    assert statuses(g, 2) == [200, 200]
    g.reload(conf('rate = "4/h"  headers = none'))
    assert statuses(g, 1) == [200]
    assert statuses(gateway(conf('rate = "4/h"'), redis=server), 2) == [200, 429]


@pytest.mark.threads
def test_reloads_under_load_lose_no_connection(gateway, redis, opened):
    server = redis()
    g = gateway(conf('rate = "50/s"', 2), redis=server)
    for turn in range(5):
        storm = Storm([g.address()], 8)
        storm.run(0.2)
        storm.close()
        g.reload(conf(f'rate = "{50 + turn}/s"', 2))
    assert counted(g, "without_redis") == 0
    until(lambda: int(re.search(rb"connected_clients:(\d+)", server.says("INFO", "clients"))[1]) == 3,
          "each worker has one connection")


FAULTS = [
    ('redis = "localhost"', 'redis is "localhost", expected an IP address with a port'),
    ('redis = "127.0.0.1"', "expected an IP address with a port"),
    ('redis = "127.0.0.1:0"', "expected an IP address with a port"),
    ('redis = "127.0.0.1:70000"', "expected an IP address with a port"),
    ('redis = "::1:6379"', "expected an IP address with a port"),
    ('redis = "unix:relative"', "unix:/PATH"),
    ('redis = "127.0.0.1:6379"  redis_down = wait', "redis_down"),
    ('redis = "127.0.0.1:6379"  redis_user = me', "redis_user needs a redis_password"),
    ('redis = "127.0.0.1:6379"  redis_timeout = 0ms', "redis_timeout"),
    ('redis_password = x', "redis_password needs a redis"),
]


@pytest.mark.parametrize("options, said", FAULTS)
def test_faults_name_file_line_and_what_was_expected(tmp_path, options, said):
    file = tmp_path / "gateway.conf"
    file.write_text('listener "http" { listen = {"127.0.0.1:1"} }\n'
                    'route "all" {\n path = "/" respond { status = 204 }\n rate_limit {\n'
                    f'rate = "1/s" {options}\n }} }}\n')
    status, text, _ = run("-t", "-q", "-c", str(file))
    assert status == 1
    assert re.fullmatch(rf"{re.escape(str(file))}:[345]: .*{said}.*\n", text), text
