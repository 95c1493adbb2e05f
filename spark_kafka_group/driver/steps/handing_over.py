"""Positions that the group lacks are committed before a rebalance may give their partitions to other members."""

from __future__ import annotations

import logging
from collections.abc import Collection

from spark_kafka_group.driver.query import Query
from spark_kafka_group.errors import (
    BrokerError,
    BrokerTimeoutError,
    CommitError,
    CommitTimeoutError,
    MembershipLostError,
)
from spark_kafka_group.values.offsets import TopicPartition

log = logging.getLogger(__name__)


def hand_over(query: Query) -> bool:
    """Commit positions of owned partitions that the group does not have; False where the group refuses that.

    The race that this ends:

    1. This query starts at the end of a log, at offset 10, and has had no batch: the group has no offset.
    2. Records 10 to 19 come, and then a rebalance gives the partition to another member.
    3. That member finds no committed offset, starts at its own kafka.auto.offset.reset, ``latest``, and misses them.

    With offset 10 committed between 2 and 3, under the old generation, which the coordinator still accepts, the other
    member starts there. Raises CommitTimeoutError, BrokerTimeoutError when brokers do not answer: the rebalance has to
    wait, as long as the group does.
    """
    return _handed_over(query, _missing_in_group(query))


def set_right(query: Query) -> None:
    """Set back offsets that were disputed before Spark logged a batch, and, once a commit has gone through, those that
    the user had no right to see. Raises CommitTimeoutError, BrokerError when it is to be called again."""
    standing, in_group = query.standing, query.committer.in_group
    wrong = standing.to_set_right
    if standing.is_unseen and in_group:
        committed = query.client.committed(standing.positioned - in_group.keys())
        in_group |= {tp: group.offset for tp, group in committed.items()}
        wrong |= standing.positioned
    if wrong and _handed_over(query, [tp for tp in _missing_in_group(query) if tp in wrong]):
        wrong.clear()
        standing.is_unseen = False


def _handed_over(query: Query, tps: Collection[TopicPartition]) -> bool:
    """Commit positions of `tps`; False where the group refuses that."""
    standing, generation = query.standing, query.generation.id
    offsets = {tp: standing.position(tp) for tp in tps}
    standing.hold(generation)
    try:
        query.committer.correct(offsets, generation, standing.proven.batch)
    except (CommitTimeoutError, BrokerTimeoutError):
        raise
    except (MembershipLostError, CommitError, BrokerError) as error:
        log.warning("group %s: positions could not be handed over: %s", query.group_id, error)
        return False
    return True


def try_to_hand_over(query: Query) -> None:
    """As :func:`hand_over`, as the query ends: no answer is a warning."""
    try:
        hand_over(query)
    except (CommitTimeoutError, BrokerTimeoutError) as error:
        log.warning("group %s: positions could not be handed over: %s", query.group_id, error)


def _missing_in_group(query: Query) -> list[TopicPartition]:
    """Owned partitions that exist, with a position that the group does not have."""
    in_group = query.committer.in_group
    starts = query.standing.starts(query.generation.assignment)
    disputed = query.standing.disputed
    missing = [tp for tp, position in starts.items() if in_group.get(tp) != position and tp not in disputed]
    if not missing:
        return missing
    existing = query.client.known_partitions(query.subscription)
    return [tp for tp in missing if tp in existing]
