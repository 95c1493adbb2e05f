"""A record as handlers get it, taken out of Arrow columns by whole columns: a Python object a field would be slow.

A handler may return records to be written to topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


class Record(NamedTuple):
    """A record, with the names of Kafka's ``ConsumerRecord``.

    Attributes
    ----------
    timestamp
        Milliseconds since the epoch; -1 where the column has null.
    timestamp_type
        0 CreateTime, 1 LogAppendTime, -1 none.
    headers
        Key and value of each, in order; keys may repeat. Empty without ``includeHeaders``.
    """

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offset {self.offset}"


REQUIRED = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """The rows of a batch with the source's columns, in order."""
    import pyarrow as pa

    columns: list[Any] = [
        batch.column(name).to_numpy(zero_copy_only=False).tolist() for name in REQUIRED if name != "timestamp"
    ]
    microseconds = batch.column("timestamp").cast(pa.int64()).fill_null(-1000)
    milliseconds = microseconds.to_numpy(zero_copy_only=False) // 1000
    columns.insert(REQUIRED.index("timestamp"), milliseconds.tolist())
    headers = _headers(batch.column("headers")) if "headers" in batch.schema.names else repeat(())
    return map(Record._make, zip(*columns, headers, strict=False))


def _headers(column: Any) -> Iterator[tuple[tuple[str, bytes | None], ...]]:
    if column.null_count == len(column):
        return repeat(())
    fields = (column.values.field(i).to_numpy(zero_copy_only=False).tolist() for i in (0, 1))
    pairs = list(zip(*fields, strict=True))
    bounds = column.offsets.to_numpy().tolist()
    return (tuple(pairs[start:end]) for start, end in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record for a topic, with the names of Kafka's ``ProducerRecord``. Its timestamp is the time when it is written.

    Attributes
    ----------
    value, key
        Text is written as UTF-8. A value of None is a tombstone.
    topic
        None for the topic of the processor's ``write_options``.
    headers
        Key and value of each, in order; keys may repeat.
    partition
        None leaves it to the key: records of one key go to one partition, the one that Java's producer chooses.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    topic: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
