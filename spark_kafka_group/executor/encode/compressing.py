"""Compression of a record batch's records as Java's producer does it, so that Java's consumers read it.

The libraries are those that are always installed: zlib for gzip, pyarrow for snappy, lz4 and zstd.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from struct import Struct
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor.encode.encoder_contract import GZIP, LZ4, NONE, SNAPPY, Compression

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
    """A frame of lz4."""
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
