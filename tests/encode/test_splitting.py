"""Batches that a broker finds too large."""

from __future__ import annotations

import pytest
from encoded import EVERY_COMPRESSION, NOW_MS, Row, as_read, builder, encode, indices, read_back, rows_of

from spark_kafka_group.executor.encode import Compression, Encoder

ROWS = [Row(b"%d" % i, b"x" * i, [("h", b"%d" % i)] if i % 3 else None) for i in range(300)]


@pytest.mark.parametrize("compression", EVERY_COMPRESSION)
def test_the_halves_of_a_batch_have_its_rows_in_order(twin: Encoder, compression: Compression) -> None:
    (batch,) = encode(twin, rows_of(twin, ROWS), batch_size=1 << 20, compression=compression)
    halves = twin.split(batch)
    assert sum(half.records for half in halves) == len(ROWS)
    assert all(half.compression == compression for half in halves)
    for half in halves:
        twin.stamp(half.data, 1, 1, 1, True)
    assert read_back(halves) == as_read(ROWS)


def test_the_halves_have_as_many_bytes_as_far_as_their_rows_allow(twin: Encoder) -> None:
    (batch,) = encode(twin, rows_of(twin, ROWS), batch_size=1 << 20)
    sizes = [len(half.data) for half in twin.split(batch)]
    assert max(sizes) - min(sizes) < 2 * 350


@pytest.mark.parametrize("large", [0, 1, 2])
def test_a_large_row_leaves_one_row_at_least_for_each_half(twin: Encoder, large: int) -> None:
    rows = [Row(value=b"x" * 1000 if place == large else b"y") for place in range(3)]
    (batch,) = encode(twin, rows_of(twin, rows))
    assert sorted(half.records for half in twin.split(batch)) == [1, 2]


def test_a_batch_is_halved_until_each_has_one_row(twin: Encoder) -> None:
    batches = encode(twin, rows_of(twin, ROWS), batch_size=1 << 20)
    while any(batch.records > 1 for batch in batches):
        batches = [half for batch in batches for half in twin.split(batch)]
    assert len(batches) == len(ROWS)
    for batch in batches:
        twin.stamp(batch.data, 1, 1, 1, False)
    assert read_back(batches) == as_read(ROWS)


def test_a_batch_of_one_row_stays(twin: Encoder) -> None:
    (batch,) = encode(twin, rows_of(twin, [Row()]))
    assert twin.split(batch) == [batch]


def test_each_row_keeps_its_create_time(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"x")] * 4)
    building = builder(twin)
    for place, timestamp_ms in enumerate((NOW_MS, NOW_MS + 9000, NOW_MS - 100, NOW_MS - 50)):
        building.append(rows, indices(place), 0, timestamp_ms)
    halves = twin.split(building.seal())
    assert [half.max_timestamp_ms for half in halves] == [NOW_MS + 9000, NOW_MS - 50]
    for half in halves:
        twin.stamp(half.data, 1, 1, 1, False)
    read_back(halves)
