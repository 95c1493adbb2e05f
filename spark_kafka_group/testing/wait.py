"""Waiting for a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], within: float, every: float = 0.05) -> T:
    """Call `condition` until it returns something true; return that.

    Parameters
    ----------
    within
        Seconds to wait.
    every
        Seconds between calls.

    Raises
    ------
    TimeoutError
        With the last value `condition` returned.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise TimeoutError(f"not within {within} s; the last value was {value!r}")
        time.sleep(every)
