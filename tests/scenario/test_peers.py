"""Real programs on both sides: what a scripted peer would never think of."""

import asyncio
import hashlib
import http.client
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


def test_websocket_over_reloads(gateway, echo_server, backend):
    """Messages are under way all the time, and the upstream that they go to is gone in the end: who is
    connected notices nothing."""
    gw = gateway(ONE, app=echo_server, other=backend())
    changed = ONE.replace("app", "other")

    async def talk(socket, ended):
        size, count = 1, 0
        while not ended.is_set():
            message = os.urandom(size)
            await socket.send(message)
            assert await socket.recv() == message
            await asyncio.wait_for(await socket.ping(), 15)
            size, count = size * 4 if size < 1 << 20 else 1, count + 1
        return count

    async def run():
        async with websockets.connect("ws://%s:%d/chat" % gw.address(), max_size=None) as socket:
            ended = asyncio.Event()
            talking = asyncio.create_task(talk(socket, ended))
            for config in (ONE, changed, ONE, changed):
                await asyncio.to_thread(gw.reload, config)
                await asyncio.sleep(0)
            assert not talking.done()
            ended.set()
            return await talking

    assert asyncio.run(asyncio.wait_for(run(), 60)) > 4
    assert gw.get().body == b"backend", "new requests go where the new file says"
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


def test_pythons_http_client(gateway, backend):
    def mirror(request):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(request.body), request.body)

    gw = gateway(ONE, app=backend(answer=mirror))
    conn = http.client.HTTPConnection(*gw.address(), timeout=15)
    for size in (0, 1, 70000):
        body = os.urandom(size)
        conn.request("POST", "/", body)
        assert conn.getresponse().read() == body
        conn.request("PUT", "/", iter([body, b"more"]), encode_chunked=True,
                     headers={"Transfer-Encoding": "chunked"})
        assert conn.getresponse().read() == body + b"more"
    conn.close()


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_nodes_http_and_fetch(gateway, backend):
    def mirror(request):
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(request.body), request.body)

    gw = gateway(ONE, app=backend(answer=mirror))
    script = """
    const url = process.argv[1], http = require('http');
    const agent = new http.Agent({keepAlive: true, maxSockets: 4});
    const one = i => new Promise((done, fail) => {
      const body = 'b'.repeat(i * 1000);
      const req = http.request(url + i, {method: 'POST', agent}, res => {
        let got = ''; res.on('data', d => got += d).on('end', () => got === body ? done() : fail(new Error('differs')));
      });
      req.on('error', fail); req.write(body); req.end();
    });
    (async () => {
      await Promise.all([...Array(40).keys()].map(one));
      if (typeof fetch === 'function')
        for (let i = 0; i < 20; i++) {
          const got = await (await fetch(url + i, {method: 'POST', body: 'f'.repeat(i)})).text();
          if (got !== 'f'.repeat(i)) throw new Error('fetch differs');
        }
      agent.destroy();
    })().catch(e => { console.error(e); process.exit(1); });
    """
    done = subprocess.run(["node", "-e", script, "http://%s:%d/" % gw.address()], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not shutil.which("ab"), reason="ab is not installed")
@pytest.mark.parametrize("options", [[], ["-k"]])
def test_ab(gateway, backend, options):
    gw = gateway(ONE, app=backend())
    done = subprocess.run(["ab", "-q", "-n", "500", "-c", "10", *options, "http://%s:%d/" % gw.address()],
                          capture_output=True, text=True, timeout=60)
    assert "Complete requests:      500" in done.stdout and "Failed requests:        0" in done.stdout, done.stdout
    assert "Non-2xx" not in done.stdout
