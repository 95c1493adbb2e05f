"""One time limit for a whole exchange: a limit for each read would start again with each byte."""

from __future__ import annotations

import time
from collections.abc import Callable


class Deadline:
    """The moment so many seconds from now."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds until then, 0 from then on."""
        return max(0.0, self._at - self._clock())
