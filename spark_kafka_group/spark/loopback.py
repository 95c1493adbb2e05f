"""The connection between Spark's JVM and this Python worker, where it is TCP.

Spark writes a task in small pieces. The kernel keeps a small piece back until the one before it has been acknowledged
(Nagle), and this side's kernel, which has nothing to send meanwhile, acknowledges after 40 ms only (delayed ACK). That
is most of a small task's time. With ``spark.python.unix.domain.socket.enabled=true`` there is no TCP.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path

_OPEN_FILES = Path("/proc/self/fd")


def acknowledge_at_once() -> None:
    """Acknowledge Spark's bytes so far, and send without delay. Called when a task's reader is unpickled.

    The rest of the task can then follow. Works on Linux, where Spark connects by TCP, and does nothing elsewhere.
    """
    for descriptor in _spark_connections(os.getpid()):
        with suppress(OSError), _borrowed(descriptor) as connection:
            # The kernel goes back to delayed ones by itself, so this is said for each task.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@cache
def _spark_connections(pid: int) -> tuple[int, ...]:
    """Descriptors of TCP connections within this machine that were open when the first task came.

    None of them is to a broker yet. By process, as a forked one has others.
    """
    if not hasattr(socket, "TCP_QUICKACK") or not _OPEN_FILES.is_dir():
        return ()
    descriptors = []
    for name in os.listdir(_OPEN_FILES):
        with suppress(OSError, ValueError), _borrowed(int(name)) as connection:
            over_tcp = connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
            if over_tcp and ip_address(connection.getpeername()[0]).is_loopback:
                descriptors.append(int(name))
    return tuple(descriptors)


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """The socket of a descriptor that Spark owns; detached afterwards. OSError when it is no socket."""
    blocking = os.get_blocking(descriptor)
    borrowed = socket.socket(fileno=descriptor)
    try:
        # Under socket.setdefaulttimeout() Python has just made it one that does not block.
        os.set_blocking(descriptor, blocking)
        yield borrowed
    finally:
        borrowed.detach()
