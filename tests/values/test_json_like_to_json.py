"""Spark's to_json, in real Spark, is the judge of the JSON that is written."""

from __future__ import annotations

import re
from random import Random

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType, YearMonthIntervalType
from written_samples import FIELDS_OF_JSON, column, frame_of, struct_of

from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.values.json_plan import json_plan
from spark_kafka_group.executor.values.value_encoder import TWINS
from spark_kafka_group.executor.values.write_plan import bound

ROWS = 20
A_FLOAT = re.compile(r"-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?")


@pytest.fixture
def zone(spark, request):
    """The session's time zone."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield request.param
    spark.conf.set("spark.sql.session.timeZone", before)


def to_json(spark, kinds, arrays):
    frame = frame_of(spark, kinds, arrays)
    table = frame.selectExpr(*(f"cast(to_json({name}) as binary) {name}" for name in frame.columns)).toArrow()
    return [table[name].to_pylist() for name in frame.columns]


def ours(kind, array, zone):
    plan = json_plan(kind, zone)
    made, unfit = TWINS.load("c").ColumnEncoder(plan).encode(bound(plan, array), len(array), b"")
    assert unfit is None
    return made.to_pylist()


def is_same(one, other):
    """Whether texts are the same, or only floats in them are not, and these are one number: before its version 19 Java
    wrote more digits than tell a float."""
    if one == other or one is None or other is None:
        return one == other
    floats = [[float(text) for text in A_FLOAT.findall(each.decode())] for each in (one, other)]
    rests = {A_FLOAT.sub("#", each.decode()) for each in (one, other)}
    singles = (pa.array(each).cast(pa.float32(), safe=False) for each in floats)
    return len(rests) == 1 and (floats[0] == floats[1] or next(singles).equals(next(singles)))


def compare(spark, zone, kinds):
    rng = Random(f"{zone} {len(kinds)}")
    arrays = [column(rng, kind, ROWS) for kind in kinds]
    for kind, theirs, array in zip(kinds, to_json(spark, kinds, arrays), arrays, strict=True):
        for one, other in zip(ours(kind, array, zone), theirs, strict=True):
            assert is_same(one, other), (kind.simpleString(), one, other)


def random_types(rng, count):
    return [struct_of(rng, 3, FIELDS_OF_JSON, of_avro=False) for _ in range(count)]


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_random_columns_are_those_of_to_json(spark, zone):
    roots = [schema_of(text) for text in ("ARRAY<STRUCT<a: INT>>", "MAP<STRING, STRING>", "ARRAY<MAP<STRING, DATE>>")]
    compare(spark, zone, [*random_types(Random(7), 25), *roots])


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("zone", ["America/St_Johns", "UTC", "Asia/Kathmandu", "+03:30"], indirect=True)
def test_thousands_of_random_columns_are_those_of_to_json(spark, zone):
    for part in range(20):
        compare(spark, zone, random_types(Random(f"{zone} {part}"), 60))


def test_what_is_refused_is_refused_with_a_name_and_much_of_it_by_to_json_too(spark):
    for text in ("STRING", "INT", "BINARY"):
        with pytest.raises(ValueError, match="JSON is written of a struct, an array or a map"):
            json_plan(schema_of(f"f {text}")["f"].dataType, "UTC")
        with pytest.raises(PySparkException):
            spark.sql(f"SELECT to_json(CAST('x' AS {text}))").collect()
    for kind in (DayTimeIntervalType(), YearMonthIntervalType()):
        with pytest.raises(ValueError, match="the field f is interval .*, which is not written as JSON: cast it"):
            json_plan(StructType([StructField("f", kind)]), "UTC")
    with pytest.raises(ValueError, match="the field f is a map with keys of binary, which JSON does not have"):
        json_plan(schema_of("f MAP<BINARY, INT>"), "UTC")
