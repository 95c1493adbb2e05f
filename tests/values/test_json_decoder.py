"""What is malformed and how it is told, what is wanted, framing, and documents that are made to cost much."""

from __future__ import annotations

import time
import tracemalloc

import pyarrow as pa
import pytest
from columns import plain
from pyspark.sql.types import DataType

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.values.json_decoder import StringDecoder, json_decoder
from spark_kafka_group.executor.values.value_contract import Malformed

ORDER = "id BIGINT, at STRUCT<day: DATE, zone: STRING>, items ARRAY<STRUCT<n: INT>>"


def decoded(twin: str, schema: str | DataType, *values: bytes | None, wanted=None, framed=False, ids=None, zone="UTC"):
    spark = schema_of(schema) if isinstance(schema, str) else schema
    decoder = json_decoder(spark, wanted, framed, zone, twin)
    column, malformed = decoder.decode(pa.array(values, pa.binary()), ids)
    assert column.type == decoder.type
    return plain(column), malformed


def test_a_malformed_row_keeps_the_fields_that_fit_and_names_the_first_that_does_not(twin: str) -> None:
    good = b'{"id":1,"at":{"day":"1970-01-03","zone":"x"},"items":[{"n":1}]}'
    bad = b'{"id":1,"at":{"day":"soon","zone":"x"},"items":[{"n":1},{"n":"y"}]}'
    rows, malformed = decoded(twin, ORDER, good, bad)
    assert rows[0] == {"id": 1, "at": {"day": 2, "zone": b"x"}, "items": [{"n": 1}]}
    assert rows[1] == {"id": 1, "at": {"day": None, "zone": b"x"}, "items": [{"n": 1}, {"n": None}]}
    assert malformed == [Malformed(1, None, "at.day", 'the string "soon" is no date')]


def test_a_field_that_is_missing_or_null_is_null_and_not_malformed(twin: str) -> None:
    rows, malformed = decoded(twin, ORDER, b"{}", b'{"id":null,"at":{},"more":[1]}')
    assert rows == [
        {"id": None, "at": None, "items": None},
        {"id": None, "at": {"day": None, "zone": None}, "items": None},
    ]
    assert malformed == []


def test_a_document_that_is_no_json_is_null_and_malformed(twin: str) -> None:
    rows, malformed = decoded(twin, ORDER, b"nonsense", b'{"id":1', b"[]", b"null", b"\xff")
    assert rows == [None] * 5
    assert [each.row for each in malformed] == [0, 1, 2, 3, 4]
    assert all(each.reason and not each.field for each in malformed)


def test_blank_values_and_tombstones_are_null_and_not_malformed(twin: str) -> None:
    assert decoded(twin, ORDER, b"", b" \n", None) == ([None] * 3, [])


def test_wanted_fields_alone_are_built_and_checked(twin: str) -> None:
    value = b'{"id":1,"at":{"day":"soon","zone":"x"},"items":"y"}'
    assert decoded(twin, ORDER, value, wanted=("id", "at.zone")) == ([{"id": 1, "at": {"zone": b"x"}}], [])
    with pytest.raises(ValueError, match="has no field ide: it has id, at, items"):
        decoded(twin, ORDER, value, wanted=("ide",))


def test_a_frame_is_taken_off_and_its_schema_told(twin: str) -> None:
    rows, malformed = decoded(
        twin, "a INT", b'\0\0\0\1\0{"a":1}', b'\0\0\0\0\7{"a":"x"}', b'{"a":1}', b"\0\0", framed=True
    )
    assert rows == [{"a": 1}, {"a": None}, None, None]
    assert [(each.row, each.schema_id) for each in malformed] == [(1, 7), (2, None), (3, None)]


def test_the_id_of_a_header_is_told(twin: str) -> None:
    _, malformed = decoded(twin, "a INT", b'{"a":"x"}', b'{"a":"x"}', ids=[5, "6d1fa5fe"])
    assert [each.schema_id for each in malformed] == [5, None]


def test_the_text_of_a_malformed_document_is_kept_where_from_json_keeps_it(twin: str) -> None:
    rows, malformed = decoded(
        twin, "a INT, _corrupt_record STRING", b'{"a":1,"_corrupt_record":"x"}', b'{"a":"x"}', b"x"
    )
    assert rows == [
        {"a": 1, "_corrupt_record": None},
        {"a": None, "_corrupt_record": b'{"a":"x"}'},
        {"a": None, "_corrupt_record": b"x"},
    ]
    assert len(malformed) == 2


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("INT", "a struct, an array or a map, not as int"),
        ("VARIANT", "a struct, an array or a map"),
        ("a VARIANT", "the field a cannot be read from JSON as variant: read it as STRING"),
        ("a INTERVAL DAY", "the field a cannot be read"),
        ("a STRUCT<b: VARCHAR(3)>", "the field b cannot be read from JSON as varchar"),
        ("MAP<INT, STRING>", "the value is a map with keys of int"),
        ("a INT, a STRING", "two fields with the name a"),
        ("STRUCT<>", "at least one field"),
        ("_corrupt_record INT", "its type has to be STRING"),
    ],
)
def test_a_type_that_is_not_read_from_json_is_refused_in_words(twin: str, schema: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        json_decoder(schema_of(schema), decoder=twin)


def test_an_unknown_zone_is_refused_in_words(twin: str) -> None:
    with pytest.raises(OptionError, match=r"timeZone .Mars/Olympus. is no zone that Python knows"):
        json_decoder(schema_of("a INT"), time_zone="Mars/Olympus", decoder=twin)


HUGE = {
    "arrays in arrays": b"[" * 100_000,
    "objects in objects": b'{"a":' * 100_000,
    "a number": b'{"a":' + b"9" * 100_000 + b"}",
    "a decimal in a string": b'{"m":"' + b"9" * 100_000 + b'"}',
    "an exponent": b'{"m":"1e' + b"9" * 100_000 + b'"}',
    "a tiny exponent": b'{"m":"1e-2147483647"}',
    "a name": b'{"' + b"n" * 100_000 + b'":1}',
    "a string": b'{"s":"' + b"\\u00e9" * 50_000 + b'"}',
    "names that come again": b"{" + b'"a":1,' * 10_000 + b'"a":1}',
    "a date": b'{"day":"' + b"1" * 100_000 + b'"}',
    "base64": b'{"b":"' + b"aGkh" * 25_000 + b'"}',
    "space": b" " * 100_000,
    "commas": b"{" + b"," * 100_000,
    "no ends": b'{"s":"' + b"x" * 100_000,
    "escapes": b'{"s":"' + b"\\" * 100_001 + b'"}',
}


@pytest.mark.parametrize("value", HUGE.values(), ids=HUGE)
def test_a_large_document_costs_no_more_than_its_size(twin: str, value: bytes) -> None:
    spark = schema_of("a INT, m DECIMAL(38,2), s STRING, day DATE, b BINARY, n ARRAY<STRING>")
    decoder = json_decoder(spark, decoder=twin)
    tracemalloc.start()
    started = time.process_time()
    decoder.decode(pa.array([value], pa.binary()))
    assert time.process_time() - started < 3
    assert tracemalloc.get_traced_memory()[1] < 60e6
    tracemalloc.stop()


def test_a_column_without_rows_has_its_type(twin: str) -> None:
    for schema in (ORDER, "ARRAY<INT>", "MAP<STRING, ARRAY<INT>>", "a BOOLEAN, b BINARY"):
        assert decoded(twin, schema) == ([], [])


def test_a_slice_with_nulls_is_read_as_its_own_rows(twin: str) -> None:
    values = pa.array([b"x", b'{"a":1}', None, b'{"a":2}', b'{"a":"y"}', b"z"], pa.binary())[1:5]
    column, malformed = json_decoder(schema_of("a INT"), decoder=twin).decode(values)
    assert plain(column) == [{"a": 1}, None, {"a": 2}, {"a": None}]
    assert [each.row for each in malformed] == [3]


def test_strings_are_the_bytes_of_values_without_a_copy() -> None:
    values = pa.array([b"x", b"caf\xc3\xa9", b"\xff\xfe", None, b""], pa.binary())[1:]
    column, malformed = StringDecoder().decode(values)
    assert (column.type, malformed) == (pa.string(), [])
    assert plain(column) == [b"caf\xc3\xa9", b"\xff\xfe", None, b""]
    assert column.buffers()[2].address == values.buffers()[2].address
