"""Batch reads: fixed ranges, looked up once."""

from __future__ import annotations

from spark_kafka_group.driver import planner
from spark_kafka_group.driver.filters import Constraints, narrow
from spark_kafka_group.driver.positions import StartRules
from spark_kafka_group.errors import OptionError
from spark_kafka_group.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from spark_kafka_group.options import GROUP, Options
from spark_kafka_group.wire import GroupClient


def default_start(options: Options) -> str:
    """Where a batch read without startingOffsets starts."""
    return GROUP if options.group_id is not None else "earliest"


def plan(options: Options, constraints: Constraints = Constraints()) -> list[tuple[OffsetRange, ...]]:  # noqa: B008
    """The tasks of a batch read of what can pass `constraints`. Joins no group; asks nobody if nothing can pass.

    Raises
    ------
    OptionError, NoOffsetForPartitionError, BrokerError
    """
    if constraints.contradictory:
        return []
    client = GroupClient(options, options.group_id)
    try:
        tps = client.partitions(options.subscription)
        missing = options.subscription.missing(tps)
        if missing:
            named = "assign" if options.subscription.manual else "subscribe"
            raise OptionError(f"{named} names {', '.join(missing)}, which the cluster does not have")
        ranges = narrow(batch_ranges(options, client, tps), constraints, client.offsets_at)
    finally:
        client.close()
    return planner.tasks(ranges, options, {})[0]


def batch_ranges(options: Options, client: GroupClient, tps: set[TopicPartition]) -> list[OffsetRange]:
    """What a batch read of `tps` reads, empty ranges included.

    Raises
    ------
    OptionError, NoOffsetForPartitionError, BrokerError
    """
    starting = options.starting_offsets or default_start(options)
    rules = StartRules(starting, options.auto_offset_reset or "earliest")
    committed = client.committed(tps) if starting == GROUP else {}
    starts = {tp: start.offset for tp, start in rules.new(tps, committed).items()}
    ends = _ending(options, tps)
    first = client.beginning_offsets([tp for tp in tps if starts[tp] == EARLIEST])
    last = client.end_offsets([tp for tp in tps if LATEST in (starts[tp], ends[tp])])
    ranges = []
    for tp in sorted(tps):
        start = first.get(tp, starts[tp]) if starts[tp] != LATEST else last[tp]
        end = last[tp] if ends[tp] == LATEST else ends[tp]
        if start > end:
            raise OptionError(
                f"{tp}: the read would start at {start} and end at {end}: "
                f"check startingOffsets, endingOffsets and the group's committed offset"
            )
        ranges.append(OffsetRange(tp, start, end))
    return ranges


def _ending(options: Options, tps: set[TopicPartition]) -> dict[TopicPartition, int]:
    ending = options.ending_offsets
    if not isinstance(ending, dict):
        return dict.fromkeys(tps, LATEST)
    missing = sorted(tps - set(ending))
    if missing:
        raise OptionError(
            f"endingOffsets names no offset for {', '.join(map(str, missing))}: "
            f"name every partition, with -1 for latest"
        )
    return ending
