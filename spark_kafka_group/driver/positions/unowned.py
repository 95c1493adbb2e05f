"""Partitions that a query has read and does not own any more, where the group may lack the position.

The rows of a batch can be in the sink while its commit is missing: the query ended, or lost its membership. When the
query does not own the partition from then on (it no longer subscribes to the topic, or another member owns it), no
commit of this query says how far it has read. So the checkpoint keeps the position, until the group has that offset,
the query owns the partition again, or another member goes on with it. Where the query does not subscribe to the topic
any more it stays, as the group forgets offsets: what others have read decides when it subscribes to the topic again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_kafka_group.values.commit_metadata import is_own, left_out_of
from spark_kafka_group.values.offsets import GroupOffset, Positions, TopicPartition
from spark_kafka_group.wire import Committed


def settled(
    unowned: Positions,
    committed: Mapping[TopicPartition, Committed],
    query_id: str,
    end: GroupOffset,
) -> set[TopicPartition]:
    """Partitions of `unowned` for which the group is right, as a query starts after the batch up to `end`. The group
    has the very position, another program has committed since, or this query's metadata in the group says that the
    batch went without the partition. Or the sink of the batch has committed its offsets in its transaction."""
    return {
        tp
        for tp, group in committed.items()
        if tp in unowned
        and end.overrides.get(tp) != group.offset
        and (
            end.is_in_group
            or group.offset == unowned[tp]
            or not is_own(group.metadata, query_id, end.batch, end.generation)
            or _went_without(group, query_id, end)
        )
    }


def undelivered(
    unowned: Positions,
    committed: Mapping[TopicPartition, Committed],
    query_id: str,
    end: GroupOffset,
) -> dict[TopicPartition, int]:
    """The group's offsets of `unowned` after which the batch up to `end` has delivered nothing, as the query has said.
    It went without the partition, or its sink has committed this offset together with all that it has written."""
    return {
        tp: group.offset
        for tp, group in _before(unowned, committed).items()
        if end.overrides.get(tp) != group.offset
        and (
            _went_without(group, query_id, end)
            or (end.is_in_group and is_own(group.metadata, query_id, end.batch, end.generation))
        )
    }


def committed_before(
    unowned: Positions, committed: Mapping[TopicPartition, Committed], query_id: str, end: GroupOffset
) -> dict[TopicPartition, int]:
    """Offsets of this query's own in a group to which it comes back from another one, where it has read on."""
    return {
        tp: group.offset
        for tp, group in _before(unowned, committed).items()
        if is_own(group.metadata, query_id, end.batch, end.generation)
    }


def _before(unowned: Positions, committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, Committed]:
    """Commits before the positions of `unowned`."""
    return {tp: group for tp, group in committed.items() if tp in unowned and group.offset < unowned[tp]}


def _went_without(group: Committed, query_id: str, end: GroupOffset) -> bool:
    return left_out_of(group.metadata, query_id, end.generation) in (end.batch, end.batch + 1)


def left_behind(
    unowned: Positions,
    in_group: Positions,
    by_group: Collection[TopicPartition],
    unsubscribed: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Positions of `unowned` for the checkpoint to keep: not `in_group`, `unsubscribed` or `by_group`."""
    return {
        tp: at for tp, at in unowned.items() if tp not in by_group and (tp in unsubscribed or in_group.get(tp) != at)
    }
