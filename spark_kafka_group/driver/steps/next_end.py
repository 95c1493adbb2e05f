"""The end that Spark keeps of the next batch: positions after it, and all that a restart has to know of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_kafka_group.driver.positions import unowned
from spark_kafka_group.driver.positions.checkpointed_ends import CheckpointedEnds
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps import topic_changes
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition


def after_reading(query: Query, kept: CheckpointedEnds, ranges: Collection[OffsetRange]) -> GroupOffset:
    """The end of a batch that reads `ranges`."""
    standing, generation = query.standing, query.generation
    start, ends = standing.proven, {r.tp: r.end for r in ranges}
    begin = standing.starts(generation.assignment)
    standing.left_to_group -= begin.keys()
    not_owned = topic_changes.unowned(query, begin)
    in_group = query.committer.in_group
    unsubscribed = topic_changes.unsubscribed(query, not_owned)
    left = unowned.left_behind(not_owned, in_group, standing.left_to_group, unsubscribed)
    topics = {tp.topic for tp in (*begin, *left)}
    moved = kept.starts(start, begin)
    kept.planned(start)
    return GroupOffset(
        positions={tp: ends.get(tp, offset) for tp, offset in begin.items()},
        reader=query.reader,
        generation=generation.id,
        batch=start.batch + 1,
        topic_ids={topic: topic_id for topic, topic_id in standing.topic_ids.items() if topic in topics},
        moved=moved,
        epochs=standing.epochs.of({*begin, *left}),
        left=left,
        in_transaction=query.options.group.transactional_id is not None,
        group_id=query.group_id,
        overrides={tp: at for tp, at in standing.overrides.items() if tp in left and in_group.get(tp) == at},
        unseen=standing.is_unseen,
    )


def without_reading(
    query: Query, kept: CheckpointedEnds, left_out: Mapping[TopicPartition, int], may_have_records: bool
) -> GroupOffset | None:
    """The end of a batch that reads nothing, where one is needed, else None.

    Parameters
    ----------
    left_out
        Positions of partitions that the last batch has not read, although the checkpoint says so: it is corrected.
    may_have_records
        Whether the query has availableNow, and its group has not settled: records may be left, and without a batch the
        query would end.

    It is also needed where the group knows the positions now, and the checkpoint says that it does not.
    """
    start, standing = query.standing.proven, query.standing
    if start.unseen and not standing.is_unseen and not standing.is_restart:
        return after_reading(query, kept, ())
    positions = start.positions | {tp: at for tp, at in left_out.items() if tp in start.positions}
    if positions == start.positions and not may_have_records:
        return None
    moved = kept.starts(start, positions)
    kept.planned(start)
    # Spark compares ends as JSON: a number of the batch is in it only beside the reader's id.
    return replace(start, reader=query.reader, positions=positions, batch=start.batch + 1, moved=moved)
