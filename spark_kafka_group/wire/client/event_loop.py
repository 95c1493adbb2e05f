"""kafka-python's event loop, as this package's clients run it.

SIGTERM and Ctrl-C may come while the loop runs on the main thread. Python runs a signal's handler in the main thread,
between any two instructions, and these handlers raise. The loop takes every exception, also SystemExit and
KeyboardInterrupt, for one of the task that it runs: 1. the task fails, as if a connection had been lost, 2. the signal
is forgotten, 3. the process goes on. So handlers wait for the loop's next pause, and a signal wakes it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from kafka.net.selector import NetworkSelector

from spark_kafka_group.wire.client.reachability import about_ours

RAISING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def put_off(wake: Callable[[], None]) -> Iterator[None]:
    """Signals call `wake`, which ends the block's waiting, and handlers run after it. A no-op in other threads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in RAISING if callable(handler := signal.getsignal(number))}
    came: list[tuple[int, FrameType | None]] = []

    def take_note(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))
        wake()

    with contextlib.ExitStack() as restored:
        for signum, handler in handlers.items():
            restored.callback(signal.signal, signum, handler)
            signal.signal(signum, take_note)
        try:
            yield
        finally:
            restored.close()
            for number, frame in came:
                handlers[signal.Signals(number)](number, frame)


PAUSED_S = 1.0  # a loop that has not run for so long has paused: between two tasks of a Python worker, say


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
        Then its time may be over because nobody looked, and that says nothing of brokers."""
        return begun_s < self._resumed_s and time.monotonic() - self._resumed_s < PAUSED_S
