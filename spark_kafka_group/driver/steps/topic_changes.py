"""Topics and partitions that were deleted, recreated or added, and partitions that options name and that must exist."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from spark_kafka_group.driver.positions import rules
from spark_kafka_group.driver.positions.lookup import looked_up_until
from spark_kafka_group.driver.query import Query
from spark_kafka_group.options.bounds import Bound
from spark_kafka_group.values.commit_metadata import is_own
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition
from spark_kafka_group.wire import Committed, LogClient

log = logging.getLogger(__name__)

CommittedOf = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, Committed]]


def by_others(
    committed: Mapping[TopicPartition, Committed], query_id: str, end: GroupOffset
) -> dict[TopicPartition, Committed]:
    """Commits of other writers than the query, for a checkpoint that ends with `end`."""
    if end.unseen:
        return {}
    return {
        tp: group for tp, group in committed.items() if not is_own(group.metadata, query_id, end.batch, end.generation)
    }


def void_offset(tp: TopicPartition, offset: int) -> str:
    """The text about an offset of a recreated topic."""
    return f"{tp}: offset {offset}: topic {tp.topic} was deleted and made again, so this offset means another record"


def check_recreated(query: Query, committed_of: CommittedOf) -> list[str]:
    """Drop, and return, topics that were recreated since they were read. An offset that another writer has committed
    since is the way out, so the group is asked first. Raises DataLossError, BrokerError."""
    standing, owned = query.standing, query.generation.assignment
    now = query.client.topic_ids({tp.topic for tp in owned})
    topics = rules.recreated(standing.topic_ids, now)
    if topics:
        kept = {tp: at for tp, at in standing.kept().items() if tp.topic in topics and tp in owned}
        renewed = by_others(committed_of(kept), query.query_id, standing.proven)
        for tp in sorted(kept.keys() - renewed.keys()):
            query.losses.report("PARTITION_OFFSET_CHANGED", void_offset(tp, kept[tp]))
        standing.recreate(topics, owned)
    standing.topic_ids |= now
    return topics


def check_deleted(query: Query) -> None:
    """Report partitions that this query was reading, also unowned ones, and that do not exist any more. Topics that it
    had left are missed where the subscription names them. Raises DataLossError, BrokerError."""
    standing, subscription = query.standing, query.subscription
    read = (standing.proven.left if subscription.pattern is None else {}) | standing.proven.positions
    if not standing.deleted and not subscription.manual and read.keys() <= query.generation.assignment:
        return
    there = query.client.known_partitions(subscription)
    standing.deleted -= there
    missing = read.keys() - unsubscribed(query, read) - standing.deleted - there
    deleted = deleted_for_good(query.client, missing)
    if deleted:
        listed = ", ".join(f"{tp} (read up to {standing.kept().get(tp, read[tp])})" for tp in sorted(deleted))
        named = "_AND_GROUP_ID_CONFIG_PRESENT" if query.options.group.id is not None else ""
        query.losses.report(f"PARTITIONS_DELETED{named}", f"partitions have been deleted: {listed}")
        standing.deleted |= deleted
        standing.positioned -= deleted


def check_added(
    query: Query, starts: Mapping[TopicPartition, rules.Start], offsets: Mapping[TopicPartition, int]
) -> None:
    """New partitions must be there from their first record on, unless they may only be new to this query, or others,
    who may have committed nothing, had them since this process started. Raises DataLossError."""
    standing = query.standing
    read, recreated = standing.proven.positions.keys(), standing.recreated
    of_others = set() if standing.is_restart else standing.existing_at_start
    for tp in sorted(tp for tp, start in starts.items() if start.why == rules.NEW):
        if tp not in offsets:
            query.losses.report(
                "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", f"{tp} was added, and deleted before it could be read"
            )
        elif offsets[tp]:
            problem = f"partition {tp} was added and starts from {offsets[tp]} instead of 0"
            before = {TopicPartition(tp.topic, p) for p in range(tp.partition)} - starts.keys()
            if tp.topic in recreated or (before <= read and tp not in of_others):
                query.losses.report("ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO", problem, offsets[tp])
            else:
                log.warning("%s, or belonged to another member, which has committed nothing", problem)


def check_named(query: Query, starting: Bound) -> None:
    """Partitions that options name must be those that exist; retry topics need not be named. Raises OptionError."""
    reading, there = query.options.reading, query.standing.existing_at_start
    for bound in (starting if query.standing.is_new_query else None, reading.ending):
        if bound is not None:
            bound.check(rules.spoken_of(bound, there, reading.retry_delays_ms))


def existing(query: Query, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """`positions` without partitions of subscribed topics that do not exist, by the metadata known now."""
    if not positions:
        return {}
    there = query.client.known_partitions(query.subscription)
    return {tp: at for tp, at in positions.items() if tp in there or not query.subscription.has(tp)}


def unowned(query: Query, owned: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Positions of partitions that this query has read, or was about to read, that exist and that are not `owned`."""
    return existing(query, {tp: at for tp, at in query.standing.kept().items() if tp not in owned})


def unsubscribed(query: Query, tps: Collection[TopicPartition]) -> set[TopicPartition]:
    """Those of `tps` that the query does not subscribe to any more."""
    return {tp for tp in tps if not query.subscription.has(tp)}


def deleted_for_good(client: LogClient, tps: Collection[TopicPartition]) -> set[TopicPartition]:
    """Those of `tps` that two lookups do not find: a broker that just started may not know them. Raises BrokerError."""
    missing = set(tps)

    def look() -> bool:
        missing.difference_update(client.existing(missing))
        return not missing

    if missing:
        looked_up_until(bool, look)
    return missing
