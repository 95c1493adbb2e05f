"""Records whose key or value does not fit its schema, sent to the dead-letter topics of their topics as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark import TaskContext

from spark_kafka_group.errors import BrokerError, GroupKafkaError, MalformedValueError
from spark_kafka_group.executor.writing.sink_columns import OutputRow, arrow_batch, sink_columns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.values.error_headers import SOURCE, Failure, Origin, Reader, handed_on
from spark_kafka_group.values.retry_topics import dead_letter_topic, main_topic

if TYPE_CHECKING:
    import pyarrow as pa


def send(batch: pa.RecordBatch, errors: Mapping[int, MalformedValueError], options: Options, outlives: bool) -> None:
    """Send the rows of `errors`; returns when all in-sync replicas have them. Raises BrokerError when a topic does not
    exist, or does not take a record."""
    context = TaskContext.get()
    reader = Reader(options.group.id or "", SOURCE, 0 if context is None else context.partitionId())
    rows = [
        _letter(row, error, reader, options)
        for row, error in zip(batch.take(list(errors)).to_pylist(), errors.values(), strict=True)
    ]
    try:
        write([arrow_batch(rows)], sink_options(options, outlives), sink_columns())
    except GroupKafkaError as problem:
        first = next(iter(errors.values()))
        raise BrokerError(
            f"{first}, could not be sent to {rows[0].topic} (onMalformedValue=deadLetter): {problem}"
        ) from problem


def _letter(row: dict[str, object], error: MalformedValueError, reader: Reader, options: Options) -> OutputRow:
    timestamp = row["timestamp"]
    milliseconds = -1 if timestamp is None else round(timestamp.timestamp() * 1000)  # type: ignore[attr-defined]
    origin = Origin(error.topic, error.partition, error.offset, milliseconds, row["timestampType"])  # type: ignore[arg-type]
    own = [(header["key"], header["value"]) for header in row["headers"] or ()]  # type: ignore[attr-defined]
    headers = handed_on(own, "connect", origin, Failure.from_error(error), reader, 1, None)
    topic = dead_letter_topic(main_topic(error.topic, options.reading.retry_delays_ms))
    return OutputRow(topic, row["key"], row["value"], headers, origin_partition=error.partition)  # type: ignore[arg-type]
