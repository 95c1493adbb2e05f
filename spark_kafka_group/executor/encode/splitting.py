"""A record batch of message format v2 as bytes: its header, its compression as Java's producer does it, and its halves.

A broker that finds a batch too large gets it in halves. Codecs are those of libraries that are always installed: zlib
for gzip, pyarrow for snappy, lz4 and zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor.decode import codecs
from spark_kafka_group.executor.encode.encoder_contract import (
    BATCH_LIMIT,
    GZIP,
    HEADER_SIZE,
    LZ4,
    NONE,
    SNAPPY,
    Compression,
    EncodedBatch,
)

ZSTD_DEFAULT_LEVEL = 3
LZ4_DEFAULT_LEVEL = 9
"""Java's level 9 is its quick compressor, other levels from 3 on are those of its high compression."""

_SNAPPY_BLOCK = 32 << 10
_XERIAL_HEADER = b"\x82SNAPPY\x00" + Struct(">ii").pack(1, 1)  # version, lowest compatible version
_XERIAL_LENGTH = Struct(">i")

_LZ4_BLOCK = 64 << 10
# Magic number, flags (version 1, independent blocks), largest block (64 kB), checksum of both flags. Java's consumer
# takes no frame whose blocks depend on each other, as lz4's own functions make them.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_LENGTH = Struct("<I")
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)


def compressed(compression: Compression, records: memoryview) -> Iterator[Any]:
    """The compressed bytes, in pieces."""
    if compression.codec == NONE:
        yield records
    elif compression.codec == GZIP:
        yield zlib.compress(records, -1 if compression.level is None else compression.level, wbits=31)
    elif compression.codec == SNAPPY:
        yield from _snappy(records)
    elif compression.codec == LZ4:
        yield from _lz4(compression.level, records)
    else:
        level = ZSTD_DEFAULT_LEVEL if compression.level is None else compression.level
        yield _codec("zstd", level).compress(records)


@cache
def _codec(name: str, level: int | None) -> pa.Codec:
    return pa.Codec(name) if level is None else pa.Codec(name, compression_level=level)


def _snappy(records: memoryview) -> Iterator[Any]:
    """Snappy in xerial's framing: blocks behind their lengths."""
    codec = _codec("snappy", None)
    yield _XERIAL_HEADER
    for at in range(0, len(records), _SNAPPY_BLOCK):
        block = codec.compress(records[at : at + _SNAPPY_BLOCK])
        yield _XERIAL_LENGTH.pack(block.size)
        yield block


def _lz4(level: int | None, records: memoryview) -> Iterator[Any]:
    codec = _codec("lz4_raw", None if level == LZ4_DEFAULT_LEVEL else level)
    yield _LZ4_HEADER
    for at in range(0, len(records), _LZ4_BLOCK):
        plain = records[at : at + _LZ4_BLOCK]
        block = codec.compress(plain)
        if block.size < len(plain):
            yield _LZ4_LENGTH.pack(block.size)
            yield block
        else:
            yield _LZ4_LENGTH.pack(len(plain) | _LZ4_STORED)
            yield plain
    yield _LZ4_END


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
    rest: memoryview  # the key and all after it


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
