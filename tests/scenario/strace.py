"""strace at a gateway that runs."""

import contextlib
import os
import re
import shutil
import subprocess

from gateway import until


def may_trace():
    if not shutil.which("strace"):
        return "strace is not installed"
    sleeper = subprocess.Popen(["sleep", "20"])
    try:
        done = subprocess.run(["timeout", "-s", "INT", "0.5", "strace", "-qq", "-p",
                               str(sleeper.pid)], capture_output=True, text=True, timeout=10)
        refused = re.search(r"Operation not permitted|Permission denied|not implemented", done.stderr)
        return f"tracing is not permitted here: {refused[0]}" if refused else None
    finally:
        sleeper.kill()
        sleeper.wait()


@contextlib.contextmanager
def traced(gw, *options):
    """Every thread of the gateway is traced in here."""
    strace = subprocess.Popen(["strace", "-f", "-qq", *options, "-p", str(gw.proc.pid)] +
                              ([] if "-o" in options else ["-o", "/dev/null"]), stderr=subprocess.PIPE)
    try:
        until(lambda: all(
            not re.search(r"TracerPid:\t0$", open(f"/proc/{gw.proc.pid}/task/{task}/status").read(), re.M)
            for task in os.listdir(f"/proc/{gw.proc.pid}/task")), "strace is attached to every thread")
        yield
    finally:
        strace.send_signal(2)
        strace.wait(20)
        strace.stderr.close()
