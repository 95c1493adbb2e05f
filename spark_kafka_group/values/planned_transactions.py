"""What driver and tasks of an exactly-once write tell each other: the plan of a batch, and what a task wrote of it.

A plan says whether a batch was decided before, by the last decision of its prefix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_group.errors import TransactionError
from spark_kafka_group.values.exactly_once import (
    UNKNOWN,
    BatchId,
    Decision,
    ProducerIdAndEpoch,
    State,
    TaskTransactionWritten,
)
from spark_kafka_group.values.offsets import TopicPartition

NEWEST = "Take the newest checkpoint; to write the batches of this one again, take another kafka.transactional.id"


@dataclass(frozen=True)
class PlannedTransactions:
    """What the driver has planned for one batch, for its tasks and its commit."""

    prefix: str
    # The driver's own producer, of the transactional id that is the prefix. Planning again fences it.
    driver: ProducerIdAndEpoch
    timeout_ms: int  # of each transaction
    last: Decision | None  # the last decision of the prefix, in short
    last_offset: int  # its offset in the decision topic
    # Why it is not known that all of the last decision's transactions were committed; None where it is
    doubt: str | None
    described: bool  # whether brokers describe and list transactions (from Kafka 3.0 on)
    write_id: str  # the query's id where Spark has none: of a batch write
    # A digest of the offsets that sources of the query have for this batch, and that its decision commits; empty where
    # there are none
    sources: str = ""
    application: str = ""  # another one for each Spark application; empty outside of Spark
    # The reason why the topic must have had a decision that it lost; None where it lost none
    forgotten: str | None = None
    logged: str = ""  # as of the last decision, in the checkpoint as it is now
    # When, by the driver's clock, in milliseconds since the epoch: the tasks' transactions begin later
    planned_ms: int = 0
    planned_s: float = math.inf  # when, by the clock of the driver's host that nobody sets (``time.monotonic``)

    @property
    def parity(self) -> int:
        """Of the tasks' ids: not that of the last decision, whose transactions nothing but their end may touch."""
        return 0 if self.last is None else 1 - self.last.parity

    def is_written(self, batch: BatchId, run: str = "") -> bool:
        """Whether a batch was decided before, so that its tasks are to write nothing.

        1. A function for foreachBatch writes some rows of a batch. 2. It writes other rows, with the same
        kafka.transactional.id. Spark says the same batch of both writes, so these rows must not be left out. As a run
        of a query has each batch once, it is the run by which they are told from a batch that is run again.

        Raises TransactionError when it cannot be known, or the batch is an earlier one than the last that was decided,
        or has its number and is another one, or was decided in the same run, or another query has this one's id, or it
        is a batch write and a query's source has this id.
        """
        if batch.is_batch_write:
            self._refuse_offsets()
        last = self.last
        if last is None:
            if self.forgotten is not None and not batch.is_batch_write:
                raise TransactionError(self.forgotten)
            return False
        if last.batch.query != batch.query:
            return self._is_of_another_query(last, batch)
        if batch.batch > last.batch.batch:
            return False  # Spark has the last one in its commit log, so all of its transactions were committed
        if self.doubt is not None:
            raise TransactionError(self.doubt)
        if batch.batch < last.batch.batch:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix}: batch {batch.batch} comes after {last.batch} was written: the "
                f"checkpoint is older than the last run of the query. {NEWEST}"
            )
        if last.state is State.REVOKED:
            return False
        if last.logged and self.logged and last.logged != self.logged:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix}: {batch} was written, and was to read other offsets then: the "
                f"checkpoint is older than the last run of the query. {NEWEST}"
            )
        if run and run == last.run:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix}: the rows are not written, as a write before this one has "
                f"written {batch}: give each write of the function for foreachBatch a kafka.transactional.id of its own"
            )
        return True

    def _refuse_offsets(self) -> None:
        """Refuse a batch write that would commit offsets of a source.

        1. A query reads with the id, and a batch of it runs. 2. Another thread writes with the same id, and commits the
        offsets of that batch. 3. The query is started again, takes the batch as done, and its rows are lost.
        """
        if self.sources:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix} is also that of a streaming query's source, and Spark does not "
                f"say that the rows are of its micro-batch, so they are not written: in foreachBatch, write in the "
                f"function's own thread, and without PYSPARK_PIN_THREAD=false, or remove the id from the source (over "
                f"Spark Connect, too); elsewhere take another kafka.transactional.id"
            )

    def _is_of_another_query(self, last: Decision, batch: BatchId) -> bool:
        """False, where a query may begin with the id.

        1. Two queries have one id, and run in turn, so that neither fences the other. 2. One of them decides a batch,
        and dies. 3. The other one decides its own, so it is not known any more that the first was decided. Each query
        counts its batches from 0, so it is the first one that is refused when it goes on.
        """
        if self.doubt is not None:
            raise TransactionError(self.doubt)
        if batch.batch > 0:
            raise TransactionError(
                f"kafka.transactional.id {self.prefix}: {batch} is not written: {last.batch} was written with the same "
                f"id, so it is not known what this query has written. Give each query a kafka.transactional.id of its "
                f"own, that none has had"
            )
        return False

    def why_not_the_same(self, rows: int) -> str | None:
        """Why a batch that was decided before cannot be the one that has these rows now; None where it can be.

        1. The checkpoint is lost, but for a copy from before the last batch. 2. Spark plans this batch anew, with other
        offsets. 3. Its rows that were not published would be left out. Where this process can read the checkpoint, the
        offsets tell it. Where sources commit their offsets with the batch, they notice, and may read partitions again
        that others had meanwhile.

        Sources that the decision names read what they read then. If that makes more rows now, it is a handler that
        makes them: 1. A service is away, and a record goes to a retry topic. 2. The batch is decided, and its driver
        dies. 3. The service is back, and the handler returns three records.
        """
        last = self.last
        if last is None or self.sources or last.state is State.SETTLED or last.rows in (UNKNOWN, rows):
            return None
        is_same = bool(last.logged) and last.logged == self.logged
        if rows < last.rows and (is_same or last.sources != ()):
            return None  # all that it has now was published
        if last.sources and last.logged == self.logged:
            return None  # what was published is what counts
        return (
            f"kafka.transactional.id {self.prefix}: {last.batch} was published with {last.rows} rows, and has {rows} "
            f"now: the checkpoint is older than the last run of the query, or the source does not read the same rows "
            f"again. {NEWEST}"
        )


@dataclass(frozen=True)
class TaskWrite:
    """What a task tells the driver that ends its write."""

    planned: PlannedTransactions
    batch: BatchId
    # None where the task had no rows, or has written nothing as the batch was decided before
    transaction: TaskTransactionWritten | None
    rows: int = 0  # that the task had
    run: str = ""  # of the query, between a start and an end of it; empty where Spark does not say it


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """Records that brokers have acknowledged."""

    records: dict[TopicPartition, int]  # how many, by partition
    told: TaskWrite | None = None  # of an exactly-once write: what the driver needs to publish them
