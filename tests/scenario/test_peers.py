"""Real programs on both sides: what a scripted peer would never think of."""

import asyncio
import hashlib
import os
import shutil
import subprocess
import threading

import pytest

from conftest import ONE
from gateway import own_host

websockets = pytest.importorskip("websockets", reason="python3-websockets is not installed")


@pytest.fixture
def echo_server():
    """A WebSocket echo server in a thread of its own; yields its address."""
    loop = asyncio.new_event_loop()
    ready, state = threading.Event(), {}

    async def echo(socket, *_):
        async for message in socket:
            await socket.send(message)

    async def serve():
        state["stop"] = asyncio.Event()
        async with websockets.serve(echo, own_host(), 0, max_size=None) as server:
            state["port"] = server.sockets[0].getsockname()[1]
            ready.set()
            await state["stop"].wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(15)
    yield f"{own_host()}:{state['port']}"
    loop.call_soon_threadsafe(state["stop"].set)
    thread.join(15)


def test_websocket_echo(gateway, echo_server):
    gw = gateway(ONE, app=echo_server)

    async def talk():
        async with websockets.connect("ws://%s:%d/chat" % gw.address(), max_size=None) as socket:
            for size in (0, 1, 125, 126, 65536, 1 << 20):
                message = os.urandom(size)
                await socket.send(message)
                assert await socket.recv() == message
            await socket.send("text: \u00e9\u4e2d")
            assert await socket.recv() == "text: \u00e9\u4e2d"
            await asyncio.wait_for(await socket.ping(), 15)

    asyncio.run(asyncio.wait_for(talk(), 60))
    assert gw.wait_log(status=101)


curl = pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")


@curl
@pytest.mark.parametrize("options", [[], ["-H", "Transfer-Encoding: chunked"],
                                     ["-H", "Expect: 100-continue"], ["--http1.0"]])
def test_curl_uploads_and_downloads(gateway, backend, tmp_path, options):
    def mirror(request):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(request.body), request.body)

    if options == ["--http1.0"]:
        options = ["--http1.0", "-H", "Connection: keep-alive"]
    gw = gateway(ONE, app=backend(answer=mirror))
    data = os.urandom(3 << 20)
    (tmp_path / "in").write_bytes(data)
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "30", "-o", str(tmp_path / "out"), "-w", "%{http_code}",
         "--data-binary", f"@{tmp_path}/in", *options, "http://%s:%d/" % gw.address()],
        capture_output=True, text=True)
    assert done.stdout == "200", done.stderr
    assert hashlib.sha256((tmp_path / "out").read_bytes()).digest() == hashlib.sha256(data).digest()


@curl
def test_curl_keeps_its_connection_over_many_requests(gateway, backend):
    gw = gateway(ONE, app=backend())
    url = "http://%s:%d/[1-50]" % gw.address()
    done = subprocess.run(["curl", "-sS", "--max-time", "30", "-w", "%{num_connects} ", "-o",
                           "/dev/null", url], capture_output=True, text=True)
    assert done.stdout.split() == ["1"] + ["0"] * 49, done.stderr
