"""A scripted HTTP/2 backend that may break every rule: its connections speak as wire2's client
does, from the other side."""

import socket

from hpack import Decoder, Encoder
from hyperframe.frame import Frame, SettingsFrame

from wire import WAIT
from wire2 import PREFACE, Client2, Stream


class Conn2(Client2):
    """The backend's end of a connection that was accepted: a socket, or one of wire's. `settings`:
    what it says at first; None: nothing by itself, not even what every HTTP/2 connection begins
    with (see hello)."""

    def __init__(self, conn, settings=(), window=True):  # pylint: disable=super-init-not-called
        self.conn, self.sock = conn, getattr(conn, "sock", conn)
        self.sock.settimeout(WAIT)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.window = window
        self.acks = settings is not None
        self.streams, self.frames, self.taken = {}, [], 0
        self.goaway, self.settings, self.pongs, self.closed, self.block = None, {}, 0, False, b""
        self.data = getattr(conn, "buffer", b"")
        if self.data:
            conn.buffer = b""
        while len(self.data) < len(PREFACE):
            more = self.sock.recv(1 << 16)
            assert more, "closed before the preface"
            self.data += more
        assert self.data.startswith(PREFACE)
        self.data = self.data[len(PREFACE):]
        if settings is not None:
            self.hello(settings)

    def hello(self, settings=()):
        self.send(SettingsFrame(0, dict(settings)))
        if not self.acks:
            self.send(SettingsFrame(0, flags=["ACK"]))
        self.acks = True

    def reset_connection(self):
        self.conn.reset()

    def close(self):
        self.conn.close()

    def request(self):
        """The next stream that a request has come on (its head)."""
        self.until(lambda: self.newest() > self.taken, "a request")
        self.taken = min(i for i, s in self.streams.items() if i > self.taken and s.heads)
        return self.taken

    def newest(self):
        return max((i for i, s in self.streams.items() if s.heads), default=0)

    def whole_request(self):
        stream = self.request()
        self.until(lambda: self.stream(stream).ended, "the request's end")
        return stream

    def asked(self, body=True):
        """The next request: (stream, fields). `body`: with all of it."""
        stream = self.whole_request() if body else self.request()
        return stream, dict(self.stream(stream).heads[0])

    def field(self, stream, name):
        return dict(self.stream(stream).heads[0]).get(name)

    def head(self, stream, status=200, fields=(), end=False):
        self.send(self.headers_frame([(":status", str(status)), *fields], stream, end))

    def trailers(self, stream, fields):
        self.send(self.headers_frame(list(fields), stream, True))

    def answer(self, stream, body=b"ok", status=200, fields=()):
        self.head(stream, status, [("content-length", str(len(body))), *fields])
        self.body(stream, body)


class Backend2:
    """`ctx`: behind TLS, with an ssl context of the test's."""

    def __init__(self, host, settings=(), ctx=None):
        self.settings = settings
        self.ctx = ctx
        self.sock = socket.create_server((host, 0))
        self.sock.settimeout(WAIT)
        self.conns = []

    def __str__(self):
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    def accept(self, **options):
        sock, _ = self.sock.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.ctx:
            sock = self.ctx.wrap_socket(sock, server_side=True)
        conn = Conn2(sock, options.get("settings", self.settings))
        self.conns.append(conn)
        return conn

    def close(self):
        for conn in self.conns:
            conn.close()
        self.sock.close()


__all__ = ["Backend2", "Conn2", "Frame", "Stream"]
