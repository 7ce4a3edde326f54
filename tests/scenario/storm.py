"""Many connections that ask as fast as they can, from one thread, counting statuses."""

import re
import select
import socket
import time

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class Storm:
    """`count` connections to each of the addresses; each keeps `depth` requests on the way.
    `began` is before the first request was sent, `first` after the first answer came."""

    def __init__(self, addresses, count, target="/", fields=(), depth=8):
        lines = [f"GET {target} HTTP/1.1", "Host: storm"]
        lines += [f"{name}: {value}" for name, value in fields]
        self.request = ("\r\n".join(lines) + "\r\n\r\n").encode()
        self.depth = depth
        self.statuses = {}
        self.began = self.first = None
        self.poll = select.epoll()
        self.socks, self.tails, self.left = {}, {}, {}
        for address in addresses:
            for _ in range(count):
                sock = socket.create_connection(address)
                sock.setblocking(False)
                self.socks[sock.fileno()] = sock
                self.tails[sock.fileno()] = b""
                self.poll.register(sock, select.EPOLLIN)

    def _read(self, fd):
        data = self.tails[fd] + self.socks[fd].recv(262144)
        assert len(data) > len(self.tails[fd]), "closed by the gateway"
        found = 0
        end = 0
        for match in STATUS.finditer(data):
            status = int(match[1])
            self.statuses[status] = self.statuses.get(status, 0) + 1
            found += 1
            end = match.end()
        self.tails[fd] = data[max(end, len(data) - 12):]
        return found

    def run(self, seconds):
        """Asks for so long, waits for all answers, and gives the time that all of it took."""
        begin = self.began = time.monotonic()
        for fd, sock in self.socks.items():
            sock.send(self.request * self.depth)
            self.left[fd] = self.depth
        asking = set(self.socks)
        while asking:
            events = self.poll.poll(15)
            assert events, "no answer came"
            self.first = self.first or time.monotonic()
            ends = time.monotonic() - begin >= seconds
            for fd, _ in events:
                self.left[fd] -= self._read(fd)
                if self.left[fd] == 0 and not ends:
                    self.socks[fd].send(self.request * self.depth)
                    self.left[fd] = self.depth
                elif self.left[fd] == 0:
                    asking.discard(fd)
        return time.monotonic() - begin

    def close(self):
        for sock in self.socks.values():
            sock.close()
        self.poll.close()

    def check(self, rate, burst, client, slack):
        """What was let through and what is left are burst + rate * time, whatever else the machine
        does, as long as there were always more than the rate; `slack` is a share. Gives the number
        of requests that were asked for in all."""
        assert set(self.statuses) == {200, 429}, self.statuses
        before = time.monotonic()
        answer = client.get()
        after = time.monotonic()
        left = int(re.search(r";r=(\d+)", answer.get("RateLimit"))[1])
        seen = self.statuses[200] + (answer.status == 200) + left
        least = burst + rate * (before - self.first)
        most = burst + rate * (after - self.began)
        assert least * (1 - slack) - 1 <= seen <= most * (1 + slack) + 1, \
            (self.statuses, left, least, most)
        return sum(self.statuses.values())
