"""Writes a task's rows in a transaction that the driver ends, so that they are published with all others, or not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.executor.writing.rows_written import RowsWritten
from spark_kafka_group.executor.writing.sending.stamping import Transaction
from spark_kafka_group.executor.writing.task_transaction import TaskTransaction
from spark_kafka_group.executor.writing.write import written
from spark_kafka_group.values.exactly_once import BatchId
from spark_kafka_group.values.planned_transactions import PlannedTransactions, TaskWrite
from spark_kafka_group.wire.transactions.kept_clients import kept_client

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_group.executor.writing.sink_columns import SinkColumns
    from spark_kafka_group.options.sink_options import SinkOptions

QUERY, BATCH, RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Spark's local properties of a micro-batch."""

ROLE = "executor"


def write_in_transaction(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns, planned: PlannedTransactions
) -> RowsWritten:
    """Write a task's rows; returns when brokers have acknowledged all of them, and the transaction is open.

    A task without rows begins none. One of a batch that was decided before writes nothing, and still takes all of its
    rows: operators before it keep their state only for rows that were taken.

    Raises
    ------
    TransactionError
        When it cannot be known whether the batch was published before.
    ProducerFencedError
        When another driver or attempt goes on instead of this one, or the batch was decided without it.
    WriteError, UnwritableRowError, BrokerError
        What was written is aborted. Spark then runs the task again.
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
