"""Jobs with a due time: those of one lane run one after the other, lanes run at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NOW = 0.0  # as a due time, by time.monotonic()


class Lanes(Generic[K, V]):
    """Runs the newest job of each lane once it is due, in a thread that lives as long as the lane has one.

    Parameters
    ----------
    run
        Called with a lane's key and a job. It must not raise.
    name
        Of the threads.
    """

    def __init__(self, run: Callable[[K, V], None], name: str) -> None:
        self._run = run
        self._name = name
        self._changed = threading.Condition()
        # Below: under that lock.
        self._waiting: dict[K, tuple[float, V]] = {}  # when due, and the job
        self._running: dict[K, V] = {}
        self._threads: dict[K, threading.Thread] = {}
        self._closed = False

    def put(self, key: K, job: V, after_s: float) -> None:
        """Run `job` after `after_s`, in place of the job that waits in this lane."""
        with self._changed:
            if self._closed:
                return
            self._waiting[key] = (time.monotonic() + after_s, job)
            if key not in self._threads:
                self._threads[key] = threading.Thread(target=self._work, args=(key,), name=self._name, daemon=True)
                self._threads[key].start()
            self._changed.notify_all()

    def hurry(self, which: Callable[[K], bool]) -> None:
        """Make the waiting jobs of these lanes due now."""
        with self._changed:
            self._waiting |= {key: (NOW, job) for key, (_, job) in self._waiting.items() if which(key)}
            self._changed.notify_all()

    def settle(self, timeout_s: float) -> list[V]:
        """Wait until running and hurried jobs have ended; returns those that have not."""
        with self._changed:
            self._changed.wait_for(lambda: not self._unsettled(), timeout_s)
            return self._unsettled()

    def close(self, timeout_s: float) -> None:
        """Run no more jobs, and wait for the running ones. Harmless when repeated."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads.values())
        deadline = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _unsettled(self) -> list[V]:
        return [*self._running.values(), *(job for due, job in self._waiting.values() if due == NOW)]

    def _work(self, key: K) -> None:
        while (job := self._next(key)) is not None:
            try:
                self._run(key, job)
            finally:
                with self._changed:
                    del self._running[key]
                    self._changed.notify_all()

    def _next(self, key: K) -> V | None:
        """The lane's job, once it is due; None when there is none, which ends the thread."""
        with self._changed:
            while not self._closed and key in self._waiting:
                due, job = self._waiting[key]
                left_s = due - time.monotonic()
                if left_s <= 0:
                    del self._waiting[key]
                    self._running[key] = job
                    return job
                self._changed.wait(left_s)
            del self._threads[key]
            return None
