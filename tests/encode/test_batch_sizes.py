"""Where a record batch ends, and which records are refused."""

from __future__ import annotations

import pickle

import pytest
from encoded import NOW_MS, Row, builder, encode, indices, read_back, rows_of

from spark_kafka_group.errors import RecordTooLargeError, WriteError
from spark_kafka_group.executor.encode import CODECS, Compression, Encoder

HEADER_SIZE = 61


def test_a_batch_has_as_many_rows_as_batch_size_has_room_for(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"x" * 100)] * 1000)
    batches = encode(twin, rows, batch_size=5000)
    assert sum(batch.records for batch in batches) == 1000
    record = 100 + 9  # of the first 64; later ones have an offset of two bytes
    assert [len(batch.data) for batch in batches[:-1]] == [HEADER_SIZE + 45 * record] * (len(batches) - 1)
    assert batches[0].records == (5000 - HEADER_SIZE) // record


def test_a_row_that_just_fits_fills_the_batch(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"x" * 40)] * 3)
    building = builder(twin, batch_size=HEADER_SIZE + 2 * 47)
    assert building.append(rows, indices(0), 0, NOW_MS) == 1
    assert (building.nbytes, building.full) == (HEADER_SIZE + 47, False)
    assert building.append(rows, indices(1, 2), 0, NOW_MS) == 1
    assert (building.nbytes, building.full, building.records) == (HEADER_SIZE + 2 * 47, True, 2)
    assert building.append(rows, indices(1, 2), 1, NOW_MS) == 1


def test_the_size_counts_before_compression(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"x" * 1000)] * 100)
    plain = encode(twin, rows, batch_size=8192)
    packed = encode(twin, rows, batch_size=8192, compression=Compression(CODECS["zstd"]))
    assert [batch.records for batch in packed] == [batch.records for batch in plain]
    assert sum(len(batch.data) for batch in packed) < sum(len(batch.data) for batch in plain) / 10


@pytest.mark.parametrize("batch_size", [0, 1, 100])
def test_a_row_larger_than_batch_size_has_a_batch_of_its_own(twin: Encoder, batch_size: int) -> None:
    rows = [Row(value=b"x" * 500), Row(value=b"y" * 500), Row(value=b"z")]
    batches = encode(twin, rows_of(twin, rows), batch_size=batch_size)
    assert [batch.records for batch in batches] == [1, 1, 1]
    assert [row.value for row in read_back(batches)] == [row.value for row in rows]


def test_no_batch_of_several_rows_is_larger_than_a_request(twin: Encoder) -> None:
    batches = encode(twin, rows_of(twin, [Row(value=b"x" * 400)] * 10), batch_size=1 << 20, max_request_size=1000)
    assert [batch.records for batch in batches] == [2] * 5


def test_a_record_larger_than_a_request_is_refused_and_rows_before_it_stay(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"a"), Row(b"k", b"x" * 1000, [("h", b"1")]), Row(value=b"b")])
    building = builder(twin, max_request_size=1000)
    with pytest.raises(RecordTooLargeError) as raised:
        building.append(rows, indices(0, 1, 2), 0, NOW_MS)
    size = HEADER_SIZE + 2 + 3 + 2 + 2 + 1000 + 1 + 4
    assert str(raised.value) == (
        f"orders-3: a row makes a record of {size} bytes, and kafka.max.request.size is 1000: raise it, and "
        "max.message.bytes of topic orders if that is lower, or write smaller values"
    )
    assert (raised.value.topic, raised.value.partition) == ("orders", 3)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert building.records == 1
    assert building.append(rows, indices(2), 0, NOW_MS) == 1
    assert building.seal().records == 2


def test_a_record_of_just_the_size_of_a_request_is_not_refused(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"x" * 500)])
    (batch,) = encode(twin, rows, max_request_size=HEADER_SIZE + 509)
    assert len(batch.data) == HEADER_SIZE + 509
    with pytest.raises(RecordTooLargeError):
        encode(twin, rows, max_request_size=HEADER_SIZE + 508)


def test_headers_count_for_the_size_of_a_record(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(None, None, [("h" * 100, b"x" * 100)] * 100)])
    with pytest.raises(RecordTooLargeError, match="max.request.size is 5000"):
        encode(twin, rows, max_request_size=5000)


@pytest.mark.parametrize("sizes", [(-1, 10), (10, 0), (10, -1), (10, 2**31)])
def test_sizes_that_no_batch_can_have_are_refused(twin: Encoder, sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="batch_size .* must not be negative, and max_request_size .* must be from 1"):
        builder(twin, batch_size=sizes[0], max_request_size=sizes[1])


def test_errors_of_writing_have_one_base() -> None:
    assert issubclass(RecordTooLargeError, WriteError)
