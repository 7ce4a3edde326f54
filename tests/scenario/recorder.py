"""A backend in one thread that writes down every byte it gets, and answers by a script.

One thread, and in every round first all reading, then all answering: when a request has been
answered, everything that the gateway sent to any connection before it is on record."""

import itertools
import select
import socket
import threading

from wire import Malformed, Request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Seen:
    """A request as it arrived: `raw` is exactly its bytes."""

    def __init__(self, conn, raw, request):
        self.conn, self.raw, self.request = conn, raw, request

    def __repr__(self):
        return f"<on connection {self.conn}: {self.raw!r}>"


def take_chunked(data, at):
    """(end, body, trailers) of a chunked body, strictly; None while it is not complete."""
    body = b""
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            return None
        line = data[at:end]
        if not line or line.strip(b"0123456789abcdefABCDEF"):
            raise Malformed(f"chunk line {line!r}")
        size, at = int(line, 16), end + 2
        if size == 0:
            break
        if len(data) < at + size + 2:
            return None
        body += data[at:at + size]
        if data[at + size:at + size + 2] != b"\r\n":
            raise Malformed("no CR LF behind a chunk")
        at += size + 2
    if data[at:at + 2] == b"\r\n":
        return at + 2, body, []
    end = data.find(b"\r\n\r\n", at)
    if end < 0:
        return None
    return end + 4, body, [tuple(line.split(b": ", 1)) for line in data[at:end].split(b"\r\n")]


def take_request(data):
    """(request, bytes used) of the first one, read strictly; None while it is not complete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    request, at = Request(data[:end + 4]), end + 4
    if request.is_chunked:
        if request.length is not None:
            raise Malformed("both framings")
        done = take_chunked(data, at)
        if not done:
            return None
        at, request.body, request.trailers = done
    elif request.length:
        if len(data) < at + request.length:
            return None
        request.body = data[at:at + request.length]
        at += request.length
    return request, at


class Recorder:
    """answer(target) -> [step, ...]: bytes to send, "close", "fin" or "reset"; None: OK.
    `early`: answer(target) is asked as soon as a head has come."""

    def __init__(self, host, answer=lambda target: None, early=lambda target: False):
        self.answer, self.early = answer, early
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, 0))
        self.listener.listen(512)
        self.listener.setblocking(False)
        self.address = "%s:%d" % self.listener.getsockname()
        self.wake, self.woken = socket.socketpair()
        self.numbers = itertools.count(1)
        self.socks = {}  # number: socket
        self.buffers = {}
        self.seen = []      # complete requests, in order
        self.received = 0   # bytes
        self.opened = 0
        self.ended = set()  # connections that the gateway closed
        self.faults = []    # what no strict parser takes
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def __str__(self):
        return self.address

    def run(self):
        poller = select.epoll()
        poller.register(self.listener, select.EPOLLIN)
        poller.register(self.woken, select.EPOLLIN)
        numbers = {}
        while True:
            events = poller.poll()
            if any(fd == self.woken.fileno() for fd, _ in events):
                return
            with self.lock:
                self.accept_all(poller, numbers)
                for number in list(self.socks):
                    self.read_all(number)
                for number in list(self.socks):
                    self.serve(number)

    def accept_all(self, poller, numbers):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
            number = next(self.numbers)
            self.opened += 1
            self.socks[number], self.buffers[number] = sock, b""
            numbers[sock.fileno()] = number
            poller.register(sock, select.EPOLLIN)

    def drop(self, number):
        self.socks.pop(number).close()
        self.buffers.pop(number)

    def read_all(self, number):
        while True:
            try:
                data = self.socks[number].recv(1 << 18)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.ended.add(number)
                if self.buffers[number]:
                    self.faults.append(("cut", self.buffers[number]))
                self.drop(number)
                return
            self.received += len(data)
            self.buffers[number] += data

    def serve(self, number):
        while number in self.socks and self.buffers[number]:
            data = self.buffers[number]
            try:
                done = take_request(data)
                end = data.find(b"\r\n\r\n")
                if not done and end >= 0:
                    head = Request(data[:end + 4])
                    if self.early(head.target):
                        done = head, len(data)
            except (Malformed, ValueError) as error:
                self.faults.append((str(error), data))
                self.drop(number)
                return
            if not done:
                return
            request, used = done
            self.seen.append(Seen(number, data[:used], request))
            self.buffers[number] = data[used:]
            self.play(number, self.answer(request.target) or [OK])

    def play(self, number, steps):
        sock = self.socks[number]
        sock.setblocking(True)
        try:
            for step in steps:
                if step == "close":
                    self.drop(number)
                    return
                if step == "fin":
                    sock.shutdown(socket.SHUT_WR)
                elif step == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    self.drop(number)
                    return
                else:
                    sock.sendall(step)
        except OSError:
            pass
        sock.setblocking(False)

    def mark(self):
        with self.lock:
            return len(self.seen), self.received, self.opened, len(self.faults)

    def since(self, mark):
        with self.lock:
            return self.seen[mark[0]:]

    def close(self):
        self.wake.send(b"x")
        self.thread.join(15)
        for sock in (self.listener, self.wake, self.woken, *self.socks.values()):
            sock.close()
