"""Ids and GUIDs of schemas in headers."""

import uuid
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_group.errors import MalformedValueError
from spark_kafka_group.executor.schemas.typed_columns import resolved
from spark_kafka_group.executor.values.framing import VALUE_HEADER, header_ids, header_of, with_header
from spark_kafka_group.executor.values.typed_batches import TypedBatches
from spark_kafka_group.options import Options
from spark_kafka_group.values.schema import COLUMNS

HEADERS = COLUMNS["headers"][1]
GUID = uuid.UUID("341eac70-1096-841b-ae35-3e283e3ea2e8")
SEVEN = b"\x00\x00\x00\x00\x07"


def column(*rows, name=VALUE_HEADER):
    """Headers of rows: None, or values of the header, or pairs."""

    def pair(one):
        key, value = one if isinstance(one, tuple) else (name, one)
        return {"key": key, "value": value}

    pairs = [None if row is None else [pair(one) for one in row] for row in rows]
    return pa.array(pairs, HEADERS)


def test_ids_and_guids_are_read_row_by_row():
    rows = [[SEVEN], [b"\x01" + GUID.bytes], [("a", b"b"), (VALUE_HEADER, b"\x00\xff\xff\xff\xff"), ("c", None)]]
    assert header_ids(column(*rows), VALUE_HEADER) == ([7, str(GUID), 2**32 - 1], {})


def test_json_that_is_malformed_is_not_said_to_lack_a_header():
    given = {"valueFormat": "json", "valueSchema": "a INT", "valueFraming": "confluent-header"}
    given |= {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "columns": "value"}
    parsed = Options.parse(given | {"schema.registry.url": "http://127.0.0.1:1"})
    batches = TypedBatches(replace(parsed, typed=resolved(parsed)))
    rows = {"value": pa.array([b'{"a": 1}', b"no"], pa.binary()), "headers": column(None, None)}
    rows |= {"topic": ["orders"] * 2, "partition": [0, 0], "offset": [0, 1]}
    with pytest.raises(MalformedValueError, match="orders-0: offset 1: the value is malformed: a word that is no"):
        list(batches.decoded([pa.RecordBatch.from_pydict(rows)]))


def test_the_last_of_several_counts():
    ids, reasons = header_ids(column([b"\x00\x00\x00\x00\x01", SEVEN], [SEVEN, b"no"], [b"no", SEVEN]), VALUE_HEADER)
    assert ids == [7, None, 7]
    assert reasons == {1: "its header __value_schema_id is neither byte 0 and an id nor byte 1 and a GUID"}


@pytest.mark.parametrize(
    "value", [None, b"", b"\x00", b"\x00\x00\x00\x07", SEVEN + b"\x00", b"\x01" + bytes(15), b"\x02abcd"]
)
def test_bytes_that_are_neither_are_no_id(value):
    ids, reasons = header_ids(column([value]), VALUE_HEADER)
    assert ids == [None]
    assert reasons.keys() == {0}


def test_rows_without_the_header_and_slices_keep_their_places():
    headers = column(None, [SEVEN], [], [("other", SEVEN)], None, [b"\x01" + GUID.bytes], [SEVEN])
    ids, reasons = header_ids(headers, VALUE_HEADER)
    assert ids == [None, 7, None, None, None, str(GUID), 7]
    assert reasons == dict.fromkeys((0, 2, 3, 4), "its record has no header __value_schema_id")
    for begin in range(len(ids)):
        for length in range(len(ids) - begin):
            assert header_ids(headers.slice(begin, length), VALUE_HEADER)[0] == ids[begin : begin + length]


@given(
    st.lists(
        st.none() | st.lists(st.tuples(st.sampled_from([VALUE_HEADER, "a", ""]), st.none() | st.binary(max_size=20)))
    )
)
def test_any_bytes_give_an_id_or_a_reason_for_each_row(rows):
    ids, reasons = header_ids(column(*rows), VALUE_HEADER)
    assert len(ids) == len(rows)
    assert {row for row, found in enumerate(ids) if found is None} == reasons.keys()


def test_a_header_that_is_written_is_read_back():
    rows = pa.array([True, False, True])
    for one in (7, str(GUID)):
        value = header_of(one, None) if isinstance(one, int) else header_of(7, one)
        for headers in (None, column([b"old", ("a", b"b")], None, None), pa.nulls(3)):
            made = with_header(headers, VALUE_HEADER, value, rows)
            made.validate(full=True)
            assert header_ids(made, VALUE_HEADER)[0] == [one, None, one]
    assert made.to_pylist()[1] == []


def test_a_written_header_is_behind_the_others_and_in_place_of_older_ones():
    given = column(None, [("x", b"1"), b"old", ("y", None), b"older"], [(None, b"2")], []).slice(1)
    found = with_header(given, VALUE_HEADER, SEVEN, pa.array([True, False, True]))
    mine = {"key": VALUE_HEADER, "value": SEVEN}
    assert found.to_pylist() == [
        [{"key": "x", "value": b"1"}, {"key": "y", "value": None}, mine], [{"key": None, "value": b"2"}], [mine],
    ]  # fmt: skip
