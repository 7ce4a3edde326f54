"""The pages of the manual are installed, say what the programs say of themselves, and are roff."""

import json
import os
import re
import shutil
import subprocess
import sys

from tree import ROOT, finish, read, run

build = os.environ["BUILD"]
pages = {name: read("packaging/" + name) for name in ("postern.8", "postern-keys.1")}
status, pages["gateway.conf.5"] = run(
    sys.executable, *(os.path.join(ROOT, path) for path in
                      ("packaging/manual.py", "config/gateway.conf")), "1")
faults = [pages["gateway.conf.5"]] if status else []


def plain(page):
    return re.sub(r"\\f[BIRP]|\\&|\\:", "", page).replace(r"\-", "-")


def flags(text):
    return set(re.findall(r"(?<![\w-])(--[a-z-]+|-[a-zA-Z])\b", text))


# what --help has, and no more; --version and --help are getopt's long names of -v and -h
postern, keys = (os.path.abspath(path) for path in sys.argv[1:])
for page, program, more in (("postern.8", postern, {"--version", "--help"}),
                            ("postern-keys.1", keys, set())):
    status, said = run(program, "-h")
    examples = re.sub(r"\.EX.*?\.EE", "", pages[page], flags=re.S)
    has, wanted = flags(plain(examples)) - more, flags(said)
    if status or not wanted or has != wanted:
        faults.append(f"{page}: has {sorted(has)}, but {program} -h says {sorted(wanted)}")
    words = re.findall(r"\b(HUP|USR\d|TERM|QUIT|INT)\b|postern-keys ([a-z|]+)", said)
    faults += [f"{page}: nothing about {part}, which {program} -h names"
               for signal, commands in words for part in (signal or commands).split("|")
               if not re.search(rf"\b{part}\b", plain(pages[page]))]

options = re.findall(r"^ *#([a-z_].*?) *$", read("config/gateway.conf"), re.M)
shown = plain(pages["gateway.conf.5"]).splitlines()
faults += [f"gateway.conf.5: nothing about {option}" for option in options
           if option.replace("\\", r"\e").replace("^", r"\(ha").replace("'", r"\(aq") not in shown]

installed = json.loads(subprocess.run(["meson", "introspect", "--installed", build], check=True,
                                      capture_output=True, text=True).stdout).values()
faults += [f"{page} is not installed" for page in pages
           if not any(path.endswith(f"/man{page[-1]}/{page}") for path in installed)]

if shutil.which("groff"):
    for page, text in pages.items():
        told = subprocess.run(["groff", "-ww", "-z", "-man", "-Tutf8"], input=text, text=True,
                              capture_output=True).stderr
        faults += [f"{page}: {line}" for line in told.splitlines()]
else:
    print("groff is not installed: nobody has formatted the pages")
finish(faults)
