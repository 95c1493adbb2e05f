"""One Spark task: takes records as Arrow, calls handlers, and returns rows for topics and a few rows of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from spark_kafka_group.executor.reading import output_rows
from spark_kafka_group.executor.reading.output_rows import arrow_batch
from spark_kafka_group.processing.hand_off import HandOff
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import Record, records_of
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import Latencies, workers_for

if TYPE_CHECKING:
    import pyarrow as pa

COUNTED = (
    "records bigint, done bigint, retried bigint, dead bigint, triesAgain bigint, stalled bigint, mostInFlight bigint, "
    "oldestCellMs double, latencyMs double, calls bigint"
)
SCHEMA = f"{output_rows.SCHEMA}, {COUNTED}"
"""The columns of a task's rows: those for topics have a topic. Of the others one has the task's counts, and there is
one for each bucket of its handlers' latencies."""


def handle(
    batches: Iterable[pa.RecordBatch], handler: Callable[[Record], Any], settings: Settings
) -> Iterator[pa.RecordBatch]:
    """Give each record to the handler. Counts come once all are done or handed on.

    Raises
    ------
    ProcessingError
        When a record is neither.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    queue = WorkQueue(settings, HandOff(settings, 0 if context is None else context.partitionId()))
    workers = workers_for(queue, handler, settings.threads, settings.stall_timeout_ms)
    with workers.running():
        for rows in queue.process(chain.from_iterable(map(records_of, batches))):
            yield _whole(arrow_batch(rows))
    yield _whole(_counts(queue, workers.latencies()))


def _whole(part: pa.RecordBatch) -> pa.RecordBatch:
    """With all columns of the schema."""
    import pyarrow as pa

    schema = pa.schema([*output_rows.fields(), *_counted_fields()])
    there = set(part.schema.names)
    columns = [part.column(f.name) if f.name in there else pa.nulls(part.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _counted_fields() -> list[pa.Field]:
    import pyarrow as pa

    kinds = {"bigint": pa.int64(), "double": pa.float64()}
    return [pa.field(name, kinds[kind]) for name, kind in (column.split(" ") for column in COUNTED.split(", "))]


def _counts(queue: WorkQueue, latencies: Latencies) -> pa.RecordBatch:
    import pyarrow as pa

    counts = queue.counts
    rows: list[tuple[Any, ...]] = [
        (
            counts.records, counts.done, counts.retried, counts.dead, counts.tries_again, counts.stalled,
            queue.most_in_flight, queue.oldest_s * 1000, None, None,
        )
    ]  # fmt: skip
    rows += [(None,) * 8 + bucket for bucket in latencies.milliseconds()]
    fields = _counted_fields()
    columns = [pa.array(list(column), f.type) for column, f in zip(zip(*rows, strict=True), fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
