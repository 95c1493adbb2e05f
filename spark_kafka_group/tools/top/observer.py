"""A thread that looks at groups, so that a view goes on while brokers are away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.tools.top.rates import Look, kept

CLOSED_WITHIN_S = 1.0


@dataclass(frozen=True)
class Seen:
    """The looks that rates are made of, the newest last, its time of day, and why there is no newer one."""

    looks: tuple[Look, ...]
    at: float
    problem: str | None = None


class Observer:
    """Looks again and again, in a thread of its own.

    Parameters
    ----------
    look
        Asks the brokers.
    first
        A look that was made before.
    seen
        Called after each look, in the thread.
    """

    def __init__(self, look: Callable[[], Look], first: Look, interval_s: float, seen: Callable[[], None]) -> None:
        self.seen = Seen((first,), time.time())
        self._look, self._interval_s, self._tell = look, interval_s, seen
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="groupkafka-top", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """End; whether the thread has ended, which may wait for brokers."""
        self._ending.set()
        self._thread.join(CLOSED_WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ending.wait(self._interval_s):
            try:
                self.seen = look_again(self.seen, self._look)
            except Exception as error:  # noqa: BLE001 - or the view would say that no broker answers
                self.seen = replace(self.seen, problem=f"{type(error).__name__}: {error}")
            self._tell()


def look_again(before: Seen, look: Callable[[], Look]) -> Seen:
    """A newer look, or what was seen before with the reason that there is none."""
    try:
        newest = look()
    except GroupKafkaError as error:
        return Seen(before.looks, before.at, str(error))
    return Seen(kept(before.looks, newest), time.time())
