"""Proxies as kafka.proxy.url names them, in this process: SOCKS5 (RFC 1928, 1929) and HTTP CONNECT."""

from __future__ import annotations

import base64
import socket
import socketserver
import struct

from support.relay import Relay

USER, PASSWORD = "proxy-user", "proxy-s3cret"


class Proxy(Relay):
    """Lets clients with the password through; a context manager.

    Attributes
    ----------
    targets
        Host and port of each connection it made, as it was asked for.
    """

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme
        self.targets: list[tuple[str, int]] = []
        super().__init__(Http if scheme == "http" else Socks)

    def url(self, password: str = PASSWORD) -> str:
        return f"{self._scheme}://{USER}:{password}@127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.StreamRequestHandler):
    rbufsize = 0
    server: Proxy

    def connect(self, host: str, port: int) -> socket.socket:
        self.server.targets.append((host, port))
        return socket.create_connection((host, port))


class Socks(_Handler):
    """Takes users with a password only."""

    def handle(self) -> None:
        _, methods = self.rfile.read(2)
        offered = self.rfile.read(methods)
        if 2 not in offered:
            self.wfile.write(b"\x05\xff")
            return
        self.wfile.write(b"\x05\x02")
        user = self.rfile.read(self.rfile.read(2)[1])
        password = self.rfile.read(self.rfile.read(1)[0])
        if (user.decode(), password.decode()) != (USER, PASSWORD):
            self.wfile.write(b"\x01\x01")
            return
        self.wfile.write(b"\x01\x00")
        kind = self.rfile.read(4)[3]
        host = socket.inet_ntoa(self.rfile.read(4)) if kind == 1 else self.rfile.read(self.rfile.read(1)[0]).decode()
        upstream = self.connect(host, struct.unpack("!H", self.rfile.read(2))[0])
        self.wfile.write(b"\x05\x00\x00\x01" + bytes(6))
        self.server.relay(self.request, upstream)


class Http(_Handler):
    """Answers CONNECT."""

    def handle(self) -> None:
        lines = []
        while line := self.rfile.readline().strip().decode():
            lines.append(line)
        known = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if f"Proxy-Authorization: Basic {known}" not in lines:
            self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = lines[0].split()[1].rpartition(":")
        upstream = self.connect(host, int(port))
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.server.relay(self.request, upstream)
