"""Losses are doubted before they are believed: a broker that has just started may not know yet what there is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOKUPS, PAUSE_S = 25, 0.2
"""How often, and how far apart, a log that ends too early, or is gone, is looked up before that is believed."""


def looked_up_until(good: Callable[[T], bool], look: Callable[[], T]) -> T:
    """What `look` returns, as soon as it is `good`, or at last."""
    found = look()
    for _ in range(LOOKUPS - 1):
        if good(found):
            break
        time.sleep(PAUSE_S)
        found = look()
    return found
