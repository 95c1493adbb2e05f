"""The transactions of a prefix, looked at from outside, and ended by a person's choice."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass, replace
from enum import Enum

from spark_kafka_group.transactions.finishing import abort, ends_of, finish, last_decision, left_open, leftovers, revoke
from spark_kafka_group.transactions.resolution import Kind
from spark_kafka_group.values.exactly_once import Decision, ProducerIdAndEpoch, State, TaskTransactionWritten, named
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_ends import End
from spark_kafka_group.wire.transactions.transaction_requests import Described

LOOKED_UP_WITHIN_S = 5.0
ENDING_TIMEOUTS_MS = (60_000, 10_000, 1_000)  # of the decision's own transaction, the first that brokers allow


class Choice(Enum):
    """What is to become of a batch that was published in part; all else is ended in the same way."""

    COMMIT = "commit"  # it counts as published
    ABORT = "abort"  # it is written again


@dataclass(frozen=True)
class SeenTransactions:
    """The transactions of a prefix. `ends`: how the decision's transactions have ended, by their ids; None for one that
    is open. `others`: open transactions that belong to no decision."""

    prefix: str
    decision: Decision | None
    ends: Mapping[str, End | None]
    open: tuple[Described, ...]

    @property
    def others(self) -> dict[str, ProducerIdAndEpoch]:
        """Open transactions that belong to no decision."""
        belonging = () if self.decision is None else self.decision.transactions
        return leftovers({one.transactional_id: one for one in self.open}, belonging)

    def of_decision(self, *ends: End | None) -> list[TaskTransactionWritten]:
        """The decision's transactions that have ended so."""
        every = () if self.decision is None else self.decision.transactions
        return [one for one in every if self.ends[one.transactional_id] in ends]

    @property
    def is_broken(self) -> bool:
        """Whether some of the decision's transactions cannot be committed, or nobody knows whether they were."""
        return bool(self.of_decision(End.ABORTED, End.UNKNOWN))


def look(client: TransactionClient, decisions: DecisionLog, prefix: str) -> SeenTransactions:
    """Look, and change nothing. Raises BrokerError; TransactionError when the last decision cannot be read."""
    found = last_decision(decisions, prefix) if decisions.exists() else None
    decision = None if found is None else found[1]
    open_now = tuple(seen for _, seen in sorted(client.open_of(prefix).items()))
    if decision is None or decision.state is not State.DECIDED:
        return SeenTransactions(prefix, decision, {}, open_now)
    return SeenTransactions(prefix, decision, ends_of(client, decisions, decision, LOOKED_UP_WITHIN_S), open_now)


def steps(seen: SeenTransactions, choice: Choice) -> list[str]:
    """What :func:`end` does, a sentence each."""
    found = []
    decision = seen.decision
    if decision is not None and decision.state is State.DECIDED:
        found += _of_decision(seen, decision, choice)
    others = seen.others
    if others:
        found.append(f"abort {_open(others)} of no decision: {', '.join(sorted(others))}")
    return found


def _of_decision(seen: SeenTransactions, decision: Decision, choice: Choice) -> list[str]:
    left, published = seen.of_decision(None), seen.of_decision(End.COMMITTED)
    broken = seen.of_decision(End.ABORTED, End.UNKNOWN)
    if not broken:
        return [f"commit {_open(left)} of {decision.batch}"] if left else []
    if choice is Choice.COMMIT and (left or published or seen.of_decision(End.UNKNOWN)):
        committed = [f"commit {_open(left)} of {decision.batch}"] if left else []
        settled = (
            f"have {decision.batch} count as published, though what it wrote in {_transactions(broken)} to "
            f"{named(broken)} is lost, or may be"
        )
        return [*committed, settled]
    aborted = [f"abort {_open(left)} of {decision.batch}"] if left else []
    twice = [*published, *seen.of_decision(End.UNKNOWN)]
    where = f"; rows that it published to {named(twice)} are there twice then, or may be" if twice else ""
    return [*aborted, f"have {decision.batch} be written again at the next start{where}"]


def _open(some: Sized) -> str:
    return _transactions(some, "open transaction")


def _transactions(some: Sized, kind: str = "transaction") -> str:
    return f"{len(some)} {kind}{'' if len(some) == 1 else 's'}"


def end(client: TransactionClient, decisions: DecisionLog, prefix: str, choice: Choice) -> None:
    """End all transactions of a prefix. Its query is fenced, and stops. Raises BrokerError, TransactionError."""
    driver = None
    if decisions.exists():
        driver, _ = client.take_with(prefix, ENDING_TIMEOUTS_MS)
        seen = look(client, decisions, prefix)
        if seen.decision is not None and seen.decision.state is State.DECIDED:
            _end_decision(client, decisions, seen, seen.decision, driver, choice)
    seen = look(client, decisions, prefix)
    belonging = () if seen.decision is None else seen.decision.transactions
    others = seen.others if driver is None else left_open(client, prefix, driver, belonging)
    abort(client, prefix, others)


def _end_decision(
    client: TransactionClient,
    decisions: DecisionLog,
    seen: SeenTransactions,
    decision: Decision,
    driver: ProducerIdAndEpoch,
    choice: Choice,
) -> None:
    if choice is Choice.ABORT and seen.is_broken:
        left = {one.transactional_id: one.producer for one in seen.of_decision(None)}
        abort(client, seen.prefix, left)
        revoke(decisions, seen.prefix, decision, driver, sequence=0)
        return
    match finish(client, decisions, decision, {one.transactional_id for one in seen.of_decision(None)}).kind:
        case Kind.REVOKE:
            revoke(decisions, seen.prefix, decision, driver, sequence=0)
        case Kind.LOST | Kind.DOUBTFUL if choice is Choice.COMMIT:
            settled = replace(decision, state=State.SETTLED, transactions=())
            decisions.append(seen.prefix, settled.to_json(), driver, sequence=0)
        case _:
            pass
