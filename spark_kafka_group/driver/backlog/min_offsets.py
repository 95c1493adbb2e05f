"""minOffsetsPerTrigger and maxTriggerDelay: whether the backlog is worth a micro-batch yet."""

from __future__ import annotations

import time
from collections.abc import Callable


class MinOffsets:
    """Holds micro-batches back that are too small; the first of a run never is.

    Parameters
    ----------
    max_delay_ms
        How long after a batch the next one can be held back.
    """

    def __init__(self, max_delay_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_delay_s = max_delay_ms / 1000
        self._clock = clock
        self._last_batch = float("-inf")

    def worth(self, offsets: int, least: int | None) -> bool:
        """Whether so many offsets are to be read now, where options ask for `least`."""
        if least is None or offsets >= least:
            return offsets > 0
        return offsets > 0 and self._clock() - self._last_batch >= self._max_delay_s

    def planned(self) -> None:
        """Note that a batch was planned just now."""
        self._last_batch = self._clock()
