"""clang-tidy finds nothing. A file that passed is looked at again only when it, a header it
includes, the rules or its compile command changed."""

import concurrent.futures
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys

from tree import ROOT, SKIPPED, finish, includes, read, sources

BUILD = os.environ["BUILD"]
CACHE = os.path.join(BUILD, "tidy-passed")


def closure(path, seen):
    """The file and all headers of ours that it reaches."""
    if path not in seen and os.path.isfile(os.path.join(ROOT, path)):
        seen.add(path)
        for _, name in includes(path):
            closure(os.path.join("gateway", name), seen)
            closure(os.path.join(os.path.dirname(path), name), seen)
            closure(os.path.join("gateway/plugin", name), seen)
    return seen


def key(path, command):
    digest = hashlib.sha256()
    for part in [read(".clang-tidy"), command, *map(read, sorted(closure(path, set())))]:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def flags(command):
    """What decides about the meaning of a file: clang need not know gcc's other switches."""
    return [word for word in shlex.split(command) if word.startswith(("-I", "-D", "-std="))]


def check(path, command):
    mark = os.path.join(CACHE, key(path, command))
    if os.path.exists(mark):
        return None
    done = subprocess.run(
        ["clang-tidy-14", "--quiet", "--warnings-as-errors=*", os.path.join(ROOT, path), "--",
         *flags(command)], cwd=BUILD, capture_output=True, text=True)
    if done.returncode:
        return done.stdout + done.stderr
    open(mark, "w").close()
    return None


def main():
    if not shutil.which("clang-tidy-14"):
        print("clang-tidy-14 is not installed")
        sys.exit(SKIPPED)
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(BUILD, "compile_commands.json")) as file:
        commands = {os.path.realpath(os.path.join(entry["directory"], entry["file"])):
                    entry["command"] for entry in json.load(file)}
    # What this build leaves out (a stand-in for a library that is there) is looked at as its
    # neighbours are; not looked at would be a hole.
    folders = {os.path.dirname(real): command for real, command in commands.items()}
    work, faults = [], []
    for path in sources("gateway", "plugins", ends=(".c",)):
        real = os.path.realpath(os.path.join(ROOT, path))
        command = commands.get(real) or folders.get(os.path.dirname(real))
        if command:
            work.append((path, command))
        else:
            faults.append(f"{path}: not built, and nothing beside it")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        faults += [text for text in pool.map(lambda item: check(*item), work) if text]
    finish(faults)


main()
