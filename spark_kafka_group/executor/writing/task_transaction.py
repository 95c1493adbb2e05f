"""A task's rows in a transaction that the driver ends, so that they are published with all others, or not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark import TaskContext

from spark_kafka_group.errors import BrokerError, ProducerFencedError
from spark_kafka_group.executor.writing.sending.stamping import Transaction
from spark_kafka_group.executor.writing.write import written
from spark_kafka_group.values.exactly_once import BatchId, ProducerIdAndEpoch, TaskTransactionWritten
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.planned_transactions import PlannedTransactions, RowsWritten, TaskWrite
from spark_kafka_group.values.transactional_ids import TaskId
from spark_kafka_group.wire.transactions.kept_clients import kept_client
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_requests import COMMITTED

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_group.executor.writing.sink_columns import SinkColumns
    from spark_kafka_group.options.sink_options import SinkOptions


class TaskTransaction:
    """The transaction of one attempt of one task.

    Spark may run several attempts of a task at a time, and of two attempts of a stage the numbers of attempts are the
    same. So an attempt takes an id that has nothing open: it would abort what another one may have told the driver of.

    `slot`, `attempt`: Spark's partition id, and its number of the attempt.
    `transactional_id`: empty until it has begun.
    """

    def __init__(self, client: TransactionClient, planned: PlannedTransactions, slot: int, attempt: int) -> None:
        self._client = client
        self._planned = planned
        self._slot = slot
        self._attempt = attempt
        self._producer: ProducerIdAndEpoch | None = None
        self._partitions: set[TopicPartition] = set()
        self.transactional_id = ""

    def begin(self) -> ProducerIdAndEpoch:
        """Take an id, just before the first row is sent; tasks without rows need none. A task ends here whose driver
        was replaced, or whose batch was decided without it. Raises ProducerFencedError, BrokerError."""
        if self._planned.described:
            self.transactional_id, self._producer = self._taken_free()
        else:
            self.transactional_id = self._id(self._attempt)
            self._producer = self._client.take_id(self.transactional_id, self._planned.timeout_ms)
        return self._producer

    def add_partitions(self, tps: Collection[TopicPartition]) -> None:
        """Have the transaction cover partitions, before the first record of each is sent. Raises ProducerFencedError
        when another attempt, or driver, has taken the id; BrokerError."""
        if self._producer is None:
            raise RuntimeError("begin first")
        new = set(tps) - self._partitions
        if new:
            self._client.add(self.transactional_id, self._producer, new)
            self._partitions |= new

    def written(self, last_offsets: Mapping[TopicPartition, int]) -> TaskTransactionWritten | None:
        """What the driver is told, once all records are acknowledged; None where nothing was written. `last_offsets`:
        of the last record in each partition, as brokers have acknowledged it."""
        if self._producer is None or not self._partitions:
            return None
        offsets = {tp: last_offsets.get(tp, -1) for tp in sorted(self._partitions)}
        return TaskTransactionWritten(self.transactional_id, self._producer, offsets)

    def check_needed(self) -> None:
        """See that the batch was not decided without this attempt: before it begins, and once its records are
        acknowledged.

        1. Spark runs a second attempt of a task, and takes the first one's rows. 2. The driver decides, and aborts what
        Spark did not need. 3. The second attempt writes on. The next batch aborts its transaction; after the last batch
        of a query readers would wait for its timeout.

        The driver takes the prefix anew for each batch, so a transaction that it has committed is the decision. Raises
        ProducerFencedError when it was, or another driver goes on; BrokerError.
        """
        if not self._planned.described:
            return
        prefix = self._planned.prefix
        driver = self._client.describe([prefix]).get(prefix)
        if driver is None or driver.producer != self._planned.driver:
            raise ProducerFencedError(
                f"kafka.transactional.id {prefix}: another driver has taken it since this task was planned: "
                f"give each query an id of its own, and run each query once"
            )
        if driver.state in COMMITTED:
            raise ProducerFencedError(
                f"kafka.transactional.id {prefix}: the batch was decided without this attempt of its task"
            )

    def abort(self) -> None:
        """Abort what is open, as the task fails; repeatable. Raises BrokerError: the next start aborts it then."""
        if self._producer is not None and self._partitions:
            self._client.abort_all({self.transactional_id: self._producer})
        self._producer = None

    def _id(self, number: int) -> str:
        return TaskId(self._slot, number, self._planned.parity).transactional_id(self._planned.prefix)

    def _taken_free(self) -> tuple[str, ProducerIdAndEpoch]:
        """The first id from this attempt's on that has nothing open, and its producer."""
        number = self._attempt
        with self._client.together():
            while True:
                self.check_needed()
                one = self._id(number)
                producer = self._client.take_free(one, self._planned.timeout_ms)
                if producer is not None:
                    return one, producer
                number += 1


QUERY, BATCH, RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Spark's local properties of a micro-batch."""

ROLE = "executor"


def write_in_transaction(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns, planned: PlannedTransactions
) -> RowsWritten:
    """Write a task's rows; returns when brokers have acknowledged all of them, and the transaction is open.

    A task without rows begins none. One of a batch that was decided before writes nothing, and still takes all of its
    rows: operators before it keep their state only for rows that were taken. Raises TransactionError when it cannot be
    known whether the batch was published before. Raises ProducerFencedError when another driver or attempt goes on
    instead of this one, or the batch was decided without it. Raises WriteError, UnwritableRowError, BrokerError: what
    was written is aborted. Spark then runs the task again.
    """
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("rows are written by Spark's tasks")
    batch_id, run = _batch_id(context, planned), _run(context, planned)
    if planned.is_written(batch_id, run):
        return RowsWritten({}, TaskWrite(planned, batch_id, None, sum(batch.num_rows for batch in batches), run))
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return RowsWritten({}, TaskWrite(planned, batch_id, None, 0, run))
    with kept_client(options.transactions, ROLE) as client:
        transaction = TaskTransaction(client, planned, context.partitionId(), context.attemptNumber())
        try:
            producer = transaction.begin()
            in_transaction = Transaction(transaction.transactional_id, producer, transaction.add_partitions)
            found = written(itertools.chain([first], batches), options, columns, in_transaction)
            transaction.check_needed()
        except BaseException:
            with contextlib.suppress(BrokerError):  # the error counts; the next start aborts it, or brokers do
                transaction.abort()
            raise
    told = transaction.written({tp: of_tp.last_offset for tp, of_tp in found.items()})
    records = {tp: of_tp.records for tp, of_tp in found.items()}
    return RowsWritten(records, TaskWrite(planned, batch_id, told, sum(records.values()), run))


def _batch_id(context: TaskContext, planned: PlannedTransactions) -> BatchId:
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        return BatchId(planned.write_id, 0)
    return BatchId(query, int(batch))


def _run(context: TaskContext, planned: PlannedTransactions) -> str:
    """The run of a query. Spark names its jobs by it, unless the user does: then all of one application is a run."""
    if context.getLocalProperty(BATCH) is None:
        return ""
    return f"{planned.application}/{context.getLocalProperty(RUN) or ''}"
