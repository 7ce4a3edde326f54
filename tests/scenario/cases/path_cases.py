"""Spellings of a guarded path: "/admin" and all below it belong to one route, everything else
to another, and a backend that is less careful than the gateway stands behind both.

A spelling is either routed as guarded or refused; none may come to the backend by the open
route if any of the backend's readings takes it for something guarded. To add one, add a line.
"""

import re
from urllib.parse import unquote_to_bytes

GUARDED = "/admin"
SPELLINGS = {"/admin", "/admin/", "/admin/x", "/admin?x=1", "/admin/?/open", "/admin/x?../../open"}


def dots():
    up = ["..", ".%2e", "%2e.", "%2e%2e", "%2E%2E", "..;", "..;x=1", "%2e%2e;", ".%00.", "..%00", "..\\",
          "..%5c", "..%2f", "%2e%2e%2f", "%252e%252e", "%c0%ae%c0%ae", "%e0%80%ae%e0%80%ae", "%u002e%u002e",
          "%%32%65%%32%65", "..%09", "..%20", "..%0d", "..%0a", ".%2e%2f", "%ef%bc%8e%ef%bc%8e", "%f0%80%80%ae."]
    for dot in up:
        yield f"/open/{dot}/admin"
        yield f"/open/{dot}/admin/x"
        yield f"/open/a/{dot}/{dot}/admin"
        yield f"/open{dot}/admin"
        yield f"/admin/x/{dot}"
        yield f"/open//{dot}/admin"
        yield f"/open/{dot}//admin"
        yield f"http://test/open/{dot}/admin"
    for dot in (".", "%2e", "%2E", ".;", ".;x", "%252e", ".%00", ".%5c", ".%2f", "%c0%ae"):
        yield f"/{dot}/admin"
        yield f"/admin/{dot}"
        yield f"/admin/{dot}/x"
        yield f"/{dot}/{dot}/admin"
        yield f"/open/../{dot}/admin"


def slashes():
    for slash in ("//", "///", "/%2f", "%2f", "%2F", "\\", "/\\", "%5c", "%5C", "/%5c", "%252f", "%c0%af", "%e0%80%af",
                  "%f0%80%80%af", "%c1%9c", "/;/", "/;x/", ";/", "/%00", "%09/", "%0d%0a/", "//./", "/.//", "%u2215",
                  "/%2f/", "//%2f"):
        yield f"{slash}admin" if slash[0] == "/" else f"/{slash}admin"
        yield f"/open/..{slash}admin"
        yield f"/admin{slash}x"
        yield f"/admin{slash}"
        yield f"/open{slash}../admin"


def letters():
    for i, c in enumerate("admin"):
        yield "/" + "admin"[:i] + f"%{ord(c):02x}" + "admin"[i + 1:]
        yield "/" + "admin"[:i] + f"%{ord(c):02X}" + "admin"[i + 1:] + "/x"
        yield "/" + "admin"[:i] + f"%25{ord(c):02x}" + "admin"[i + 1:]
        yield "/" + "admin"[:i] + "%00" + "admin"[i:]
        yield "/" + "admin"[:i] + ";" + "admin"[i:]
    yield "/" + "".join(f"%{ord(c):02x}" for c in "admin")
    yield "%2fadmin"


def tails():
    for tail in (";", ";x", ";x=1", ";/", ";/x", ";%2fx", ";..", ";/../open", "%00", "%00.html", "%00/x", "%3b", "%3bx", "%3f",
                 "%3fx", "%23", "%23x", "#", "#x", "%2500", "%0a", "%0d", "%09", "?", "?;", ";?x", "%5c", "\\", "\\x",
                 "%5cx", "//", "//x", "/./", "/.", "/%2e", "/..", "/../admin", "/x/..", "/x/../", "/x/../../admin",
                 "%2f", "%2fx", "/%2f", ";jsessionid=1", ";a;b;c", ";a/;b/x", "%25", "%2", "%", "%zz", "%c0%80"):
        yield f"/admin{tail}"
    for host in ("http://test", "http://TEST", "http://test:80", "HTTP://test"):
        for path in ("/admin", "//admin", "/open/../admin", "/%61dmin", "/;/admin", "/admin;x", "/./admin"):
            yield host + path


for make in (dots, slashes, letters, tails):
    SPELLINGS.update(make())
SPELLINGS = sorted(SPELLINGS)


# how backends read a path: any order of these, as real ones do
def decode(path):
    return unquote_to_bytes(path).decode("latin-1")


def overlong(path):
    """Decoders that take %c0%ae for a dot."""
    for bad, good in (("\xc0\xae", "."), ("\xc0\xaf", "/"), ("\xe0\x80\xaf", "/"), ("\xe0\x80\xae", "."),
                      ("\xf0\x80\x80\xaf", "/"), ("\xf0\x80\x80\xae", "."), ("\xc1\x9c", "\\"), ("\xc0\x80", "\0")):
        path = path.replace(bad, good)
    return path


def parameters(path):
    return re.sub(r";[^/]*", "", path)


def merge(path):
    return re.sub(r"/+", "/", path)


def backslash(path):
    return path.replace("\\", "/")


def resolve(path):
    out = []
    for segment in path.split("/")[1:]:
        if segment == "..":
            out = out[:-1]
        elif segment != ".":
            out.append(segment)
    return "/" + "/".join(out)


def nul(path):
    return path.split("\0")[0]


def cut(path):
    return re.split(r"[?#]", path)[0]


READINGS = {
    "literal": (cut,), "resolving": (cut, resolve), "nginx": (cut, decode, merge, resolve),
    "decoding": (cut, decode), "decoding_resolving": (cut, decode, resolve),
    "decoding_twice": (cut, decode, decode, merge, resolve), "servlet": (cut, parameters, decode, merge, resolve),
    "servlet_resolving_first": (cut, resolve, parameters, decode), "windows": (cut, decode, backslash, merge, resolve),
    "c_strings": (cut, decode, nul, resolve), "lenient_utf8": (cut, decode, overlong, backslash, nul, merge, resolve),
    "decoding_then_cutting": (decode, cut, parameters, merge, resolve), "merging": (cut, merge),
}


def is_guarded(path):
    return path == GUARDED or path.startswith(GUARDED + "/")


def guarded_readings(target):
    found = []
    for name, steps in READINGS.items():
        path = target
        for step in steps:
            path = step(path)
        if is_guarded(path):
            found.append(name)
    return found
