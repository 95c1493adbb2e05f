"""Time that stands still while a caller is busy with something else."""

from __future__ import annotations

import time
from collections.abc import Callable

ABSENT_AFTER_S = 1.0
"""A caller that comes back later than that was busy with something else: the time beyond does not count."""


class AttendedClock:
    """Seconds in which a caller was here, or away for a moment only.

    Answers that came while nobody looked are not late.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left_at = clock()
        self._absent_s = 0.0

    def now(self) -> float:
        """Seconds."""
        return self._clock() - self._absent_s

    def come(self) -> None:
        """The caller is here."""
        self._absent_s += max(0.0, self._clock() - self._left_at - ABSENT_AFTER_S)

    def leave(self) -> None:
        """The caller goes."""
        self._left_at = self._clock()
