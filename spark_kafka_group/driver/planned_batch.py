"""A micro-batch that was planned: what it reads, what is committed when it has succeeded, and in which generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition


@dataclass(frozen=True)
class Batch:
    """A planned micro-batch.

    `end`: the offset Spark keeps for it.
    `ranges`: the ranges it was planned to read.
    `generation`: the generation it belongs to: it may be committed under no other.
    `elsewhere`: partitions that are read again as the checkpoint says, but that others have gone on with: not
        committed.
    `left_out`: partitions that are neither read nor committed: a rebalance took them before the batch began.
    `begun`: whether Spark has asked for its tasks: its ranges do not change any more.
    `replayed`: whether a process before this one planned it.
    """

    end: GroupOffset
    ranges: Sequence[OffsetRange]
    generation: int
    elsewhere: frozenset[TopicPartition] = frozenset()
    left_out: frozenset[TopicPartition] = frozenset()
    begun: bool = False
    replayed: bool = False

    @cached_property
    def reads(self) -> list[OffsetRange]:
        """Its ranges, without partitions that were left out."""
        return [r for r in self.ranges if r.tp not in self.left_out]

    @property
    def reads_from(self) -> dict[TopicPartition, int]:
        """Where it starts to read."""
        return {r.tp: r.start for r in self.reads}

    @property
    def records(self) -> int:
        return sum(r.size for r in self.reads)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Offsets that are committed when it has succeeded."""
        return {r.tp: r.end for r in self.reads if r.tp not in self.elsewhere}
