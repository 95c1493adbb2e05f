"""The interface of both twins of the encoder, and the values they share.

``_encode_py`` is the readable twin, ``_encode_c`` the quick one. For the same columns they give the same bytes or the
same error; a property test feeds both the same generated and damaged buffers. Record batches are written by each twin
for itself; compression, the halving of a batch (both in ``splitting``) and the wording of errors are shared.

How a task writes rows::

    rows = encoder.Rows(len(batch), binary_column(keys), binary_column(values), headers_column(headers))
    partitions = encoder.partitions_of_keys(rows, None, partition_count)
    for partition, indices in encoder.rows_by_partition(partitions, partition_count).items():
        builder = open_batches[partition]
        position = 0
        while (position := builder.append(rows, indices, position, now_ms)) < len(indices):
            send(partition, builder.seal())

A record batch is one of message format v2, as a producer sends it to a partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spark_kafka_group.errors import RecordTooLargeError, WriteError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Names of ``kafka.compression.type`` to the numbers of the attributes."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and how hard it tries."""

    codec: int  # one of CODECS' numbers
    # As Java's ``compression.<codec>.level``; None, and always for snappy and none: Java's default
    level: int | None = None


UNCOMPRESSED = Compression(NONE)


@dataclass(slots=True)
class EncodedBatch:
    """A sealed record batch."""

    # All of it: 61 bytes of header, and the records, compressed or not. Base offset 0, leader epoch -1, producer id,
    # epoch and sequence -1. The CRC is 0 until ``stamp`` has been called.
    data: bytearray
    records: int  # how many it has, at least one
    max_timestamp_ms: int  # the largest of its records' create times
    compression: Compression = UNCOMPRESSED  # what its records were compressed with, so that ``split`` does the same


Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61  # bytes of a record batch before its records

BATCH_LIMIT = 2**31 - 1  # most bytes of a record batch: its length is an int32

NO_PARTITION = -1  # the partition of a row without a key


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A column of strings or bytes as Arrow holds it. Nothing about the buffers is taken for granted."""

    first: int  # place of the column's first row in the buffers, as a sliced array has it
    validity: Buffer | None  # a bit for each row that is not null, least significant first; None when no row is null
    # Int32, of this machine's byte order: row `i` is ``data[ends[first + i] : ends[first + i + 1]]``. Empty, or None,
    # only for a column without rows.
    ends: Buffer | None
    data: Buffer | None  # the bytes of all rows; None stands for no bytes


@dataclass(frozen=True, slots=True)
class HeadersColumn:
    """A column of lists of (key, value) as Arrow holds it: row `i` has the headers ``ends[first + i]`` up to
    ``ends[first + i + 1]`` of keys and values.

    `first`, `validity`, `ends`: as those of BinaryColumn. A row that is null has no headers.
    `count`: headers that `keys` and `values` have.
    `struct_first`, `struct_validity`: a bit for each header that is not null, from bit `struct_first` on; None when no
        header is null.
    `keys`, `values`: of all rows' headers.
    """

    first: int
    validity: Buffer | None
    ends: Buffer | None
    count: int
    struct_first: int
    struct_validity: Buffer | None
    keys: BinaryColumn
    values: BinaryColumn


class Rows(Protocol):
    """The rows of an Arrow batch that are written: the sizes of all buffers are checked when this is made, what is
    inside them when it is read.

    `count`: how many.
    `key`, `value`: a null key is no key, a null value a tombstone. None stands for nulls only.
    `headers`: None stands for no headers. A header that is null, or has a null key, is refused.
    Raises ValueError when a buffer is shorter than the rows need.
    """

    def __init__(
        self, count: int, key: BinaryColumn | None, value: BinaryColumn | None, headers: HeadersColumn | None = None
    ) -> None: ...

    @property
    def count(self) -> int:
        """As given."""


class BatchBuilder(Protocol):
    """The open record batch of a partition.

    Not thread-safe. A row is there as a whole or not at all, whatever error ends an :meth:`append`.

    `topic`, `partition`: for errors.
    `batch_size`: Java's ``batch.size``: most bytes of a record batch before compression, its header included. A record
        that is larger gets a record batch of its own.
    `max_request_size`: Java's ``max.request.size``: a record whose batch would be larger, before compression, is
        refused.
    `compression`: what :meth:`seal` compresses with.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        batch_size: int,
        max_request_size: int,
        compression: Compression = UNCOMPRESSED,
    ) -> None: ...

    @property
    def records(self) -> int:
        """Records held."""

    @property
    def nbytes(self) -> int:
        """Bytes of the record batch before compression; 0 when it has no record."""

    @property
    def full(self) -> bool:
        """Whether :attr:`nbytes` has come to `batch_size`. A batch that is not may still have no room for a row."""

    def append(self, rows: Rows, indices: Buffer, position: int, timestamp_ms: int) -> int:
        """Append rows until one does not fit.

        An empty builder takes any row that is not refused, so every append after a :meth:`seal` moves on.

        `indices`: int32, of this machine's byte order: places of rows in `rows`, in the order in which they are
            written.
        `position`: the first of `indices` to append: 0, or the result of an earlier call.
        `timestamp_ms`: the create time of the records.
        Returns the position of the first index that was not appended; the number of indices when all were.
        Raises ValueError when `position`, or an index, is out of range, or the buffers of `rows` contradict themselves.
            Rows before it stay in the builder.
        Raises RecordTooLargeError when a row's record is larger than `max_request_size`. Rows before it stay in the
            builder.
        Raises WriteError when a header, or its key, is null. Rows before it stay in the builder.
        """

    def seal(self) -> EncodedBatch:
        """The record batch, compressed, not yet stamped; empties the builder. Raises ValueError without a record."""


class Encoder(Protocol):
    """A twin: the module."""

    def stamp(
        self, data: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> None:
        """Write, in place, who sends a record batch, and its CRC. Stamping again replaces what was there. Raises
        ValueError when `data` is shorter than a header."""

    def split(self, batch: EncodedBatch) -> list[EncodedBatch]:
        """The two halves of a batch of two or more records, in order, not stamped; a batch of one record alone. The
        halves are of equal bytes rather than of equal numbers of records, as far as that goes."""

    def partitions_of_keys(self, rows: Rows, indices: Buffer | None, partition_count: int) -> bytearray:
        """The partition that Java's producer chooses for each key: murmur2 of it, without its sign, modulo the count.

        `indices`: int32 places in `rows`; None for all of them.
        Returns an int32 of this machine's byte order for each; NO_PARTITION where the key is null.
        Raises ValueError when `partition_count` is not positive, an index is out of range, or the buffers contradict
            themselves.
        """

    def rows_by_partition(self, partitions: Buffer, partition_count: int) -> dict[int, memoryview]:
        """The rows of each partition, in their order.

        `partitions`: int32, for each row, its partition, or NO_PARTITION.
        Returns, for each partition that has rows, in ascending order (NO_PARTITION first), the rows' places: a
        memoryview of int32 (format ``i``), for :meth:`BatchBuilder.append`.
        Raises ValueError when `partition_count` is not positive, or a partition is neither NO_PARTITION nor below it.
        """

    @property
    def Rows(self) -> type[Rows]:  # noqa: N802
        """The rows."""

    @property
    def BatchBuilder(self) -> type[BatchBuilder]:  # noqa: N802
        """The builder."""


def too_large(topic: str, partition: int, size: int, max_request_size: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        topic,
        partition,
        f"a row makes a record of {size} bytes, and kafka.max.request.size is {max_request_size}: raise it, and "
        f"max.message.bytes of topic {topic} if that is lower, or write smaller values",
    )


def null_header(topic: str, partition: int) -> WriteError:
    return WriteError(topic, partition, "a row has a header that is null: leave it out of column headers")


def null_header_key(topic: str, partition: int) -> WriteError:
    return WriteError(topic, partition, "a row has a header without a key: a header's value may be null, its key not")


def short_buffer(column: str, buffer: str, size: int, needed: int) -> ValueError:
    return ValueError(f"column {column}: its {buffer} have {size} bytes, and its rows need {needed}")


def negative(name: str, value: int) -> ValueError:
    return ValueError(f"{name} is {value}: it must not be negative")


def contradiction(column: str, row: int, begin: int, end: int, size: int) -> ValueError:
    return ValueError(f"column {column}: row {row} is from {begin} to {end} of {size}")


def no_int32s(name: str, size: int) -> ValueError:
    return ValueError(f"{size} bytes of {name} are no int32 numbers")


def row_index(index: int, count: int) -> ValueError:
    return ValueError(f"index {index} is outside the {count} rows")


def position(value: int, count: int) -> ValueError:
    return ValueError(f"position {value} is outside the {count} indices")


def sizes(batch_size: int, max_request_size: int, limit: int) -> ValueError:
    return ValueError(
        f"batch_size ({batch_size}) must not be negative, and max_request_size ({max_request_size}) must be from 1 to "
        f"{limit}"
    )


def partition_count(value: int) -> ValueError:
    return ValueError(f"partition_count is {value}: it must be above 0")


def row_partition(row: int, partition: int, count: int) -> ValueError:
    return ValueError(f"row {row} has partition {partition}, and there are {count}")


def empty_batch(topic: str, partition: int) -> ValueError:
    return ValueError(f"{topic}-{partition}: a record batch without a record cannot be sealed")


def no_batch(size: int) -> ValueError:
    return ValueError(f"{size} bytes are no record batch")
