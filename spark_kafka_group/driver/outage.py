"""Brokers that are away: a query waits for them, as Kafka's own consumer does, and logs it once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

from spark_kafka_group.errors import BrokerTimeoutError, CommitTimeoutError, GroupKafkaError, JoinTimeoutError
from spark_kafka_group.values.outage_message import outlasted
from spark_kafka_group.wire import GroupClient

log = logging.getLogger(__name__)

T = TypeVar("T")

PASSING = (BrokerTimeoutError, CommitTimeoutError, JoinTimeoutError)
"""Errors that pass when brokers answer again; all others are final."""

PROBE_MS = 2_000
"""How long one check may take whether brokers are back: Spark may stop the query meanwhile."""

PAUSE_S = 0.1


class BrokersAwayError(Exception):
    """Raised where a caller has to do without brokers for now; stays in the driver."""


class Outage:
    """Whether brokers are away, since when, and the error of the last attempt.

    Brokers that a query has never reached are no outage: their address is likely to be wrong for good.

    Parameters
    ----------
    limit_ms
        Option maxBrokerOutage.
    now_s, clock_s
        The time of day, and one that never jumps.
    """

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
        """The result of `call`, which has to be one that can be made again.

        Raises
        ------
        BrokersAwayError
            When brokers do not answer, and the query may go on waiting for them.
        BrokerTimeoutError
            When they have been away for longer than maxBrokerOutage.
        """
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
