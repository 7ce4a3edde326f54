"""HTTP/1 over raw sockets, for both ends of a scripted conversation.

Nothing here repairs or hides anything: what a peer sent is handed out byte for byte, and what
is not well-formed HTTP/1.1 raises Malformed.
"""

import re
import socket
import struct
import time

WAIT = 15.0  # the bound on every wait: generous, because a loaded machine is no failure


class Malformed(AssertionError):
    pass


class Closed(AssertionError):
    """The peer closed or reset the connection where bytes were expected."""


class Message:
    """A head, and once it was read the body."""

    def __init__(self, raw_head):
        self.raw_head = raw_head
        lines = raw_head[:-4].split(b"\r\n")
        self.start = lines[0].decode("latin-1")
        self.fields = []
        for line in lines[1:]:
            match = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", line, re.S)
            if not match:
                raise Malformed(f"field line {line!r} in {raw_head!r}")
            self.fields.append((match[1].decode(), match[2].decode("latin-1")))
        self.body = b""
        self.trailers = []
        self.chunks = []

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def get(self, name, default=None):
        values = self.all(name)
        if len(values) > 1:
            raise Malformed(f"{name} stands {len(values)} times in {self.raw_head!r}")
        return values[0] if values else default

    def has(self, name):
        return bool(self.all(name))

    @property
    def names(self):
        return [n.lower() for n, _ in self.fields]

    @property
    def is_chunked(self):
        return (self.get("Transfer-Encoding") or "").lower() == "chunked"

    @property
    def length(self):
        value = self.get("Content-Length")
        return None if value is None else int(value)


class Request(Message):
    def __init__(self, raw_head):
        super().__init__(raw_head)
        self.method, self.target, self.version = self.start.split(" ")


class Response(Message):
    def __init__(self, raw_head):
        super().__init__(raw_head)
        match = re.fullmatch(r"(HTTP/1\.[01]) (\d{3}) (.*)", self.start)
        if not match:
            raise Malformed(f"status line {self.start!r}")
        self.version, self.status, self.phrase = match[1], int(match[2]), match[3]


class Conn:
    """One end of a TCP or unix connection, with a read buffer."""

    def __init__(self, sock, timeout=WAIT):
        self.sock = sock
        self.sock.settimeout(timeout)
        self.buffer = b""

    # writing

    def send(self, data):
        if isinstance(data, str):
            data = data.encode("latin-1")
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed(f"while sending: {error}") from None

    def send_slowly(self, data, step=1, pause=0.0):
        for i in range(0, len(data), step):
            self.send(data[i:i + step])
            if pause:
                time.sleep(pause)

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def close(self):
        self.sock.close()

    def reset(self):
        """Closes with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    # reading

    def _fill(self):
        try:
            data = self.sock.recv(262144)
        except ConnectionResetError:
            raise Closed(f"reset; had {self.buffer[:200]!r}") from None
        except socket.timeout:
            raise AssertionError(f"nothing came; had {self.buffer[:200]!r}") from None
        if not data:
            raise Closed(f"closed; had {self.buffer[:200]!r}")
        self.buffer += data

    def read_exact(self, n):
        if n > 1 << 16:
            return self._read_many(n)
        while len(self.buffer) < n:
            self._fill()
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def _read_many(self, n):
        parts, have, self.buffer = [self.buffer[:n]], len(self.buffer[:n]), self.buffer[n:]
        while have < n:
            self._fill()
            part, self.buffer = self.buffer[:n - have], self.buffer[n - have:]
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def read_until(self, mark):
        while mark not in self.buffer:
            self._fill()
        end = self.buffer.index(mark) + len(mark)
        data, self.buffer = self.buffer[:end], self.buffer[end:]
        return data

    def read_to_end(self):
        parts = [self.buffer]
        self.buffer = b""
        while True:
            try:
                data = self.sock.recv(262144)
            except socket.timeout:
                raise AssertionError("no end of the connection came") from None
            if not data:
                return b"".join(parts)
            parts.append(data)

    def read_chunked(self, message):
        """Fills body, chunks and trailers of a message whose coding is chunked."""
        while True:
            line = self.read_until(b"\r\n")[:-2]
            if not re.fullmatch(rb"[0-9a-fA-F]+", line):
                raise Malformed(f"chunk line {line!r}")
            size = int(line, 16)
            if size == 0:
                break
            message.chunks.append(self.read_exact(size))
            if self.read_exact(2) != b"\r\n":
                raise Malformed("chunk data without CR LF behind it")
        while True:
            line = self.read_until(b"\r\n")[:-2]
            if not line:
                break
            name, _, value = line.decode("latin-1").partition(":")
            message.trailers.append((name, value.strip()))
        message.body = b"".join(message.chunks)

    def is_closed_by_peer(self, timeout=WAIT):
        """Waits for the end of the connection; any byte instead of it is False."""
        if self.buffer:
            return False
        self.sock.settimeout(timeout)
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
        except socket.timeout:
            return False
        finally:
            self.sock.settimeout(WAIT)

    def expect_closed(self, timeout=WAIT):
        assert self.is_closed_by_peer(timeout), f"still open; buffer {self.buffer[:300]!r}"

    def expect_silence(self, seconds=0.3):
        """Nothing arrives and nothing ends for so long."""
        assert not self.buffer, f"unexpected {self.buffer[:300]!r}"
        self.sock.settimeout(seconds)
        try:
            data = self.sock.recv(1000)
        except socket.timeout:
            return
        finally:
            self.sock.settimeout(WAIT)
        raise AssertionError(f"unexpected {data!r}" if data else "closed")


class Client(Conn):
    """The gateway's client."""

    @classmethod
    def to(cls, address, receive_buffer=None):
        if isinstance(address, str):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        else:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(WAIT)
        sock.connect(address)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(sock)

    def head(self):
        return Response(self.read_until(b"\r\n\r\n"))

    def response(self, method="GET", interim=False):
        """Reads one response whole. 1xx are stepped over unless `interim`."""
        response = self.head()
        while response.status < 200 and response.status != 101 and not interim:
            response = self.head()
        self.read_body(response, method)
        return response

    def read_body(self, response, method="GET"):
        status = response.status
        if method == "HEAD" or status < 200 or status in (204, 304):
            return
        if response.is_chunked:
            self.read_chunked(response)
        elif response.length is not None:
            response.body = self.read_exact(response.length)
        else:
            response.body = self.read_to_end()

    def get(self, target="/", host="test", fields=(), method="GET", body=None):
        lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
        lines += [f"{name}: {value}" for name, value in fields]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))
        return self.response(method)


class UpConn(Conn):
    """A connection that the gateway opened to a scripted upstream."""

    def expect_head(self):
        return Request(self.read_until(b"\r\n\r\n"))

    def expect(self):
        """Reads one request whole."""
        request = self.expect_head()
        if request.is_chunked:
            self.read_chunked(request)
        elif request.length:
            request.body = self.read_exact(request.length)
        return request

    def respond(self, body=b"ok", status="200 OK", fields=()):
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in fields]
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)


class Upstream:
    """A listening socket whose connections the test plays by hand."""

    def __init__(self, host, path=None, backlog=64):
        if path:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.bind(path)
            self.address = f"unix:{path}"
        else:
            self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind((host, 0))
            self.address = "%s:%d" % self.sock.getsockname()
        self.sock.listen(backlog)
        self.conns = []

    def __str__(self):
        return self.address

    def accept(self, timeout=WAIT):
        self.sock.settimeout(timeout)
        try:
            sock, _ = self.sock.accept()
        except socket.timeout:
            raise AssertionError("no connection came to the upstream") from None
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn = UpConn(sock)
        self.conns.append(conn)
        return conn

    def expect_no_connection(self, seconds=0.3):
        self.sock.settimeout(seconds)
        try:
            self.sock.accept()
        except socket.timeout:
            return
        raise AssertionError("the upstream got a connection that it should not get")

    def close(self):
        self.sock.close()
        for conn in self.conns:
            conn.close()
