"""Rows that a task writes to topics: the columns of the groupkafka sink, as Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_group.values.error_headers import Headers

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_group.executor.writing.sink_columns import SinkColumns

SCHEMA = (
    "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, "
    "originPartition int"
)
NAMES = ("topic", "key", "value", "headers", "partition", "originPartition")
MOST_ROWS, MOST_BYTES = 1000, 1024 * 1024
"""Rows that are kept together, unless they are the last ones."""


class OutputRow(NamedTuple):
    """A record for a topic.

    `partition`: that the topic must have; None leaves it to the key.
    `origin_partition`: instead: where the record was in another topic. It goes to the partition of that number, modulo
        how many this topic has.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None = None
    origin_partition: int | None = None


class OutputRows:
    """Rows that wait to be written together."""

    def __init__(self) -> None:
        self._rows: list[OutputRow] = []
        self._bytes = 0

    def add(self, rows: Sequence[OutputRow]) -> None:
        """Behind those that wait."""
        self._rows += rows
        self._bytes += sum(len(row.key or b"") + len(row.value or b"") for row in rows)

    @property
    def due(self) -> bool:
        """Whether there are many."""
        return len(self._rows) >= MOST_ROWS or self._bytes >= MOST_BYTES

    def take_rows(self) -> list[OutputRow]:
        """All of them, which then wait no more."""
        rows, self._rows, self._bytes = self._rows, [], 0
        return rows


def fields() -> list[pa.Field]:
    """The columns of :data:`SCHEMA`, as Arrow."""
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return [
        pa.field("topic", pa.string()), pa.field("key", pa.binary()), pa.field("value", pa.binary()),
        pa.field("headers", headers), pa.field("partition", pa.int32()), pa.field("originPartition", pa.int32()),
    ]  # fmt: skip


def sink_columns() -> SinkColumns:
    """The columns for a task that writes by itself."""
    from spark_kafka_group.executor.writing.sink_columns import SinkColumns

    topic, key, value, headers, partition, origin = range(len(NAMES))
    return SinkColumns(value, key, topic, headers, partition, origin)


def arrow_batch(rows: Iterable[OutputRow]) -> pa.RecordBatch:
    """Rows, at least one, as the sink takes them."""
    import pyarrow as pa

    schema = pa.schema(fields())
    arrays = [pa.array(list(column), f.type) for column, f in zip(zip(*rows, strict=True), schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
