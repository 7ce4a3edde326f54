"""A page as a browser loads it: Debian's chromium, without a window, over HTTP/2 and TLS."""

import os
import shutil
import subprocess

import pytest

from backend import Backend
from gateway import own_host, until
from tls import Authority

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ASSETS = {f"/{i}.js": ("text/javascript", f"done({i});") for i in range(12)}
ASSETS["/style.css"] = ("text/css", "body { color: rgb(1, 2, 3); }")
ASSETS["/data.json"] = ("application/json", '{"word": "fetched"}')
ASSETS["/upload"] = ("text/plain", "")  # what was posted comes back

PAGE = """<!doctype html><html><head><link rel="stylesheet" href="/style.css"></head><body>
<p id="scripts"></p><p id="fetched"></p><p id="posted"></p><p id="colour"></p>
<script>
let seen = [];
function done(i) { seen.push(i); document.getElementById("scripts").textContent = seen.join(","); }
addEventListener("load", () =>
  document.getElementById("colour").textContent = getComputedStyle(document.body).color);
fetch("/data.json").then(r => r.json()).then(d => document.getElementById("fetched").textContent = d.word);
fetch("/upload", {method: "POST", body: "x".repeat(300000)}).then(r => r.text())
  .then(t => document.getElementById("posted").textContent = t.length);
</script>""" + "".join(f'<script src="/{i}.js"></script>' for i in range(12)) + "</body></html>"


def serve(request):
    kind, text = ("text/html", PAGE) if request.target == "/" else ASSETS.get(request.target, (None, None))
    if kind is None:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    body = request.body if request.target == "/upload" else text.encode()
    return (f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed (apt-get install chromium)")
def test_a_page_with_its_assets(gateway, opened, tmp_path):
    app = Backend(own_host(), "app", serve)
    opened.append(app)
    made = Authority(tmp_path / "ca").issue("page.test")
    gw = gateway(f'listener "https" {{ listen = {{"@https@"}} tls {{ {made.section("page.test")} }} }}\n'
                 'upstream "app" { server "@app@" {} }\nroute "all" { upstream = app }\n', app=app)
    host, port = gw.address("https")
    done = subprocess.run(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-background-networking", "--no-first-run", "--ignore-certificate-errors",
         f"--user-data-dir={tmp_path}/profile", f"--host-resolver-rules=MAP page.test {host}",
         "--virtual-time-budget=20000", "--timeout=60000", "--dump-dom", f"https://page.test:{port}/"],
        capture_output=True, text=True, timeout=240, env={**os.environ, "HOME": str(tmp_path)})
    for part in ('"scripts">' + ",".join(map(str, range(12))) + "<", '"fetched">fetched<',
                 '"posted">300000<', '"colour">rgb(1, 2, 3)<'):
        assert part in done.stdout, (part, done.stdout[-3000:], done.stderr[-3000:])
    wanted = {"/", *ASSETS}

    def logged():
        return [line for line in gw.log_lines() if line["path"] in wanted]

    until(lambda: {line["path"] for line in logged()} == wanted, "all of it is in the log")
    lines = logged()
    assert {(line["proto"], line["status"], line["reason"]) for line in lines} == {("HTTP/2.0", 200, None)}
    assert all(line["sni"] == "page.test" for line in lines)
    # They share connections; a browser may open more than one to see which is faster.
    assert gw.metric("postern_tls_handshakes_total", outcome="full") < len(wanted) / 2
