"""Records before which a query stands are gone: logs that lost their ends, and records that have expired."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_group.driver.positions import truncation
from spark_kafka_group.driver.query import Query
from spark_kafka_group.values.offsets import TopicPartition


def go_back(
    query: Query, begin: Mapping[TopicPartition, int], found: truncation.Look, ends_before: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """New positions of partitions whose logs have lost their ends, in the group too.

    Parameters
    ----------
    begin
        Positions of the partitions that `found` suspects.
    ends_before
        Ends of the logs as looked up before that.

    Raises
    ------
    DataLossError, MembershipLostError, CommitError, BrokerError
    """
    standing, committer = query.standing, query.committer
    back = {}
    for tp, position in begin.items():
        problem, at = truncation.explained(found, tp, position, standing.epochs.known)
        query.losses.report("PARTITION_OFFSET_CHANGED", problem, max(0, ends_before.get(tp, 0) - position))
        back[tp] = _go_on_at(query, tp, at)
    standing.epochs.known |= {tp: found.epochs[tp] for tp in back if tp in found.epochs}
    # The group's offsets of these are beyond the logs' ends, or of records that have been replaced.
    ahead = {tp: at for tp, at in back.items() if committer.in_group.get(tp, at) > at}
    if ahead:
        generation = query.generation.id
        query.member.check_may_commit()
        standing.hold(generation)
        committer.correct(ahead, generation, standing.proven.batch)
    return back


def skip_expired(query: Query, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """New positions of partitions whose next records have expired.

    Raises
    ------
    DataLossError, BrokerError
    """
    first = query.client.beginning_offsets(begin)
    skipped = {}
    for tp in sorted(tp for tp, offset in first.items() if offset > begin[tp]):
        query.losses.report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"{tp}: records of offsets {begin[tp]} to {first[tp] - 1} have expired or were deleted",
            first[tp] - begin[tp],
        )
        skipped[tp] = _go_on_at(query, tp, first[tp])
    return skipped


def _go_on_at(query: Query, tp: TopicPartition, offset: int) -> int:
    query.events.moved(query.generation.id, {tp: (query.standing.position(tp), offset, "data loss")})
    query.standing.moved[tp] = offset
    return offset
