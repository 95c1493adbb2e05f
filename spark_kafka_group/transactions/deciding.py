"""The end of an exactly-once batch: one durable decision, then the end of every transaction."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spark_kafka_group.errors import BrokerError, ProducerFencedError, TransactionError, TransactionLostError
from spark_kafka_group.options.transacting import TransactionOptions
from spark_kafka_group.transactions import last_batch, resolution
from spark_kafka_group.transactions.checkpoint_log import is_without, logged_batch
from spark_kafka_group.transactions.finishing import abort, abort_a_rest, finish, last_decision, left_open, revoke
from spark_kafka_group.transactions.last_batch import LastBatch
from spark_kafka_group.transactions.planning import digest, of_sources
from spark_kafka_group.transactions.resolution import Kind
from spark_kafka_group.values.exactly_once import (
    UNKNOWN,
    BatchId,
    Decision,
    ProducerIdAndEpoch,
    State,
    TaskTransactionWritten,
)
from spark_kafka_group.values.planned_transactions import PlannedTransactions, TaskWrite
from spark_kafka_group.values.source_offsets import SourceOffsets
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.kept_clients import kept_client
from spark_kafka_group.wire.transactions.transaction_client import NONE_BEGINS_MS, TransactionClient, longest_mark
from spark_kafka_group.wire.transactions.transaction_requests import Described

log = logging.getLogger(__name__)

ROLE = "driver"
ABORTED_WITHIN_MS = 30_000
"""How long Spark's call after a failure, and a query that is stopped, may wait: the next start aborts the rest."""


def decide_and_end(
    options: TransactionOptions, messages: Sequence[TaskWrite | None], shared: Path | None = None
) -> None:
    """Publish a batch: all of it, or nothing.

    1. All transactions are seen to be open, and to have time. 2. The decision is written, which is refused where
    another driver has taken the prefix; offsets of sources are committed in the same transaction, which is refused
    where a group has gone on without their member. 3. Each transaction is committed. Whatever happens after step 2,
    the next start goes on with step 3, and the batch's tasks write nothing. Before it, the next start aborts all of
    them.

    Transactions of attempts that Spark did not need are looked up and aborted after step 3, so that readers of
    committed records need not wait for their timeout. An attempt that goes on later finds out that the batch was
    decided, and aborts its own.

    `messages`: of the batch's tasks.
    `shared`: as of :func:`planned`.
    Raises TransactionError when the batch was not published, or not as a whole; the text says which of the two, and
    what to do. Raises BrokerError when brokers did not say in time what was published. The next start finds out.
    """
    told = [message for message in messages if message is not None]
    if not told:
        return
    planned, batch = told[0].planned, told[0].batch
    written = [message.transaction for message in told if message.transaction is not None]
    rows = sum(message.rows for message in told)
    if len(told) < len(messages):  # the transactions of these tasks would be aborted with those that nobody needs
        raise TransactionError(
            f"kafka.transactional.id {planned.prefix}: the batch is not published: {len(messages) - len(told)} of its "
            f"tasks have not said what they wrote"
        )
    with kept_client(options, ROLE) as client:
        decision, offset = planned.last, planned.last_offset
        driver: ProducerIdAndEpoch | None = planned.driver
        was_written = _was_written(planned, told[0], rows)
        if (written or planned.sources or _begins(planned, batch)) and not was_written:
            over_ms, described = _check(client, planned, written)
            sources = _sources(options, planned, batch, shared)
            decisions = DecisionLog(client, options.transacting.decision_topic)
            _tell_of_another_id(decisions, planned, batch, told[0].run)
            decision = Decision(
                batch, State.DECIDED, planned.parity, tuple(written), rows, told[0].run,
                logged_batch(options.checkpoint, batch),
                tuple(one.read for one in sources),
            )  # fmt: skip
            offset = _append(options, decisions, planned, decision, sources, described)
            # Brokers may have been slow to take the decision, and may have aborted a part meanwhile.
            if _now_ms(planned) >= over_ms:
                abort_a_rest(client, decisions, decision)
            _end(client, decisions, planned, decision)
            if batch.is_batch_write:
                offset, is_noted = _leave_ended(decisions, planned, decision, offset)
                driver = _refuse_late_tasks(client, planned, is_noted)
        _abort_unneeded(client, planned, driver or planned.driver, written, is_published=decision is not planned.last)
    left = None if decision is None else decision.in_short
    if driver is None:  # the next write of this application begins as a new one does
        last_batch.forget(shared, options.prefix)
    else:
        ended = LastBatch(driver, planned.timeout_ms, planned.described, left, offset, ended=True)
        last_batch.leave(options, shared, ended)


def _tell_of_another_id(decisions: DecisionLog, planned: PlannedTransactions, batch: BatchId, run: str) -> None:
    """Warn where a query that is not new begins with an id, and has written this batch with another one. No error: so
    batches are written once more, and a function for foreachBatch may write with several."""
    if planned.last is not None or batch.batch == 0:
        return
    try:
        found = decisions.last_with(json.dumps(batch.query))
        before = None if found is None else Decision.from_json(found[1])
    except (BrokerError, ValueError) as error:
        log.info("kafka.transactional.id %s: decisions of other ids are not known: %s", planned.prefix, error)
        return
    if found is None or before is None or (run and run == before.run) or before.state is State.REVOKED:
        return
    if before.batch.query == batch.query and before.batch.batch >= batch.batch:
        log.warning(
            "kafka.transactional.id %s: %s was published with kafka.transactional.id %s before: if this id has taken "
            "its place, the rows of the batch are there twice",
            planned.prefix, before.batch, found[0],
        )  # fmt: skip


def _append(
    options: TransactionOptions,
    decisions: DecisionLog,
    planned: PlannedTransactions,
    decision: Decision,
    sources: Sequence[SourceOffsets],
    described: Mapping[str, Described],
) -> int:
    """Write the decision; its offset. It is refused if its time is almost over by the clocks of brokers."""
    began_s, open_ms = time.monotonic(), options.deciding_ms(planned.timeout_ms)
    open_ms -= longest_mark(open_ms)

    def check(now_ms: int) -> None:
        _refuse(planned, resolution.why_not_decided(decision.transactions, described, now_ms))

    try:
        return decisions.append(
            planned.prefix, decision.to_json(), planned.driver, 0, sources, check if described else None
        )
    except ProducerFencedError as error:
        took_s = time.monotonic() - began_s
        if took_s * 1000 < open_ms:
            raise
        why = f"brokers took {took_s:.0f} s for the decision, and abort its transaction after {open_ms / 1000:.0f} s"
        raise TransactionError(resolution.again(planned.prefix, decision.batch, why)) from error


def _begins(planned: PlannedTransactions, batch: BatchId) -> bool:
    """Whether a query begins with an id that another one had: its next batch is refused, unless this one is decided."""
    return planned.last is not None and planned.last.batch.query != batch.query


def _leave_ended(
    decisions: DecisionLog, planned: PlannedTransactions, decision: Decision, offset: int
) -> tuple[int, bool]:
    """Note that a batch write needs nothing any more; the offset of its last record, and whether it was noted.

    1. A job writes once a month. 2. Brokers forget its transactional ids after a week, and its topic is deleted. 3. The
    next job would not know whether all of the last one was published. No later batch of a query says so here.
    """
    ended = replace(decision, state=State.ENDED, transactions=())
    try:
        return decisions.append(planned.prefix, ended.to_json(), planned.driver, sequence=1), True
    except (BrokerError, ProducerFencedError) as error:
        log.warning("kafka.transactional.id %s: the end of the write cannot be noted: %s", planned.prefix, error)
        return offset, False


def _refuse_late_tasks(
    client: TransactionClient, planned: PlannedTransactions, is_noted: bool
) -> ProducerIdAndEpoch | None:
    """Let no task of a batch write begin any more, and end the transaction of a note that failed; the driver's producer
    then, None where it is not known, or must not go on.

    1. Spark does not need an attempt any more, which goes on for two seconds. 2. The leftovers are looked up, and the
    write ends. 3. The attempt comes to its first row, and begins its transaction. A query's next batch would abort it;
    here readers would wait for its timeout.
    """
    unchanged = planned.driver if is_noted else None
    if not planned.described or not client.takes_expected:
        return unchanged
    try:
        driver = _taken_to_abort(client, planned.prefix, planned.driver)
    except BrokerError as error:
        log.warning("kafka.transactional.id %s: late tasks cannot be refused: %s", planned.prefix, error)
        return None
    if driver is None:
        log.warning("kafka.transactional.id %s: another process has taken it, and ends what is open", planned.prefix)
        return unchanged
    return driver


def _was_written(planned: PlannedTransactions, told: TaskWrite, rows: int) -> bool:
    if not planned.is_written(told.batch, told.run):
        return False
    problem = planned.why_not_the_same(rows)
    if problem is not None:
        raise TransactionError(problem)
    then = UNKNOWN if planned.last is None else planned.last.rows
    if then not in (UNKNOWN, rows):
        log.warning(
            "kafka.transactional.id %s: %s was published with %d rows, and has %d now that it is run again: what was "
            "published counts, and nothing is written",
            planned.prefix, told.batch, then, rows,
        )  # fmt: skip
    return True


def _abort_unneeded(
    client: TransactionClient,
    planned: PlannedTransactions,
    driver: ProducerIdAndEpoch,
    written: list[TaskTransactionWritten],
    *,
    is_published: bool,
) -> None:
    """Abort open transactions of attempts that Spark did not need, which may fail once the batch is published. Raises
    ProducerFencedError when another driver has the prefix, and no decision would have shown it."""
    if not planned.described:
        return
    try:
        abort(client, planned.prefix, left_open(client, planned.prefix, driver, written))
    except (ProducerFencedError, BrokerError) as error:
        if isinstance(error, ProducerFencedError) and not is_published:
            raise
        log.warning(
            "kafka.transactional.id %s: transactions of attempts that were not needed stay open, until the next batch "
            "or their timeout: %s",
            planned.prefix, error,
        )  # fmt: skip


def _check(
    client: TransactionClient, planned: PlannedTransactions, written: list[TaskTransactionWritten]
) -> tuple[int, Mapping[str, Described]]:
    """See that a batch can be decided; until when, by the driver's clock, its transactions are sure to stay open, and
    what brokers say of them.

    Brokers say when a transaction began by clocks that may be ahead of the driver's, or behind it. If behind, it began
    after the batch was planned. If ahead, the decision finds out, which asks for their time.
    """
    if not planned.described:
        return resolution.NEVER_MS, {}
    described = client.describe([one.transactional_id for one in written])
    found = {one: known.begun_after(planned.planned_ms) for one, known in described.items()}
    checked_ms = _now_ms(planned)
    _refuse(planned, resolution.why_not_decided(written, found, checked_ms))
    slow = resolution.slowest(found.values(), checked_ms)
    if slow is not None:
        log.warning(
            "kafka.transactional.id %s: the batch took %d s of the %d s that kafka.transaction.timeout.ms allows; one "
            "that takes longer cannot be published: raise it, or let batches be smaller",
            planned.prefix, (checked_ms - slow.started_ms) // 1000, slow.timeout_ms // 1000,
        )  # fmt: skip
    return min(resolution.first_over_ms(found.values()), planned.planned_ms + planned.timeout_ms), described


def _refuse(planned: PlannedTransactions, problem: str | None) -> None:
    if problem is not None:
        raise TransactionError(f"kafka.transactional.id {planned.prefix}: the batch is not published: {problem}")


def _now_ms(planned: PlannedTransactions) -> int:
    """The time by the driver's clock, if nobody has set it back since a batch was planned. The clock that nobody sets
    stands still while the host sleeps, so what counts is the one that has gone further."""
    by_the_other = planned.planned_ms + (time.monotonic() - planned.planned_s) * 1000
    return int(max(time.time() * 1000, by_the_other))


def _sources(
    options: TransactionOptions, planned: PlannedTransactions, batch: BatchId, shared: Path | None
) -> list[SourceOffsets]:
    """The offsets of sources that the decision commits.

    1. A batch is planned, and its source ends. 2. The query is started again in the same application. 3. Its source
    publishes the offsets of another batch, or none.

    Or: 1. A query reads and writes with one id, and a batch of it runs. 2. Another query of the application, without
    such a source, writes with the same id. 3. It would commit the offsets of that batch, whose rows are not written,
    and a new checkpoint, or another member of the group, would go on after them. It is noticed where the checkpoint can
    be read here, or the last decision is the first query's. A batch that Spark's own source has planned, before the
    checkpoint was taken over, names the source's topics alone.
    """
    found = of_sources(options, shared)
    if digest(found) != planned.sources:
        raise TransactionError(
            f"kafka.transactional.id {planned.prefix}: the batch is not published: its source has ended, or was "
            f"started again, since the batch was planned"
        )
    for one in found:
        if one.offsets and is_without(options.checkpoint, batch, one.query_id, {tp.topic for tp in one.offsets}):
            raise TransactionError(
                f"kafka.transactional.id {planned.prefix}: {batch} is not published: it would commit offsets of "
                f"another query's source, which has the same id. Give each query a kafka.transactional.id of its own, "
                f"that none has had"
            )
    last = planned.last
    if last is not None and last.batch.query != batch.query:
        of_others = {one.query_id for one in last.sources or ()} & {one.query_id for one in found}
        if of_others:
            raise TransactionError(
                f"kafka.transactional.id {planned.prefix}: {batch} is not published: it would commit offsets of a "
                f"source of which {last.batch} has committed some, and only one of the two can have that source. Give "
                f"each query a kafka.transactional.id of its own, that none has had"
            )
    return found


def _end(client: TransactionClient, decisions: DecisionLog, planned: PlannedTransactions, decision: Decision) -> None:
    found = finish(client, decisions, decision)
    match found.kind:
        case Kind.REVOKE:
            revoke(decisions, planned.prefix, decision, planned.driver, sequence=1)
            raise TransactionError(
                resolution.again(
                    planned.prefix, decision.batch, "its transactions ended before they could be committed"
                )
            )
        case Kind.LOST:
            raise TransactionLostError(resolution.lost(planned.prefix, decision, found.because_of))
        case Kind.DOUBTFUL:
            raise TransactionError(resolution.doubtful(planned.prefix, decision, found.because_of))
        case Kind.FINISHED:
            pass


def abort_undecided(
    options: TransactionOptions,
    messages: Sequence[TaskWrite | None],
    shared: Path | None = None,
    planned_here: PlannedTransactions | None = None,
) -> None:
    """Abort a batch's transactions after a failure, unless the batch was decided.

    Spark calls for it also when the commit has failed, and that may be after the decision, or without an answer about
    it. So the prefix is taken first, as at a start, and the last decision read. Without a message of any task there was
    no commit; then the application knows the plan, or the next start aborts what tasks have left.

    `planned_here`: the plan, where this process has it: the application's last one may be that of another write with
        the same id.
    Raises BrokerError.
    """
    told = [message for message in messages if message is not None]
    known = told[0].planned if told else planned_here
    planned = last_batch.planned_last(options, shared) if known is None else _as_planned(known)
    if planned is not None:
        limited = replace(options, limit_ms=min(options.limit_ms, ABORTED_WITHIN_MS))
        with kept_client(limited, ROLE) as client, client.together():
            _abort_batch(client, options.transacting.decision_topic, options.prefix, planned, told)
        last_batch.forget(shared, options.prefix)


def abort_left(
    options: TransactionOptions, planned: LastBatch, last: Callable[[], LastBatch | None], shared: Path | None
) -> None:
    """Abort what a batch has left open that was planned, and not ended, as its query has ended, and forget its plan.

    Spark does not do it where it stops a query while it waits for the commit: 1. It interrupts the thread that waits.
    2. The call of the commit fails, and leaves the thread interrupted. 3. So the call that is to abort fails, too.

    The plan stays where nothing was aborted: it is not the last batch, or it was decided, or brokers are too old to say
    what is open (before 3.0).

    `last` returns the last batch, if it has not ended. It has to be `planned` still: 1. The commit goes on by itself,
    and ends the batch. 2. The query is started again, and its next batch takes the id from the same producer. 3.
    Brokers would take another request for it for the same one, repeated.

    Raises BrokerError, TransactionError.
    """
    with TransactionClient(options.client, ROLE, options.limit_ms, reached_before=True) as client, client.together():
        # Where it cannot be taken from an expected producer, a query that has been started meanwhile would be fenced.
        if not (client.takes_expected and planned.described and last() == planned):
            return
        if not _abort_batch(client, options.transacting.decision_topic, options.prefix, planned, ()):
            return
    if last() == planned:
        last_batch.forget(shared, options.prefix)


def _abort_batch(
    client: TransactionClient, decision_topic: str, prefix: str, planned: LastBatch, told: Sequence[TaskWrite]
) -> bool:
    """Whether nothing of the batch stays open: False where it was decided, so that its transactions are to be ended."""
    client.give_up(prefix, planned.driver)
    driver = _taken_to_abort(client, prefix, planned.driver)
    if driver is None:
        log.info("kafka.transactional.id %s: another driver has taken it, and ends what is open", prefix)
        return True
    found = last_decision(DecisionLog(client, decision_topic), prefix, planned.offset)
    if told and found is not None and found[1].batch == told[0].batch and found[1].state is not State.REVOKED:
        log.info("kafka.transactional.id %s: %s was decided: the next start ends it", prefix, told[0].batch)
        return False
    belonging = {m.transaction.transactional_id: m.transaction.producer for m in told if m.transaction is not None}
    decided = () if found is None else found[1].transactions
    others = left_open(client, prefix, driver, decided) if planned.described else {}
    abort(client, prefix, belonging | others)  # the latter is what brokers know now
    if found is None or found[1].state is not State.DECIDED:
        return True
    return planned.decision is not None and found[0] == planned.offset  # that of the batch before


def _taken_to_abort(client: TransactionClient, prefix: str, driver: ProducerIdAndEpoch) -> ProducerIdAndEpoch | None:
    """The driver's producer after this one, with nothing open; None where another driver has the id. Before
    transaction.version 2 brokers raise the epoch to abort, and so fence the producer that asks."""
    expected = driver if client.takes_expected else None
    while True:
        try:
            return client.take_id(prefix, NONE_BEGINS_MS, expected)
        except ProducerFencedError:
            expected = None if expected is None else client.aged(prefix, expected)
            if expected is None:
                return None


def _as_planned(planned: PlannedTransactions) -> LastBatch:
    last = planned.last
    return LastBatch(planned.driver, planned.timeout_ms, planned.described, last, planned.last_offset, ended=False)
