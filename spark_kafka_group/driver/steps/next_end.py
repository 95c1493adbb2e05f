"""The end that Spark keeps of the next batch: positions after it, and all that a restart has to know of them.

With asynchronous progress tracking Spark keeps the ends of some batches only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from spark_kafka_group.driver.positions import unowned
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps import topic_changes
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

log = logging.getLogger(__name__)


class CheckpointedEnds:
    """Whether the end that a batch starts at is certain to be in Spark's checkpoint.

    Spark calls ``commit(start)`` while it builds the batch from `start`, after it has written that batch's end down.
    With asynchronous progress tracking it writes only some ends down, and that call is missing, or comes late:

    1. batch 5 is planned and its end is written, 2. batches 6 and 7 run and are left out, 3. batch 8 is planned, its
    end is written, and Spark dies, 4. at the restart batch 8 is to begin at the end of 5.

    Rows of 6 and 7 are in the sink: Spark plans a batch when the one before it has succeeded. So batch 8 is read again
    as it was, and has to keep its own starts, as the end of 7 is nowhere.
    """

    def __init__(self) -> None:
        self._unconfirmed: GroupOffset | None = None
        self._gaps = False

    def planned(self, start: GroupOffset) -> None:
        """Note that a batch from `start` has been planned."""
        self._unconfirmed = start

    def committed(self, end: GroupOffset) -> None:
        """Note that Spark has called ``commit(end)``."""
        if end == self._unconfirmed:
            self._unconfirmed = None

    def starts(self, start: GroupOffset, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Those of `begin` that the end of a batch after `start` has to keep, as they may not be in `start`."""
        if self._unconfirmed is not None:
            if self._unconfirmed.positions and not self._gaps:
                log.info(
                    "Spark keeps only some ends of batches (asyncProgressTrackingEnabled): each end now has its starts"
                )
                self._gaps = True
            return dict(begin)
        if self._gaps:
            return dict(begin)
        return {tp: offset for tp, offset in begin.items() if start.positions.get(tp) != offset}


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
        query_id=query.query_id,
        generation=generation.id,
        batch=start.batch + 1,
        topic_ids={topic: topic_id for topic, topic_id in standing.topic_ids.items() if topic in topics},
        moved=moved,
        epochs=standing.epochs.select({*begin, *left}),
        left=left,
        in_transaction=query.options.group.transactional_id is not None,
        group_id=query.group_id,
        overrides={tp: at for tp, at in standing.overrides.items() if tp in left and in_group.get(tp) == at},
        unseen=standing.is_unseen,
    )


def without_reading(
    query: Query, kept: CheckpointedEnds, left_out: Mapping[TopicPartition, int], may_have_records: bool
) -> GroupOffset | None:
    """The end of a batch that reads nothing, where one is needed, else None. It is needed, too, where the group knows
    the positions now, and the checkpoint says that it does not.

    `left_out`: positions of partitions that the last batch has not read, although the checkpoint says so.
    `may_have_records`: whether the query has availableNow, and its group has not settled: records may be left, and
        without a batch the query would end.
    """
    start, standing = query.standing.proven, query.standing
    if start.unseen and not standing.is_unseen and not standing.is_restart:
        return after_reading(query, kept, ())
    positions = start.positions | {tp: at for tp, at in left_out.items() if tp in start.positions}
    if positions == start.positions and not may_have_records:
        return None
    moved = kept.starts(start, positions)
    kept.planned(start)
    # Spark compares ends as JSON: a number of the batch is in it only beside the query id.
    return replace(start, query_id=query.query_id, positions=positions, batch=start.batch + 1, moved=moved)
