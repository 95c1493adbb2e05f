"""Who sends a batch, and its CRC."""

from __future__ import annotations

import struct

import pytest
from encoded import Row, encode, read_back, rows_of

from spark_kafka_group.executor.encode import Compression, Encoder

HEADER = struct.Struct(">qiibIhiqqqhii")


@pytest.mark.parametrize("transactional", [False, True])
def test_a_stamp_is_written_into_the_header(twin: Encoder, transactional: bool) -> None:
    (batch,) = encode(twin, rows_of(twin, [Row()] * 3), compression=Compression(4))
    twin.stamp(batch.data, 2**40 + 5, 2**15 - 1, 2**31 - 1, transactional)
    base, length, epoch, magic, _, attributes, last, first, latest, *sender, count = HEADER.unpack_from(batch.data)
    assert (base, length, epoch, magic, last, count) == (0, len(batch.data) - 12, -1, 2, 2, 3)
    assert attributes == 4 | 16 * transactional
    assert (first, latest) == (batch.max_timestamp_ms, batch.max_timestamp_ms)
    assert sender == [2**40 + 5, 2**15 - 1, 2**31 - 1]
    read_back([batch])


def test_a_batch_that_is_sealed_names_nobody(twin: Encoder) -> None:
    rows = rows_of(twin, [Row()])
    building = twin.BatchBuilder(topic="t", partition=0, batch_size=100, max_request_size=100)
    building.append(rows, bytes(4), 0, 0)
    *_, crc, attributes, _, _, _, producer, epoch, sequence, _ = HEADER.unpack_from(building.seal().data)
    assert (crc, attributes, producer, epoch, sequence) == (0, 0, -1, -1, -1)


def test_a_second_stamp_replaces_the_first(twin: Encoder) -> None:
    batches = encode(twin, rows_of(twin, [Row()]))
    (batch,) = batches
    twin.stamp(batch.data, 1, 2, 3, False)
    once = bytes(batch.data)
    twin.stamp(batch.data, 9, 9, 9, True)
    assert bytes(batch.data) != once
    read_back(batches)
    twin.stamp(batch.data, 1, 2, 3, False)
    assert bytes(batch.data) == once


@pytest.mark.parametrize("size", [0, 60])
def test_less_than_a_header_is_not_stamped(twin: Encoder, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes are no record batch"):
        twin.stamp(bytearray(size), 1, 1, 1, False)
