"""The port that Prometheus scrapes: few connections at a time, none for long, and all of them end with it."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import Any

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 16
"""The most open connections. One more ends the oldest, so clients that open connections and ask nothing block no
scrape."""
CONNECTION_S = 10.0  # the longest life of a connection. A scrape that takes longer has timed out in Prometheus.
LOOK_EVERY_S = 0.2


class ScrapedPort(TCPServer):
    """Answers with a handler, each connection in a thread of its own, from :meth:`start` to :meth:`close`.

    `address`, `port`: to listen on; port 0 is any free one.
    `handler`: answers one connection.
    `most`, `connection_s`: connections at a time, and seconds that one lasts.
    Raises OSError when the port is taken, or the address is not one of this machine's.
    """

    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self,
        address: str,
        port: int,
        handler: type[BaseHTTPRequestHandler],
        most: int = MOST_CONNECTIONS,
        connection_s: float = CONNECTION_S,
    ) -> None:
        family, _, _, _, resolved = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        self.address_family = family
        self._most = most
        self._connection_s = connection_s
        self._serving = threading.Thread(target=self._serve, name="groupkafka-prometheus-port", daemon=True)
        self._open: dict[socket.socket, tuple[threading.Thread, float]] = {}
        """Connections with their threads and when they are to end, oldest first; the serving thread's alone."""
        super().__init__((str(resolved[0]), port), handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        """Answer from now on."""
        self._serving.start()

    def close(self) -> None:
        """Free the port, and end every connection."""
        if self._serving.is_alive():
            self.shutdown()
            self._serving.join()
        self.server_close()

    def _serve(self) -> None:
        self.serve_forever(LOOK_EVERY_S)
        while self._open:
            self._end(next(iter(self._open)))

    # Called by TCPServer, in the serving thread

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own."""
        self._forget_ended()
        if len(self._open) >= self._most:
            self._end(next(iter(self._open)))
        answering = threading.Thread(
            target=self._answer, args=(request, client_address), name="groupkafka-scrape", daemon=True
        )
        self._open[request] = answering, time.monotonic() + self._connection_s
        answering.start()

    def service_actions(self) -> None:
        """End connections whose time is over."""
        self._forget_ended()
        now = time.monotonic()
        for request in [request for request, (_, until) in self._open.items() if until <= now]:
            self._end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say why a scrape has no answer, unless its client is gone."""
        error = sys.exception()
        if not isinstance(error, OSError):
            log.warning("a scrape was not answered: %s: %s", type(error).__name__, error)

    # Connections

    def _answer(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
            request.shutdown(socket.SHUT_WR)
        except Exception:  # noqa: BLE001 - handle_error says it
            self.handle_error(request, client_address)

    def _forget_ended(self) -> None:
        for request in [request for request, (answering, _) in self._open.items() if not answering.is_alive()]:
            self._end(request)

    def _end(self, request: socket.socket) -> None:
        """Close a connection; a read or write of its thread fails at once."""
        answering, _ = self._open.pop(request)
        with contextlib.suppress(OSError):  # the client has gone
            request.shutdown(socket.SHUT_RDWR)
        answering.join()
        request.close()
