"""Connections that a process keeps for the next one that needs them: Spark reuses its Python workers."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptConnections(Generic[K, V]):
    """By key, what has connections, for one user at a time. What is kept is closed when the process ends.

    Kept by the process, too: one that was forked from another must not use its connections.
    """

    def __init__(self, close: Callable[[V], object]) -> None:
        self._close = close
        self._kept: dict[tuple[int, K], V] = {}
        atexit.register(self.close_all)  # or kafka-python's loop is torn down in any order, and says so

    def pop(self, key: K) -> V | None:
        """What was kept by this key: the caller's alone from now on."""
        return self._kept.pop((os.getpid(), key), None)

    def keep(self, key: K, kept: V) -> None:
        """Let the next one take it. What another user has kept meanwhile is closed."""
        own = os.getpid(), key
        replaced, self._kept[own] = self._kept.get(own), kept
        if replaced is not None:
            self._close(replaced)

    def close_all(self) -> None:
        """Close what this process has kept."""
        while self._kept:
            (process, _), kept = self._kept.popitem()
            if process == os.getpid():
                self._close(kept)
