"""The input of one Spark task, sent to an executor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from spark_kafka_group.values.offsets import OffsetRange, TopicPartition


@dataclass(frozen=True)
class ReadTask(InputPartition):
    """Ranges that one task reads, one after the other or interleaved, in offset order within a partition.

    Attributes
    ----------
    epochs
        For each range, the epoch of the leader in whose log it is, or -1; empty where none is known.
    topic_ids
        The ids of the ranges' topics, where they are known: one that was made again has another.
    """

    ranges: tuple[OffsetRange, ...]
    epochs: tuple[int, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def under(
        cls, known: Mapping[TopicPartition, int], topic_ids: Mapping[str, str], ranges: tuple[OffsetRange, ...]
    ) -> ReadTask:
        """A task for `ranges`, in logs of leaders with these epochs and of topics with these ids, as far as known."""
        epochs = tuple(known.get(r.tp, -1) for r in ranges)
        ids = {topic: topic_ids[topic] for topic in sorted({r.tp.topic for r in ranges}) if topic in topic_ids}
        return cls(ranges, epochs if max(epochs, default=-1) >= 0 else (), ids)

    @property
    def leader_epochs(self) -> dict[TopicPartition, int]:
        """Those that are known, by partition."""
        return {r.tp: epoch for r, epoch in zip(self.ranges, self.epochs, strict=False) if epoch >= 0}
