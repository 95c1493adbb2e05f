"""The end of what was decided: its transactions are committed, and those that nobody decided on are aborted."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from spark_kafka_group.errors import ProducerFencedError, TransactionError
from spark_kafka_group.text.foreign_text import listed
from spark_kafka_group.transactions.resolution import Resolution, resolved
from spark_kafka_group.values.exactly_once import Decision, ProducerIdAndEpoch, State, TaskTransactionWritten
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient, is_next
from spark_kafka_group.wire.transactions.transaction_ends import End, looked_up
from spark_kafka_group.wire.transactions.transaction_requests import COMMITTED, Described

log = logging.getLogger(__name__)

LOOKED_UP_WITHIN_S = 10.0


def last_decision(decisions: DecisionLog, prefix: str, start: int = 0) -> tuple[int, Decision] | None:
    """The last decision of a prefix, and its offset. Raises TransactionError when this version cannot read it."""
    found = decisions.last(prefix, start)
    if found is None:
        return None
    offset, value = found
    try:
        return offset, Decision.from_json(value)
    except ValueError as error:
        raise TransactionError(
            f"kafka.transactional.id {prefix}: the last decision, at offset {offset} of the decision topic, {error}"
        ) from error


def ends_of(
    client: TransactionClient, decisions: DecisionLog, decision: Decision, within_s: float
) -> dict[str, End | None]:
    """How the transactions of a decision have ended, by their ids; None for one that is open."""
    ends: dict[str, End | None] = {}
    described = _described(client, decision.transactions)
    for one in decision.transactions:
        known = described.get(one.transactional_id)
        if known is not None and known.producer == one.producer:
            if known.open:
                ends[one.transactional_id] = None
            elif known.state in COMMITTED:
                ends[one.transactional_id] = End.COMMITTED
    unclear = [one for one in decision.transactions if one.transactional_id not in ends]
    return ends | _looked_up(decisions, described, unclear, within_s)


def _described(client: TransactionClient, transactions: Iterable[TaskTransactionWritten]) -> Mapping[str, Described]:
    return client.describe([one.transactional_id for one in transactions]) if client.describes else {}


def _looked_up(
    decisions: DecisionLog,
    described: Mapping[str, Described],
    transactions: Sequence[TaskTransactionWritten],
    within_s: float,
) -> dict[str, End]:
    """How transactions have ended, as their partitions tell, if coordinators do not say that they are to be aborted:
    while replicas of one partition are away, none may tell yet."""
    ends = {
        one.transactional_id: End.ABORTED
        for one in transactions
        if _is_to_be_aborted(described.get(one.transactional_id), one.producer)
    }
    unclear = [one for one in transactions if one.transactional_id not in ends]
    return ends | looked_up(decisions.partitions, unclear, within_s)


def _is_to_be_aborted(known: Described | None, producer: ProducerIdAndEpoch) -> bool:
    if known is None or not known.is_being_aborted:
        return False
    return known.producer == producer or is_next(known.producer, producer)


def abort_a_rest(client: TransactionClient, decisions: DecisionLog, decision: Decision) -> set[str]:
    """Abort what is open of a batch of which nothing is published, and not all can be: it is written again as a whole;
    the ids of what stays open.

    1. A batch is decided, and its driver dies. 2. The time of its first transaction is over. 3. The driver is started
    again. If it committed the others, the batch would be published in part. What another process commits meanwhile is
    seen by :func:`finish`.
    """
    ends = ends_of(client, decisions, decision, LOOKED_UP_WITHIN_S)
    left = {one.transactional_id: one.producer for one in decision.transactions if ends[one.transactional_id] is None}
    if set(ends.values()) != {None, End.ABORTED}:
        return set(left)
    client.abort_all(left)
    return set()


def finish(
    client: TransactionClient, decisions: DecisionLog, decision: Decision, are_open: Collection[str] | None = None
) -> Resolution:
    """Commit all transactions of a decision, perhaps again, and say what it has come to.

    A coordinator that refuses may have committed the transaction before: 1. it was committed. 2. The answer was lost
    with the driver. 3. The id was used again, or expired. So the partitions are asked then.

    None is committed while a partition of one that is open has no leader: the time of all is over then, and the batch
    is written again, if that lasts.

    `are_open`: the ids of those that may be open; None for all.
    """
    waiting = [one for one in decision.transactions if are_open is None or one.transactional_id in are_open]
    partitions = {tp for one in waiting for tp in one.offsets}
    committed = client.commit_all(
        {one.transactional_id: one.producer for one in decision.transactions},
        {one.transactional_id: partitions for one in waiting},
    )
    unclear = [one for one in decision.transactions if not committed[one.transactional_id]]
    ends = _looked_up(decisions, _described(client, unclear), unclear, LOOKED_UP_WITHIN_S)
    return resolved(decision.transactions, dict.fromkeys(committed, End.COMMITTED) | ends)


def revoke(decisions: DecisionLog, prefix: str, decision: Decision, driver: ProducerIdAndEpoch, sequence: int) -> int:
    """Decide that a batch is to be written again; the offset of the decision."""
    revoked = replace(decision, state=State.REVOKED, transactions=())
    return decisions.append(prefix, revoked.to_json(), driver, sequence)


def leftovers(
    found: Mapping[str, Described], belonging: Iterable[TaskTransactionWritten]
) -> dict[str, ProducerIdAndEpoch]:
    """Open transactions that belong to no batch: of attempts that were killed, or that Spark did not need."""
    known = {(one.transactional_id, one.producer) for one in belonging}
    return {one: seen.producer for one, seen in found.items() if (one, seen.producer) not in known}


def left_open(
    client: TransactionClient, prefix: str, driver: ProducerIdAndEpoch, belonging: Iterable[TaskTransactionWritten]
) -> dict[str, ProducerIdAndEpoch]:
    """The leftovers of a prefix that this driver has, and no other one.

    1. A driver takes the prefix, and stands still. 2. Another one takes it, and its tasks begin. 3. The first one goes
    on, and lists their transactions. So it looks afterwards whether the prefix is still its own: tasks of the other one
    begin after that one has taken it.

    Raises ProducerFencedError when another driver has the prefix; BrokerError.
    """
    found = leftovers(client.open_of(prefix), belonging)
    if found:
        known = client.describe([prefix]).get(prefix)
        if known is None or known.producer != driver:
            raise ProducerFencedError(
                f"kafka.transactional.id {prefix}: another driver has taken it since this batch was planned"
            )
    return found


def abort(client: TransactionClient, prefix: str, transactions: Mapping[str, ProducerIdAndEpoch]) -> None:
    """Abort open transactions of just these producers."""
    if transactions:
        log.info("kafka.transactional.id %s: aborting %s", prefix, listed(sorted(transactions)))
        client.abort_all(transactions)
