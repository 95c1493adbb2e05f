"""Reads of some records, which join no group and commit nothing: as tasks of the source read, in this process."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor.decode.contract import MAX_TIMESTAMP_MS
from spark_kafka_group.executor.reading.read import records
from spark_kafka_group.options import Options
from spark_kafka_group.options.reading import SKIP
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.values.schema import arrow_schema
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.admin import GroupAdmin, LogRecord

BYTES_OF_A_SAMPLE = 64 * 1024
"""The most bytes that brokers send of each partition at a time; a larger record batch comes whole."""
ROLE = "explore"  # the end of the client.id


def read(options: Options, ranges: Iterable[OffsetRange]) -> Iterator[dict[str, Any]]:
    """Records of ranges, with the source's columns, a dict each; ``timestamp`` in milliseconds, at most
    MAX_TIMESTAMP_MS, as some producers write microseconds, beyond any calendar. Raises ReadError, BrokerError."""
    wanted = tuple(r for r in ranges if r.size > 0)
    brokers = Brokers(options.client, role=ROLE)
    try:
        for batch in records(ReadTask(wanted), options, brokers):
            at = batch.schema.get_field_index("timestamp")
            times = batch.column(at).cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).fill_null(MAX_TIMESTAMP_MS)
            yield from batch.set_column(at, "timestamp", times).to_pylist()
    finally:
        brokers.close()


def with_texts(options: Options, rows: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Rows of the source with the JSON of typed keys and values, under ``key_text`` and ``value_text``, where they fit.
    Raises OptionError, RegistryError."""
    if not options.values.given() or not rows:
        return rows
    from spark_kafka_group.executor.schemas.typed_columns import resolved
    from spark_kafka_group.executor.values.typed_batches import TypedBatches

    typed = dataclasses.replace(options, typed=resolved(options))
    columns = {name: [row[name] for row in rows] for name in ("key", "value", "headers")}
    batch = pa.RecordBatch.from_pydict(columns, schema=arrow_schema(tuple(columns)))
    found = TypedBatches(typed).as_objects(batch)
    return [
        row
        | {
            f"{name}_text": json.dumps(values[i], default=str)
            for name, values in found.items()
            if values[i] is not None
        }
        for i, row in enumerate(rows)
    ]


def of_many_partitions(options: Options) -> Options:
    """As `options`, for a little of each partition."""
    fetching = dataclasses.replace(options.fetching, partition_max_bytes=BYTES_OF_A_SAMPLE)
    return dataclasses.replace(options, fetching=fetching)


class LagAdmin(GroupAdmin):
    """As :class:`GroupAdmin`: of 1,000 partitions it has the first records in 1 s instead of 14."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._options = _as_requests(of_many_partitions(options))

    def first_records(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, LogRecord]:
        """As :meth:`GroupAdmin.first_records`, of which only those remain that have a gap at their start."""
        found = {}
        for row in read(self._options, [OffsetRange(tp, start, start + 1) for tp, start in starts.items()]):
            at = None if row["timestamp"] < 0 else row["timestamp"]
            found[TopicPartition(row["topic"], row["partition"])] = LogRecord(
                row["offset"], at, row["key"], row["value"]
            )
        left = {tp: start for tp, start in starts.items() if tp not in found}
        return found | (super().first_records(left, ends) if left else {})


def _as_requests(options: Options) -> Options:
    """As `options`, with no error for a start that is gone or corrupt, and with the time that requests have."""
    reading = dataclasses.replace(options.reading, fail_on_data_loss=False, on_corrupt_record=SKIP)
    fetching = dataclasses.replace(options.fetching, poll_timeout_ms=options.connection.request_timeout_ms)
    return dataclasses.replace(options, reading=reading, fetching=fetching)
