"""The pause before a handler gets a record again: exponential, with jitter (KIP-580)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

JITTER = 0.2


@dataclass(frozen=True)
class Backoff:
    """`first_ms` before the first retry, twice as long before each further one, at most `max_ms`; all ± 20 %."""

    first_ms: float
    max_ms: float

    def seconds(self, retry: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
        """Pause before a retry; the first retry is 1."""
        doubled = min(self.max_ms, self.first_ms * 2.0 ** min(retry - 1, 64))
        return min(self.max_ms, doubled * uniform(1 - JITTER, 1 + JITTER)) / 1000
