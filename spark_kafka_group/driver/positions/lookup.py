"""Offsets that brokers look up; a lookup that would be a loss is repeated before it is believed.

A broker that has just started may not know yet which topics and records exist.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from spark_kafka_group.errors import OptionError
from spark_kafka_group.options.bounds import AtTime, Position
from spark_kafka_group.values.offsets import EARLIEST, LATEST, TopicPartition
from spark_kafka_group.wire import LogClient

T = TypeVar("T")
log = logging.getLogger(__name__)

LOOKUPS, PAUSE_S = 25, 0.2
"""How often, and how far apart, a log that ends too early, or is gone, is looked up before that is believed."""


def looked_up(
    client: LogClient, positions: Mapping[TopicPartition, Position], timeless: str | None = "latest"
) -> dict[TopicPartition, int]:
    """`positions` as offsets; those of partitions that do not exist any more are not there. `timeless`: where no record
    is as new as a time: ``error``, take ``latest``, or None to leave the partition out. Raises OptionError when
    `timeless` is ``error`` and a log has no record as new; BrokerError."""
    times = {tp: position.ms for tp, position in positions.items() if isinstance(position, AtTime)}
    at_times = client.offsets_at(times)
    by_time = {tp: offset for tp, offset in at_times.items() if offset is not None}
    without = at_times.keys() - by_time.keys()
    if without and timeless == "error":
        raise OptionError(
            f"no record of {', '.join(map(str, sorted(without)))} is as new as timestamp {times[min(without)]}: give "
            f"an earlier one, or set startingOffsetsByTimestampStrategy=latest to start these partitions at their ends"
        )
    latest = _at(positions, LATEST) | (without if timeless == "latest" else set())
    named = {tp: p for tp, p in positions.items() if isinstance(p, int) and p not in (EARLIEST, LATEST)}
    return named | by_time | client.beginning_offsets(_at(positions, EARLIEST)) | client.end_offsets(latest)


def _at(positions: Mapping[TopicPartition, Position], end: int) -> set[TopicPartition]:
    """Partitions whose position is this end of the log."""
    return {tp for tp, position in positions.items() if position == end}


def warn_without_offset(client: LogClient, group_id: str, by_reset: Collection[TopicPartition], policy: str) -> None:
    """Name partitions that start by the reset policy, so that records may be missed, or come again. Whether the group
    is new, or its offsets have expired, the coordinator does not say. A log that never had a record is no matter."""
    ends = client.end_offsets(by_reset) if by_reset else {}
    without = sorted(tp for tp, end in ends.items() if end > 0)
    if without:
        log.warning(
            "group %s: no committed offset for %s (none was committed, or it has expired): starting where "
            "kafka.auto.offset.reset says (%s)",
            group_id, " ".join(map(str, without)), policy,
        )  # fmt: skip


def looked_up_until(good: Callable[[T], bool], look: Callable[[], T]) -> T:
    """The result of `look`, as soon as it is `good`, else that of the last of many.

    1. A leader is elected, or a broker starts. 2. It answers before it knows how far its log is committed (KIP-207), or
    which topics exist: a log seems to end before a position. 3. A moment later it knows.
    """
    result = look()
    for _ in range(LOOKUPS - 1):
        if good(result):
            break
        time.sleep(PAUSE_S)
        result = look()
    return result
