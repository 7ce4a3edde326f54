"""Certificates from the openssl command, and both ends of a scripted TLS conversation."""

import os
import socket
import ssl
import subprocess

from wire import Client, UpConn, Upstream


def openssl(*args, **options):
    done = subprocess.run(["openssl", *args], capture_output=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


class Certificate:
    def __init__(self, base):
        self.chain, self.key = base + ".pem", base + ".key"

    def section(self, title="localhost"):
        return f'certificate "{title}" {{ chain = "{self.chain}"  key = "{self.key}" }}'


KINDS = {"ecdsa": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
         "rsa": ["-newkey", "rsa:2048"]}


class Authority:
    """Signs what a test needs, in a folder of its own."""

    def __init__(self, folder, name="Test Authority"):
        self.folder, self.count = str(folder), 0
        os.makedirs(self.folder, exist_ok=True)
        self.pem, self.key = os.path.join(self.folder, "ca.pem"), os.path.join(self.folder, "ca.key")
        openssl("req", "-x509", *KINDS["ecdsa"], "-nodes", "-keyout", self.key, "-out", self.pem,
                "-days", "30", "-subj", f"/CN={name}")

    def issue(self, *names, subject=None, kind="ecdsa", days=10, base=None):
        """`names`: host names and addresses it is for. `days` < 0: it has ended."""
        self.count += 1
        base = base or os.path.join(self.folder, f"c{self.count}")
        made = Certificate(base)
        request, extensions = base + ".csr", base + ".ext"
        openssl("req", "-new", *KINDS[kind], "-nodes", "-keyout", made.key, "-out", request,
                "-subj", subject or f"/CN={names[0]}")
        with open(extensions, "w") as file:
            if names:
                file.write("subjectAltName=" + ",".join(
                    ("IP:" if n.replace(".", "").isdigit() else "DNS:") + n for n in names))
        args = ["x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.key, "-set_serial",
                str(1000 + self.count), "-extfile", extensions, "-out", made.chain]
        if days < 0:
            openssl("ca", "-batch", "-config", self.old_config(), "-in", request, "-out", made.chain,
                    "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-notext",
                    "-extfile", extensions)
        else:
            openssl(*args, "-days", str(days))
        return made

    def old_config(self):
        """Only the ca command can sign with dates in the past."""
        path = os.path.join(self.folder, "ca.conf")
        for name, text in (("index.txt", ""), ("serial", "77"), ("ca.conf", f"""
[ca]
default_ca = one
[one]
database = {self.folder}/index.txt
serial = {self.folder}/serial
new_certs_dir = {self.folder}
certificate = {self.pem}
private_key = {self.key}
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
""")):
            if not os.path.exists(os.path.join(self.folder, name)):
                with open(os.path.join(self.folder, name), "w") as file:
                    file.write(text)
        return path

    def context(self, **options):
        return context(self.pem, **options)


def context(ca=None, certificate=None, alpn=(), only=None, ciphers=None):
    """A client's. `only`: a version as ssl.TLSVersion has it."""
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        ctx.load_verify_locations(ca)
    else:
        ctx.check_hostname = False
        ctx.verify_mode = ssl.CERT_NONE
    if certificate:
        ctx.load_cert_chain(certificate.chain, certificate.key)
    if alpn:
        ctx.set_alpn_protocols(list(alpn))
    if only:
        ctx.minimum_version = ctx.maximum_version = only
    if ciphers:
        ctx.set_ciphers(ciphers)
    return ctx


def server_context(certificate, client_ca=None, only=None):
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(certificate.chain, certificate.key)
    if client_ca:
        ctx.load_verify_locations(client_ca)
        ctx.verify_mode = ssl.CERT_REQUIRED
    if only:
        ctx.minimum_version = ctx.maximum_version = only
    return ctx


class TlsEnd:
    """What a wrapped socket does otherwise: an end without close_notify is an error."""

    def say_goodbye(self):
        """close_notify; our half of the connection is over."""
        try:
            self.sock.settimeout(0.5)
            self.sock.unwrap()
        except (OSError, ssl.SSLError):
            pass

    def recv_or_cut(self):
        """b"" is an orderly end; a cut raises ssl.SSLError or ConnectionError."""
        return self.sock.recv(262144)


class TlsClient(TlsEnd, Client):
    pass


class TlsUpConn(TlsEnd, UpConn):
    pass


def connect(gw, ctx, server_name="localhost", name="https", session=None, receive_buffer=None):
    plain = Client.to(gw.address(name), receive_buffer)
    sock = ctx.wrap_socket(plain.sock, server_hostname=server_name, session=session,
                           suppress_ragged_eofs=False)
    client = TlsClient(sock)
    gw.clients.append(client)
    return client


class TlsUpstream(Upstream):
    """A scripted one behind TLS."""

    def __init__(self, host, ctx, **options):
        super().__init__(host, **options)
        self.ctx = ctx
        self.names = []  # that were asked for
        ctx.sni_callback = lambda sock, name, ctx: self.names.append(name)

    def accept(self, timeout=15.0):
        conn = super().accept(timeout)
        self.conns.remove(conn)
        sock = self.ctx.wrap_socket(conn.sock, server_side=True, suppress_ragged_eofs=False)
        conn = TlsUpConn(sock)
        self.conns.append(conn)
        return conn

    def accept_failing(self):
        """A handshake that the gateway breaks off."""
        conn = super().accept()
        try:
            self.ctx.wrap_socket(conn.sock, server_side=True)
            conn.sock.recv(1)
        except (ssl.SSLError, OSError) as error:
            return str(error)
        return None


def cut(sock):
    """The connection ends as when a cable is pulled: no close_notify."""
    raw = socket.socket(fileno=os.dup(sock.fileno()))
    raw.shutdown(socket.SHUT_RDWR)
    raw.close()
