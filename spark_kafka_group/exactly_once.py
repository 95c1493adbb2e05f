"""What driver and tasks of an exactly-once write tell each other. Values only, no I/O.

The driver plans a write, and tasks write in transactions that they do not end. The driver then decides, once and
durably, that the batch is written, and ends all of them. :class:`Decision` is that decision, as the decision topic has
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from spark_kafka_group import json_text
from spark_kafka_group.errors import TransactionError
from spark_kafka_group.offsets import TopicPartition, positions_from_json, positions_to_json

FORMAT_VERSION = 1
UNKNOWN = -1
OF_A_BATCH_WRITE = "write-"
"""How the ids of batch writes begin; those of queries are UUIDs."""


class Producer(NamedTuple):
    """A producer as brokers know it: of two with one id, the later epoch fences the other."""

    producer_id: int
    epoch: int


class BatchId(NamedTuple):
    """A micro-batch, by the id of its query, which its checkpoint keeps. A batch write is a query of one batch."""

    query: str
    batch: int

    @property
    def is_batch_write(self) -> bool:
        """Whether it is the whole of a batch write."""
        return self.query.startswith(OF_A_BATCH_WRITE)

    def __str__(self) -> str:
        return f"batch write {self.query}" if self.is_batch_write else f"batch {self.batch} of query {self.query}"


@dataclass(frozen=True)
class TaskTransactionWritten:
    """A task's transaction: all of its records are acknowledged, and it is open.

    Attributes
    ----------
    offsets
        The offset of its last record in each of its partitions; -1 where brokers did not say it. Where a consumer that
        reads committed records comes by them, it is told how the transaction ended.
    """

    transactional_id: str
    producer: Producer
    offsets: Mapping[TopicPartition, int]


class State(Enum):
    """What was decided about a batch, by the word in the decision topic."""

    DECIDED = "decided"
    """It is written: its transactions are to be committed, whatever happens."""
    REVOKED = "revoked"
    """None of its transactions could be committed: it is to be written again."""
    SETTLED = "settled"
    """It counts as written, though some of its transactions were lost: a person has said so."""
    ENDED = "ended"
    """It is written, and all of its transactions were committed: nobody needs to look at them again."""


@dataclass(frozen=True)
class Decision:
    """The last decision of a prefix.

    Attributes
    ----------
    parity
        Of the ids of its transactions. No task takes ids of this parity before there is another decision.
    rows
        Of the batch; UNKNOWN where that is not told.
    run
        As of :class:`TaskWrite`.
    """

    batch: BatchId
    state: State
    parity: int
    transactions: tuple[TaskTransactionWritten, ...]
    rows: int = UNKNOWN
    run: str = ""

    def to_json(self) -> bytes:
        """As the decision topic has it."""
        value = {
            "version": FORMAT_VERSION, "state": self.state.value, "query": self.batch.query, "batch": self.batch.batch,
            "parity": self.parity, "rows": self.rows, "run": self.run,
            "transactions": [_transaction_to_json(one) for one in self.transactions],
        }  # fmt: skip
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, raw: bytes) -> Decision:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        ValueError
            When this version cannot read it.
        """
        value = json_text.parsed(raw)
        if not isinstance(value, dict) or value.get("version") != FORMAT_VERSION:
            raise ValueError(f"is not of version {FORMAT_VERSION}: another version of spark_kafka_group wrote it")
        try:
            return cls(
                BatchId(str(value["query"]), int(value["batch"])),
                State(value["state"]),
                int(value["parity"]) % 2,
                tuple(_transaction_from_json(one) for one in value["transactions"]),
                int(value.get("rows", UNKNOWN)),
                str(value.get("run", "")),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"lacks a field, or has one of another kind: {error}") from error


def _transaction_to_json(one: TaskTransactionWritten) -> dict[str, Any]:
    return {"id": one.transactional_id, "producer": list(one.producer), "offsets": positions_to_json(one.offsets)}


def _transaction_from_json(value: Mapping[str, Any]) -> TaskTransactionWritten:
    producer_id, epoch = value["producer"]
    offsets = positions_from_json(value["offsets"], "offsets")
    return TaskTransactionWritten(str(value["id"]), Producer(int(producer_id), int(epoch)), offsets)


@dataclass(frozen=True)
class PlannedTransactions:
    """What the driver has planned for one batch, for its tasks and its commit.

    Attributes
    ----------
    driver
        The driver's own producer, of the transactional id that is the prefix. Planning again fences it.
    timeout_ms
        Of each transaction.
    last, last_offset
        The last decision of the prefix, without its transactions, and its offset in the decision topic.
    doubt
        Why it is not known that all of the last decision's transactions were committed; None where it is.
    described
        Whether brokers describe and list transactions (from Kafka 3.0 on).
    write_id
        The query's id where Spark has none: of a batch write.
    sources
        A digest of the offsets that sources of the query have for this batch, and that its decision commits; empty
        where there are none.
    application
        Another one for each Spark application; empty outside of Spark.
    """

    prefix: str
    driver: Producer
    timeout_ms: int
    last: Decision | None
    last_offset: int
    doubt: str | None
    described: bool
    write_id: str
    sources: str = ""
    application: str = ""

    @property
    def parity(self) -> int:
        """Of the tasks' ids: not that of the last decision, whose transactions nothing but their end may touch."""
        return 0 if self.last is None else 1 - self.last.parity

    def is_written(self, batch: BatchId, run: str = "") -> bool:
        """Whether a batch was decided before, so that its tasks are to write nothing.

        1. A function for foreachBatch writes some rows of a batch. 2. It writes other rows, with the same
        kafka.transactional.id. Spark says the same batch of both writes, so these rows must not be left out. As a run
        of a query has each batch once, it is the run by which they are told from a batch that is run again.

        Raises
        ------
        TransactionError
            When it cannot be known, or the batch is an earlier one than the last that was decided, or was decided in
            the same run.
        """
        last = self.last
        if last is None:
            return False
        if last.batch.query == batch.query and batch.batch > last.batch.batch:
            return False  # Spark has the last one in its commit log, so all of its transactions were committed
        if self.doubt is not None:
            raise TransactionError(self.doubt)
        if last.batch.query != batch.query:
            return False
        if batch.batch < last.batch.batch:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix}: batch {batch.batch} comes after batch {last.batch.batch} was "
                f"written: the checkpoint is older than the last run of the query. Take its newest checkpoint; to "
                f"write the batches of this one again, take another kafka.transactional.id"
            )
        if last.state is State.REVOKED:
            return False
        if run and run == last.run:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix}: the rows are not written, as a write before this one has "
                f"written {batch}: give each write of the function for foreachBatch a kafka.transactional.id of its own"
            )
        return True

    def why_not_the_same(self, rows: int) -> str | None:
        """Why a batch that was decided before cannot be the one that has these rows now; None where it can be.

        1. The checkpoint is lost, but for a copy from before the last batch. 2. Spark plans this batch anew, with other
        offsets. 3. Its rows that were not published would be left out. Where sources commit their offsets with the
        batch, they notice, and may read partitions again that others had meanwhile.
        """
        last = self.last
        if last is None or self.sources or last.state is State.SETTLED or not 0 <= last.rows < rows:
            return None
        return (
            f"kafka.transactional.id {self.prefix}: {last.batch} was published with {last.rows} rows, and has {rows} "
            f"now: the checkpoint is older than the last run of the query, or the source does not read the same rows "
            f"again. Take the newest checkpoint; to write the batches of this one again, take another "
            f"kafka.transactional.id"
        )


@dataclass(frozen=True)
class TaskWrite:
    """What a task tells the driver that ends its write.

    Attributes
    ----------
    transaction
        None where the task had no rows, or has written nothing as the batch was decided before.
    rows
        That the task had.
    run
        Of the query, between a start and an end of it; empty where Spark does not say it.
    """

    planned: PlannedTransactions
    batch: BatchId
    transaction: TaskTransactionWritten | None
    rows: int = 0
    run: str = ""


def named(transactions: Sequence[TaskTransactionWritten]) -> str:
    """The partitions of transactions, for an error."""
    tps = sorted({tp for one in transactions for tp in one.offsets})
    return json_text.listed([str(tp) for tp in tps])
