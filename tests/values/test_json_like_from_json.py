"""The JSON decoder beside Spark's from_json: schema, rows, and what is malformed.

One difference is wanted: a document that is no JSON is null here, and a struct of nulls there.
"""

from __future__ import annotations

from random import Random

import json_samples
import pyarrow as pa
import pytest
from columns import plain
from from_json import fails_a_query, from_json_of, is_malformed
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import StructType

from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.values.json_decoder import StringDecoder, json_decoder

EVERY = (
    "a INT, s STRING, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, e DECIMAL(10,2), b BINARY, f DOUBLE, "
    "g FLOAT, y TINYINT, h SMALLINT, l BIGINT, o BOOLEAN, r ARRAY<INT>, m MAP<STRING, INT>, "
    "c STRUCT<a: INT, s: STRING>, q ARRAY<STRUCT<a: INT>>"
)
DATES = ("2020-02-30", "2020-2-3", "2020", "2020-01-02T9", "123", "-150000", "GMT2020-01-01")
TIMES = (
    "2020-03-29 02:30:00", "2020-10-25T02:30:00", "2020-01-02T03:04:05Z", "2020-01-02 03:04:05.1234567 PST",
    "1850-01-01", "2020-01-02T03:04:05GMT+01:00", "294247-01-10T04:00:54.775808Z", "2020-01-02T3:4:5+1:00",
    "2020-01-02T03:04:05UTC+3",
)  # fmt: skip
BASE64 = ("aGk=", "aGk", "a", "aGkhIQ=", " aGkh aGkh", "aG kh", "aGk=aGk=", "_-8=", "=")
LONG_ARRAY = b"[" * 999 + b"]" * 999
DOCUMENTS = (
    # missing, null, unknown, twice, of other case
    b"{}", b'{"a":null}', b'{"x":{"y":[1,{}]},"a":1}', b'{"a":1,"a":2}', b'{"a":1,"a":"x"}', b'{"a":1,"a":null}',
    b'{"A":1}', b'{"c":{"a":1},"c":{"s":"x"}}', b'{"m":{"k":1,"k":2}}',
    # other types
    b'{"a":"1","s":"x"}', b'{"a":1.0}', b'{"a":true}', b'{"a":[1]}', b'{"a":{}}', b'{"o":"true"}', b'{"o":1}',
    b'{"d":1}', b'{"n":1}', b'{"t":1.5}', b'{"r":1}', b'{"r":{"a":1}}', b'{"m":[1]}', b'{"c":[{"a":1}]}',
    b'{"q":{"a":1}}', b'{"a":""}', b'{"f":""}', b'{"b":""}', b'{"e":""}', b'{"r":[1,"x",2],"a":7}',
    b'{"m":{"k":1,"l":"x"},"a":7}', b'{"c":{"a":"x","s":"y"},"a":7}', b'{"q":[{"a":"x"},{"a":1}],"a":7}',
    # strings of other values
    b'{"s":1}', b'{"s":-0}', b'{"s":1.50}', b'{"s":1e400}', b'{"s":1E-7}', b'{"s":123456789012345678901234567890}',
    b'{"s":true}', b'{"s":NaN}', b'{"s":-INF}', b'{"s":{"k": 1 , "l":[1.0,"\\u00e9\\/", null]}}', b'{"s":[]}',
    b'{"s":"\\ud83d\\ude00"}', b'{"s":["\xf0\x9f\x98\x80"]}', b'{"s":["\\u0001\\n"]}',
    # numbers
    b'{"a":2147483648}', b'{"l":9223372036854775808}', b'{"y":200}', b'{"y":256}', b'{"y":-129}', b'{"h":32768}',
    b'{"a":01}', b'{"a":-01}', b'{"a":+1}', b'{"a":1.}', b'{"f":.5}', b'{"f":1e5}', b'{"f":NaN}', b'{"f":"NaN"}',
    b'{"f":"Infinity","g":"-INF"}', b'{"f":"+Infinity"}', b'{"f":"1.5"}', b'{"f":-0,"g":-0.0}', b'{"g":16777217}',
    b'{"g":3.4028236e38}', b'{"g":1e39}', b'{"f":9007199254740993}', b'{"f":Infinityx}', b'{"e":1.005}',
    b'{"e":1.015}', b'{"e":-1.005}', b'{"e":99999999.995}', b'{"e":123456789}', b'{"e":"1,234.5"}', b'{"e":" 1"}',
    b'{"e":"1e3"}', b'{"e":1e-30}', b'{"e":"\xd9\xa1"}',
    # dates and timestamps
    *(f'{{"d":"{text}"}}'.encode() for text in DATES),
    *(f'{{"t":"{text}","n":"{text}"}}'.encode() for text in TIMES),
    b'{"t":-1}', b'{"t":9223372036854775807}',
    # base64
    *(f'{{"b":"{text}","a":1}}'.encode() for text in BASE64),
    b'{"b":\'aGk=\'}',
    # the document
    b"", b" ", b"null", b"[]", b'[{"a":1}]', b'{"a":1}{"a":2}', b'{"a":1} x', b'{"a":1', b"{", b"1", b'"x"',
    b"{'a':1}", b'{"a":1,}', b'{a:1}', b'\xef\xbb\xbf{"a":1}', b"{\x00}", b'{"a"\x0b:1}', b'{/*x*/"a":1}',
    b'{"a":1 "s":"x"}', b"\xfe\xff\x00{\x00}", LONG_ARRAY, b"[" * 1001, b'{"s":' + LONG_ARRAY + b"}",
    b'{"s":[' + LONG_ARRAY + b"]}", b'{"x":[' + LONG_ARRAY + b'],"a":1}', b'{"c":{"a":1,"s":[' + LONG_ARRAY + b"]}}",
    # bytes and escapes
    b'{"s":"\xff"}', b'{"s":"\xed\xa0\x80"}', b'{"s":"\xe2\x82"}', b'{"s":"\xc0\x80\xf5\xf0\x9f"}',
    b'{"s":"\\ud800"}', b'{"s":"\\ude00\\ud83d"}', b'{"s":"\\q"}', b'{"s":"\\\'"}', b'{"s":"\\u00"}',
    b'{"s":"\x01"}', b'{"s":"\x00"}', b'{"\xff":1,"a":2}', b'{"s":"\\u0000"}', b'{"\\u0061":3}',
    # errors behind which Spark goes on
    b'{"a":1,"s":"\\q,"l":2}', b'{"a":1,"c":{"a":01},"l":2}', b'{"a":1,"c":{"s":"x"', b'{"c":{"a":tru},"a":5}',
    b'{"x":{"a":01},"a":5}', b'{"m":{"k":tru}}', b'{"r":[01],"a":2}', b'{"b":"a","a":2}',
    b'{"a":1,"d":{"a":5},"l":3}', b'{"s":{"a":1,"k":\\},"a":2}', b'{"' + b"n" * 50_001 + b'":1,"a":2}',
    b'{"a":1,"l":' + b"9" * 1001 + b"}", b'{"f":' + b"1" * 1000 + b"}",
)  # fmt: skip


@pytest.fixture
def zone(spark, request):
    """The session's time zone."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def compare(spark, cases, zone) -> None:
    for (kind, values), (expected, flags) in zip(cases, from_json_of(spark, cases), strict=True):
        decoder = json_decoder(kind, time_zone=zone)
        column, malformed = decoder.decode(pa.array(values, pa.binary()))
        bad = {each.row for each in malformed}
        for row, (value, own, other) in enumerate(zip(values, plain(column), expected, strict=True)):
            context = kind.simpleString(), value, [each for each in malformed if each.row == row]
            if own is None and row in bad and isinstance(kind, StructType):
                own = dict.fromkeys(kind.names)
            assert own == other, context
            assert flags is None or flags[row] == (row in bad), context


def random_cases(seed: int, schemas: int, documents: int):
    rng = Random(seed)
    kinds = [kind for kind in (json_samples.root(rng) for _ in range(schemas)) if not fails_a_query(kind)]
    return [(kind, [json_samples.document(rng, kind) for _ in range(documents)]) for kind in kinds]


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_rows_and_what_is_malformed_are_those_of_from_json(spark, zone) -> None:
    roots = (
        b"[1,2]",
        b'[1,"x"]',
        b"[]",
        b"{}",
        b"null",
        b"",
        b"x",
        b'{"a":1}',
        b'{"a":"x"}',
        b'[{"a":1},{"a":"x"},null]',
        b'{"a":{"a":1}}',
    )
    others = [
        (schema_of(text), list(roots))
        for text in ("ARRAY<INT>", "ARRAY<STRUCT<a: INT>>", "MAP<STRING, INT>", "ARRAY<STRING>")
    ]
    compare(spark, [(schema_of(EVERY), list(DOCUMENTS)), *others, *random_cases(1, 12, 12)], zone)


@pytest.mark.soak
@pytest.mark.parametrize("zone", ["America/New_York", "UTC", "Asia/Kolkata", "+03:30"], indirect=True)
def test_thousands_of_random_documents_are_read_as_from_json_does(spark, zone) -> None:
    for round_ in range(10):
        compare(spark, random_cases(hash(zone) % 1000 + round_, 15, 400), zone)


def test_a_timestamp_that_ends_a_query_of_from_json_is_malformed(spark) -> None:
    column, malformed = json_decoder(schema_of("ARRAY<TIMESTAMP_NTZ>")).decode(pa.array([b'["soon"]'], pa.binary()))
    assert (plain(column), malformed[0].reason) == ([None], 'the string "soon" is no timestamp_ntz')
    with pytest.raises(Py4JJavaError, match="INTERNAL_ERROR.*soon"):
        spark.sql("""SELECT from_json('["soon"]', 'ARRAY<TIMESTAMP_NTZ>')""").collect()


@pytest.mark.soak
def test_what_is_malformed_of_an_array_or_map_is_what_failfast_raises_for(spark) -> None:
    rng = Random(3)
    for kind in map(
        schema_of, ("ARRAY<INT>", "ARRAY<STRUCT<a: INT, b: STRING>>", "MAP<STRING, INT>", "MAP<STRING, ARRAY<DATE>>")
    ):
        for _ in range(15):
            value = json_samples.document(rng, kind, 0.3)
            _, malformed = json_decoder(kind).decode(pa.array([value], pa.binary()))
            assert bool(malformed) == is_malformed(spark, kind, value), (kind, value)


def test_strings_are_those_of_a_cast_also_where_they_are_no_utf8(spark) -> None:
    values = [b"x", b"caf\xc3\xa9", b"\xff\xfe\x00", b"\xed\xa0\x80", b"", None, b"\xe2\x82"]
    column, _ = StringDecoder().decode(pa.array(values, pa.binary()))

    def decoded(batches):
        for batch in batches:
            yield pa.record_batch(
                {"own": StringDecoder().decode(batch.column("value"))[0], "value": batch.column("value")}
            )

    rows = spark.createDataFrame(pa.table({"value": pa.array(values, pa.binary())})).coalesce(1)
    rows = rows.mapInArrow(decoded, "own STRING, value BINARY")
    same = rows.selectExpr(
        "hex(own) own", "hex(cast(value as string)) cast", "length(own) <=> length(cast(value as string)) l"
    ).collect()
    assert (
        [row.own for row in same]
        == [row.cast for row in same]
        == [None if each is None else each.hex().upper() for each in values]
    )
    assert all(row.l for row in same)
    assert plain(column) == values
