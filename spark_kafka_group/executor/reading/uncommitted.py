"""Records that are in the log of a partition's leader, and that it may not send: they are not committed any more.

1. A record is committed, and a batch with it is planned. 2. The leader dies before its followers know that. 3. One of
them is elected. 4. It may not say how far its own log is committed, nor send the record, before as many replicas as
min.insync.replicas are in sync (KIP-966). 5. These are away, which may take hours. 6. They come back, and so does the
record.

So a log that ends before a position has not lost its end, unless its leader says so of what it has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_kafka_group.errors import LASTING, BrokerError
from spark_kafka_group.executor.reading.stall import Stall
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.outage import TaskOutage


class Uncommitted:
    """Partitions of one task whose next records are in the log and may not be sent. Where there is an `outage`, the
    brokers of their other replicas count as away. `epochs`: those of the leaders that are read."""

    def __init__(
        self, brokers: Brokers, epochs: Mapping[TopicPartition, int], stall: Stall, outage: TaskOutage | None
    ) -> None:
        self._brokers = brokers
        self._epochs = epochs
        self._stall = stall
        self._outage = outage
        self._known: set[TopicPartition] = set()

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._known

    def answered(self, tps: Iterable[TopicPartition]) -> None:
        """Leaders have answered for these partitions."""
        if self._outage is not None and self._outage.away:
            self._outage.answered([tp for tp in tps if tp not in self._known])

    def over(self, tp: TopicPartition) -> None:
        """Another answer has come for this partition."""
        if tp in self._known:
            self._known.discard(tp)
            self.answered([tp])

    def forget(self, tp: TopicPartition) -> None:
        """No answer has come for this partition."""
        self._known.discard(tp)

    def are_lost(self, tp: TopicPartition, position: int, committed: int) -> bool:
        """Whether a log that ends at `committed`, before the position, as its leader says for a while, has no records
        behind it; else they are waited for. Raises BrokerTimeoutError after maxBrokerOutage."""
        if tp not in self._known:
            end = self._written_end(tp, position)
            if end is None:
                return False
            if end <= position:
                return True
            self._known.add(tp)
        problem = (
            f"{tp}: the leader has the records, and may not send those from offset {committed} on before more replicas "
            f"are in sync (min.insync.replicas): start their brokers"
        )
        self._stall.problem = problem
        if self._outage is not None:
            self._outage.missed([tp], problem)
        return False

    def _written_end(self, tp: TopicPartition, position: int) -> int | None:
        """Where the leader's log ends, with uncommitted records; None without answer, the position if unknown."""
        if tp not in self._epochs:
            return position
        try:
            ends = self._brokers.epoch_ends({tp: self._epochs[tp]})
        except LASTING:
            raise
        except BrokerError as error:
            self._stall.problem = str(error)
            return None
        if tp not in ends:
            return None
        end, _ = ends[tp]
        return position if end is None else end
