"""How long a task has waited for records, and when that is too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire.task_outage import Outage


class Stall:
    """The time since the last new record.

    Parameters
    ----------
    limit_s
        Without a new record for this long, reading fails.
    outage
        While it lasts, brokers are away, and the time does not count; None where it does.

    Attributes
    ----------
    problem
        Why the last request brought no records.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float], outage: Outage | None) -> None:
        self.limit_s = limit_s
        self.problem = "no response"
        self._clock = clock
        self._outage = outage
        self._since = clock()

    def moved(self) -> None:
        """Start again: records have come, or the caller took its time."""
        self._since = self._clock()

    def is_over_limit(self) -> bool:
        """Whether nothing has come for too long."""
        since = self._since
        if self._outage is not None:
            if self._outage.away:
                return False
            since = max(since, self._outage.over_at)
        return self._clock() - since >= self.limit_s

    def check(self, positions: Mapping[TopicPartition, int]) -> None:
        """End the reading if nothing has come for too long.

        Raises
        ------
        BrokerTimeoutError
            With the offsets that are waited for.
        """
        if not self.is_over_limit():
            return
        waiting = ", ".join(f"{tp}@{position}" for tp, position in sorted(positions.items()))
        raise BrokerTimeoutError(
            f"no new record of {waiting} for {self.limit_s:.0f} s (kafkaConsumer.pollTimeoutMs): {self.problem}"
        )
