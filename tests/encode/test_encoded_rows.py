"""What a twin encodes the decoder reads back."""

from __future__ import annotations

import random
import zlib
from array import array
from typing import Any

import pyarrow as pa
import pytest
from encoded import EVERY_COMPRESSION, HEADERS, NOW_MS, Row, as_read, builder, encode, indices, read_back, rows_of

from spark_kafka_group.executor.encode import CODECS, Compression, Encoder
from spark_kafka_group.executor.writing.write import binary_column, headers_column

ROWS = [
    Row(b"k", b"v"),
    Row(None, b"v"),
    Row(b"k", None),
    Row(None, None),
    Row(b"", b""),
    Row(b"k" * 300, b"v" * 5000),
    Row(b"k", b"v", []),
    Row(b"k", b"v", [("a", b"1")]),
    Row(b"k", b"v", [("a", b"1"), ("a", b"2"), ("a", None), ("", b""), ("ключ", b"\0\xff")]),
    Row(None, None, [("n" * 200, None)]),
    *(Row(None, b"%d" % i * (i % 50)) for i in range(200)),
]


@pytest.mark.parametrize("compression", EVERY_COMPRESSION)
def test_rows_are_read_back_with_every_codec(twin: Encoder, compression: Compression) -> None:
    batches = encode(twin, rows_of(twin, ROWS), compression=compression)
    assert read_back(batches) == as_read(ROWS)
    assert all(batch.compression == compression for batch in batches)


@pytest.mark.parametrize("compression", EVERY_COMPRESSION)
def test_records_of_many_blocks_of_a_codec_are_read_back(twin: Encoder, compression: Compression) -> None:
    chance = random.Random(3)
    rows = [Row(None, chance.randbytes(30_000)), *(Row(None, chance.randbytes(50) * 20) for _ in range(400))]
    (batch,) = encode(twin, rows_of(twin, rows), batch_size=1 << 20, compression=compression)
    assert batch.records == len(rows)
    assert read_back([batch]) == as_read(rows)


def test_rows_are_written_in_the_order_of_their_indices_and_as_often(twin: Encoder) -> None:
    batches = encode(twin, rows_of(twin, [Row(value=b"%d" % i) for i in range(5)]), [4, 0, 0, 2])
    assert [row.value for row in read_back(batches)] == [b"4", b"0", b"0", b"2"]


def test_columns_that_are_not_there_are_null(twin: Encoder) -> None:
    rows = twin.Rows(2, None, None, None)
    assert read_back(encode(twin, rows)) == [Row(None, None), Row(None, None)]


def test_strings_large_strings_and_views_are_written_as_their_bytes(twin: Encoder) -> None:
    texts = ["a", None, "", "größer", "x" * 100]
    for kind in (pa.string(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()):
        column = pa.array(texts, pa.string()).cast(kind)
        rows = twin.Rows(len(texts), binary_column(column), binary_column(column))
        expected = [None if text is None else text.encode() for text in texts]
        assert read_back(encode(twin, rows)) == [Row(text, text) for text in expected], kind


def test_columns_of_nulls_alone_may_have_arrows_null_type(twin: Encoder) -> None:
    nulls = pa.nulls(2)
    rows = twin.Rows(2, binary_column(nulls), binary_column(nulls), headers_column(nulls))
    assert read_back(encode(twin, rows)) == [Row(None, None)] * 2


@pytest.mark.parametrize("begin", [0, 1, 7, 8, 9, 30])
def test_sliced_arrays_are_written_from_their_first_row(twin: Encoder, begin: int) -> None:
    source = [ROWS[i % 10] for i in range(60)]
    lists = [None if row.headers is None else [{"key": k, "value": v} for k, v in row.headers] for row in source]
    structs = pa.array(
        [{"key": "x", "value": None}] * 3 + [h for headers in lists for h in headers or ()], HEADERS.value_type
    )
    ends = [0]
    for headers in lists:
        ends.append(ends[-1] + len(headers or ()))
    headers = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()), structs.slice(3), mask=pa.array([headers is None for headers in lists])
    )
    keys = pa.array([row.key for row in source], pa.binary())
    values = pa.array([row.value for row in source], pa.binary())
    cut = [column.slice(begin, 20) for column in (keys, values, headers)]
    rows = twin.Rows(20, binary_column(cut[0]), binary_column(cut[1]), headers_column(cut[2]))
    assert read_back(encode(twin, rows)) == as_read(source[begin : begin + 20])


def test_no_rows_make_no_batch(twin: Encoder) -> None:
    empty = pa.array([], pa.binary())
    rows = twin.Rows(0, binary_column(empty), binary_column(empty), headers_column(pa.array([], HEADERS)))
    building = builder(twin)
    assert building.append(rows, b"", 0, NOW_MS) == 0
    assert (building.records, building.nbytes, building.full) == (0, 0, False)
    with pytest.raises(ValueError, match="orders-3: a record batch without a record"):
        building.seal()


def test_each_append_has_its_create_time_also_when_the_clock_goes_back(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"%d" % i) for i in range(3)])
    building = builder(twin)
    for place, timestamp_ms in enumerate((NOW_MS, NOW_MS + 5000, NOW_MS - 7)):
        building.append(rows, indices(place), 0, timestamp_ms)
    batch = building.seal()
    twin.stamp(batch.data, -1, -1, -1, False)
    assert batch.max_timestamp_ms == NOW_MS + 5000
    read_back([batch])


def test_indices_may_be_any_buffer_of_int32(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"%d" % i) for i in range(3)])
    for given in (array("i", [2, 1]), memoryview(array("i", [2, 1])), bytearray(indices(2, 1)), indices(2, 1)):
        building = builder(twin)
        assert building.append(rows, given, 0, NOW_MS) == 2


def test_a_builder_goes_on_after_a_batch_was_sealed(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"%d" % i) for i in range(3)])
    building = builder(twin, compression=Compression(CODECS["zstd"]))
    batches: list[Any] = []
    for place in range(3):
        building.append(rows, indices(place), 0, NOW_MS)
        batches.append(building.seal())
        twin.stamp(batches[-1].data, 1, 1, 1, False)
    assert [row.value for row in read_back(batches)] == [b"0", b"1", b"2"]


def test_rows_whose_compression_fails_are_still_in_the_builder(twin: Encoder) -> None:
    rows = rows_of(twin, [Row(value=b"%d" % i * 500) for i in range(3)])
    building = builder(twin, compression=Compression(CODECS["gzip"], 1000))
    building.append(rows, indices(0), 0, NOW_MS)
    with pytest.raises(zlib.error):
        building.seal()
    assert building.append(rows, indices(1, 2), 0, NOW_MS) == 2
    assert building.records == 3
