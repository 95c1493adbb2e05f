"""Batch reads: fixed ranges, looked up once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from spark_kafka_group.driver import planner, start_checks
from spark_kafka_group.driver.backlog import end_bounds
from spark_kafka_group.driver.filters import Constraints, narrow
from spark_kafka_group.driver.positions import truncation
from spark_kafka_group.driver.positions.lookup import looked_up, looked_up_until, warn_without_offset
from spark_kafka_group.driver.positions.rules import StartRules, by_reset
from spark_kafka_group.driver.positions.truncation import DataLoss
from spark_kafka_group.driver.reporting.query_metrics import Metrics
from spark_kafka_group.errors import OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.bounds import Bound, Position
from spark_kafka_group.options.reading import no_topics
from spark_kafka_group.values.offsets import EARLIEST, LATEST, OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import Committed, GroupClient, LogClient

log = logging.getLogger(__name__)


def starting(options: Options) -> Bound:
    """Where a batch read starts."""
    return options.reading.starting or Bound(
        "startingOffsets", **{"every": EARLIEST} if options.group.id is None else {"group": True}
    )


def plan(options: Options, constraints: Constraints = Constraints()) -> list[tuple[OffsetRange, ...]]:  # noqa: B008
    """The ranges of each task of a batch read, as :func:`read_tasks` makes them."""
    return [task.ranges for task in read_tasks(options, constraints)]


def read_tasks(options: Options, constraints: Constraints = Constraints()) -> list[ReadTask]:  # noqa: B008
    """The tasks of a batch read of records that can pass `constraints`. Joins no group; asks no broker if no record can
    pass. Raises OptionError, NoOffsetForPartitionError, DataLossError, BrokerError."""
    if constraints.contradictory:
        return []
    group = None
    if options.group.id is not None and starting(options).group:
        group = GroupClient(options, options.group.id)
    client = group or LogClient(options)
    try:
        tps = client.partitions(options.reading.subscription)
        topic_ids = client.topic_ids({tp.topic for tp in tps})
        check_named(options, tps)
        start_checks.check_dead_letters(options)
        start_checks.check_rack(options, client)
        committed = {} if group is None else group.committed(tps)
        whole, _ = batch_ranges(options, client, tps, committed)
        epochs = client.leader_epochs(tps)
        ranges = narrow(whole, constraints, client.offsets_at)
    finally:
        client.close()
    return [ReadTask.under(epochs, topic_ids, ranges) for ranges in planner.tasks(ranges, options, {})[0]]


def check_named(options: Options, existing: set[TopicPartition]) -> None:
    """Refuse topics and partitions that options name and that are not there. Raises OptionError."""
    missing = options.reading.subscription.missing(existing)
    if missing:
        if not options.reading.subscription.manual:
            raise OptionError(no_topics(missing))
        raise OptionError(
            f"assign names {', '.join(missing)}, which the cluster does not have (any more, if this is a DataFrame of "
            f"group_batch or read_where)"
        )
    for bound in (options.reading.starting, options.reading.ending):
        if bound is not None:
            bound.check(existing)


def batch_ranges(
    options: Options,
    client: LogClient,
    tps: set[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    others: Collection[str] = (),
) -> tuple[list[OffsetRange], frozenset[TopicPartition]]:
    """What a batch read of `tps` reads, empty ranges included; and partitions whose logs have lost their ends.

    With the latter the group has to go on at the ranges' ends, as its offsets are behind the logs' ends.

    `committed`: the group's commits for them, for a read that starts or commits there.
    `others`: ids of the group's other members, for a read that commits.
    Raises OptionError, NoOffsetForPartitionError, DataLossError, BrokerError.
    """
    losses = DataLoss(options.reading.fail_on_data_loss, Metrics())
    cut = _diverged(client, committed, losses)
    # 1. Ends are looked up. 2. A record comes. 3. A start at latest is looked up: it is after the end. So starts first.
    starts = _starts(options, client, tps, committed, others, cut)
    ending = (options.reading.ending or Bound("endingOffsets", every=LATEST)).positions_of(tps)
    ends, named = _ends(options, client, ending, losses)
    at_latest = {tp: group.offset for tp, group in committed.items() if ending[tp] == LATEST and tp not in cut}
    behind = {tp: offset for tp, offset in at_latest.items() if offset > ends.get(tp, 0)}  # or the log is gone
    logs = _log_ends(client, behind)
    existing = starts.keys() & ends.keys() - (behind.keys() - logs.keys())
    for tp in sorted(tps - existing):
        losses.report("PARTITIONS_DELETED", f"{tp} was deleted while it was looked up")
    beyond = {tp: starts[tp] for tp in behind.keys() & existing}
    lost = _lost(beyond, ends, logs, losses)
    stand = {tp: ends[tp] if tp in lost else at for tp, at in beyond.items()}  # records there are not stable yet
    ranges = [OffsetRange(tp, stand.get(tp, starts[tp]), stand.get(tp, ends[tp])) for tp in sorted(existing)]
    return [_checked(options, r, named) for r in ranges], frozenset(cut) | lost


def _lost(
    beyond: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, int],
    losses: DataLoss,
) -> set[TopicPartition]:
    """Partitions that start `beyond` the end of the read, and also beyond the end of the log. Raises DataLossError."""
    lost = {tp for tp, start in beyond.items() if start > logs[tp]}
    for tp in sorted(lost):
        losses.report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"{tp}: the group's committed offset is {beyond[tp]}, and the log ends at {ends[tp]}: its end was lost",
        )
    return lost


def _checked(options: Options, r: OffsetRange, named: Mapping[TopicPartition, int]) -> OffsetRange:
    """`r`; empty where the log does not reach an end that options name, which has been reported."""
    if r.end < r.start <= named.get(r.tp, r.end):
        return r._replace(start=r.end)
    if r.start > r.end:
        raise OptionError(
            f"{r.tp}: the read would start at {r.start} and end at {r.end}: "
            f"check startingOffsets, endingOffsets and the group's committed offset"
            f"{end_bounds.HINT if options.fetching.committed_only else ''}"
        )
    return r


def _starts(
    options: Options,
    client: LogClient,
    tps: Collection[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    others: Collection[str],
    cut: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Where the read starts, where logs diverge (`cut`) at that offset."""
    policy, group_id = options.reading.auto_offset_reset or "earliest", options.group.id
    chosen = StartRules(starting(options), policy).new(tps, committed, others)
    for tp in sorted(chosen):
        if chosen[tp].conflict:
            log.warning("group %s: %s", group_id, chosen[tp].conflict)
    if group_id is not None:
        warn_without_offset(client, group_id, by_reset(chosen), policy)
    wanted: dict[TopicPartition, Position] = {tp: start.offset for tp, start in chosen.items()}
    return looked_up(client, wanted | cut, options.reading.starting_by_timestamp_strategy)


def _ends(
    options: Options, client: LogClient, ending: Mapping[TopicPartition, Position], losses: DataLoss
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where the read ends, within the logs; and of these ends those that options name, as they name them."""
    ends = looked_up(client, ending)
    named = {tp: end for tp, end in ends.items() if end == ending[tp]}
    rest = {tp: end for tp, end in ends.items() if tp not in named}
    return rest | _within_logs(options, client, named, losses), named


def _diverged(
    client: LogClient, committed: Mapping[TopicPartition, Committed], losses: DataLoss
) -> dict[TopicPartition, int]:
    """Where logs diverge from those that the group's offsets beyond that were in. Raises DataLossError, BrokerError."""
    epochs = {tp: truncation.epoch_of(group) for tp, group in committed.items()}
    known = {tp: epoch for tp, epoch in epochs.items() if epoch >= 0}
    if not known:
        return {}
    looked = truncation.settled(client, {tp: committed[tp].offset for tp in known}, known)
    cut = {}
    for tp in sorted(looked.replaced | looked.diverged.keys()):
        problem, cut[tp] = truncation.explained(looked, tp, committed[tp].offset, known)
        losses.report("PARTITION_OFFSET_CHANGED", problem)
    return cut


def _log_ends(client: LogClient, behind: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Ends of logs that seem to end before these offsets, after this has been doubted."""

    def reached(ends: Mapping[TopicPartition, int]) -> bool:
        return all(ends.get(tp, offset) >= offset for tp, offset in behind.items())

    # A leader just elected may not know yet how far its log is committed.
    return looked_up_until(reached, lambda: client.log_ends(behind))


def _within_logs(
    options: Options, client: LogClient, named: Mapping[TopicPartition, int], losses: DataLoss
) -> dict[TopicPartition, int]:
    """Ends that options name, of partitions that exist; the logs must have reached them, as records may never come."""
    last = client.end_offsets(named)
    if options.fetching.committed_only:
        end_bounds.check_ends(named, last)
    for tp in sorted(tp for tp, end in last.items() if end < named[tp]):
        losses.report(
            "COULD_NOT_READ_OFFSET_RANGE", f"{tp}: the read must end at {named[tp]}, and the log ends at {last[tp]}"
        )
    return {tp: min(named[tp], end) for tp, end in last.items()}
