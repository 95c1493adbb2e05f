"""Which partition each row goes to: the one its columns name, the one of its key, or one that several share for a
while."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_kafka_group.errors import UnwritableRowError, WriteError
from spark_kafka_group.executor.encode import Encoder, Rows
from spark_kafka_group.executor.encode.encoder_contract import NO_PARTITION, Buffer
from spark_kafka_group.text.foreign_text import shortened
from spark_kafka_group.values.retry_topics import is_topic_name

if TYPE_CHECKING:
    from spark_kafka_group.executor.writing.sink_columns import SinkColumns

SHARED_BYTES = 16_384
"""Java's default of batch.size, after which its producer takes another partition. A record batch is larger here, and a
few rows would be in one partition."""
_NONE = NO_PARTITION.to_bytes(4, "little", signed=True)  # all bits are set, so the order of bytes is any


def rows_of_topics(encoder: Encoder, topics: pa.Array) -> Iterator[tuple[str, Buffer | None]]:
    """Each topic of a column and the places of its rows, as int32; None for all rows. Raises UnwritableRowError when a
    row has no topic, or one that Kafka does not take."""
    if topics.null_count:
        raise UnwritableRowError(
            "a row has no topic, as its column topic is null: give each row one, or set option topic"
        )
    coded = topics.cast(pa.binary()).dictionary_encode()
    names = [_topic_name(name) for name in coded.dictionary.to_pylist()]
    if len(names) == 1:
        yield names[0], None
    else:
        places = encoder.rows_by_partition(_int32s(coded.indices), len(names))
        yield from ((names[code], of_topic) for code, of_topic in places.items())


def _topic_name(raw: bytes) -> str:
    name = raw.decode(errors="replace")
    if not is_topic_name(name):
        raise UnwritableRowError(
            f"column topic has {shortened(name)!r}, which is not a topic name: letters, digits, '.', '_' and '-', at "
            f"most 249 of them"
        )
    return name


class TopicDestinations:
    """Partitions for the rows of one topic. `leaders`: node id of the leader of each partition; None for one without a
    leader. `batch_size`: rows without a key share a partition for so many bytes, and at most for SHARED_BYTES.
    `choose`: of several partitions one."""

    def __init__(
        self,
        topic: str,
        leaders: Sequence[int | None],
        batch_size: int,
        choose: Callable[[Sequence[int]], int] = random.choice,
    ) -> None:
        self._topic = topic
        self._shared_bytes = min(batch_size, SHARED_BYTES)
        self._choose = choose
        self._shared: int | None = None
        self._bytes = 0
        self.update(leaders)

    def update(self, leaders: Sequence[int | None]) -> None:
        """Take newer metadata."""
        self.count = len(leaders)
        self._led = [partition for partition, leader in enumerate(leaders) if leader is not None]
        if self._shared is not None and self._shared not in self._led:
            self._shared = None

    @property
    def shared(self) -> int:
        """The partition for the next rows without key or partition; has a leader, unless none has."""
        if self._shared is None:
            self._shared = self._choose(self._led or range(self.count))
        return self._shared

    def shared_rows(self, row_bytes: int) -> int:
        """About how many more rows, of so many bytes each, go to :attr:`shared`."""
        return max(1, -(-(self._shared_bytes - self._bytes) // max(1, row_bytes)))

    def add_shared(self, nbytes: int) -> None:
        """Note bytes of rows that went to :attr:`shared`; after enough of them another partition is next."""
        self._bytes += nbytes
        if self._bytes >= self._shared_bytes:
            self.change_shared()

    def change_shared(self) -> None:
        """Take another partition for the next rows."""
        others = [partition for partition in self._led if partition != self._shared]
        if others:
            self._shared = self._choose(others)
        self._bytes = 0

    def outside(self, partitions: pa.Array | None, indices: Buffer | None) -> int | None:
        """A number in the column `partition` that is no partition of the topic; None if all are."""
        given = None if partitions is None else _taken(partitions, indices)
        if given is None or given.null_count == len(given):
            return None
        from pyarrow.compute import min_max  # takes as long as a small batch, and few rows name partitions

        bounds = min_max(given)
        lowest, highest = bounds["min"].as_py(), bounds["max"].as_py()
        return lowest if lowest < 0 else highest if highest >= self.count else None

    def named(self, given: pa.Array | None, origin: pa.Array | None) -> pa.Array | None:
        """The partitions that columns name: `given`, and where that is null, `origin` modulo their number. `origin`:
        the column `originPartition`: where the rows' records were in topics that may have more partitions. Raises
        WriteError when one in `origin` is negative."""
        if origin is None or origin.null_count == len(origin):
            return given
        from pyarrow.compute import coalesce, divide, min_max, multiply, subtract

        lowest = min_max(origin)["min"].as_py()
        if lowest < 0:
            raise WriteError(
                self._topic, lowest,
                "a row names this partition in its column originPartition: make it 0 or above, or null",
            )  # fmt: skip
        count = pa.scalar(self.count, pa.int32())
        here = subtract(origin, multiply(divide(origin, count), count))
        return here if given is None else coalesce(given, here)

    def refuse(self, partition: int) -> WriteError:
        """The error about a row for a partition that the topic does not have."""
        if partition < 0:
            return WriteError(
                self._topic, partition,
                "a row names this partition in its column partition: make it 0 or above, or null where the key is to "
                "choose",
            )  # fmt: skip
        have = "1 partition, 0" if self.count == 1 else f"{self.count} partitions, 0 to {self.count - 1}"
        return WriteError(
            self._topic, partition,
            f"a row names this partition in its column partition, and the topic has {have}: correct the column, or "
            f"give the topic more partitions",
        )  # fmt: skip

    def partitions(
        self, encoder: Encoder, rows: Rows, indices: Buffer | None, given: pa.Array | None, by_key: bool
    ) -> Iterator[tuple[int, Buffer]]:
        """Partitions of rows, each with the places of its rows; NO_PARTITION for those that share. `indices`: places of
        the topic's rows; None for all. `given`: as of :meth:`named`; all its numbers are partitions of the topic.
        `by_key`: whether a key chooses a partition."""
        count = rows.count if indices is None else len(memoryview(indices).cast("B")) // 4
        of_keys: Buffer = encoder.partitions_of_keys(rows, indices, self.count) if by_key else _NONE * count
        if given is not None:
            from pyarrow.compute import coalesce

            of_keys = _int32s(coalesce(_taken(given, indices), _array(of_keys)))
        for partition, places in encoder.rows_by_partition(of_keys, self.count).items():
            yield partition, places if indices is None else _int32s(_array(indices).take(_array(places)))


def by_key(columns: SinkColumns, ignore_keys: bool) -> bool:
    """Whether keys choose partitions."""
    return columns.key is not None and not ignore_keys


def _taken(column: pa.Array, indices: Buffer | None) -> pa.Array:
    return column if indices is None else column.take(_array(indices))


def _array(int32s: Buffer) -> pa.Array:
    buffer = pa.py_buffer(memoryview(int32s).cast("B"))
    return pa.Array.from_buffers(pa.int32(), len(buffer) // 4, [None, buffer])


def _int32s(array: pa.Array) -> memoryview:
    """Numbers of a column without nulls."""
    whole = memoryview(array.buffers()[1] or b"").cast("B")
    return whole[4 * array.offset : 4 * (array.offset + len(array))].cast("i")
