"""gateway.conf(5) from config/gateway.conf, whose comments are the manual: manual.py CONF VERSION"""

import re
import sys

HEAD = r'''.TH GATEWAY.CONF 5 "" "postern %s" "postern"
.\" names of options are not to be broken up, nor is there much to fill lines with beside them
.nh
.ad l
.SH NAME
gateway.conf \- configuration of the API gateway postern
.SH SYNOPSIS
.I /etc/postern/gateway.conf
'''
TAIL = r'''.SH SEE ALSO
.BR postern (8),
.BR postern\-keys (1)
'''


def escape(text):
    text = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("^", r"\(ha")
    text = text.replace("`", r"\(ga").replace("~", r"\(ti")
    return r"\&" + text if text.startswith(".") else text


class Page:
    """Prose waits for the options below it: the file has the words first, a page the name."""

    def __init__(self):
        self.lines, self.prose, self.names, self.depth = [], [], [], 0

    def put(self, *lines):
        self.lines += lines

    def put_prose(self, break_with):
        shown = False
        for kind, text in self.prose:
            if kind == "break":
                self.put(break_with)
            elif (kind == "as it is") != shown:
                shown = not shown
                self.put(".nf" if shown else ".fi")
            if kind != "break":
                self.put(escape(text))
        if shown:
            self.put(".fi")
        self.prose = []

    def flush(self):
        """The names come with the prose that stood before them."""
        while self.prose and self.prose[-1][0] == "break":
            self.prose.pop()
        if self.names:
            for i, name in enumerate(self.names):
                self.put(".TQ" if i else ".TP", r"\fB" + escape(name).replace(":", r":\:") + r"\fR")
            self.put_prose(".IP")
            self.names = []
        elif self.prose:
            self.put(".PP")
            self.put_prose(".PP")

    def heading(self, kind, text):
        self.flush()
        while self.depth:
            self.close()
        text = escape(text).replace('"', r"\(dq")
        self.put(f"{kind} {text}")

    def say(self, kind, text):
        if self.names:
            self.flush()
        self.prose.append((kind, text))

    def blank(self):
        if self.names:
            self.flush()
        elif self.prose and self.prose[-1][0] != "break":
            self.prose.append(("break", ""))

    def open(self):
        self.flush()
        self.put(".RS")
        self.depth += 1

    def close(self):
        self.flush()
        if self.depth:
            self.put(".RE")
            self.depth -= 1


def comment(page, text):
    banner = re.fullmatch(r"-{10,} (.+)", text)
    block = re.fullmatch(r'(\w+ "[^"]+") \{', text)
    if banner:
        page.heading(".SH", banner[1].upper())
    elif block:
        page.heading(".SS", block[1] + " { ... }")
    elif re.fullmatch(r"[A-Z]+", text):
        page.heading(".SS", text)
    elif text == "}":
        page.flush()
    elif not text:
        page.blank()
    elif text.startswith("  "):
        page.say("as it is", text)
    else:
        page.say("prose", text)


def main(path, version):
    page = Page()
    with open(path, encoding="utf-8") as file:
        for line in file:
            text = line.strip()
            if text.startswith("# ") or text == "#":
                comment(page, text[2:])
            elif text == "#}":
                page.close()
            elif text.startswith("#"):
                page.names.append(text[1:])
                if text.endswith("{"):
                    page.open()
            elif text:
                page.say("as it is", text)
            else:
                page.blank()
    page.flush()
    first = "\n".join(page.lines).split(".SH", 1)
    print(HEAD % version + ".SH DESCRIPTION\n" + first[0] + ".SH" + first[1] + "\n" + TAIL, end="")


main(*sys.argv[1:])
