"""A DNS server of our own: says what the test wants, and keeps count."""

import ipaddress
import socket
import struct
import threading

A, AAAA, SRV = 1, 28, 33
NXDOMAIN, SERVFAIL = 3, 2


def record(what):
    """Its type and data."""
    if isinstance(what, tuple):
        labels = [label.encode() for label in what[3].split(".") if label]
        return SRV, struct.pack("!HHH", *what[:3]) + \
            b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    ip = ipaddress.ip_address(what)
    return (A if ip.version == 4 else AAAA), ip.packed


class Nameserver:
    """records[name] = list of addresses (of both families), or "nxdomain", "servfail",
    "silence" or "garbage" for what is no answer. Names that are not there are NXDOMAIN. An address
    that is a tuple (priority, weight, port, target) is an SRV record."""

    def __init__(self, host, ttl=1):
        self.ttl = ttl
        self.records = {}
        self.asked = []
        self.lock = threading.Lock()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.socket.bind((host, 0))
        self.address = "%s:%d" % self.socket.getsockname()
        self.listener = socket.create_server(self.socket.getsockname())
        self.streams = 0
        threading.Thread(target=self.serve, daemon=True).start()
        threading.Thread(target=self.serve_streams, daemon=True).start()

    def __str__(self):
        return self.address

    def say(self, name, what):
        """From now on; returns how often the name had been asked for."""
        with self.lock:
            self.records[name] = what
            return self.asked.count(name)

    def count(self, name):
        with self.lock:
            return self.asked.count(name)

    def serve(self):
        while True:
            try:
                packet, client = self.socket.recvfrom(4096)
            except OSError:
                return
            answer = self.answer(packet)
            if answer is not None and len(answer) > 512:  # truncated: ask by TCP
                answer = answer[:2] + bytes([answer[2] | 2]) + answer[3:6] + bytes(6) + \
                    answer[12:packet.index(b"\0", 12) + 5]
            if answer is not None:
                self.socket.sendto(answer, client)

    def serve_streams(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            self.streams += 1
            threading.Thread(target=self.serve_stream, args=(stream,), daemon=True).start()

    def serve_stream(self, stream):
        with stream, stream.makefile("rb") as file:
            while True:
                size = file.read(2)
                if len(size) < 2:
                    return
                answer = self.answer(file.read(struct.unpack("!H", size)[0]))
                if answer is not None:
                    stream.sendall(struct.pack("!H", len(answer)) + answer)

    def answer(self, packet):
        labels, at = [], 12
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode())
            at += 1 + packet[at]
        question = packet[12:at + 5]
        kind = struct.unpack("!H", packet[at + 1:at + 3])[0]
        name = ".".join(labels)
        with self.lock:
            self.asked.append(name)
            what = self.records.get(name, "nxdomain")
        if what == "silence":
            return None
        if what == "garbage":
            return packet[:2] + b"\x81\x80\0\1\0\7\0\0\0\0" + question + b"\xc0\xff" * 9
        if isinstance(what, str):
            code = {"nxdomain": NXDOMAIN, "servfail": SERVFAIL}[what]
            return packet[:2] + struct.pack("!BBHHHH", 0x81, 0x80 | code, 1, 0, 0, 0) + question
        found = [data for of, data in map(record, what) if of == kind]
        body = b"".join(b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, self.ttl, len(data)) + data
                        for data in found)
        return packet[:2] + struct.pack("!BBHHHH", 0x81, 0x80, 1, len(found), 0, 0) + \
            question + body

    def close(self):
        self.socket.close()
        self.listener.close()
