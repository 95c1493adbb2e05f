"""Ctrl-C that ends a view, and nothing else."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def taken() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets while the block runs.

    pyspark's own handler cancels all jobs of the session, so that a running query would fail. And an exception in the
    middle of a call to the JVM would leave its answer to the next call.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came  # Python lets no other thread have signals
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: came.set())
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
