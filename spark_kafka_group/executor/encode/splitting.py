"""The halves of a record batch that a broker finds too large, and the header of a batch of message format v2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from spark_kafka_group.executor.decode import codecs
from spark_kafka_group.executor.encode.compressing import compressed
from spark_kafka_group.executor.encode.encoder_contract import BATCH_LIMIT, HEADER_SIZE, NONE, Compression, EncodedBatch

HEADER = Struct(">qiibIhiqqqhii")
_UNCOUNTED = 12  # bytes before those that the length counts
_LEADER_EPOCH, _MAGIC = -1, 2


def sealed(
    data: bytearray, records: int, base_timestamp_ms: int, max_timestamp_ms: int, compression: Compression
) -> EncodedBatch:
    """The record batch of `data`, which has room for a header before the records; it becomes the batch's own."""
    if compression.codec != NONE:
        with memoryview(data) as whole:
            data = bytearray().join((whole[:HEADER_SIZE], *compressed(compression, whole[HEADER_SIZE:])))
    HEADER.pack_into(
        data,
        0,
        0,  # base offset
        len(data) - _UNCOUNTED,
        _LEADER_EPOCH,
        _MAGIC,
        0,  # CRC
        compression.codec,
        records - 1,
        base_timestamp_ms,
        max_timestamp_ms,
        -1,  # producer id
        -1,  # producer epoch
        -1,  # base sequence
        records,
    )
    return EncodedBatch(data, records, max_timestamp_ms, compression)


_BASE_TIMESTAMP = 7  # of the header's fields


@dataclass(frozen=True, slots=True)
class _SplitRecord:
    timestamp_delta: int
    rest: memoryview
    """The key and all after it."""


def split(batch: EncodedBatch) -> list[EncodedBatch]:
    """The halves of a batch of two or more records; the bytes of the records are divided evenly as far as they go."""
    if batch.records < 2:
        return [batch]
    view = memoryview(batch.data)
    packed = view[HEADER_SIZE:]
    codec = batch.compression.codec
    unpacked = packed if codec == NONE else memoryview(codecs.unpack(codec, packed, BATCH_LIMIT)).cast("B")
    records = list(_records(unpacked, batch.records))
    middle = _middle(records)
    base_timestamp = HEADER.unpack_from(view)[_BASE_TIMESTAMP]
    return [_batch_of(half, base_timestamp, batch.compression) for half in (records[:middle], records[middle:])]


def _records(data: memoryview, count: int) -> Iterator[_SplitRecord]:
    position = 0
    for _ in range(count):
        length, position = _varint(data, position)
        end = position + length
        timestamp_delta, position = _varint(data, position + 1)  # after the attributes
        _, position = _varint(data, position)  # offset delta
        yield _SplitRecord(timestamp_delta, data[position:end])
        position = end


def _middle(records: list[_SplitRecord]) -> int:
    """How many records the first half has: at least one, and not all."""
    half = sum(len(record.rest) for record in records) // 2
    size = len(records[0].rest)
    for place in range(1, len(records) - 1):
        size += len(records[place].rest)
        if size > half:
            return place
    return len(records) - 1


def _batch_of(records: list[_SplitRecord], base_timestamp: int, compression: Compression) -> EncodedBatch:
    first = records[0].timestamp_delta
    data = bytearray(HEADER_SIZE)
    for place, record in enumerate(records):
        body = b"\0" + varint(record.timestamp_delta - first) + varint(place)
        data += varint(len(body) + len(record.rest)) + body
        data += record.rest
    latest = base_timestamp + max(record.timestamp_delta for record in records)
    return sealed(data, len(records), base_timestamp + first, latest, compression)


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag number of a record batch that was made here, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position
        shift += 7


def varint(value: int) -> bytes:
    """A number in zigzag, seven bits a byte, the lowest first."""
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
