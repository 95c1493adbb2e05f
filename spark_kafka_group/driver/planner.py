"""Which offsets a micro-batch reads, and in which tasks. Values in, values out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from spark_kafka_group.offsets import OffsetRange, TopicPartition
from spark_kafka_group.options import Options

UNEVEN = 1.25
"""A task may be this much larger than the mean before a partition moves away from it."""


def share(backlog: Collection[OffsetRange], limit: int | None, turn: int) -> list[OffsetRange]:
    """Cut `backlog` to at most `limit` offsets in all, in proportion; none starves.

    Every partition gets at least one offset. When `limit` is below the number of partitions, so that some must get
    none, it is other ones at every `turn`.
    """
    ranges = sorted(r for r in backlog if r.size > 0)
    total = sum(r.size for r in ranges)
    if limit is None or total <= limit:
        return ranges
    if limit < len(ranges):
        first = turn * limit % len(ranges)
        chosen = (ranges[first:] + ranges[:first])[:limit]
        return sorted(OffsetRange(r.tp, r.start, r.start + 1) for r in chosen)
    sizes = {r.tp: max(1, r.size * limit // total) for r in ranges}
    left = limit - sum(sizes.values())
    # Rounding down left some over: one each, the largest remainders first. Who was raised to one has had it.
    rounded = [r for r in ranges if r.size * limit >= total]
    for r in sorted(rounded, key=lambda r: -(r.size * limit % total))[: max(0, left)]:
        sizes[r.tp] += 1
    # Or the one offset that everybody gets took too many: the largest backlogs give them back.
    for r in sorted(ranges, key=lambda r: -r.size):
        given = min(sizes[r.tp] - 1, max(0, -left))
        sizes[r.tp] -= given
        left += given
    return [OffsetRange(r.tp, r.start, r.start + sizes[r.tp]) for r in ranges]


def tasks(
    ranges: Collection[OffsetRange], options: Options, previous: Mapping[TopicPartition, int]
) -> tuple[list[tuple[OffsetRange, ...]], dict[TopicPartition, int]]:
    """Tasks that read `ranges`: a part each with minPartitions, else packed (see :func:`pack` for what comes back)."""
    if options.min_partitions is not None:
        return [(r,) for r in divide(ranges, options.min_partitions)], dict(previous)
    return pack(ranges, options.records_per_task, options.max_tasks, previous)


def divide(ranges: Collection[OffsetRange], at_least: int) -> list[OffsetRange]:
    """Cut `ranges` into about `at_least` parts, as Spark's ``KafkaOffsetRangeCalculator`` does.

    Ranges that are small in proportion stay whole; shares are rounded, so that a few parts more or fewer come out.
    """
    whole = sorted(r for r in ranges if r.size > 0)
    total = sum(r.size for r in whole)
    if at_least <= len(whole):
        return whole
    small = [r for r in whole if _parts(r.size, total, at_least) == 1]
    left = total - sum(r.size for r in small)
    parts_left = max(at_least - len(small), 1)
    divided: list[OffsetRange] = []
    for r in whole:
        if r in small:
            divided.append(r)
            continue
        start, parts = r.start, _parts(r.size, left, parts_left)
        for part in range(parts):
            end = start + (r.end - start) // (parts - part)
            if end > start:
                divided.append(OffsetRange(r.tp, start, end))
            start = end
    return divided


def _parts(size: int, total: int, at_least: int) -> int:
    return max(math.floor(size / total * at_least + 0.5), 1)


def pack(
    ranges: Collection[OffsetRange],
    records_per_task: int,
    max_tasks: int | None,
    previous: Mapping[TopicPartition, int],
) -> tuple[list[tuple[OffsetRange, ...]], dict[TopicPartition, int]]:
    """Pack `ranges` into as many tasks as they are worth.

    Returns
    -------
    tasks
        None of them empty, none more than `max_tasks`.
    slots
        Task number of each partition, to be given as `previous` next time: a partition stays where it was unless
        its task became much larger than the others.
    """
    ranges = [r for r in ranges if r.size > 0]
    if not ranges:
        return [], dict(previous)
    total = sum(r.size for r in ranges)
    count = min(math.ceil(total / records_per_task), len(ranges), max_tasks or len(ranges))
    bound = UNEVEN * total / count
    load = [0] * count
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    slots = dict(previous)
    for r in sorted(ranges, key=lambda r: (-r.size, r.tp)):
        slot = previous.get(r.tp, count)
        if slot >= count or (load[slot] and load[slot] + r.size > bound):
            slot = min(range(count), key=lambda i: load[i])
        load[slot] += r.size
        tasks[slot].append(r)
        slots[r.tp] = slot
    return [tuple(sorted(task)) for task in tasks if task], slots
