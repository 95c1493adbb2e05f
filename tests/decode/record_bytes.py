"""Writes a broker's bytes: record batches of magic 2, messages of magic 0 and 1, every codec."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

try:
    from spark_kafka_group.executor.decode._decode_c import crc32c
except ImportError:
    from spark_kafka_group.executor.decode._decode_py import crc32c

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
LOG_APPEND, TRANSACTIONAL, CONTROL = 8, 16, 32


@dataclass(frozen=True)
class Rec:
    """A record as a producer sees it."""

    key: bytes | None = None
    value: bytes | None = b"v"
    headers: Sequence[tuple[bytes, bytes | None]] = field(default=())
    timestamp_ms: int = 1_700_000_000_000
    delta: int | None = None  # offset less the base offset; by default its place in the batch


def varint(value: int) -> bytes:
    zigzag = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record_v2(rec: Rec, delta: int, base_timestamp: int) -> bytes:
    headers = b"".join(sized(key) + sized(value) for key, value in rec.headers)
    body = b"\0" + varint(rec.timestamp_ms - base_timestamp) + varint(delta) + sized(rec.key) + sized(rec.value)
    return sized(body + varint(len(rec.headers)) + headers)


def xerial(data: bytes, block: int = 32768) -> bytes:
    out = bytearray(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    for at in range(0, len(data), block):
        packed = pa.compress(data[at : at + block], codec="snappy", asbytes=True)
        out += struct.pack(">i", len(packed)) + packed
    return bytes(out)


def pack(codec: int, data: bytes) -> bytes:
    if codec == NONE:
        return data
    if codec == GZIP:
        gzip = zlib.compressobj(wbits=31)
        return gzip.compress(data) + gzip.flush()
    if codec == SNAPPY:
        return xerial(data)
    return bytes(pa.compress(data, codec={LZ4: "lz4", ZSTD: "zstd"}[codec], asbytes=True))


def batch_of(
    payload: bytes,
    count: int,
    *,
    base_offset: int = 0,
    last_delta: int = 0,
    attributes: int = 0,
    base_timestamp: int = 1_700_000_000_000,
    max_timestamp: int = 1_700_000_000_000,
    producer_id: int = -1,
    crc: int | None = None,
) -> bytes:
    """A record batch of magic 2 around any payload."""
    header = attributes, last_delta, base_timestamp, max_timestamp, producer_id, -1, -1, count
    covered = struct.pack(">hiqqqhii", *header) + payload
    crc = crc32c(covered) if crc is None else crc
    return struct.pack(">qiibI", base_offset, 9 + len(covered), 0, 2, crc) + covered


def batch(
    records: Sequence[Rec],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    attributes: int = 0,
    last_delta: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    crc: int | None = None,
) -> bytes:
    """A record batch of magic 2."""
    base_timestamp = records[0].timestamp_ms if records else -1
    deltas = [i if rec.delta is None else rec.delta for i, rec in enumerate(records)]
    payload = b"".join(record_v2(rec, delta, base_timestamp) for rec, delta in zip(records, deltas, strict=True))
    if max_timestamp is None:
        max_timestamp = max((rec.timestamp_ms for rec in records), default=-1)
    return batch_of(
        pack(codec, payload),
        len(records),
        base_offset=base_offset,
        last_delta=max(deltas, default=0) if last_delta is None else last_delta,
        attributes=attributes | codec,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        crc=crc,
    )


def marker(kind: int, *, producer_id: int, base_offset: int, key: bytes | None = b"") -> bytes:
    """The control batch that ends a transaction: `kind` 0 aborts, 1 commits; or a control batch with another key."""
    key = struct.pack(">hh", 0, kind) if key == b"" else key
    record = Rec(key, struct.pack(">hi", 0, 0))
    return batch([record], base_offset=base_offset, attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id)


def sized32(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp_ms: int = 1_500_000_000_000,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """Offset, length and message of magic 0 or 1."""
    timestamp = struct.pack(">q", timestamp_ms) if magic else b""
    covered = struct.pack(">bb", magic, attributes) + timestamp + sized32(key) + sized32(value)
    crc = zlib.crc32(covered) if crc is None else crc
    return struct.pack(">qiI", offset, 4 + len(covered), crc) + covered


def wrapper(magic: int, offset: int, codec: int, inner: bytes, *, attributes: int = 0, **more: int) -> bytes:
    """A compressed message around others."""
    return message(magic, offset, None, pack(codec, inner), attributes=attributes | codec, **more)


def with_right_crcs(data: bytes) -> bytes:
    """`data` with every CRC made to fit, as far as record batches can be made out."""
    out = bytearray(data)
    position = 0
    while len(out) - position >= 17:
        (length,) = struct.unpack_from(">i", out, position + 8)
        magic = out[position + 16]
        end = position + 12 + length
        if length < 14 or end > len(out) or magic > 2 or (magic == 2 and length < 49):
            break
        if magic == 2:
            struct.pack_into(">I", out, position + 17, crc32c(bytes(out[position + 21 : end])))
        else:
            struct.pack_into(">I", out, position + 12, zlib.crc32(bytes(out[position + 16 : end])))
        position = end
    return bytes(out)
