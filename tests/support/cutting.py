"""A proxy whose connections are cut now and then, wherever they are."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import socketserver
import threading

from support.relay import Relay

LONGEST_S, SHORTEST_S = 1.5, 0.5


class CuttingProxy(Relay):
    """For kafka.proxy.url: HTTP CONNECT. Each connection ends after a while, with what is on its way.

    Attributes
    ----------
    cuts
        Connections that it has ended.
    stops
        Whether it cuts no more.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(_Cut)
        self.random = random.Random(seed)
        self.cuts = 0
        self.stops = False
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Cut(socketserver.StreamRequestHandler):
    rbufsize = 0
    server: CuttingProxy

    def handle(self) -> None:
        lines = []
        while line := self.rfile.readline().strip().decode():
            lines.append(line)
        host, _, port = lines[0].split()[1].rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))) as upstream:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self.relay_some(self.request, upstream)

    def relay_some(self, client: socket.socket, upstream: socket.socket) -> None:
        """Until an end closes, or the time is over and a random part of the next bytes has been passed on."""
        with self.server.lock:
            ends_at, part = self.server.random.uniform(SHORTEST_S, LONGEST_S), self.server.random.random()
        over = threading.Event()
        timer = threading.Timer(ends_at, over.set)
        timer.daemon = True
        timer.start()
        with client:
            while True:
                for ready in select.select([client, upstream], [], [], 0.1)[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    other = client if ready is upstream else upstream
                    if over.is_set() and not self.server.stops:
                        other.sendall(data[: int(len(data) * part)])
                        self.server.cuts += 1
                        return
                    other.sendall(data)
