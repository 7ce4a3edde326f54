"""HTTP/2 as a client that may break every rule: frames by hyperframe, fields by hpack."""

import socket
import time

from hpack import Decoder, Encoder
from hyperframe.frame import (ContinuationFrame, DataFrame, Frame, GoAwayFrame, HeadersFrame,
                              PingFrame, RstStreamFrame, SettingsFrame, WindowUpdateFrame)

from wire import WAIT, Closed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 5, 6, 7, 8
COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 9, 11


class Stream:
    def __init__(self):
        self.heads = []  # every header block, interim ones and trailers too
        self.body = b""
        self.ended = False
        self.reset = None  # error code

    @property
    def final(self):
        return next((h for h in self.heads if not dict(h)[":status"].startswith("1")), None)

    @property
    def status(self):
        return int(dict(self.final)[":status"]) if self.final else None

    @property
    def trailers(self):
        at = self.heads.index(self.final)
        return self.heads[at + 1] if len(self.heads) > at + 1 else None

    def all(self, name):
        return [v for n, v in self.final if n == name]

    def get(self, name, default=None):
        values = self.all(name)
        assert len(values) < 2, (name, self.final)
        return values[0] if values else default


class Client2:
    """`window`: whether what arrives is acknowledged with WINDOW_UPDATEs."""

    def __init__(self, address, settings=None, preface=True, window=True, rcvbuf=None,
                 before=b""):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(WAIT)
        self.sock.connect(address)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if before:
            self.sock.sendall(before)
        self.encoder, self.decoder = Encoder(), Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.window = window
        self.acks = True
        self.data = b""
        self.streams = {}
        self.frames = []  # all that came, in order
        self.goaway = None
        self.settings = {}
        self.pongs = 0
        self.closed = False
        self.next_id = 1
        self.block = b""
        if preface:
            self.sock.sendall(PREFACE + SettingsFrame(0, settings or {}).serialize())

    def close(self):
        self.sock.close()

    # sending

    def raw(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.closed = True

    def send(self, *frames):
        self.raw(b"".join(frame.serialize() for frame in frames))

    def block_of(self, fields):
        return self.encoder.encode(fields, huffman=False)

    def fields(self, path="/", method="GET", headers=(), authority="test.example",
               scheme="http"):
        return [(":method", method), (":scheme", scheme), (":authority", authority),
                (":path", path), *headers]

    def headers_frame(self, fields, stream, end=True, flags=("END_HEADERS",)):
        frame = HeadersFrame(stream, self.block_of(fields))
        for flag in flags:
            frame.flags.add(flag)
        if end:
            frame.flags.add("END_STREAM")
        return frame

    def take_id(self):
        self.next_id += 2
        return self.next_id - 2

    def request(self, path="/", end=True, fields=None, **options):
        stream = self.take_id()
        self.send(self.headers_frame(fields or self.fields(path, **options), stream, end))
        return stream

    def data_frame(self, stream, body, end=True, pad=None):
        frame = DataFrame(stream, body)
        if pad is not None:
            frame.pad_length = pad
            frame.flags.add("PADDED")
        if end:
            frame.flags.add("END_STREAM")
        return frame

    def body(self, stream, body, end=True):
        frames = [body[i:i + 16384] for i in range(0, len(body), 16384)] or [b""]
        for i, part in enumerate(frames):
            self.send(self.data_frame(stream, part, end and i == len(frames) - 1))

    def reset(self, stream, code=CANCEL):
        self.send(RstStreamFrame(stream, code))

    # receiving

    def stream(self, stream):
        return self.streams.setdefault(stream, Stream())

    def read_frame(self, timeout):
        """The next frame; None when the connection is closed."""
        end = time.monotonic() + timeout
        while True:
            if len(self.data) >= 9:
                frame, length = Frame.parse_frame_header(memoryview(self.data[:9]))
                if len(self.data) >= 9 + length:
                    frame.parse_body(memoryview(self.data[9:9 + length]))
                    self.data = self.data[9 + length:]
                    return frame
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"frames so far: {self.frames[-8:]}")
            self.sock.settimeout(left)
            try:
                more = self.sock.recv(1 << 18)
            except ConnectionResetError:
                more = b""
            except socket.timeout:
                continue
            if not more:
                self.closed = True
                return None
            self.data += more

    def note(self, frame):
        self.frames.append(frame)
        if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
            self.settings.update(frame.settings)
            if self.acks:
                self.send(SettingsFrame(0, flags=["ACK"]))
        elif isinstance(frame, PingFrame):
            if "ACK" in frame.flags:
                self.pongs += 1
            elif self.acks:
                self.send(PingFrame(0, frame.opaque_data, flags=["ACK"]))
        elif isinstance(frame, GoAwayFrame):
            self.goaway = frame
        elif isinstance(frame, RstStreamFrame):
            self.stream(frame.stream_id).reset = frame.error_code
        elif isinstance(frame, (HeadersFrame, ContinuationFrame)):
            self.block += frame.data
            if isinstance(frame, HeadersFrame):
                self.ends = "END_STREAM" in frame.flags
            if "END_HEADERS" in frame.flags:
                stream = self.stream(frame.stream_id)
                stream.heads.append(self.decoder.decode(self.block))
                self.block = b""
                stream.ended |= self.ends
        elif isinstance(frame, DataFrame):
            stream = self.stream(frame.stream_id)
            stream.body += frame.data
            stream.ended |= "END_STREAM" in frame.flags
            if self.window and frame.data:
                size = frame.flow_controlled_length
                updates = [WindowUpdateFrame(0, size)]
                if not stream.ended:
                    updates.append(WindowUpdateFrame(frame.stream_id, size))
                self.send(*updates)

    def until(self, condition, what, timeout=WAIT):
        while not condition():
            frame = self.read_frame(timeout)
            if frame is None:
                if condition():
                    return
                raise Closed(f"closed before: {what}; frames: {self.frames[-8:]}")
            self.note(frame)

    def response(self, stream, timeout=WAIT):
        self.until(lambda: self.stream(stream).ended or self.stream(stream).reset is not None,
                   f"the answer on {stream}", timeout)
        return self.stream(stream)

    def get(self, path="/", **options):
        return self.response(self.request(path, **options))

    def head(self, stream):
        self.until(lambda: self.stream(stream).final, f"the head on {stream}")
        return self.stream(stream)

    def read_all(self, timeout=WAIT):
        """Until the gateway closes."""
        while not self.closed:
            frame = self.read_frame(timeout)
            if frame:
                self.note(frame)

    def expect_goaway(self, *codes):
        self.read_all()
        assert self.goaway, f"closed without GOAWAY: {self.frames[-8:]}"
        assert self.goaway.error_code in codes, self.goaway

    def expect_reset(self, stream, *codes):
        self.until(lambda: self.stream(stream).reset is not None, f"RST_STREAM on {stream}")
        assert self.stream(stream).reset in codes, self.stream(stream).reset

    def ping(self):
        """A PING there and back: everything sent before has been read."""
        before = self.pongs
        self.send(PingFrame(0, b"12345678"))
        self.until(lambda: self.pongs > before, "PING ACK")
