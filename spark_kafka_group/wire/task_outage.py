"""Brokers that are away while a task reads or writes: it waits for them, as Kafka's consumer does, and says so once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.text.printable import printable
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.unreached import unreached

log = logging.getLogger(__name__)

T = TypeVar("T")

SAID_AFTER_S = 10.0
"""Kafka usually has another leader before; kafkaConsumer.pollTimeoutMs, if that is less."""
LEAST_PAUSE_S = 0.01


class Client(Protocol):
    """Knows brokers."""

    @property
    def last_failure(self) -> str | None:
        """Why the last connection could not be made, or ended, with its address."""

    def known(self) -> list[str]:
        """Addresses of brokers."""


class Outage:
    """Partitions of one task whose leaders do not answer, since when, and the last error. For one thread.

    maxBrokerOutage limits the time without an answer. kafkaConsumer.pollTimeoutMs limits the time of a broker that
    answers without records.
    """

    def __init__(
        self,
        options: ClientOptions,
        brokers: Client,
        now_s: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._brokers = brokers
        self._limit_ms = options.connection.max_broker_outage_ms
        self._warn_after_s = min(SAID_AFTER_S, options.fetching.poll_timeout_ms / 1000)
        self._first_pause_s = max(
            LEAST_PAUSE_S, options.connection.retry_backoff_ms / 1000, options.connection.reconnect_backoff_ms / 1000
        )
        self._longest_pause_s = max(self._first_pause_s, options.connection.reconnect_backoff_max_ms / 1000)
        self._now_s = now_s
        self._clock = clock
        self._missed: set[TopicPartition] = set()
        self._since = 0.0, 0.0  # by both clocks
        self._attempts = 0
        self._pause_s = 0.0
        self._again_at = 0.0
        self._warned = False
        self._lasted_s = 0.0  # outages that are over, in all
        self._away_at: dict[TopicPartition, float] = {}  # by answering_s
        self._answered_at: dict[TopicPartition, float] = {}  # the first time after an outage

    def answering_s(self) -> float:
        """Seconds without those of outages: they stand still while one lasts."""
        return (self._since[1] if self._missed else self._clock()) - self._lasted_s

    def back_at(self, tp: TopicPartition) -> float:
        """When the last outage of a partition was over, by :meth:`answering_s`."""
        return self._away_at.get(tp, float("-inf"))

    def answered_at(self, tp: TopicPartition) -> float:
        """The same by `clock`, which goes on while other partitions are away."""
        return self._answered_at.get(tp, float("-inf"))

    @property
    def away(self) -> bool:
        """Whether a partition's leader did not answer when asked last."""
        return bool(self._missed)

    def put_off(self, tp: TopicPartition) -> bool:
        """Whether it is too early to ask for this partition again."""
        return tp in self._missed and self._clock() < self._again_at

    def wait(self) -> None:
        """Until it is time to ask again. Spark ends the whole process when the task is cancelled."""
        time.sleep(max(0.0, self._again_at - self._clock()))

    def missed(self, tps: Collection[TopicPartition], problem: Exception | str) -> None:
        """Take note that no leader answered for these partitions.

        Raises
        ------
        BrokerTimeoutError
            When that has been so for longer than maxBrokerOutage.
        """
        now, now_s = self._clock(), self._now_s()
        if not self._missed:
            self._since, self._attempts, self._pause_s, self._warned = (now_s, now), 0, self._first_pause_s, False
        self._missed.update(tps)
        self._away_at.update(dict.fromkeys(tps, self.answering_s()))
        self._attempts += 1
        self._again_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, self._longest_pause_s)
        away_s = now - self._since[1]
        message = self._message(problem)
        named = ", ".join(map(str, sorted(self._missed)))
        if self._limit_ms is not None and away_s * 1000 >= self._limit_ms:
            from spark_kafka_group.values.outage_message import outlasted  # seldom needed

            text = outlasted(
                self._brokers.known(), self._since[0], away_s, self._attempts, self._limit_ms, now_s, message
            )
            raise BrokerTimeoutError(f"{named}: {text}")
        if not self._warned and away_s >= self._warn_after_s:
            self._warned = True
            log.warning(
                "%s: brokers are away, or do not answer: %s. The task waits for them, and goes on",
                named,
                printable(message),
            )

    def _message(self, problem: Exception | str) -> str:
        """With the reason why a connection failed: kafka-python gives none during its pause before the next attempt."""
        failure = self._brokers.last_failure if isinstance(problem, Exception) else None
        return with_reason(str(problem), failure)

    def answered(self, tps: Collection[TopicPartition]) -> None:
        """Note that a broker has answered for these partitions, also with an error."""
        if not self._missed:
            return
        now = self._clock()
        self._answered_at.update(dict.fromkeys(self._missed.intersection(tps), now))
        self._missed.difference_update(tps)
        if self._missed:
            return
        lasted_s = now - self._since[1]
        self._lasted_s += lasted_s
        if self._warned:
            log.warning("brokers answer again, after %.0f s", lasted_s)


def with_reason(problem: str, failure: str | None) -> str:
    """`problem`, and why the last connection failed if it does not say so."""
    return problem if failure is None or failure in problem else f"{problem} ({failure})"


def outlived(outage: Outage | None, tp: TopicPartition, call: Callable[[], T]) -> T:
    """Run `call`, which is about a partition; repeat it until brokers answer, where there is an `outage`.

    Raises
    ------
    BrokerError
        When a broker refuses, when brokers are away for too long, or at once where there is no `outage`.
    """
    while True:
        try:
            result = call()
        except (OSError, BrokerError) as error:
            if outage is None or not unreached(error):
                raise
            outage.missed([tp], error)
            outage.wait()
        else:
            if outage is not None:
                outage.answered([tp])
            return result
