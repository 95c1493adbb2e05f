"""A record batch of message format v2, as a producer sends it to a partition."""

from __future__ import annotations

from dataclasses import dataclass

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Names of ``kafka.compression.type`` to the numbers of the attributes."""


@dataclass(frozen=True, slots=True)
class Compression:
    """A codec and how hard it tries.

    Attributes
    ----------
    codec
        One of CODECS' numbers.
    level
        As Java's ``compression.<codec>.level``; None, and always for snappy and none: Java's default.
    """

    codec: int
    level: int | None = None


UNCOMPRESSED = Compression(NONE)


@dataclass(slots=True)
class EncodedBatch:
    """A sealed record batch.

    Attributes
    ----------
    data
        All of it: 61 bytes of header, and the records, compressed or not. Base offset 0, leader epoch -1, producer id,
        epoch and sequence -1. The CRC is 0 until ``stamp`` has been called.
    records
        How many it has, at least one.
    max_timestamp_ms
        The largest of its records' create times.
    compression
        What its records were compressed with, so that ``split`` does the same.
    """

    data: bytearray
    records: int
    max_timestamp_ms: int
    compression: Compression = UNCOMPRESSED
