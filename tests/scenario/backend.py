"""A backend that answers by itself and keeps count: for bulk traffic."""

import socket
import threading

from wire import Closed, UpConn


class Backend:
    """Answers every request with `answer(request) -> bytes of a whole response`, a thread for
    each connection. `stop` closes everything, as a killed process would."""

    def __init__(self, host, name="backend", answer=None, port=0):
        self.name = name
        self.answer = answer or self.say_name
        self.lock = threading.Lock()
        self.opened = 0
        self.requests = []  # (method, target, body length) in order of arrival
        self.open = set()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((host, port))
        self.listener.listen(512)
        self.port = self.listener.getsockname()[1]
        self.address = f"{host}:{self.port}"
        threading.Thread(target=self.accept_all, daemon=True).start()

    def __str__(self):
        return self.address

    @property
    def count(self):
        with self.lock:
            return len(self.requests)

    def say_name(self, request):
        body = self.name.encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def accept_all(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.opened += 1
                self.open.add(sock)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        conn = UpConn(sock, timeout=None)
        try:
            while True:
                request = conn.expect()
                with self.lock:
                    self.requests.append((request.method, request.target, len(request.body)))
                conn.send(self.answer(request))
        except (Closed, OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.open.discard(sock)
            sock.close()

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass
        self.listener.close()
        with self.lock:
            socks = list(self.open)
        for sock in socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    close = stop
