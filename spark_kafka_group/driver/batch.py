"""Batch reads: fixed ranges, looked up once."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_group.bounds import Bound
from spark_kafka_group.driver import planner, stable
from spark_kafka_group.driver.filters import Constraints, narrow
from spark_kafka_group.driver.lookup import looked_up
from spark_kafka_group.driver.losses import Losses
from spark_kafka_group.driver.metrics import Metrics
from spark_kafka_group.driver.positions import StartRules
from spark_kafka_group.errors import OptionError
from spark_kafka_group.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.wire import GroupClient


def starting(options: Options) -> Bound:
    """Where a batch read starts."""
    return options.starting or Bound(
        "startingOffsets", **{"every": EARLIEST} if options.group_id is None else {"group": True}
    )


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
        for bound in (options.starting, options.ending):
            if bound is not None:
                bound.check(tps)
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
    rules = StartRules(starting(options), options.auto_offset_reset or "earliest")
    committed = client.committed(tps) if rules.starting.group else {}
    chosen = {tp: start.offset for tp, start in rules.new(tps, committed).items()}
    # Starts first: or a record that comes meanwhile could make a start at latest one after the end.
    starts = looked_up(client, chosen, options.starting_by_timestamp_strategy)
    ending = (options.ending or Bound("endingOffsets", every=LATEST)).of(tps)
    ends = looked_up(client, ending)
    ends |= _within_logs(options, client, {tp: end for tp, end in ends.items() if end == ending[tp]})
    ranges = []
    for tp in sorted(tps):
        start, end = starts[tp], ends[tp]
        if start > end:
            raise OptionError(
                f"{tp}: the read would start at {start} and end at {end}: "
                f"check startingOffsets, endingOffsets and the group's committed offset"
                f"{stable.HINT if options.committed_only else ''}"
            )
        ranges.append(OffsetRange(tp, start, end))
    return ranges


def _within_logs(
    options: Options, client: GroupClient, named: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Ends that options name, which logs must have reached: a read would wait for what may never come."""
    last = client.end_offsets(named)
    if options.committed_only:
        stable.check_ends(named, last)
    losses = Losses(options.fail_on_data_loss, Metrics())
    for tp in sorted(tp for tp, end in last.items() if end < named[tp]):
        losses.report("COULD_NOT_READ_OFFSET_RANGE", f"{tp}: the read is to end at {named[tp]}, the log at {last[tp]}")
    return {tp: min(end, last.get(tp, end)) for tp, end in named.items()}
