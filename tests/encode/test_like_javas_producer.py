"""Kafka's own Java code reads what the twins encode, and chooses the same partitions."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from encoded import EVERY_COMPRESSION, NOW_MS, Row, as_read, encode, rows_of
from java_records import JavaRecords

from spark_kafka_group.executor.encode import Compression, Encoder

ROWS = [
    Row(b"k", b"v"),
    Row(None, b"v" * 200, []),
    Row(b"k", None),
    Row(b"", b"", [("a", b"1"), ("a", None), ("ключ", b""), ("", b"\0\xff")]),
    *(Row(None, random.Random(i).randbytes(20_000)) for i in range(4)),
    *(Row(None, b"%d" % i * 20_000) for i in range(4)),
]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaRecords]:
    started = JavaRecords()
    yield started
    started.stop()


@pytest.mark.parametrize("compression", EVERY_COMPRESSION)
def test_java_reads_the_rows_of_every_codec(twin: Encoder, java: JavaRecords, compression: Compression) -> None:
    (sealed,) = encode(twin, rows_of(twin, ROWS), batch_size=1 << 20, compression=compression)
    twin.stamp(sealed.data, 12345, 3, 77, True)
    batch = java.batch_of(bytes(sealed.data))
    assert java.rows_of(batch) == as_read(ROWS)
    assert batch.compressionType().toString() == CODECS[compression.codec]
    assert (batch.magic(), batch.baseOffset(), batch.lastOffset()) == (2, 0, len(ROWS) - 1)
    assert (batch.maxTimestamp(), batch.timestampType().toString()) == (NOW_MS, "CreateTime")
    assert (batch.producerId(), batch.producerEpoch(), batch.baseSequence()) == (12345, 3, 77)
    assert batch.isTransactional()
    assert not batch.isControlBatch()


@pytest.mark.parametrize("compression", EVERY_COMPRESSION)
def test_java_reads_the_halves_of_a_batch(twin: Encoder, java: JavaRecords, compression: Compression) -> None:
    (sealed,) = encode(twin, rows_of(twin, ROWS), batch_size=1 << 20, compression=compression)
    found = []
    for half in twin.split(sealed):
        twin.stamp(half.data, -1, -1, -1, False)
        found += java.rows_of(java.batch_of(bytes(half.data)))
    assert found == as_read(ROWS)


def test_keys_go_to_the_partitions_that_javas_producer_chooses(java: JavaRecords) -> None:
    from spark_kafka_group.executor.encode import load

    chance = random.Random(5)
    keys = [chance.randbytes(size) for size in (*range(40), *(chance.randrange(300) for _ in range(1500)))]
    for count in (1, 7, 1000):
        expected = [java.partition_of(key, count) for key in keys[: 200 if count == 1 else None]]
        for name in ("python", "c"):
            twin = load(name)
            chosen = memoryview(twin.partitions_of_keys(rows_of(twin, [Row(key) for key in keys]), None, count))
            assert chosen.cast("i").tolist()[: len(expected)] == expected
