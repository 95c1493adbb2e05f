"""What becomes of a batch that was decided, by how its transactions ended. Pure rules, and their sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from spark_kafka_group.values.exactly_once import BatchId, Decision, TaskTransactionWritten, named
from spark_kafka_group.wire.transactions.transaction_ends import End
from spark_kafka_group.wire.transactions.transaction_requests import Described

LEAST_LEFT_MS = 10_000
"""A batch is not decided if one of its transactions has less time left: brokers might abort it before its end."""
LEAST_LEFT = 0.1  # the same, as a part of the timeout, where that is shorter
NEVER_MS = 2**63
MOST_USED = 0.5  # from this part of the timeout on, a batch that was quick enough is warned of


class Kind(Enum):
    """What a decided batch has come to."""

    FINISHED = "all of its transactions are committed"
    REVOKE = "none is, and none can be: the batch is to be written again"
    LOST = "some are committed, and some were aborted"
    DOUBTFUL = "nobody knows of some"


@dataclass(frozen=True)
class Resolution:
    """What a decided batch has come to, and which transactions are the reason."""

    kind: Kind
    because_of: tuple[TaskTransactionWritten, ...] = ()


def resolved(transactions: Iterable[TaskTransactionWritten], ends: Mapping[str, End]) -> Resolution:
    """What a decided batch has come to, by the end of each transaction."""
    by_end: dict[End, list[TaskTransactionWritten]] = {end: [] for end in End}
    for one in transactions:
        by_end[ends[one.transactional_id]].append(one)
    if by_end[End.ABORTED] and by_end[End.COMMITTED]:
        return Resolution(Kind.LOST, tuple(by_end[End.ABORTED]))
    if by_end[End.UNKNOWN]:
        return Resolution(Kind.DOUBTFUL, tuple(by_end[End.UNKNOWN]))
    if by_end[End.ABORTED]:
        return Resolution(Kind.REVOKE, tuple(by_end[End.ABORTED]))
    return Resolution(Kind.FINISHED)


def why_not_decided(
    transactions: Iterable[TaskTransactionWritten], found: Mapping[str, Described], now_ms: int
) -> str | None:
    """Why a batch cannot be decided; None if all of its transactions are open, and stay so for long enough."""
    gone, late = [], []
    for one in transactions:
        known = found.get(one.transactional_id)
        if known is None or not known.open or known.producer != one.producer:
            gone.append(one)
        elif left_ms(known, now_ms) < min(LEAST_LEFT_MS, LEAST_LEFT * known.timeout_ms):
            late.append(one)
    if gone:
        return (
            f"transactions that wrote to {named(gone)} have ended before the batch did: their time was over, or "
            f"another process has taken their ids. Raise kafka.transaction.timeout.ms, or let batches be smaller"
        )
    if late:
        return (
            f"the time of transactions that wrote to {named(late)} is almost over. Raise kafka.transaction.timeout.ms, "
            f"or let batches be smaller"
        )
    return None


def over_ms(known: Described) -> int:
    """When the time of an open transaction is over, in milliseconds since the epoch."""
    return known.started_ms + known.timeout_ms


def left_ms(known: Described, now_ms: int) -> int:
    """How long an open transaction may stay so."""
    return over_ms(known) - now_ms


def first_over_ms(found: Iterable[Described]) -> int:
    """When the time of the first of these open transactions is over."""
    return min(map(over_ms, found), default=NEVER_MS)


def slowest(found: Iterable[Described], now_ms: int) -> Described | None:
    """The transaction with the least time left, if the batch has used so much that a slower one would fail."""
    ages = {one: now_ms - one.started_ms for one in found if one.open}
    used = [one for one, age in ages.items() if age > MOST_USED * one.timeout_ms]
    return max(used, key=lambda one: ages[one], default=None)


def again(prefix: str, batch: BatchId, why: str) -> str:
    """The sentence for a batch of which nothing was published."""
    return f"kafka.transactional.id {prefix}: {batch} is not published: {why}. It is written again at the next start"


def lost(prefix: str, decision: Decision, because_of: Iterable[TaskTransactionWritten]) -> str:
    """The sentence for a batch of which a part was published, and the other part is lost."""
    return (
        f"kafka.transactional.id {prefix}: {decision.batch} was published in part: its transactions that wrote to "
        f"{named(list(because_of))} were aborted after the others were committed. {_mend(prefix)}"
    )


def doubtful(prefix: str, decision: Decision, because_of: Iterable[TaskTransactionWritten]) -> str:
    """The sentence for a batch of which nobody knows whether all was published."""
    return (
        f"kafka.transactional.id {prefix}: it is not known whether all of {decision.batch} was published: brokers do "
        f"not know any more how its transactions that wrote to {named(list(because_of))} ended. {_mend(prefix)}"
    )


def _mend(prefix: str) -> str:
    return (
        f"Look at the records there, then have the batch count as published, or be written again: python -m "
        f"spark_kafka_group transactions --transactional-id {prefix} commit (or abort) says what it would do, and does "
        f"it with --execute"
    )
