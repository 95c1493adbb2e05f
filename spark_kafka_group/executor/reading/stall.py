"""How long a task has waited for records, and when that is too long."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.outage import TaskOutage


class Stall:
    """The time since the last new record, of any partition.

    A partition that was away begins again when it is back. The outages of others do not count for it, and do not let it
    begin again: a leader that is away ever so often would have the task wait for a stalled partition without end.

    `outage`: while it lasts, brokers are away, and the time does not count; None where it does.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float], outage: TaskOutage | None) -> None:
        self.limit_s = limit_s  # without a new record for this long, reading fails
        self.problem = "no response"  # why the last request brought no records
        self._clock = clock if outage is None else outage.answering_s
        self._outage = outage
        self._since = self._clock()

    def moved(self) -> None:
        """Start again: records have come, or the caller took its time."""
        self._since = self._clock()

    def is_over_limit(self, tp: TopicPartition) -> bool:
        """Whether nothing has come for too long, and not because of brokers that are, or were, away."""
        since = self._since
        if self._outage is not None:
            if self._outage.away:  # one that has no answer for this partition may depend on them
                return False
            since = max(since, self._outage.back_at(tp))
        return self._clock() - since >= self.limit_s

    def check(self, positions: Mapping[TopicPartition, int]) -> None:
        """End a read to which nothing has come for too long. Raises BrokerTimeoutError with the offsets waited for."""
        stalled = sorted(tp for tp in positions if self.is_over_limit(tp))
        if not stalled:
            return
        waiting = ", ".join(f"{tp}@{positions[tp]}" for tp in stalled)
        raise BrokerTimeoutError(
            f"no new record of {waiting} for {self.limit_s:.0f} s (kafkaConsumer.pollTimeoutMs): {self.problem}"
        )
