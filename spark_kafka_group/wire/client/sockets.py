"""Connected sockets and kafka-python's transports over them, which notice that a broker's host no longer answers.

Behind a cut network the other end sends nothing. The kernel has to probe it, and to end connections without
acknowledgements. An attempt to connect that fails closes its socket. Transports report why a broker closed a
connection, and end with their deadlines.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport


async def connected(
    net: Any, place: tuple[str, int], options: Iterable[Any], proxy_url: str | None, by: float
) -> socket.socket:
    """A TCP connection to a host and port, through a proxy if there is one.

    kafka-python's `create_connection` leaves a socket that was not connected to the garbage collector: the error that
    it raises has the function's variables. While brokers are away there is such an attempt each second. Raises
    KafkaConnectionError with the reason of the last of the host's addresses, or at once if `by` has passed.
    """
    error = kafka_errors.KafkaConnectionError("DNS Resolution failure")
    sockets = KafkaNetSocket(proxy_url)
    for address in sockets.dns_lookup(*place):
        try:
            with _closed_unless_connected(sockets):
                sock: socket.socket = await sockets.connect(net, address, options, timeout_at=by)
                return sock
        except kafka_errors.KafkaTimeoutError as late:
            raise kafka_errors.KafkaConnectionError("Connection timed out") from late
        except OSError as failed:
            error = kafka_errors.KafkaConnectionError(f"unable to connect: {failed}")
        except kafka_errors.KafkaConnectionError as failed:
            error = failed
    raise error


@contextlib.contextmanager
def _closed_unless_connected(sockets: KafkaNetSocket) -> Iterator[None]:
    """Close the sockets that are made meanwhile, unless all goes well."""
    made: list[socket.socket] = []
    make = type(sockets).socket

    def noted(*how: Any) -> socket.socket:
        made.append(make(sockets, *how))
        return made[-1]

    sockets.socket = noted
    try:
        yield
    except BaseException:
        for sock in made:
            sock.close()
        raise
    finally:
        del sockets.socket  # it refers to them


KEEPALIVE_S = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2}
"""Seconds of silence after which the kernel probes a connection, and seconds between probes."""
UNANSWERED_SIGNS = 3  # unanswered probes that end a connection: 10 s after its last byte
USER_TIMEOUT_MS = 10_000  # how long sent bytes, or a SYN, may stay unacknowledged

Options = list[tuple[int, int, int]]


def noticing(user_timeout_ms: int = USER_TIMEOUT_MS) -> Options:
    """Socket options that have the kernel end a connection to a host that is gone, as far as this system has them.

    `user_timeout_ms`: the kernel also ends a connection whose other end takes no bytes for this long. A client that
        sends more than a socket's buffer holds has to allow for a busy broker.
    """
    named = KEEPALIVE_S | {"TCP_KEEPCNT": UNANSWERED_SIGNS, "TCP_USER_TIMEOUT": user_timeout_ms}
    tcp = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named.items() if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *tcp]


FIRST_BYTES = 8


class LastWordsMixin:
    """A transport that passes on the bytes that arrived before a connection ended. kafka-python's drops them, and with
    them a broker's reason for closing: the refusal of a password. `first`: the first bytes that have arrived."""

    first = b""
    _closed: bool
    _sock: Any
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
        if isinstance(error, kafka_errors.RequestTimedOutError) and self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        super().abort(error)  # type: ignore[misc]

    async def _write_to_sock(self) -> None:
        """Close the socket with the loop, too. kafka-python leaves it open if 1. a request waits to be sent, 2. the
        transport is closed, which waits for the request, 3. the loop is closed, which cancels this task."""
        try:
            await super()._write_to_sock()  # type: ignore[misc]
        finally:
            if self._closed and self._sock is not None:
                self._write_task = None  # it ends here
                self._close()  # type: ignore[attr-defined]


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
