"""One Spark task: takes records as Arrow, calls handlers, and returns rows for topics, also of failures, and counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from spark_kafka_group.errors import OptionError, ProcessingError
from spark_kafka_group.executor.writing import sink_columns
from spark_kafka_group.executor.writing.sink_columns import OutputRow, arrow_batch
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.reading import Subscription
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import Record, records_of
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import Latencies, workers_for
from spark_kafka_group.text.foreign_text import printable
from spark_kafka_group.values.error_headers import Failure, Origin, Reader, attempts_made, handed_on, origin_of
from spark_kafka_group.values.retry_topics import main_topic

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class HandOff:
    """To retry topics and dead-letter topics, for one task. Thread-safe."""

    def __init__(self, settings: Settings, task: int) -> None:
        self._settings = settings
        self._reader = Reader(settings.group or "", settings.handler_name, task)

    def __call__(self, record: Record, failure: Failure) -> tuple[str, OutputRow]:
        """As ``work_queue.HandOn``. Raises ProcessingError."""
        topic, delay_ms = self._settings.destination(record.topic, failure.fatal)
        if topic is None:
            raise ProcessingError(
                f"{record}: the handler {self._settings.handler_name} failed: {failure.exception}: {failure.message}. "
                f"Nothing of this batch is committed. Set dead_letter_topic, and records whose handler fails go there"
            )
        origin, made = history_of(record, self._settings)
        attempts = made + 1
        due_ms = None if delay_ms is None else int(time.time() * 1000) + delay_ms
        headers = handed_on(
            record.headers, self._settings.error_headers, origin, failure, self._reader, attempts, due_ms
        )
        log.warning(
            "%s: attempt %d failed, goes to %s: %s: %s",
            record, attempts, topic, printable(failure.exception), printable(failure.message),
        )  # fmt: skip
        row = OutputRow(topic, record.key, record.value, headers, origin_partition=record.partition)
        return ("dead" if delay_ms is None else "retried"), row


def history_of(record: Record, settings: Settings) -> tuple[Origin, int]:
    """Where a record was first read, and how many attempts were made before. Its headers say so if this query has sent
    it: if it is from a retry topic, and of the topic that this belongs to. In any other topic they are the producer's,
    who may name one that it may not write to."""
    here = Origin(record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type)
    main = main_topic(record.topic, settings.retry_topics)
    if main == record.topic:
        return here, 0
    origin = origin_of(record.headers, here)
    return (origin, attempts_made(record.headers)) if origin.topic == main else (here, 0)


def check_topics(settings: Settings, topics: Collection[str], options: ClientOptions) -> None:
    """Check that every topic exists to which records of `topics` may go. Topics of a pattern are not checked. Raises
    OptionError, BrokerError."""
    from spark_kafka_group.wire import LogClient

    wanted = dict.fromkeys(name for topic in sorted(topics) for name in settings.destinations(topic))
    if not wanted:
        return
    client = LogClient(options)
    try:
        there = {tp.topic for tp in client.partitions(Subscription(tuple(wanted)))}
    finally:
        client.close()
    missing = [topic for topic in wanted if topic not in there]
    if missing:
        raise OptionError(
            f"records that fail go to topics that the cluster does not have: {', '.join(missing)}. Create them, retry "
            f"topics with as many partitions as the topic that they belong to"
        )


COUNTED = (
    "records bigint, done bigint, retried bigint, dead bigint, triesAgain bigint, stalled bigint, mostInFlight bigint, "
    "oldestCellMs double, latencyMs double, calls bigint"
)
SCHEMA = f"{sink_columns.SCHEMA}, {COUNTED}"
"""The columns of a task's rows: those for topics have a topic. Of the others one has the task's counts, and there is
one for each bucket of its handlers' latencies."""


def handle(
    batches: Iterable[pa.RecordBatch], handler: Callable[[Record], Any], settings: Settings
) -> Iterator[pa.RecordBatch]:
    """Give each record to the handler. Counts come once all are done or handed on. Raises ProcessingError when a record
    is neither."""
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

    schema = pa.schema([*sink_columns.fields(), *_counted_fields()])
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
