"""The start of an exactly-once batch: what the last one has left is ended, before any task writes."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spark_kafka_group.errors import TransactionError, TransactionLostError
from spark_kafka_group.options.transacting import TransactionOptions
from spark_kafka_group.text.foreign_text import listed
from spark_kafka_group.transactions import last_batch
from spark_kafka_group.transactions.checkpoint_log import logged_batch
from spark_kafka_group.transactions.finishing import abort, abort_a_rest, finish, last_decision, left_open, revoke
from spark_kafka_group.transactions.last_batch import LastBatch
from spark_kafka_group.transactions.resolution import Kind, doubtful, lost
from spark_kafka_group.values.exactly_once import OF_A_BATCH_WRITE, Decision, ProducerIdAndEpoch, State
from spark_kafka_group.values.planned_transactions import PlannedTransactions
from spark_kafka_group.values.source_offsets import SourceOffsets, published
from spark_kafka_group.wire.transactions.decision_log import DecisionLog
from spark_kafka_group.wire.transactions.kept_clients import kept_client
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient

log = logging.getLogger(__name__)

ROLE = "driver"
USUAL_LONGEST_MS, USUAL_MS = 900_000, 60_000  # defaults of brokers' transaction.max.timeout.ms, and of Kafka's producer


def planned(options: TransactionOptions, shared: Path | None = None) -> PlannedTransactions:
    """Fence older drivers, end what the last batch has left, and plan the transactions of the next.

    1. The prefix's own transactional id is taken: a decision that is under way is there or not from now on, and no
    older driver can make one. 2. The last decision is looked up. 3. Its transactions are committed. 4. All others of
    the prefix are aborted, each only if it is still of the producer that was seen: tasks of a yet newer driver, which
    may have begun by now, are not touched.

    In the same application, after a batch that was ended as a whole, only the first step is needed. It then fails for
    a driver that was replaced meanwhile, instead of replacing the other.

    `shared`: a directory that lives as long as the Spark application.
    Raises ProducerFencedError when another driver has taken the prefix since this application's last batch;
    TransactionLostError when a part of the last batch was published, and the other part cannot be any more;
    BrokerError.
    """
    known = last_batch.take_ended(options, shared)
    with kept_client(options, ROLE, reached_before=known is not None) as client:
        if known is not None and client.takes_expected:
            driver = client.take_id(options.prefix, options.deciding_ms(known.timeout_ms), expected=known.driver)
            plan = _plan(options, driver, known.timeout_ms, known.decision, known.offset, known.described)
        else:
            plan = _restarted(options, client)
    sources = of_sources(options, shared)
    planned_now = LastBatch(
        plan.driver, plan.timeout_ms, plan.described, plan.last, plan.last_offset, ended=False,
        sources=tuple((one.query_id, one.batch) for one in sources),
    )  # fmt: skip
    last_batch.leave(options, shared, planned_now)
    return replace(plan, sources=digest(sources), application="" if shared is None else shared.name)


def of_sources(options: TransactionOptions, shared: Path | None) -> list[SourceOffsets]:
    """The offsets of the batch that runs, of the sources that leave them to this write. Raises TransactionError when a
    source would look up what was decided of them elsewhere."""
    found = [] if shared is None else published(shared, options.prefix)
    topic = options.transacting.decision_topic
    other = next((one.decision_topic for one in found if one.decision_topic not in ("", topic)), None)
    if other is not None:
        raise TransactionError(
            f"decisionTopic of the sink is {topic}, and of a source with the same kafka.transactional.id "
            f"({options.prefix}) it is {other}: give both the same"
        )
    return found


def digest(sources: Sequence[SourceOffsets]) -> str:
    """Equal for the same offsets of the same batches, and empty for none: tasks carry it, as the offsets may be many.

    A source may have become another member meanwhile, which has kept all that its batch reads: 1. a query of three
    sources in one group is started again, and the first two join. 2. The third one joins, and its tasks are planned
    last. 3. The first two publish the offsets of their batches again, in the new generation.
    """
    if not sources:
        return ""
    batches = [[source.group_id, source.read.to_json()] for source in sources]
    return hashlib.sha256(json.dumps(batches, sort_keys=True).encode()).hexdigest()


def _restarted(options: TransactionOptions, client: TransactionClient) -> PlannedTransactions:
    prefix = options.prefix
    decisions = DecisionLog(client, options.transacting.decision_topic)
    decisions.prepare()
    driver, timeout_ms = client.take_with(prefix, _timeouts(options, decisions))
    if options.deciding_ms(timeout_ms) < timeout_ms:
        driver = _taken_again(options, client, driver, timeout_ms)
    offset, decision = last_decision(decisions, prefix) or (0, None)
    doubt = None
    forgotten = None if decision is not None else _why_forgotten(options, client)
    belonging = () if decision is None else decision.transactions
    if decision is not None and decision.state is State.DECIDED:
        are_open = abort_a_rest(client, decisions, decision)
        resolution = finish(client, decisions, decision, are_open)
        log.info("kafka.transactional.id %s: %s was decided: %s", prefix, decision.batch, resolution.kind.value)
        match resolution.kind:
            case Kind.LOST:
                raise TransactionLostError(lost(prefix, decision, resolution.because_of))
            case Kind.DOUBTFUL:
                doubt = doubtful(prefix, decision, resolution.because_of)
            case Kind.REVOKE:
                offset = revoke(decisions, prefix, decision, driver, sequence=0)
                decision = replace(decision, state=State.REVOKED)
                # Another epoch counts its records from 0 again.
                driver = _taken_again(options, client, driver, timeout_ms)
            case Kind.FINISHED:
                pass
    abort(client, prefix, left_open(client, prefix, driver, belonging))
    plan = _plan(options, driver, timeout_ms, decision, offset, client.describes)
    return replace(plan, doubt=doubt, forgotten=forgotten)


def _taken_again(
    options: TransactionOptions, client: TransactionClient, driver: ProducerIdAndEpoch, timeout_ms: int
) -> ProducerIdAndEpoch:
    expected = driver if client.takes_expected else None
    return client.take_id(options.prefix, options.deciding_ms(timeout_ms), expected)


def _why_forgotten(options: TransactionOptions, client: TransactionClient) -> str | None:
    """Why the topic must have lost a decision: it has none, and tasks' transactions are committed after one.

    1. A batch is decided, and its driver dies. 2. The decision topic is deleted, or the query started with another one.
    3. The batch would be written again.
    """
    committed = client.committed_of(options.prefix)
    if not committed:
        return None
    return (
        f"kafka.transactional.id {options.prefix}: topic {options.transacting.decision_topic} has no decision, though "
        f"{listed(committed)} committed rows: the topic was deleted, or decisionTopic is another one than before. It "
        f"is not known whether the batch was written. Name the topic of before; to go on without it, and perhaps write "
        f"the batch again, take another kafka.transactional.id"
    )


def _timeouts(options: TransactionOptions, decisions: DecisionLog) -> list[int]:
    """Timeouts of transactions to try, in this order."""
    if options.transacting.transaction_timeout_ms is not None:
        return [options.transacting.transaction_timeout_ms]
    longest_ms = decisions.longest_timeout_ms()
    return [USUAL_LONGEST_MS, USUAL_MS] if longest_ms is None else [longest_ms]


def _plan(
    options: TransactionOptions,
    driver: ProducerIdAndEpoch,
    timeout_ms: int,
    decision: Decision | None,
    offset: int,
    described: bool,
) -> PlannedTransactions:
    return PlannedTransactions(
        prefix=options.prefix,
        driver=driver,
        timeout_ms=timeout_ms,
        last=None if decision is None else decision.in_short,
        last_offset=offset,
        doubt=None,
        described=described,
        write_id=f"{OF_A_BATCH_WRITE}{uuid.uuid4().hex}",
        logged="" if decision is None else logged_batch(options.checkpoint, decision.batch),
        planned_ms=int(time.time() * 1000),
        planned_s=time.monotonic(),
    )
