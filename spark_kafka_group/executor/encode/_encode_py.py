"""The readable twin of the encoder; ``encoder_contract`` has its interface."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct

from spark_kafka_group.executor.decode._decode_py import crc32c
from spark_kafka_group.executor.encode import encoder_contract, splitting
from spark_kafka_group.executor.encode.encoder_contract import (
    BATCH_LIMIT,
    HEADER_SIZE,
    NO_PARTITION,
    UNCOMPRESSED,
    BinaryColumn,
    Buffer,
    Compression,
    EncodedBatch,
    HeadersColumn,
)
from spark_kafka_group.executor.encode.splitting import sealed, varint

_CRC = Struct(">I")
_CRC_AT, _CRC_FROM = 17, 21  # the CRC covers the attributes and all after them
_ATTRIBUTES_LOW_AT, _TRANSACTIONAL_BIT = 22, 0b10000
_PRODUCER = Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43

Header = tuple[bytes, bytes | None]
split = splitting.split


def _int32s(name: str, buffer: Buffer) -> memoryview:
    view = memoryview(buffer).cast("B")
    if len(view) % 4:
        raise encoder_contract.no_int32s(name, len(view))
    return view.cast("i")


class _Validity:
    """Which of some rows are null."""

    def __init__(self, column: str, first: int, count: int, bits: Buffer | None) -> None:
        if first < 0:
            raise encoder_contract.negative(f"column {column}: its first row", first)
        self._first = first
        self._bits = None if bits is None else memoryview(bits).cast("B")
        needed = (first + count + 7) // 8
        if self._bits is not None and len(self._bits) < needed:
            raise encoder_contract.short_buffer(column, "validity bits", len(self._bits), needed)

    def __getitem__(self, row: int) -> bool:
        place = self._first + row
        return self._bits is None or bool(self._bits[place >> 3] >> (place & 7) & 1)


class _Spans:
    """Where each of some rows begins and ends in something of a size."""

    def __init__(self, column: str, first: int, count: int, ends: Buffer | None, size: int) -> None:
        self._column = column
        self._first = first
        self._size = size
        view = memoryview(ends or b"").cast("B")
        needed = 4 * (first + count + 1)
        if count and len(view) < needed:
            raise encoder_contract.short_buffer(column, "offsets", len(view), needed)
        self._ends = view[: needed if count else 0].cast("i")

    def __getitem__(self, row: int) -> range:
        begin, end = self._ends[self._first + row], self._ends[self._first + row + 1]
        if not 0 <= begin <= end <= self._size:
            raise encoder_contract.contradiction(self._column, row, begin, end, self._size)
        return range(begin, end)


class _Bytes:
    def __init__(self, name: str, count: int, column: BinaryColumn) -> None:
        self._data = memoryview(column.data or b"").cast("B")
        self._valid = _Validity(name, column.first, count, column.validity)
        self._spans = _Spans(name, column.first, count, column.ends, len(self._data))

    def __getitem__(self, row: int) -> bytes | None:
        if not self._valid[row]:
            return None
        span = self._spans[row]
        return bytes(self._data[span.start : span.stop])


class _Headers:
    """A column of lists of headers."""

    def __init__(self, count: int, column: HeadersColumn) -> None:
        if column.count < 0:
            raise encoder_contract.negative("column headers: its count", column.count)
        self._valid = _Validity("headers", column.first, count, column.validity)
        self._spans = _Spans("headers", column.first, count, column.ends, column.count)
        self.present = _Validity("headers", column.struct_first, column.count, column.struct_validity)
        self.keys = _Bytes("headers.key", column.count, column.keys)
        self.values = _Bytes("headers.value", column.count, column.values)

    def __getitem__(self, row: int) -> Sequence[int]:
        """Places of a row's headers."""
        return self._spans[row] if self._valid[row] else ()


class Rows:
    def __init__(
        self, count: int, key: BinaryColumn | None, value: BinaryColumn | None, headers: HeadersColumn | None = None
    ) -> None:
        if count < 0:
            raise encoder_contract.negative("count", count)
        self.count = count
        self.keys = None if key is None else _Bytes("key", count, key)
        self.values = None if value is None else _Bytes("value", count, value)
        self.headers = None if headers is None else _Headers(count, headers)

    def check(self, index: int) -> None:
        if not 0 <= index < self.count:
            raise encoder_contract.row_index(index, self.count)


def _own(rows: encoder_contract.Rows) -> Rows:
    if not isinstance(rows, Rows):
        raise TypeError(f"{type(rows).__name__} is not of this twin")
    return rows


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


class BatchBuilder:
    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        batch_size: int,
        max_request_size: int,
        compression: Compression = UNCOMPRESSED,
    ) -> None:
        if batch_size < 0 or not 0 < max_request_size <= BATCH_LIMIT:
            raise encoder_contract.sizes(batch_size, max_request_size, BATCH_LIMIT)
        self._topic = topic
        self._partition = partition
        self._limit = min(batch_size, max_request_size)
        self._max_request_size = max_request_size
        self._compression = compression
        self._clear()

    def _clear(self) -> None:
        self._data = bytearray(HEADER_SIZE)
        self.records = 0
        self._base_timestamp = self._max_timestamp = 0

    @property
    def nbytes(self) -> int:
        return len(self._data) if self.records else 0

    @property
    def full(self) -> bool:
        return self.records > 0 and self.nbytes >= self._limit

    def append(self, rows: encoder_contract.Rows, indices: Buffer, position: int, timestamp_ms: int) -> int:
        places = _int32s("indices", indices)
        if not 0 <= position <= len(places):
            raise encoder_contract.position(position, len(places))
        if timestamp_ms < 0:
            raise encoder_contract.negative("timestamp_ms", timestamp_ms)
        own = _own(rows)
        while position < len(places) and self._add(own, places[position], timestamp_ms):
            position += 1
        return position

    def _add(self, rows: Rows, index: int, timestamp_ms: int) -> bool:
        """Add a row if there is room for it."""
        rows.check(index)
        key = rows.keys[index] if rows.keys is not None else None
        value = rows.values[index] if rows.values is not None else None
        rest = _sized(key) + _sized(value)
        rest += self._headers(rows.headers, index, len(rest)) if rows.headers is not None else varint(0)
        alone = HEADER_SIZE + len(_record(0, 0, rest))
        if alone > self._max_request_size:
            raise encoder_contract.too_large(self._topic, self._partition, alone, self._max_request_size)
        base_timestamp = self._base_timestamp if self.records else timestamp_ms
        record = _record(timestamp_ms - base_timestamp, self.records, rest)
        if self.records and len(self._data) + len(record) > self._limit:
            return False
        self._data += record
        self._base_timestamp = base_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self.records += 1
        return True

    def _headers(self, headers: _Headers, index: int, before: int) -> bytes:
        places = headers[index]
        out = bytearray(varint(len(places)))
        for place in places:
            if not headers.present[place]:
                raise encoder_contract.null_header(self._topic, self._partition)
            key = headers.keys[place]
            if key is None:
                raise encoder_contract.null_header_key(self._topic, self._partition)
            out += _sized(key) + _sized(headers.values[place])
            if before + len(out) > self._max_request_size:
                break  # the record is refused whatever the others are
        return bytes(out)

    def seal(self) -> EncodedBatch:
        if not self.records:
            raise encoder_contract.empty_batch(self._topic, self._partition)
        batch = sealed(self._data, self.records, self._base_timestamp, self._max_timestamp, self._compression)
        self._clear()
        return batch


def _record(timestamp_delta: int, offset_delta: int, rest: bytes) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + rest
    return varint(len(body)) + body


def stamp(data: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool) -> None:
    if len(data) < HEADER_SIZE:
        raise encoder_contract.no_batch(len(data))
    data[_ATTRIBUTES_LOW_AT] &= ~_TRANSACTIONAL_BIT
    data[_ATTRIBUTES_LOW_AT] |= _TRANSACTIONAL_BIT * transactional
    _PRODUCER.pack_into(data, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    with memoryview(data) as view:
        _CRC.pack_into(data, _CRC_AT, crc32c(view[_CRC_FROM:]))


def murmur2(data: bytes) -> int:
    """Java's org.apache.kafka.common.utils.Utils.murmur2, as an unsigned number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partitions_of_keys(rows: encoder_contract.Rows, indices: Buffer | None, partition_count: int) -> bytearray:
    own = _own(rows)
    if partition_count <= 0:
        raise encoder_contract.partition_count(partition_count)
    out = bytearray()
    for index in range(own.count) if indices is None else _int32s("indices", indices):
        own.check(index)
        key = own.keys[index] if own.keys is not None else None
        partition = NO_PARTITION if key is None else (murmur2(key) & 0x7FFFFFFF) % partition_count
        out += partition.to_bytes(4, sys.byteorder, signed=True)
    return out


def rows_by_partition(partitions: Buffer, partition_count: int) -> dict[int, memoryview]:
    if partition_count <= 0:
        raise encoder_contract.partition_count(partition_count)
    found: dict[int, array[int]] = {}
    for row, partition in enumerate(_int32s("partitions", partitions)):
        if not NO_PARTITION <= partition < partition_count:
            raise encoder_contract.row_partition(row, partition, partition_count)
        found.setdefault(partition, array("i")).append(row)
    return {partition: memoryview(found[partition]) for partition in sorted(found)}
