"""Sockets of a process that outlive it, as where Java was about to start a command when it was killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

PIDFD_GETFD = 438
"""The number of Linux's call."""


@contextlib.contextmanager
def sockets_of(pid: int) -> Iterator[list[int]]:
    """Copies of all sockets of a process, which stay open when it ends, until the block is left."""
    copies = []
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                if os.readlink(entry).startswith("socket:"):
                    copies.append(_copied(process, int(entry.name)))
        yield copies
    finally:
        for copy in (process, *copies):
            os.close(copy)


def _copied(process: int, descriptor: int) -> int:
    """A copy of a descriptor of another process, which Python has no function for."""
    copy = ctypes.CDLL(None, use_errno=True).syscall(PIDFD_GETFD, process, descriptor, 0)
    if copy < 0:
        raise OSError(ctypes.get_errno(), f"descriptor {descriptor} cannot be copied")
    return int(copy)
