"""How a connection notices that its broker's host is gone without a word, as when a network is cut.

Nothing of the other end says so then: the kernel has to ask, and to give up what nobody acknowledges.
"""

from __future__ import annotations

import socket

KEEPALIVE_S = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2}
"""A connection on which nothing was heard for so long is asked for a sign of life, and so often from then on."""
UNANSWERED_SIGNS = 3
"""After so many questions without an answer it is broken, which is 10 s after the last byte."""
USER_TIMEOUT_MS = 10_000
"""So long may what was sent stay unacknowledged, a request to connect included."""

Options = list[tuple[int, int, int]]


def noticing(user_timeout_ms: int = USER_TIMEOUT_MS) -> Options:
    """Socket options by which the kernel ends a connection to a host that is gone; those that this system has.

    Parameters
    ----------
    user_timeout_ms
        The kernel also ends a connection whose other end takes no more bytes for so long. Who sends more than fits
        into a socket's buffer has to allow for a broker that is busy.
    """
    named = KEEPALIVE_S | {"TCP_KEEPCNT": UNANSWERED_SIGNS, "TCP_USER_TIMEOUT": user_timeout_ms}
    tcp = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named.items() if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *tcp]
