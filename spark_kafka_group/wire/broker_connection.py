"""A connection to a broker whose socket is this package's: what reading over it and writing over it share.

kafka-python connects, agrees on versions and authenticates; then the socket is taken over. One time limit is for a
whole exchange: a limit for each read would start again with each byte.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

USED_OF_LIFETIME = 0.85
"""Part of an authentication's lifetime after which a connection is replaced, as Kafka's Java client authenticates."""


class BrokerConnection:
    """Errors of a connection are OSError: the caller drops it and makes another.

    `sock`: connected and authenticated; an SSLSocket is used like any other.
    `lifetime_s`: how long the broker takes requests before it wants to see credentials again (KIP-368); None for ever.
    """

    def __init__(
        self, sock: socket.socket, lifetime_s: float | None = None, made_to: tuple[str, int] | None = None
    ) -> None:
        self._sock = sock
        self.made_to = made_to  # the broker's address in the metadata that the connection was made by
        self._correlation_id = 0
        self._not_before = 0.0
        self._stale_at = None if lifetime_s is None else time.monotonic() + lifetime_s * USED_OF_LIFETIME

    @property
    def idle(self) -> bool:
        """Whether every request has had its response read."""
        raise NotImplementedError

    @property
    def stale(self) -> bool:
        """Whether another connection should take its place, as the broker is about to close this one."""
        return self.idle and self.expiring

    @property
    def expiring(self) -> bool:
        """Whether the broker is about to close it, so that no more requests should be sent over it."""
        return self._stale_at is not None and time.monotonic() >= self._stale_at

    def fileno(self) -> int:
        """Of the socket, for selectors."""
        return self._sock.fileno()

    @property
    def decrypted(self) -> int:
        """Decrypted bytes that are not read yet. The socket has them no longer, so a selector does not show them."""
        return self._sock.pending() if isinstance(self._sock, ssl.SSLSocket) else 0

    def close(self) -> None:
        """Close the socket; responses still to come are lost."""
        self._sock.close()

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def _throttled_s(self, at_most_s: float) -> float:
        """How long the broker wants the next request to wait (KIP-219)."""
        return min(max(0.0, self._not_before - time.monotonic()), at_most_s)

    def _throttle(self, throttle_ms: int) -> None:
        if throttle_ms:
            self._not_before = time.monotonic() + throttle_ms / 1000


class Deadline:
    """The moment so many seconds from now."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, 0 from then on."""
        return max(0.0, self._at - self._clock())
