"""Servers between a client and a broker, in this process."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from typing import Self


class Relay(socketserver.ThreadingTCPServer):
    """A server on a free port, whose handlers relay connections; a context manager.

    Attributes
    ----------
    received
        What came back through it.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self, handler: type[socketserver.BaseRequestHandler]) -> None:
        self.received = bytearray()
        super().__init__(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        pass

    def relay(self, client: socket.socket, upstream: socket.socket) -> None:
        """Both ways, until one end closes."""
        with contextlib.suppress(OSError), client, upstream:
            while True:
                for ready in select.select([client, upstream], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    if ready is upstream:
                        self.received += data
                    (client if ready is upstream else upstream).sendall(data)


class Bootstrap(Relay):
    """An address that stays, for one broker after another; a context manager."""

    target = ("127.0.0.1", 0)

    def __init__(self) -> None:
        super().__init__(Forwarder)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Forwarder(socketserver.BaseRequestHandler):
    server: Bootstrap

    def handle(self) -> None:
        self.server.relay(self.request, socket.create_connection(self.server.target))
