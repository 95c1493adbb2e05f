"""kafka-python's transports, which report why a broker closed a connection and end with their deadlines."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct

import kafka.errors as kafka_errors
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport

FIRST_BYTES = 8


class LastWordsMixin:
    """A transport that passes on the bytes that arrived before a connection ended.

    kafka-python's drops them, and with them a broker's reason for closing: the refusal of a password.

    `first`: the first bytes that have arrived.
    """

    first = b""
    _ended: Exception | None = None

    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        if self._ended is not None:
            return b"", self._ended
        data, self._ended = super()._sock_recv()  # type: ignore[misc]
        self.first = self.first or bytes(data[:FIRST_BYTES])
        return (data, None) if data else (b"", self._ended)

    def abort(self, error: Exception | None = None) -> None:
        """Close at once, and drop bytes that a silent broker has not taken.

        Otherwise the kernel would go on sending them: 1. a commit is given up, and made through another connection,
        2. the next batch is committed, 3. the network is back, and the first commit arrives.
        """
        sock: socket.socket | None = self._sock  # type: ignore[attr-defined]
        if isinstance(error, kafka_errors.RequestTimedOutError) and sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        super().abort(error)  # type: ignore[misc]


class TcpTransport(LastWordsMixin, KafkaTCPTransport):  # type: ignore[misc]
    """Without TLS."""


class TlsTransport(LastWordsMixin, KafkaSSLTransport):  # type: ignore[misc]
    """Applies the deadline to the TLS handshake too, and closes its socket when the handshake fails."""

    async def handshake_until(self, timeout_at: float | None) -> None:
        try:
            while True:
                try:
                    self._sock.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    await self._net.wait_read(self._sock, timeout_at=timeout_at)
                except ssl.SSLWantWriteError:
                    await self._net.wait_write(self._sock, timeout_at=timeout_at)
        except BaseException:
            self.close()
            raise
