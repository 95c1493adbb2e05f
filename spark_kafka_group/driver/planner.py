"""The offsets that a micro-batch reads, its tasks, and the micro-batch that was planned. Values in, values out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

UNEVEN = 1.25  # a task may be this much larger than the mean before a partition moves away from it
BYTES_PER_TASK = 64 * 1024 * 1024
"""Bytes worth a task of their own, where they are known. Records of 350 B have as many for the default of
recordsPerTask."""


def share(backlog: Collection[OffsetRange], limit: int | None, turn: int) -> list[OffsetRange]:
    """Cut `backlog` to at most `limit` offsets in all, in proportion, rounded as in Spark's source; none starves. Every
    partition gets at least one offset, at the cost of the largest where that would be too many. When `limit` is below
    the number of partitions, so that some must get none, it is other ones at every `turn`."""
    ranges = sorted(r for r in backlog if r.size > 0)
    total = sum(r.size for r in ranges)
    if limit is None or total <= limit:
        return ranges
    if limit < len(ranges):
        first = turn * limit % len(ranges)
        chosen = (ranges[first:] + ranges[:first])[:limit]
        return sorted(OffsetRange(r.tp, r.start, r.start + 1) for r in chosen)
    sizes = {r.tp: max(1, r.size * limit // total) for r in ranges}
    over = sum(sizes.values()) - limit
    for r in sorted(ranges, key=lambda r: -r.size):
        given = min(sizes[r.tp] - 1, max(0, over))
        sizes[r.tp] -= given
        over -= given
    return [OffsetRange(r.tp, r.start, r.start + sizes[r.tp]) for r in ranges]


def turns(backlog: Collection[OffsetRange], limit: int | None) -> int:
    """After so many turns :func:`share` begins again with the partitions of the first one. What is shared out among
    those that it has chosen has to go on after such a round, or it would give the same ones nothing in every round."""
    count = sum(r.size > 0 for r in backlog)
    return 1 if limit is None or limit >= count else count // math.gcd(count, limit)


def tasks(
    ranges: Collection[OffsetRange],
    options: Options,
    previous: Mapping[TopicPartition, int],
    bytes_of: Mapping[TopicPartition, float] = MappingProxyType({}),
) -> tuple[list[tuple[OffsetRange, ...]], dict[TopicPartition, int]]:
    """Tasks that read `ranges`: a part each where options say how to cut, else packed, as :func:`pack` does."""
    at_least, at_most = options.reading.min_partitions, options.reading.max_records_per_partition
    if at_least is not None or at_most is not None:
        return [(r,) for r in divide(ranges, at_least, at_most)], dict(previous)
    return pack(ranges, options.reading.records_per_task, options.reading.max_tasks, previous, bytes_of)


def divide(
    ranges: Collection[OffsetRange], at_least: int | None = None, at_most: int | None = None
) -> list[OffsetRange]:
    """Cut `ranges` at the points where Spark's ``KafkaOffsetRangeCalculator`` does.

    `at_least`: how many parts: ranges that are small in proportion stay whole, and shares are rounded, so that a few
        more or fewer come out.
    `at_most`: offsets of one part.
    """
    parts = sorted(r for r in ranges if r.size > 0)
    if at_most is not None:
        parts = [part for r in parts for part in _cut(r, math.ceil(r.size / at_most))]
    if at_least is None or at_least <= len(parts):
        return parts
    return _divided_more(parts, at_least)


def _divided_more(ranges: list[OffsetRange], at_least: int) -> list[OffsetRange]:
    """Cut ranges that are large in proportion, until there are about `at_least`."""
    total = sum(r.size for r in ranges)
    small = [r for r in ranges if _parts(r.size, total, at_least) == 1]
    stay_whole = {r.tp for r in small}
    left = total - sum(r.size for r in small)
    parts_left = max(at_least - len(small), 1)
    return [part for r in ranges for part in _cut(r, 1 if r.tp in stay_whole else _parts(r.size, left, parts_left))]


def _cut(r: OffsetRange, parts: int) -> list[OffsetRange]:
    """So many parts, as equal as can be, the smaller ones first."""
    cut, start = [], r.start
    for part in range(parts):
        end = start + (r.end - start) // (parts - part)
        if end > start:
            cut.append(OffsetRange(r.tp, start, end))
        start = end
    return cut


def _parts(size: int, total: int, at_least: int) -> int:
    return max(math.floor(size / total * at_least + 0.5), 1)


def pack(
    ranges: Collection[OffsetRange],
    records_per_task: int,
    max_tasks: int | None,
    previous: Mapping[TopicPartition, int],
    bytes_of: Mapping[TopicPartition, float] = MappingProxyType({}),
) -> tuple[list[tuple[OffsetRange, ...]], dict[TopicPartition, int]]:
    """Pack `ranges` into as many tasks as they are worth, by offsets; or by bytes as well, if these are known.

    `bytes_of`: bytes of each range, as far as they are estimated; empty if they are not.
    Returns the tasks, none of them empty, at most `max_tasks`; and the task number of each partition, to be given as
    `previous` next time: a partition stays where it was unless its task became much larger than the others.
    """
    ranges = [r for r in ranges if r.size > 0]
    if not ranges:
        return [], dict(previous)
    size_of: Mapping[TopicPartition, float] = bytes_of or {r.tp: r.size for r in ranges}
    count = min(_worth(ranges, records_per_task, bytes_of), len(ranges), max_tasks or len(ranges))
    most = UNEVEN * sum(size_of[r.tp] for r in ranges) / count
    load = [0.0] * count
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    slots = dict(previous)
    for r in sorted(ranges, key=lambda r: (-size_of[r.tp], r.tp)):
        slot = _slot(size_of[r.tp], load, previous.get(r.tp, count), most)
        load[slot] += size_of[r.tp]
        tasks[slot].append(r)
        slots[r.tp] = slot
    return [tuple(sorted(task)) for task in tasks if task], slots


def _worth(ranges: Collection[OffsetRange], records_per_task: int, bytes_of: Mapping[TopicPartition, float]) -> int:
    """How many tasks the work is worth."""
    records = sum(r.size for r in ranges)
    return max(math.ceil(records / records_per_task), math.ceil(sum(bytes_of.values()) / BYTES_PER_TASK))


def _slot(size: float, load: Sequence[float], previous: int, most: float) -> int:
    """The task for a range: the one of before, unless it is gone or gets more than `most`; then that with the least."""
    if previous < len(load) and (not load[previous] or load[previous] + size <= most):
        return previous
    return min(range(len(load)), key=lambda slot: load[slot])


@dataclass(frozen=True)
class Batch:
    """A planned micro-batch."""

    end: GroupOffset  # the offset Spark keeps for it
    ranges: Sequence[OffsetRange]  # the ranges it was planned to read
    generation: int  # the generation it belongs to: it may be committed under no other
    # Partitions that are read again as the checkpoint says, but that others have gone on with: not committed
    elsewhere: frozenset[TopicPartition] = frozenset()
    # Partitions that are neither read nor committed: a rebalance took them before the batch began
    left_out: frozenset[TopicPartition] = frozenset()
    begun: bool = False  # whether Spark has asked for its tasks: its ranges do not change any more
    replayed: bool = False  # whether a process before this one planned it

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
