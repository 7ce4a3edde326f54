"""A scripted HTTP/2 backend that may break every rule: its connections speak as wire2's client
does, from the other side."""

import socket

from hpack import Decoder, Encoder
from hyperframe.frame import Frame, HeadersFrame, SettingsFrame

from wire import WAIT
from wire2 import PREFACE, Client2, Stream


class Conn2(Client2):
    """One connection of the gateway's. `settings`: what the server says at first; None: it says
    nothing yet (see hello)."""

    def __init__(self, sock, settings):  # pylint: disable=super-init-not-called
        self.sock = sock
        self.sock.settimeout(WAIT)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.window, self.acks = True, settings is not None
        self.data, self.block = b"", b""
        self.streams, self.frames, self.settings = {}, [], {}
        self.goaway, self.pongs, self.closed = None, 0, False
        while len(self.data) < len(PREFACE):
            more = sock.recv(1 << 16)
            assert more, "closed before the preface"
            self.data += more
        assert self.data.startswith(PREFACE)
        self.data = self.data[len(PREFACE):]
        if settings is not None:
            self.hello(settings)

    def hello(self, settings):
        self.send(SettingsFrame(0, settings))
        if not self.acks:
            self.send(SettingsFrame(0, flags=["ACK"]))
        self.acks = True

    def request(self, body=True, **_):
        """The next request that was not handed out yet: (id, fields). `body`: with all of it."""
        handed = self.__dict__.setdefault("handed", set())

        def there():
            return next((n for n, s in self.streams.items() if s.heads and n not in handed
                         and (s.ended or not body)), None)

        self.until(there, "a request")
        number = there()
        handed.add(number)
        return number, dict(self.streams[number].heads[0])

    def answer(self, stream, status=200, headers=(), end=False):
        fields = [(":status", str(status)), *headers]
        frame = HeadersFrame(stream, self.block_of(fields))
        frame.flags.add("END_HEADERS")
        if end:
            frame.flags.add("END_STREAM")
        self.send(frame)

    def trailers(self, stream, headers):
        frame = HeadersFrame(stream, self.block_of(list(headers)))
        frame.flags.add("END_HEADERS")
        frame.flags.add("END_STREAM")
        self.send(frame)

    def respond(self, stream, body=b"", status=200, headers=()):
        self.answer(stream, status, headers, end=not body)
        if body:
            self.body(stream, body)


class Backend2:
    """`ctx`: behind TLS, with an ssl context of the test's."""

    def __init__(self, host, settings=None, ctx=None):
        self.settings = {} if settings is None else settings
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
