"""Dead letters of the source itself, of what a task cannot read: for ``<topic>-dlt``, those of a retry topic for its
main topic's.

Their headers are those of Kafka Connect's dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from spark_kafka_group.errors import BrokerError, GroupKafkaError, ReadError
from spark_kafka_group.executor.writing.sink_columns import OutputRow, arrow_batch, sink_columns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.values.error_headers import SOURCE, Failure, Headers, Origin, Reader, handed_on
from spark_kafka_group.values.retry_topics import dead_letter_topic, main_topic

if TYPE_CHECKING:
    from spark_kafka_group.options.sink_options import SinkOptions


def letter(
    options: Options, error: ReadError, origin: Origin, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> OutputRow:
    """A letter; `headers` are the record's own."""
    context = TaskContext.get()
    reader = Reader(options.group.id or "", SOURCE, 0 if context is None else context.partitionId())
    written = handed_on(headers, "connect", origin, Failure.from_error(error), reader, 1, None)
    topic = dead_letter_topic(main_topic(origin.topic, options.reading.retry_delays_ms))
    return OutputRow(topic, key, value, written, origin_partition=origin.partition)


def letters(batch: pa.RecordBatch, errors: Mapping[int, ReadError], options: Options) -> list[OutputRow]:
    """Letters of the rows that `errors` has, as the records were. `batch` has every column, undecoded."""
    at = batch.schema.get_field_index("timestamp")
    times = batch.column(at).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).fill_null(-1)  # no calendar has all
    rows = batch.set_column(at, "timestamp", times).take(pa.array(list(errors))).to_pylist()
    return [
        letter(
            options, error,
            Origin(row["topic"], row["partition"], row["offset"], row["timestamp"], row["timestampType"]),
            row["key"], row["value"], [(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for row, error in zip(rows, errors.values(), strict=True)
    ]  # fmt: skip


def send(rows: Sequence[OutputRow], options: SinkOptions, told: str, by: str) -> None:
    """Send letters; returns when all in-sync replicas have them. Raises BrokerError when a topic does not exist, or
    does not take a letter. `told`: what they are about, for the error. `by`: the option that asks for them."""
    try:
        write([arrow_batch(rows)], options, sink_columns())
    except GroupKafkaError as problem:
        raise BrokerError(f"{told}, could not be sent to {rows[0].topic} ({by}=deadLetter): {problem}") from problem
