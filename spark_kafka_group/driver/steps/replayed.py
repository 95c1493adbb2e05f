"""A batch that was planned before a crash is read again as it was, but for partitions that have changed since."""

from __future__ import annotations

import logging
from collections.abc import Collection

from spark_kafka_group.driver.positions import rules, truncation
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps.topic_changes import by_others, deleted_for_good, void_offset
from spark_kafka_group.errors import OptionError
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.commit_metadata import is_of_batch
from spark_kafka_group.values.exactly_once import SourceBatch
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

log = logging.getLogger(__name__)


def readable(query: Query, ranges: Collection[OffsetRange], end: GroupOffset) -> list[OffsetRange]:
    """The `ranges` of the batch up to `end`, as far as they can be read. Raises DataLossError, BrokerError."""
    return _not_truncated(query, _not_deleted(query, ranges, end), end)


def elsewhere(query: Query, ranges: Collection[OffsetRange], end: GroupOffset) -> frozenset[TopicPartition]:
    """Partitions of the batch in which others may have gone on: they are read again, and not committed. While this
    query is alone in the group no other member owns any. Raises BrokerError."""
    generation = query.generation
    committed = query.client.committed([r.tp for r in ranges])
    alone = generation.alone or query.subscription.manual
    unowned = set() if alone else {r.tp for r in ranges if r.tp not in generation.assignment}
    foreign = by_others(committed, query.query_id, end)
    moved = {r.tp for r in ranges if r.tp in foreign and foreign[r.tp].offset != r.start}
    for tps, why in ((moved, "other members have read on"), (unowned - moved, "this query does not own them any more")):
        if tps:
            log.warning(
                "group %s: rows of %s are read again, as the checkpoint requires, and are not committed: %s",
                query.group_id, " ".join(map(str, sorted(tps))), why,
            )  # fmt: skip
    return frozenset(unowned | moved)


def refuse_in_another_group(query: Query, end: GroupOffset) -> None:
    """See that a batch that the sink has not decided runs in the group in which it was planned. The checkpoint names
    that group. So no later run would know that the offsets of another one say what is written. Raises OptionError."""
    if end.group_id not in (None, query.group_id):
        before = printable(str(end.group_id))
        raise OptionError(
            f"kafka.group.id is {printable(query.group_id)}, and micro-batch {end.batch} of this query, which its sink "
            f"has not written, was planned in group {before}. Start the query with kafka.group.id={before} until that "
            f"micro-batch is done; then the group may be changed"
        )


def refuse_without_transactional_id(end: GroupOffset) -> None:
    """See that a batch whose sink commits its offsets with its rows is not run again without that.

    1. The sink decides the batch without a partition that another member owns, and the query is killed before Spark
    logs that. 2. The batch is run again, reads that partition too, and would commit it. 3. The sink, which has decided
    the batch, drops its rows.

    Raises OptionError.
    """
    if end.in_transaction:
        raise OptionError(
            f"micro-batch {end.batch} of this query was planned with kafka.transactional.id, and has not ended. Start "
            f"the query with that option, and with its sink, until that micro-batch is done; then the option may be "
            f"left out"
        )


def written_and_left(
    query: Query, ranges: Collection[OffsetRange], end: GroupOffset, joined: bool, decided: SourceBatch | None = None
) -> tuple[frozenset[TopicPartition], dict[TopicPartition, int]]:
    """What the group says of a batch whose sink commits its offsets in the transaction of its rows.

    The sink has decided the batch before the crash, or never will. Its offsets are in the group in the first case, and
    in no other. So, without a decision, partitions that others own or have read on in are left to them: they write
    these rows. With one, all that was decided is read again, whoever owns it now: the sink writes no row twice, and
    what Spark aggregates needs the same rows as before.

    The decision itself names its partitions. Where it cannot be read, what the group still has of it serves: 1. The
    batch is decided, and its process dies. 2. Others read on in all of its partitions. 3. Then the group has no sign of
    it any more.

    `joined`: whether this is a member of the group; else it owns nothing.
    `decided`: what the sink has decided of the batch; None where nothing is known of that.
    Returns partitions to be read again whose offsets are in the group already, and positions of those not to be read.
    Raises OffsetConflictError, BrokerError.
    """
    committed = query.client.committed([r.tp for r in ranges])
    rules.refuse_older_checkpoint(committed, query.query_id, end.batch)
    written = {
        tp
        for tp, group in committed.items()
        if group.offset == end.positions[tp] and is_of_batch(group.metadata, query.query_id, end.batch)
    }
    foreign = by_others(committed, query.query_id, end)
    if decided is not None:
        written = {r.tp for r in ranges if r.tp in decided.offsets}
        left = {r.tp for r in ranges} - written
    elif written:
        # Others have gone on from the decided offsets. (From the start of the batch, if an earlier run of it went
        # without the partition. Then nothing of it is lost, or written twice, either.)
        written |= {tp for tp, group in foreign.items() if group.offset >= end.positions[tp]}
        left = {r.tp for r in ranges} - written
    else:
        owned = query.generation.assignment if joined else frozenset()
        alone = joined and query.generation.alone
        moved = {r.tp for r in ranges if r.tp in foreign and foreign[r.tp].offset != r.start}
        left = moved if alone else moved | {r.tp for r in ranges if r.tp not in owned}
    if left:
        log.warning(
            "group %s: batch %d is read again without %s: they belong to other members, or were left out before. "
            "Reading goes on there at the group's offsets",
            query.group_id, end.batch, " ".join(map(str, sorted(left))),
        )  # fmt: skip
    starts = {r.tp: r.start for r in ranges if r.tp in left}
    return frozenset(written), starts | {tp: committed[tp].offset for tp in left & committed.keys()}


def _not_deleted(query: Query, ranges: Collection[OffsetRange], end: GroupOffset) -> list[OffsetRange]:
    """Ranges of partitions that still exist. Executors detect partitions that are no longer subscribed."""
    client, subscription = query.client, query.subscription
    recreated = rules.recreated(end.topic_ids, client.topic_ids({r.tp.topic for r in ranges}))
    concerned = [r.tp for r in ranges if r.tp.topic in recreated]
    renewed = by_others(client.committed(concerned), query.query_id, end) if concerned else {}
    deleted = deleted_for_good(client, [r.tp for r in ranges if subscription.has(r.tp)])
    left = []
    for r in ranges:
        if r.tp in renewed:
            log.warning("%s; going on at the group's offset", void_offset(r.tp, r.start))
        elif r.tp.topic in recreated:
            query.losses.report("PARTITION_OFFSET_CHANGED", void_offset(r.tp, r.start), r.size)
        elif r.tp in deleted:
            query.losses.report("PARTITIONS_DELETED", f"{r} must be read again, and {r.tp} was deleted", r.size)
        else:
            left.append(r)
    return left


def _not_truncated(query: Query, ranges: Collection[OffsetRange], end: GroupOffset) -> list[OffsetRange]:
    """`ranges`, without records that logs have lost. Reading goes on after the batch where logs diverge."""
    standing = query.standing
    ends = {r.tp: r.end for r in ranges if r.tp in end.epochs and query.subscription.has(r.tp)}
    found = truncation.settled(query.client, ends, end.epochs)
    suspect = found.diverged.keys() | found.replaced
    for r in ranges:
        if r.tp in suspect:
            problem, at = truncation.explained(found, r.tp, r.end, end.epochs)
            query.losses.report("PARTITION_OFFSET_CHANGED", problem, r.end - min(max(at, r.start), r.end))
            standing.truncated_at |= {r.tp: at} if at < r.end else {}
    standing.epochs.known |= found.epochs
    left = [r._replace(end=min(r.end, standing.truncated_at.get(r.tp, r.end))) for r in ranges]
    return [r for r in left if r.size > 0]
