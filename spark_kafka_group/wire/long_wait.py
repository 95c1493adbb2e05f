"""Says that a task that writes waits for brokers, once that has taken long, and that it goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from spark_kafka_group.text.printable import printable

log = logging.getLogger(__name__)

SAID_AFTER_S = 10.0
"""Kafka usually has another leader before."""


class LongWait:
    """One wait after the other. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def lasts(self, what: str, waited_s: float, problem: Callable[[], object]) -> None:
        """Warn of a wait that is long by now, once.

        Parameters
        ----------
        what
            The partition, or what is looked up.
        problem
            Says why there is no answer.
        """
        if self._since is None and waited_s >= SAID_AFTER_S:
            self._since = self._clock() - waited_s
            log.warning(
                "%s: brokers are away, or do not answer: %s. The task waits for them, and goes on",
                what, printable(str(problem())),
            )  # fmt: skip

    def over(self) -> None:
        """Brokers have answered."""
        if self._since is not None:
            log.warning("brokers answer again, after %.0f s", self._clock() - self._since)
            self._since = None
