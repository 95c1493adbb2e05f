"""How a connection notices that its broker's host no longer answers, for example behind a cut network.

The other end sends nothing then. The kernel has to probe it, and to end connections without acknowledgements.
"""

from __future__ import annotations

import socket

KEEPALIVE_S = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2}
"""Seconds of silence after which the kernel probes a connection, and seconds between probes."""
UNANSWERED_SIGNS = 3
"""Unanswered probes that end a connection: 10 s after its last byte."""
USER_TIMEOUT_MS = 10_000
"""How long sent bytes, or a SYN, may stay unacknowledged."""

Options = list[tuple[int, int, int]]


def noticing(user_timeout_ms: int = USER_TIMEOUT_MS) -> Options:
    """Socket options that have the kernel end a connection to a host that is gone, as far as this system has them.

    Parameters
    ----------
    user_timeout_ms
        The kernel also ends a connection whose other end takes no bytes for this long. A client that sends more than a
        socket's buffer holds has to allow for a busy broker.
    """
    named = KEEPALIVE_S | {"TCP_KEEPCNT": UNANSWERED_SIGNS, "TCP_USER_TIMEOUT": user_timeout_ms}
    tcp = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in named.items() if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *tcp]
