"""Columns that contradict themselves: an error, and never bytes from elsewhere."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from encoded import NOW_MS, Row, builder, indices, rows_of

from spark_kafka_group.errors import WriteError
from spark_kafka_group.executor.encode import Encoder
from spark_kafka_group.executor.encode.encoder_contract import BinaryColumn, HeadersColumn


def int32s(*values: int) -> bytes:
    return array("i", values).tobytes()


def column(*ends: int, data: bytes = b"abcdef", first: int = 0, validity: bytes | None = None) -> BinaryColumn:
    return BinaryColumn(first, validity, int32s(*ends), data)


def headers(*ends: int, **changed: Any) -> HeadersColumn:
    """Two headers, a=1 and b=2."""
    fields: dict[str, Any] = {
        "first": 0, "validity": None, "ends": int32s(*ends), "count": 2, "struct_first": 0, "struct_validity": None,
        "keys": column(0, 1, 2, data=b"ab"), "values": column(0, 1, 2, data=b"12"),
    }  # fmt: skip
    return HeadersColumn(**{**fields, **changed})


@pytest.mark.parametrize(
    "ends",
    [(2, 1), (-1, 1), (0, 7), (0, 2**31 - 1), (-(2**31), 2**31 - 1), (7, 7), (6, 7)],
)
def test_offsets_that_go_backward_or_beyond_the_data_are_an_error(twin: Encoder, ends: tuple[int, int]) -> None:
    for rows in (twin.Rows(1, column(*ends), None), twin.Rows(1, None, column(*ends))):
        building = builder(twin)
        with pytest.raises(ValueError, match=rf"row 0 is from {ends[0]} to {ends[1]} of 6"):
            building.append(rows, indices(0), 0, NOW_MS)
        assert building.records == 0
    with pytest.raises(ValueError, match="column key: row 0 is from"):
        twin.partitions_of_keys(twin.Rows(1, column(*ends), None), None, 3)


def test_offsets_of_a_null_row_do_not_matter(twin: Encoder) -> None:
    rows = twin.Rows(2, None, column(-5, 900, 2, validity=b"\0"))
    building = builder(twin)
    assert building.append(rows, indices(0, 1), 0, NOW_MS) == 2


def test_rows_before_a_contradiction_stay(twin: Encoder) -> None:
    rows = twin.Rows(3, None, column(0, 2, 1, 3))
    building = builder(twin)
    with pytest.raises(ValueError, match="column value: row 1 is from 2 to 1 of 6"):
        building.append(rows, indices(0, 2, 1), 0, NOW_MS)
    assert building.records == 2
    assert building.seal().records == 2


@pytest.mark.parametrize("name", ["key", "value"])
def test_buffers_too_short_for_their_rows_are_an_error(twin: Encoder, name: str) -> None:
    def rows(count: int, given: BinaryColumn) -> Any:
        return twin.Rows(count, given, None) if name == "key" else twin.Rows(count, None, given)

    for ends, first, count in (((0, 1), 0, 2), ((0, 1, 2), 1, 2), ((), 0, 1)):
        with pytest.raises(ValueError, match=f"column {name}: its offsets have {4 * len(ends)} bytes"):
            rows(count, column(*ends, first=first))
    with pytest.raises(ValueError, match=f"column {name}: its offsets have 0 bytes, and its rows need 8"):
        rows(1, BinaryColumn(0, None, None, b""))
    with pytest.raises(ValueError, match=f"column {name}: its offsets have 11 bytes, and its rows need 12"):
        rows(2, BinaryColumn(0, None, int32s(0, 1, 2)[:11], b"ab"))
    with pytest.raises(ValueError, match=f"column {name}: its validity bits have 1 bytes, and its rows need 2"):
        rows(8, column(*range(10), first=1, validity=b"\xff"))
    with pytest.raises(ValueError, match=f"column {name}: its first row is -1: it must not be negative"):
        rows(1, column(0, 1, first=-1))


def test_a_column_without_data_has_empty_rows_alone(twin: Encoder) -> None:
    building = builder(twin)
    assert building.append(twin.Rows(1, None, BinaryColumn(0, None, int32s(0, 0), None)), indices(0), 0, NOW_MS) == 1
    with pytest.raises(ValueError, match="column value: row 0 is from 0 to 1 of 0"):
        building.append(twin.Rows(1, None, BinaryColumn(0, None, int32s(0, 1), None)), indices(0), 0, NOW_MS)


@pytest.mark.parametrize("ends", [(2, 1), (-1, 1), (0, 3), (3, 3), (0, 2**31 - 1)])
def test_lists_of_headers_that_go_backward_or_beyond_are_an_error(twin: Encoder, ends: tuple[int, int]) -> None:
    rows = twin.Rows(1, None, None, headers(*ends))
    with pytest.raises(ValueError, match=rf"column headers: row 0 is from {ends[0]} to {ends[1]} of 2"):
        builder(twin).append(rows, indices(0), 0, NOW_MS)


@pytest.mark.parametrize("part", ["key", "value"])
def test_headers_whose_bytes_go_backward_or_beyond_are_an_error(twin: Encoder, part: str) -> None:
    wrong = {f"{part}s": column(0, 1, 3, data=b"ab")}
    rows = twin.Rows(1, None, None, headers(0, 2, **wrong))
    with pytest.raises(ValueError, match=rf"column headers.{part}: row 1 is from 1 to 3 of 2"):
        builder(twin).append(rows, indices(0), 0, NOW_MS)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"count": 3}, "column headers.key: its offsets have 12 bytes, and its rows need 16"),
        ({"count": -1}, "column headers: its count is -1"),
        ({"values": column(0, 1)}, "column headers.value: its offsets have 8 bytes"),
        ({"ends": int32s(0)}, "column headers: its offsets have 4 bytes"),
        ({"validity": b""}, "column headers: its validity bits have 0 bytes"),
        ({"first": -1}, "column headers: its first row is -1"),
        ({"struct_validity": b""}, "column headers: its validity bits have 0 bytes"),
        ({"struct_first": -1}, "column headers: its first row is -1"),
        ({"struct_first": 7, "struct_validity": b"\xff"}, "column headers: its validity bits have 1 bytes"),
    ],
)
def test_buffers_of_headers_too_short_for_them_are_an_error(
    twin: Encoder, changed: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        twin.Rows(1, None, None, headers(0, 2, **changed))


def test_a_null_header_or_one_with_a_null_key_is_refused_and_rows_before_it_stay(twin: Encoder) -> None:
    for changed, problem in (
        ({"struct_validity": b"\x01"}, "orders-3: a row has a header that is null"),
        ({"keys": column(0, 1, 2, data=b"ab", validity=b"\x01")}, "orders-3: a row has a header without a key"),
    ):
        rows = twin.Rows(2, None, None, headers(0, 1, 2, **changed))
        building = builder(twin)
        with pytest.raises(WriteError, match=problem):
            building.append(rows, indices(0, 1), 0, NOW_MS)
        assert building.records == 1


@pytest.mark.parametrize("wrong", [-1, 3, 2**31 - 1, -(2**31)])
def test_an_index_without_a_row_is_an_error(twin: Encoder, wrong: int) -> None:
    building = builder(twin)
    with pytest.raises(ValueError, match=f"index {wrong} is outside the 3 rows"):
        building.append(rows_of(twin, [Row()] * 3), indices(0, wrong), 0, NOW_MS)
    assert building.records == 1


@pytest.mark.parametrize("position", [-1, 3])
def test_a_position_outside_the_indices_is_an_error(twin: Encoder, position: int) -> None:
    with pytest.raises(ValueError, match=f"position {position} is outside the 2 indices"):
        builder(twin).append(rows_of(twin, [Row()] * 3), indices(0, 1), position, NOW_MS)


def test_bytes_that_are_no_int32s_are_an_error(twin: Encoder) -> None:
    rows = rows_of(twin, [Row()])
    with pytest.raises(ValueError, match="3 bytes of indices are no int32 numbers"):
        builder(twin).append(rows, b"abc", 0, NOW_MS)
    with pytest.raises(ValueError, match="3 bytes of indices are no int32 numbers"):
        twin.partitions_of_keys(rows, b"abc", 3)
    with pytest.raises(ValueError, match="3 bytes of partitions are no int32 numbers"):
        twin.rows_by_partition(b"abc", 3)


def test_negative_counts_and_times_are_an_error(twin: Encoder) -> None:
    with pytest.raises(ValueError, match="count is -1: it must not be negative"):
        twin.Rows(-1, None, None)
    with pytest.raises(ValueError, match="timestamp_ms is -1: it must not be negative"):
        builder(twin).append(rows_of(twin, [Row()]), indices(0), 0, -1)


def test_rows_of_something_else_are_an_error(twin: Encoder) -> None:
    with pytest.raises(TypeError):
        builder(twin).append(object(), indices(0), 0, NOW_MS)
    with pytest.raises(TypeError):
        twin.partitions_of_keys(object(), None, 3)
