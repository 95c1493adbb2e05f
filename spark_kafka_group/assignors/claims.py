"""The partitions that members claim to own, and which claims count."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_group.assignors.strategy import GroupMember
from spark_kafka_group.values.offsets import TopicPartition


def holders(members: Iterable[GroupMember]) -> dict[TopicPartition, str | None]:
    """The member that holds each claimed partition; None where two claim it in one generation.

    A member that missed a rebalance still claims partitions that others have got since, so the highest generation
    counts. Of two claims in one generation at most one is true, and it is unknown which.
    """
    latest: dict[TopicPartition, int] = {}
    held: dict[TopicPartition, str | None] = {}
    for member in members:
        for tp in member.owned:
            before = latest.get(tp)
            if before is None or before < member.generation:
                latest[tp] = member.generation
                held[tp] = member.member_id
            elif before == member.generation:
                held[tp] = None
    return held
