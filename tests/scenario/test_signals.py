"""Starting and stopping: drain, second signal, sd_notify, pid file, giving up root."""

import os
import re
import signal
import socket

import pytest

import plugins
from conftest import HTTP, ONE
from gateway import until
from test_http1 import open_tunnel
from wire import Client

GET = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
def test_stops_cleanly(gateway, upstream, number):
    gw = gateway(app=upstream())
    gw.signal(number)
    assert gw.wait_exit() == 0


@pytest.mark.threads
def test_drain_finishes_what_is_in_flight(gateway, upstream):
    up = upstream()
    gw = gateway("drain_timeout = 20s\n" + ONE, app=up)
    busy, idle = gw.client(), gw.client()
    idle.send(GET)
    conn = up.accept()
    conn.expect()
    conn.respond()
    idle.response()
    busy.send(GET)
    conn.expect()
    gw.signal(signal.SIGTERM)
    idle.expect_closed()
    with pytest.raises(OSError):
        for _ in range(200):
            Client.to(gw.address()).close()
            busy.expect_silence(0.02)
    conn.respond(b"to the end")
    response = busy.response()
    assert response.body == b"to the end"
    assert response.get("Connection").lower() == "close"
    busy.expect_closed()
    assert gw.wait_exit() == 0


def test_readyz_says_no_while_draining(gateway, upstream):
    up = upstream()
    gw = gateway("drain_timeout = 20s\n" + ONE, app=up)
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    gw.signal(signal.SIGTERM)
    until(lambda: gw.admin("/readyz").status == 503, "503 while draining")
    assert gw.admin("/healthz").status == 200
    conn.respond()
    client.response()
    assert gw.wait_exit() == 0


def test_drain_has_an_end(gateway, upstream):
    up = upstream()
    gw = gateway("drain_timeout = 500ms\n" + ONE, app=up)
    client = gw.client()
    client.send(GET)
    up.accept().expect()
    gw.signal(signal.SIGTERM)
    response = client.response()
    assert response.status == 503 and response.has("Retry-After")
    assert gw.wait_exit() == 0
    assert gw.log_lines()[-1]["reason"] == "draining"


def test_drain_ends_tunnels_last(gateway, upstream):
    up = upstream()
    gw = gateway("drain_timeout = 500ms\n" + ONE, app=up)
    client, conn = open_tunnel(gw, up)
    gw.signal(signal.SIGTERM)
    client.send(b"still there")
    assert conn.read_exact(11) == b"still there"
    client.expect_closed()
    conn.expect_closed()
    assert gw.wait_exit() == 0


def test_second_signal_stops_at_once(gateway, upstream):
    up = upstream()
    gw = gateway("drain_timeout = 300s\n" + ONE, app=up)
    client = gw.client()
    client.send(GET)
    up.accept().expect()
    gw.signal(signal.SIGTERM)
    client.expect_silence(0.3)
    assert gw.proc.poll() is None
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit(10) == 0


def test_a_request_sent_as_the_drain_begins_is_answered_or_closed_cleanly(gateway, backend):
    """Never a reset in the middle of an answer."""
    gw = gateway("workers = 2\n" + ONE, app=backend())
    clients = [gw.client() for _ in range(20)]
    for client in clients:
        client.send(GET)
    gw.signal(signal.SIGTERM)
    for client in clients:
        data = client.read_to_end()
        assert data == b"" or data.startswith(b"HTTP/1.1 200 ") and data.endswith(b"backend") or \
            data.startswith(b"HTTP/1.1 503 "), data
    assert gw.wait_exit() == 0


class Notify:
    def __init__(self, path):
        self.path = str(path)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(self.path)
        self.seen = []

    def wait(self, pattern):
        self.sock.settimeout(15)
        while True:
            text = self.sock.recv(4096).decode()
            self.seen.append(text)
            if re.search(pattern, text, re.M):
                return text

    def close(self):
        self.sock.close()


def test_sd_notify(gateway, tmp_path, opened):
    notify = Notify(tmp_path / "notify.sock")
    opened.append(notify)
    say = HTTP + 'route "a" { path = "/a"  respond { status = 200 } }\n'
    gw = gateway(say, env={"NOTIFY_SOCKET": notify.path})
    notify.wait(r"^READY=1$")
    gw.signal(signal.SIGHUP)
    text = notify.wait(r"^RELOADING=1$")
    assert re.search(r"^MONOTONIC_USEC=\d+$", text, re.M)
    done = notify.wait(r"^READY=1$")
    assert any("STATUS=" in text for text in (done, *notify.seen))
    gw.write(say + "bananas = 3\n")
    gw.signal(signal.SIGHUP)
    notify.wait(r"^RELOADING=1$")
    del notify.seen[:]
    notify.wait(r"^READY=1$")
    while not any(re.search(r"^STATUS=.*(fault|fail|broken|refus|kept|stays)", text, re.M | re.I)
                  for text in notify.seen):
        notify.wait(r"^STATUS=")
    gw.signal(signal.SIGTERM)
    notify.wait(r"^STOPPING=1$")
    assert gw.wait_exit() == 0


def test_sd_notify_on_an_abstract_socket(gateway, opened):
    name = f"postern-test-{os.getpid()}"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    opened.append(sock)
    sock.bind("\0" + name)
    sock.settimeout(15)
    gateway(HTTP + 'route "a" { respond { status = 200 } }\n', env={"NOTIFY_SOCKET": "@" + name})
    assert b"READY=1" in sock.recv(4096)


def test_pid_file(gateway, upstream, tmp_path):
    path = tmp_path / "postern.pid"
    gw = gateway(f'pid_file = "{path}"\n' + ONE, app=upstream())
    assert int(path.read_text()) == gw.proc.pid
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0
    assert not path.exists()


def status_of(pid):
    with open(f"/proc/{pid}/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give up rights")
def test_gives_up_root(gateway, backend):
    import grp
    import pwd
    nobody = pwd.getpwnam("nobody")
    gw = gateway('user = "nobody"\naccess_log { path = "off" }\n' + ONE, app=backend())
    for task in os.listdir(f"/proc/{gw.proc.pid}/task"):
        status = status_of(task)
        assert set(status["Uid"].split()) == {str(nobody.pw_uid)}
        assert set(status["Gid"].split()) == {str(nobody.pw_gid)}
        assert "0" not in status["Groups"].split(), grp.getgrgid(0)
        assert int(status["CapEff"], 16) == 0
    assert gw.get().status == 200


def test_descriptor_limit_is_raised_to_the_hard_one(gateway, upstream):
    import resource
    gw = gateway(app=upstream(), preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048)))
    with open(f"/proc/{gw.proc.pid}/limits") as file:
        soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", file.read()).groups()
    assert (soft, hard) == ("2048", "2048")


def test_sigpipe_and_closed_standard_output_do_no_harm(gateway, upstream):
    gw = gateway(app=upstream(), preexec=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    gw.signal(signal.SIGPIPE)
    assert gw.admin("/healthz").status == 200


def test_unix_socket_left_behind_is_replaced(gateway, upstream, tmp_path):
    path = tmp_path / "front.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    gw = gateway(app=upstream(), http=f"unix:{path}")
    gw.client()
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0


def test_unix_sockets_go_with_the_process(gateway, backend, tmp_path):
    front, admin = tmp_path / "front.sock", tmp_path / "admin.sock"
    gw = gateway(app=backend(), http=f"unix:{front}", admin=f"unix:{admin}")
    assert gw.get("/").status == 200 and admin.is_socket()
    # as with a port, who may connect is not the file's business: the umask takes nothing away
    assert front.stat().st_mode & 0o777 == 0o666
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0
    assert not front.exists() and not admin.exists()


def test_a_draining_process_leaves_its_successors_socket_alone(gateway, upstream, tmp_path):
    front, up = tmp_path / "front.sock", upstream()
    gw = gateway("drain_timeout = 20s\n" + ONE, app=up, http=f"unix:{front}")
    client = gw.client()
    client.send(GET)
    conn = up.accept()
    conn.expect()
    gw.signal(signal.SIGTERM)
    until(lambda: not front.exists(), "the draining process gives its address up")
    next_one = gateway(app=up, http=f"unix:{front}")
    conn.respond()
    assert client.response().status == 200
    assert gw.wait_exit() == 0
    assert front.is_socket()
    next_one.client()


def test_signals_while_it_ends_do_not_spoil_the_exit_status(gateway, upstream):
    gw = gateway(app=upstream())
    gw.signal(signal.SIGTERM)
    while gw.proc.poll() is None:  # to the last moment, when nobody handles them any more
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
            gw.signal(number)
    assert gw.proc.returncode == 0


def test_signals_while_the_start_reads_its_file_wait(gateway, upstream, tmp_path):
    raised = "#include <signal.h>\n__attribute__((constructor)) static void come(void)\n" \
        "{ raise(SIGUSR1), raise(SIGUSR2), raise(SIGHUP); }\n"
    early = plugins.build(tmp_path, "early", raised + plugins.minimal("early"))
    # even when whoever started it had them blocked
    gw = gateway(f'plugins {{ load = {{"{early}"}} }}\n' + ONE, app=upstream(),
                 preexec=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}))
    until(lambda: gw.config_state()["generation"] == 2, "the reload follows the start")
    gw.signal(signal.SIGTERM)
    assert gw.wait_exit() == 0
