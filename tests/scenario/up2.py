"""A backend that speaks HTTP/2 frame by frame, and may break every rule."""

from hpack import Decoder, Encoder
from hyperframe.frame import RstStreamFrame, SettingsFrame

from wire import WAIT
from wire2 import PREFACE, Client2


class Conn2(Client2):
    """The backend's end of a connection that was accepted. `settings` None: it says nothing by
    itself, not even what every HTTP/2 connection begins with."""

    def __init__(self, conn, settings=(), window=True):
        self.conn, self.sock = conn, conn.sock
        self.sock.settimeout(WAIT)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.window = window
        self.acks = settings is not None
        self.streams, self.frames, self.taken = {}, [], 0
        self.goaway, self.settings, self.pongs, self.closed, self.block = None, {}, 0, False, b""
        assert conn.read_exact(len(PREFACE)) == PREFACE
        self.data, conn.buffer = conn.buffer, b""
        if settings is not None:
            self.send(SettingsFrame(0, dict(settings)))

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

    def field(self, stream, name):
        return dict(self.stream(stream).heads[0]).get(name)

    def head(self, stream, status="200", fields=(), end=False):
        self.send(self.headers_frame([(":status", status), *fields], stream, end))

    def answer(self, stream, body=b"ok", status="200", fields=()):
        self.head(stream, status, [("content-length", str(len(body))), *fields])
        self.body(stream, body)

    def reset(self, stream, code):
        self.send(RstStreamFrame(stream, code))
