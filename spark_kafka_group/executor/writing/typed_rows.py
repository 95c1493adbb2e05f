"""A task's rows with keys and values encoded: before any of them is sent, where there may be rows that do not fit."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_group.executor import encode
from spark_kafka_group.executor.encode.encoder_contract import Buffer
from spark_kafka_group.executor.values.framing import ID_HEADERS, with_header
from spark_kafka_group.executor.values.value_encoder import TooManyBytesError, ValueEncoder
from spark_kafka_group.executor.writing.destinations import rows_of_topics
from spark_kafka_group.executor.writing.row_schemas import is_of_topics, schema_of_task
from spark_kafka_group.executor.writing.sink_columns import SinkColumns
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.options.typed_values import CONFLUENT_HEADER, WrittenColumn

NAMES = ("key", "value", "headers", "topic", "partition", "origin_partition")
HELD_IN_MEMORY = 32 << 20
"""Bytes of encoded rows that wait in memory; more of them wait in a file."""


def encoded(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, columns: SinkColumns
) -> tuple[Iterator[pa.RecordBatch], SinkColumns]:
    """A task's rows with keys and values as bytes, and where their columns are. Raises UnwritableRowError before the
    first of them, OptionError, RegistryError."""
    rows = _TypedRows(options, columns)
    return rows.encoded(batches), rows.columns


class _TypedRows:
    """Encodes the batches of one task.

    `columns`: where columns are in the batches that are made.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._given = columns
        self._encoders: dict[tuple[str, str], ValueEncoder] = {}
        has_ids = any(column.framing == CONFLUENT_HEADER for column in columns.typed)
        names = [name for name in NAMES if getattr(columns, name) is not None or (name == "headers" and has_ids)]
        places = {name: place for place, name in enumerate(names)}
        self.columns = SinkColumns(places.pop("value"), **places)  # type: ignore[arg-type]
        self._names = names
        self._topic = options.writing.topic or ""
        self._by_topic = any(column.schema is None and is_of_topics(column, options) for column in columns.typed)

    def encoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; a task without rows asks no registry."""
        batches = iter(batches)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is not None:
            made = self._batches(itertools.chain([first], batches))
            yield from _held(made) if self._may_fail() else made

    def _may_fail(self) -> bool:
        """Whether there may be rows that do not fit."""
        return self._by_topic or any(self._encoder(column, self._topic).may_fail for column in self._given.typed)

    def _batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from self._topics(batch) if self._by_topic else self._rows(batch, self._topic)

    def _topics(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows of each topic, with its schemas."""
        topics = self._given.column(batch, "topic")
        assert topics is not None, "without the column the schemas are known"
        for topic, places in rows_of_topics(encode.load(self._options.writing.encoder), topics):
            yield from self._rows(batch if places is None else batch.take(_array(places)), topic)

    def _rows(self, batch: pa.RecordBatch, topic: str) -> Iterator[pa.RecordBatch]:
        try:
            yield self._one(batch, topic)
        except TooManyBytesError:
            half = batch.num_rows // 2
            yield from self._rows(batch.slice(0, half), topic)
            yield from self._rows(batch.slice(half), topic)

    def _one(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        arrays = {name: self._given.column(batch, name) for name in self._names}
        for column in self._given.typed:
            encoder = self._encoder(column, topic)
            array = arrays[column.name]
            assert array is not None
            arrays[column.name] = made = encoder.encoded(array)
            if encoder.header is not None:
                name = ID_HEADERS[column.name]
                arrays["headers"] = with_header(arrays["headers"], name, encoder.header, pc.is_valid(made))
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._names], names=self._names)

    def _encoder(self, column: WrittenColumn, topic: str) -> ValueEncoder:
        key = column.name, "" if column.schema is not None else topic
        if key not in self._encoders:
            schema = schema_of_task(column, topic, self._options)
            self._encoders[key] = ValueEncoder(column, schema, self._options.writing.encoder)
        return self._encoders[key]


def _array(int32s: Buffer) -> pa.Array:
    buffer = pa.py_buffer(memoryview(int32s).cast("B"))
    return pa.Array.from_buffers(pa.int32(), len(buffer) // 4, [None, buffer])


def _held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All batches, once the last one was made."""
    first, second = next(batches, None), next(batches, None)
    if first is None or second is None:
        if first is not None:
            yield first
        return
    with tempfile.SpooledTemporaryFile(HELD_IN_MEMORY, dir=_folder()) as file:
        with pa.ipc.new_stream(file, first.schema) as stream:
            stream.write_batch(first)
            stream.write_batch(second)
            for batch in batches:
                stream.write_batch(batch)
        del first, second
        file.seek(0)
        yield from pa.ipc.open_stream(file)


def _folder() -> str | None:
    """Spark's folder for files that tasks need for a while."""
    folders = [Path(folder) for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if folder]
    return next((str(folder) for folder in folders if folder.is_dir() and os.access(folder, os.W_OK)), None)
