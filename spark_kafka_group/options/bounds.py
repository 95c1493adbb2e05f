"""Where reading starts or ends, as options say it: words, offsets, or times; for all partitions, a topic's, or each."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from spark_kafka_group.errors import OptionError
from spark_kafka_group.values.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition, positions_to_json


@dataclass(frozen=True)
class AtTime:
    """The first record with this timestamp, or a later one; milliseconds since the epoch."""

    ms: int

    def __str__(self) -> str:
        return f"timestamp {self.ms}"


Position = int | AtTime  # an offset, EARLIEST, LATEST, or a time
WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True)
class Bound:
    """A start, or an end, of each partition."""

    option: str  # name of the option that says so
    group: bool = False  # whether the group's committed offsets say it: ``startingOffsets=group``
    every: Position | None = None  # the one position of all partitions; or
    # The positions of some partitions, and of all of a topic where the partition is None
    named: frozenset[tuple[str, int | None, Position]] = frozenset()

    def positions_of(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The positions of `tps`. Raises OptionError when partitions are named, but not all of these."""
        positions = {tp: self.get(tp) for tp in tps}
        missing = [tp for tp, position in positions.items() if position is None]
        if missing:
            raise OptionError(
                f"{self.option} names no offset for {_listed(missing)}: name every partition, or all of a topic's at "
                f'once, as in {{"{min(missing).topic}": "latest"}}'
            )
        return {tp: position for tp, position in positions.items() if position is not None}

    def get(self, tp: TopicPartition) -> Position | None:
        """The position of a partition that may not be named."""
        if self.every is not None:
            return self.every
        return self._by_name.get(tp, self._by_name.get((tp.topic, None)))

    @cached_property
    def _by_name(self) -> dict[tuple[str, int | None], Position]:
        return {(topic, partition): position for topic, partition, position in self.named}

    def check(self, existing: Collection[TopicPartition]) -> None:
        """Refuse, as Spark does, to start where the partitions named are not those that exist. Raises OptionError."""
        if self.group or self.every is not None:
            return
        self.positions_of(existing)
        unknown = self.partitions() - set(existing)
        if unknown:
            raise OptionError(f"{self.option} names {_listed(unknown)}, which the cluster does not have: take it out")

    def topics(self) -> set[str]:
        """Topics that are named."""
        return {topic for topic, _, _ in self.named}

    def partitions(self) -> set[TopicPartition]:
        """Partitions that are named one by one."""
        return {TopicPartition(topic, partition) for topic, partition, _ in self.named if partition is not None}

    def positions(self) -> Iterator[tuple[str, Position]]:
        """Every named position, with its topic or partition."""
        if self.every is not None:
            yield "all partitions", self.every
        for topic, partition, position in sorted(self.named, key=str):
            yield topic if partition is None else str(TopicPartition(topic, partition)), position


def _listed(tps: Collection[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(tps)))


REPLACED = ("subscribe", "assign", "starting", "ending", "kafka.group.")
"""Beginnings of the names of options that choose records."""


def fix_ranges(options: Mapping[str, str], ranges: Collection[OffsetRange]) -> dict[str, str]:
    """`options` changed so that they read `ranges`, of which there must be one, and nothing else. Other partitions of
    the same topics, and the group's offsets, then have no effect."""
    partitions: dict[str, list[int]] = {}
    for r in ranges:
        partitions.setdefault(r.tp.topic, []).append(r.tp.partition)
    return {name: value for name, value in options.items() if not name.lower().startswith(REPLACED)} | {
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(positions_to_json({r.tp: r.start for r in ranges})),
        "endingOffsets": json.dumps(positions_to_json({r.tp: r.end for r in ranges})),
    }
