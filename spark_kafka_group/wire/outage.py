"""Brokers that are away: a query and its tasks wait for them, as Kafka's own consumer does, and log it once.

:class:`QueryOutage` is the driver's, and :class:`TaskOutage` that of a task which reads or writes. Both end in the same
words when ``maxBrokerOutage`` is over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitTimeoutError,
    GroupKafkaError,
    JoinTimeoutError,
)
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.client.reachability import unreached

if TYPE_CHECKING:
    from spark_kafka_group.wire import GroupClient

log = logging.getLogger(__name__)

T = TypeVar("T")


def outlasted(
    brokers: Iterable[str], since_s: float, away_s: float, attempts: int, limit_ms: int, last_s: float, problem: str
) -> str:
    """Brokers, times and the last attempt; times of day are in seconds since 1970."""
    return (
        f"brokers ({', '.join(brokers)}) have not answered since {_time(since_s)}, {away_s:.0f} s ago, in {attempts} "
        f"attempts, and maxBrokerOutage is {limit_ms} ms. The last attempt, at {_time(last_s)}: {problem}"
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


PASSING = (BrokerTimeoutError, CommitTimeoutError, JoinTimeoutError)
"""Errors that pass when brokers answer again; all others are final."""

PROBE_MS = 2_000  # how long one check may take whether brokers are back: Spark may stop the query meanwhile

PAUSE_S = 0.1


class BrokersAwayError(Exception):
    """Raised where a caller has to do without brokers for now; stays in the driver."""


class QueryOutage:
    """Whether brokers are away, since when, and the error of the last attempt. Brokers that a query has never reached
    are no outage: their address is likely to be wrong for good. `limit_ms`: option maxBrokerOutage. `now_s`, `clock_s`:
    the time of day, and one that never jumps."""

    def __init__(
        self,
        client: GroupClient,
        group_id: str,
        limit_ms: int | None,
        now_s: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._limit_ms = limit_ms
        self._now_s = now_s
        self._clock_s = clock_s
        self._reached = False
        self._since: tuple[float, float] | None = None  # by both clocks
        self._attempts = 0
        self._last: tuple[float, str] = 0.0, ""

    @property
    def away(self) -> bool:
        """Whether brokers did not answer when asked last."""
        return self._since is not None

    def attempt(self, call: Callable[[], T]) -> T:
        """The result of `call`, which must be repeatable. Raises BrokersAwayError when brokers do not answer, and the
        query may go on waiting; BrokerTimeoutError when that has taken longer than maxBrokerOutage."""
        began = self._now_s(), self._clock_s()
        try:
            if self.away:
                self._client.reach(PROBE_MS)
            result = call()
        except PASSING as error:
            if not self._reached:
                raise
            self._missed(error, began)
            raise BrokersAwayError from error
        self._reached = True
        self._over()
        return result

    def wait_for(self, call: Callable[[], T]) -> T:
        """As :meth:`attempt`, again and again: Spark would take "nothing for now" for the end, or for a failure."""
        while True:
            try:
                return self.attempt(call)
            except BrokersAwayError:
                time.sleep(PAUSE_S)

    def leave_to_trigger(self, call: Callable[[float], None], patience_ms: float) -> None:
        """Make `call` between triggers, if brokers answer; if they do not, the next trigger reports it."""
        try:
            if self.away:
                self._client.reach(patience_ms)
            call(patience_ms)
        except PASSING as error:
            log.info("group %s: put off to the next trigger: %s", self._group_id, error)

    def to_json(self) -> dict[str, Any] | None:
        """For the query's progress; None while brokers answer."""
        if self._since is None:
            return None
        at_s, error = self._last
        away_s = self._clock_s() - self._since[1]  # the time of day may have been set meanwhile
        return {
            "sinceMs": round((self._now_s() - away_s) * 1000),
            "attempts": self._attempts,
            "lastAttemptMs": round(at_s * 1000),
            "lastError": error,
        }

    def _missed(self, error: GroupKafkaError, began: tuple[float, float]) -> None:
        if self._since is None:
            self._since, self._attempts = began, 0
            log.warning(
                "group %s: brokers are away, or do not answer: %s. The query waits for them, and goes on where it was",
                self._group_id, error,
            )  # fmt: skip
        self._attempts += 1
        self._last = self._now_s(), str(error)
        away_s = self._clock_s() - self._since[1]
        if self._limit_ms is not None and away_s * 1000 >= self._limit_ms:
            problem = outlasted(
                self._client.brokers(),
                self._since[0],
                away_s,
                self._attempts,
                self._limit_ms,
                self._last[0],
                str(error),
            )
            raise BrokerTimeoutError(f"group {self._group_id}: {problem}") from error

    def _over(self) -> None:
        if self._since is not None:
            log.info("group %s: brokers answer again, after %.0f s", self._group_id, self._clock_s() - self._since[1])
            self._since = None


SAID_AFTER_S = 10.0  # Kafka usually has another leader before; kafkaConsumer.pollTimeoutMs, if that is less
LEAST_PAUSE_S = 0.01


class Client(Protocol):
    """Knows brokers."""

    @property
    def last_failure(self) -> str | None:
        """Why the last connection could not be made, or ended, with its address."""

    def known(self) -> list[str]:
        """Addresses of brokers."""


class TaskOutage:
    """Partitions of a task whose leaders do not answer, since when, and the last error. For one thread. Its limit is
    maxBrokerOutage; of brokers that answer without records it is kafkaConsumer.pollTimeoutMs."""

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
        """No leader answered for these partitions. Raises BrokerTimeoutError after more than maxBrokerOutage."""
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


def outlived(outage: TaskOutage | None, tp: TopicPartition, call: Callable[[], T]) -> T:
    """Run `call`, which is about a partition; repeat it until brokers answer, where there is an `outage`. Raises
    BrokerError when a broker refuses, when brokers are away for too long, or at once where there is no `outage`."""
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
