"""One Spark task: takes records as Arrow, calls handlers, and returns counts as a few rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from spark_kafka_group.processing.hand_off import HandOff
from spark_kafka_group.processing.latency import Latencies
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import Record, records_of
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import workers_for

if TYPE_CHECKING:
    import pyarrow as pa

MICRO_BATCH = "streaming.sql.batchId"
"""Spark's name of a property that tasks of streams have."""
SCHEMA = (
    "records bigint, done bigint, retried bigint, dead bigint, triesAgain bigint, stalled bigint, mostInFlight bigint, "
    "oldestCellMs double, latencyMs double, calls bigint"
)
"""The columns of a task's rows: one row has its counts, and one row each bucket of its handlers' latencies."""


def handle(
    batches: Iterable[pa.RecordBatch], handler: Callable[[Record], Any], settings: Settings
) -> Iterator[pa.RecordBatch]:
    """Give each record to the handler, and return counts once all are done or handed on.

    Raises
    ------
    ProcessingError, BrokerError
        When a record is neither.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    of_a_stream = context is not None and context.getLocalProperty(MICRO_BATCH) is not None
    with HandOff(settings, task, outlives=of_a_stream).connected() as hand_off:
        queue = WorkQueue(settings, hand_off)
        workers = workers_for(queue, handler, settings.threads, settings.stall_timeout_ms)
        with workers.running():
            queue.put(chain.from_iterable(map(records_of, batches)))
    yield _counts(queue, workers.latencies())


def _counts(queue: WorkQueue, latencies: Latencies) -> pa.RecordBatch:
    import pyarrow as pa

    counts = queue.counts
    kinds = [pa.int64()] * 7 + [pa.float64()] * 2 + [pa.int64()]
    names = [column.split(" ")[0] for column in SCHEMA.split(", ")]
    rows: list[tuple[Any, ...]] = [
        (
            counts.records, counts.done, counts.retried, counts.dead, counts.tries_again, counts.stalled,
            queue.most_in_flight, queue.oldest_s * 1000, None, None,
        )
    ]  # fmt: skip
    rows += [(None,) * 8 + bucket for bucket in latencies.milliseconds()]
    columns = [pa.array(list(column), kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)
