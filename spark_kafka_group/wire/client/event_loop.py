"""kafka-python's event loop, as this package's clients run it."""

from __future__ import annotations

import time
from typing import Any

from kafka.net.selector import NetworkSelector

from spark_kafka_group.wire.client.connection_log import about_ours
from spark_kafka_group.wire.client.signals import put_off

PAUSED_S = 1.0
"""A loop that has not run for so long has paused: between two tasks of a Python worker, say."""


class Selector(NetworkSelector):  # type: ignore[misc]
    """Runs on a thread of its own, or on that of the caller, who may be the main thread."""

    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self._ran_s = time.monotonic()
        self._resumed_s = float("-inf")

    def _poll_once(self, timeout: float | None = None) -> None:
        now_s = time.monotonic()
        if now_s - self._ran_s > PAUSED_S:
            self._resumed_s = now_s
        try:
            with put_off(self.wakeup), about_ours():
                super()._poll_once(timeout)
        finally:
            self._ran_s = time.monotonic()

    def has_paused_since(self, begun_s: float) -> bool:
        """Whether the loop has just resumed after a pause, and what began at that time.monotonic() is from before it.

        Then its time may be over because nobody looked, and that says nothing of brokers.
        """
        return begun_s < self._resumed_s and time.monotonic() - self._resumed_s < PAUSED_S
