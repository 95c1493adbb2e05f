"""Inputs that no small mutation leads to: few bytes on the wire that are much work, or much memory, to unpack.

An input names one of them, so that a finding can be run again.
"""

from __future__ import annotations

import contextlib
import struct
import zlib

import pyarrow as pa
import writer  # first: it makes record_bytes known
from record_bytes import GZIP, SNAPPY, ZSTD, Rec, batch_of, message, record_v2, sized, varint, wrapper

from spark_kafka_group.errors import ReadError
from spark_kafka_group.executor.decode import load
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.schema import EVERY

LIMIT = 1 << 22
"""Most bytes that a record batch may unpack to here; the real limit is 100 MiB."""
CPU_S = 10.0
MEMORY_MB = 32 * LIMIT >> 20
TP = TopicPartition("orders", 3)


def gzip_members() -> bytes:
    """Members of one byte each."""
    payload = b"".join(record_v2(Rec(), at, writer.NOW_MS) for at in range(4000))
    made: dict[int, bytes] = {}
    for byte in set(payload):
        member = zlib.compressobj(wbits=31)
        made[byte] = member.compress(bytes([byte])) + member.flush()
    return batch_of(b"".join(made[byte] for byte in payload), 4000, last_delta=3999, attributes=GZIP)


def empty_gzip_members() -> bytes:
    member = zlib.compressobj(wbits=31)
    return batch_of((member.compress(b"") + member.flush()) * 100_000, 0, attributes=GZIP)


def empty_snappy_blocks() -> bytes:
    """Blocks that unpack to nothing."""
    return batch_of(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"\0\0\0\1\0" * (1 << 19), 0, attributes=SNAPPY)


def snappy_blocks_of_one_byte() -> bytes:
    block = pa.compress(b"\0", codec="snappy", asbytes=True)
    data = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * (1 << 17)
    return batch_of(data, 0, attributes=SNAPPY)


def rows() -> bytes:
    """As many records as fit into that limit."""
    record = sized(b"\0\0\0\1\1\0")
    count = LIMIT // len(record)
    return batch_of(pa.compress(record * count, codec="zstd", asbytes=True), count, attributes=ZSTD)


def headers() -> bytes:
    """As many headers in one record."""
    count = (LIMIT - 40) // 2
    payload = sized(b"\0\0\0\1\1" + varint(count) + b"\0\1" * count)
    return batch_of(pa.compress(payload, codec="zstd", asbytes=True), 1, attributes=ZSTD)


def header_keys_that_are_no_text() -> bytes:
    """Bytes that are not UTF-8 are three bytes each afterwards."""
    key = b"\xff" * (LIMIT - 40)
    payload = sized(b"\0\0\0\1\1" + varint(1) + sized(key) + b"\1")
    return batch_of(pa.compress(payload, codec="zstd", asbytes=True), 1, attributes=ZSTD)


def old_messages() -> bytes:
    """As many messages of format v0 in one that wraps them."""
    inner = b"".join(message(0, at, None, None) for at in range(100)) * (LIMIT // 2600)
    return wrapper(0, 99, GZIP, inner)


def zeros() -> bytes:
    """More than a record batch may unpack to, 1000 to 1 and more."""
    return b"".join(
        batch_of(pa.compress(bytes(8 * LIMIT), codec="zstd", asbytes=True), 1, attributes=ZSTD) for _ in "123"
    )


def headers_of_batches() -> bytes:
    """A value full of bytes that look like the header of a record batch up to its end."""
    size = 1 << 20
    return b"".join(struct.pack(">qiibIhi", at, size - at - 12, 0, 2, 0, 0, 0) for at in range(0, size, 27))


def twos() -> bytes:
    """A value full of the magic byte."""
    return b"\2" * (1 << 18)


CASES = {
    made.__name__: made
    for made in (
        gzip_members, empty_gzip_members, empty_snappy_blocks, snappy_blocks_of_one_byte, rows, headers,
        header_keys_that_are_no_text, old_messages, zeros, headers_of_batches, twos,
    )
}  # fmt: skip
TOGETHER = ("headers_of_batches", "twos")
"""Inputs for the search of record batches; the others are for the decoder."""


def run(name: bytes) -> None:
    """The compiled twin alone: the other one is for reading, and makes objects of everything."""
    data = CASES[name.decode()]()
    if name.decode() in TOGETHER:
        _look_for_batches(memoryview(data))
        return
    builder = load("c").RecordBatchBuilder(columns=EVERY, check_crcs=True, unpacked_limit=LIMIT, target_bytes=1 << 22)
    position = 0
    with contextlib.suppress(ReadError):
        while position < len(data):
            position = builder.append(TP.topic, TP.partition, data, position, 0, 2**63 - 1)
            builder.finish()


def _look_for_batches(data: memoryview) -> None:
    scan = load("c").scan
    batch_headers.hidden(scan, TP, data, 0, len(data), 0, lambda tp, batch: False)
    batch_headers.leading_to(scan, TP, data, 0, len(data) - 64, 0, lambda tp, batch: False)
