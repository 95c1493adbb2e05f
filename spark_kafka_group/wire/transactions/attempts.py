"""Attempts until a limit, with longer and longer pauses between them."""

from __future__ import annotations

import time

from spark_kafka_group.wire.client.connect import ms_until

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2
"""Markers are written within milliseconds, coordinators move within seconds."""


class Attempts:
    """The attempts of one call; the limit counts from here on."""

    def __init__(self, limit_s: float) -> None:
        self.deadline = time.monotonic() + limit_s
        self._pause_s = FIRST_PAUSE_S

    @property
    def left_ms(self) -> float:
        """How long this attempt may take."""
        return ms_until(self.deadline)

    def pause(self) -> bool:
        """Wait, if there may be another attempt; whether there may."""
        if time.monotonic() + self._pause_s >= self.deadline:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True
