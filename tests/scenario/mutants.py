"""Requests and answers of HTTP/1, valid, half valid and not, each made from a seed alone: what is
meant to be read in two ways by two programs. Every part of a message has spellings of its own."""

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
BLANKS = [b"", b" ", b" ", b"\t", b"  ", b" \t "]
METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"HEAD"]
TARGETS = [b"/", b"/a/b?c=d", b"/a?b?c=/../x", b"/%41%2d", b"/a;x=1/b", b"/~a/.b/c..d", b"/a//b", b"/x?\"<>`{|}^[]", b"/a'()*!$&+,=:@",
           b"http://test/abs?q", b"http://other:81/x", b"/" + b"l" * 900, b"/a/./b", b"/a/../b", b"/?", b"/a%20b?%00%zz"]
ODD_LINES = [b"get / HTTP/1.1", b"GET  / HTTP/1.1", b"GET / HTTP/1.1 ", b"GET /\tHTTP/1.1", b"GET / HTTP/1.0", b"GET / HTTP/1.2", b"GET / http/1.1",
             b"GET /a b HTTP/1.1", b"GET /a#b HTTP/1.1", b"GET /\x80 HTTP/1.1", b"GET /a\x0bb HTTP/1.1", b" GET / HTTP/1.1", b"\r\nGET / HTTP/1.1",
             b"\nGET / HTTP/1.1", b"GET / HTTP/1.1\nX: y", b"G@T / HTTP/1.1", b"GET * HTTP/1.1", b"GET a HTTP/1.1", b"GET http://u@h/ HTTP/1.1",
             b"GET / HTTP/01.1", b"GET /", b"GET / HTTP/2.0", b"BREW / HTTP/1.1", b"M-SEARCH / HTTP/1.1"]
ODD_FIELDS = [b"X : a", b"X\t: a", b" X: a", b"X", b": a", b"X:\0a", b"X: a\x0b", b"X: a\rb", b"X: a\nY: b", b"X: a\r\n b", b"X: a\r\r", b"\x80: a", b"X(: a",
              b"Host: evil", b"host:evil", b"Connection: close", b"Connection: keep-alive", b"Connection: Content-Length", b"Connection: Transfer-Encoding",
              b"Connection: x, Host", b"Keep-Alive: timeout=1", b"Proxy-Connection: close", b"TE: trailers", b"Trailer: Content-Length", b"Expect: 100-continue",
              b"Expect: x", b"Content_Length: 5", b"Transfer_Encoding: chunked", b"Content-Length-X: 9", b"X-Content-Length: 9", b"Content-Lengt: 9",
              b"Transfer-Encodin: chunked", b"Transfer-Encoding : chunked", b"Content-Length : 3", b"Content.Length: 4", b"X-HTTP-Method-Override: DELETE"]
FINE_FIELDS = [b"X:", b"X: \xe4\xff", b"x-a:b\t c", b"X_Y: 1", b"X.Y: 1", b"!#$%&'*+-.^_`|~: 1", b"Cookie: a=b; c", b"Accept: */*", b"X: \tq \t", b"X: a, b,,",
               b"X: Transfer-Encoding: chunked", b"X: \"\\\"", b"Content-Type: a/b", b"User-Agent: " + b"u" * 300, b"If-None-Match: *", b"Range: bytes=0-1",
               b"X: GET /smuggled HTTP/1.1"]
LENGTHS = [b"%d", b"%d", b"0%d", b"+%d", b"-%d", b"%d,%d", b"%d, %d", b"0x%x", b"%d.0", b"%d ;", b"", b"%d_0", b"\x0b%d", b"%de0", b"'%d'", b"18446744073709551616%d"]
CODINGS = [b"chunked", b"Chunked", b"CHUNKED", b"chunked ", b"\tchunked", b"xchunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"chunked, identity",
           b",chunked", b"chunked,", b"chunked;a=b", b"\"chunked\"", b"\x0bchunked", b"chun ked", b"chunked\0", b"", b"trailers, chunked", b"identity, chunked"]
SIZES = [b"%x", b"%X", b"0%x", b"00000000%x", b"%x ", b" %x", b"%x\t", b"0x%x", b"+%x", b"-%x", b"%x_", b"1000000000000000%x", b"%x;", b"%x;a", b"%x;a=b", b"%x;a=\"b c\"",
         b"%x;a\nb", b"%x;a\rb", b"%x;\0", b"%x;" + b"e" * 900, b"%xg", b"%x ;a"]
LINE_ENDS = [b"\n", b"\r", b"\r\r\n", b"\n\r", b"", b"\r\n\r\n", b" \r\n"]
TRAILERS = [b"X-Sum: 1", b"Content-Length: 5", b"Transfer-Encoding: chunked", b"Host: evil", b"X : 1", b" X: 1", b"X", b"X: a\nY: b", b"Authorization: x", b"X:\0"]
BYTES = [b"\0", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b",", b";", b"\x0b", b"\x0c", b"\x7f", b"\x80", b"\x85", b"\xa0", b"0", b"5", b"\x1b", b"#", b"\\", b"%"]


def fill(text, n):
    return text % ((n,) * text.count(b"%"))


class Maker:
    """`odd`: how likely each choice is one that somebody reads otherwise."""

    def __init__(self, pick, odd):
        self.pick, self.odd = pick, odd

    def strange(self):
        return self.pick.random() < self.odd

    def end(self):
        return self.pick.choice(LINE_ENDS) if self.strange() and self.pick.randrange(3) == 0 else b"\r\n"

    def one(self, spellings, fine=1):
        """One of the first `fine`, or of all."""
        return self.pick.choice(spellings if self.strange() else spellings[:fine])

    def payload(self):
        return self.pick.choice([b"", b"x", b"hello", SMUGGLED, SMUGGLED[:-2], b"0\r\n\r\n" + SMUGGLED, b"5\r\nhello\r\n0\r\n\r\n", b"\r\n", b"\0" * 3,
                                 bytes(range(256)) * 9, b"big" * 9000])

    def chunks(self, body):
        out = b""
        while body:
            n = self.pick.choice([len(body), self.pick.randrange(1, len(body) + 1)])
            size = fill(self.one(SIZES, 4) if self.pick.randrange(2) else b"%x", n + (self.strange() and self.pick.randrange(20) == 0))
            out += size + self.end() + body[:n] + self.end()
            body = body[n:]
        out += self.one([b"0", b"0", b"000", b"0;a", b"-0", b"0x0", b"0 "], 4) + self.end()
        if self.pick.randrange(4) == 0:
            out += self.one(TRAILERS, 1) + self.end()
        return out + self.end()

    def framed(self, body):
        """(field lines, what follows the head)"""
        kind = self.pick.randrange(8)
        blank = lambda: self.one(BLANKS, 6)
        length = lambda n: b"Content-Length:" + blank() + fill(self.one(LENGTHS, 3), n) + blank()
        coding = lambda: b"Transfer-Encoding:" + blank() + self.one(CODINGS, 5) + blank()
        if kind < 3:
            return [length(len(body))], body
        if kind < 6:
            return [coding()], self.chunks(body)
        if not self.strange():
            return [], b""
        return self.pick.choice([
            ([length(len(body)), coding()], self.chunks(body)), ([coding(), length(len(body))], body), ([length(len(body))] * 2, body),
            ([length(0), length(len(body))], body), ([coding()] * 2, self.chunks(body)), ([], body), ([length(len(body) + 1)], body),
            ([coding(), b"Transfer-Encoding: identity"], self.chunks(body))])

    def fields(self):
        made = self.pick.sample(FINE_FIELDS, self.pick.randrange(4))
        if self.strange():
            made.append(self.pick.choice(ODD_FIELDS))
        return made

    def assemble(self, line, fields, body):
        self.pick.shuffle(fields)
        head = b"".join(text + self.end() for text in (line, *fields))
        return head + self.end() + body

    def spoil(self, data):
        """A byte somewhere in the first part."""
        if not data or not self.strange() or self.pick.randrange(3):
            return data
        at = self.pick.randrange(min(len(data), 500))
        return self.pick.choice([data[:at] + self.pick.choice(BYTES) + data[at:], data[:at] + data[at + 1:],
                                 data[:at] + self.pick.choice(BYTES) + data[at + 1:]])

    def request(self):
        line = self.pick.choice(METHODS) + b" " + self.pick.choice(TARGETS) + b" HTTP/1.1"
        if self.strange() and self.pick.randrange(2):
            line = self.pick.choice(ODD_LINES)
        host = self.pick.choice([b"Host: test", b"host:test", b"HOST:\ttest ", b"Host: test:80", b"Host: [::1]:80"])
        if self.strange() and self.pick.randrange(3) == 0:
            host = self.pick.choice([b"Host: a b", b"Host:", b"Host: test\0", b"Host: u@test", b"Host: test, test", b"Host: t/x", b"X: no host"])
        framing, body = self.framed(self.payload())
        return self.spoil(self.assemble(line, [host, *framing, *self.fields()], body))

    def requests(self):
        return b"".join(self.request() for _ in range(self.pick.choice([1, 1, 2, 3])))

    def answer(self):
        status = self.pick.choice([b"200 OK"] * 5 + [b"204 No Content", b"304 Not Modified", b"404 ", b"500 X Y", b"299 \xe4", b"205 R"])
        line = b"HTTP/1.1 " + status
        if self.strange() and self.pick.randrange(3) == 0:
            line = self.pick.choice([b"HTTP/1.0 200 OK", b"HTTP/1.1 200", b"HTTP/1.1  200 OK", b"HTTP/2 200 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 101 S",
                                     b"HTTP/1.1 200 O\0K", b"HTTP/1.1 099 OK", b" HTTP/1.1 200 OK", b"HTTP/1.1 200 OK\nX: y", b"200 OK", b"HTTP/1.2 200 OK"])
        framing, body = self.framed(self.payload())
        data = self.spoil(self.assemble(line, framing + [f for f in self.fields() if not f.startswith(b"Host")], body))
        if self.pick.randrange(6) == 0:
            data = self.pick.choice([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", b"HTTP/1.1 199 \r\nX: y\r\n\r\n"]) + data
        if self.strange() and self.pick.randrange(4) == 0:
            data = data[:self.pick.randrange(1, len(data))]
        elif self.strange() and self.pick.randrange(4) == 0:
            data += self.pick.choice([b"x", SMUGGLED, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"])
        return data
