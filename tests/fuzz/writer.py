"""Writes random logs: record batches of every format and codec, in every framing that a client has ever used."""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path
from random import Random

import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1] / "decode"))

from record_bytes import (
    CODECS,
    CONTROL,
    GZIP,
    LOG_APPEND,
    LZ4,
    NONE,
    SNAPPY,
    TRANSACTIONAL,
    Rec,
    batch_of,
    marker,
    message,
    pack,
    record_v2,
    xerial,
)

from spark_kafka_group.executor.decode import codecs

NOW_MS = 1_700_000_000_000
PRODUCERS = (1, 2)
BASES = (0, 0, 0, 1000, 2**40, 2**63 - 120)


def log(rng: Random) -> bytes:
    """One to four record batches with rising offsets."""
    offset = rng.choice(BASES)
    parts = []
    for _ in range(rng.randint(1, 4)):
        part, count = rng.choices((_batch, _marker, _message, _wrapper), (5, 1, 1, 2))[0](rng, offset)
        parts.append(part)
        offset += count
    return b"".join(parts)


def packed(rng: Random, codec: int, data: bytes) -> bytes:
    """Compressed bytes, in one piece or several, as different clients write them."""
    cut = rng.randint(0, len(data))
    halves = [data] if rng.random() < 0.6 else [data[:cut], data[cut:]]
    if codec == SNAPPY:
        if rng.random() < 0.4:
            return bytes(pa.compress(data, codec="snappy", asbytes=True))
        return xerial(data, rng.choice((7, 100, 32768)))
    if codec == GZIP:
        return b"".join(_gzip(half, rng.choice((0, 1, 9))) for half in halves)
    return b"".join(pack(codec, half) for half in halves)


def _gzip(data: bytes, level: int) -> bytes:
    member = zlib.compressobj(level, wbits=31)
    return member.compress(data) + member.flush()


def _blob(rng: Random) -> bytes | None:
    size = rng.choice((-1, 0, 1, 5, 20, 127, 128, 300))
    return None if size < 0 else rng.choice((bytes(size), rng.randbytes(size), b"abc" * (size // 3)))


def _record(rng: Random) -> Rec:
    headers = [(_blob(rng) or b"", _blob(rng)) for _ in range(rng.choice((0, 0, 0, 1, 3)))]
    timestamp = rng.choice((NOW_MS, NOW_MS, -1, 0, rng.randint(-(2**53), 2**53)))
    return Rec(_blob(rng), _blob(rng), headers, timestamp)


def _batch(rng: Random, offset: int) -> tuple[bytes, int]:
    records = [_record(rng) for _ in range(rng.choice((0, 1, 1, 2, 5, 12)))]
    deltas, delta = [], -1
    for _ in records:
        delta += rng.choice((1, 1, 1, 2))
        deltas.append(delta)
    base_timestamp = records[0].timestamp_ms if records else NOW_MS
    payload = b"".join(record_v2(rec, at, base_timestamp) for rec, at in zip(records, deltas, strict=True))
    codec = rng.choice(list(CODECS.values()))
    transactional = rng.random() < 0.3
    attributes = codec | rng.choice((0, 0, LOG_APPEND)) | transactional * TRANSACTIONAL
    attributes |= CONTROL if rng.random() < 0.05 else 0
    last_delta = max(delta, 0) + rng.choice((0, 0, 2))
    data = batch_of(
        packed(rng, codec, payload), len(records), base_offset=offset, last_delta=last_delta, attributes=attributes,
        base_timestamp=base_timestamp, producer_id=rng.choice(PRODUCERS) if transactional else -1,
    )  # fmt: skip
    return data, last_delta + 1


def _marker(rng: Random, offset: int) -> tuple[bytes, int]:
    key = rng.choice((b"", b"", b"", None, b"\0\0\0", struct.pack(">hhq", 1, 0, 7)))
    return marker(rng.choice((0, 0, 1, 2)), producer_id=rng.choice(PRODUCERS), base_offset=offset, key=key), 1


def _message(rng: Random, offset: int) -> tuple[bytes, int]:
    attributes = rng.choice((0, 0, LOG_APPEND))
    data = message(rng.choice((0, 1)), offset, _blob(rng), _blob(rng), timestamp_ms=NOW_MS, attributes=attributes)
    return data, 1


def _wrapper(rng: Random, offset: int) -> tuple[bytes, int]:
    magic, count = rng.choice((0, 1)), rng.choice((1, 2, 7))
    first = 0 if magic else offset
    inner = b"".join(message(magic, first + at, _blob(rng), _blob(rng), timestamp_ms=NOW_MS) for at in range(count))
    codec = rng.choice((NONE, GZIP, SNAPPY, LZ4))
    outer = rng.choice((offset + count - 1, offset + count - 1, 0))
    if codec == NONE:
        return inner, count
    value = packed(rng, codec, inner)
    if codec == LZ4 and magic == 0 and rng.random() < 0.5:
        value = _with_kafka_3160(value)
    attributes = codec | rng.choice((0, LOG_APPEND))
    return message(magic, outer, None, value, timestamp_ms=NOW_MS, attributes=attributes), count


def _with_kafka_3160(frame: bytes) -> bytes:
    """An LZ4 frame with the header checksum of old clients, who hashed the magic number too."""
    size = 6 + 8 * (frame[4] >> 3 & 1)
    checksum = codecs._xxh32(frame[:size]) >> 8 & 0xFF
    return frame[:size] + bytes([checksum]) + frame[size + 1 :]
