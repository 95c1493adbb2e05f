"""Spark's to_avro, in real Spark, is the judge of the Avro that is written; fastavro and our decoder read it back.

Maps have one entry at most where bytes are compared: to_avro writes entries in the order of Java's hashes.
"""

from __future__ import annotations

import io
import json
from random import Random

import fastavro
import pyarrow as pa
import pytest
import written_samples
from from_avro import with_avro
from py4j.protocol import Py4JJavaError
from written_samples import Making, column, frame_of, struct_of

from spark_kafka_group.executor.schemas.avro_from_spark import avro_schema_of
from spark_kafka_group.executor.schemas.avro_schema import parse
from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.values._columns_py import text_of
from spark_kafka_group.executor.values.avro_decoder import AvroDecoder
from spark_kafka_group.executor.values.avro_plan import avro_plan
from spark_kafka_group.executor.values.value_encoder import TWINS
from spark_kafka_group.executor.values.write_plan import bound

ROWS = 20


@pytest.fixture(scope="module")
def avro(spark):
    return with_avro(spark)


def to_avro(avro, kinds, arrays, schemas):
    """What to_avro writes of columns, with a schema or with its own."""
    frame = frame_of(avro, kinds, arrays)
    columns = [
        f"to_avro({name}{', ' + _text(schema) if schema else ''}) {name}"
        for name, schema in zip(frame.columns, schemas, strict=True)
    ]
    table = frame.selectExpr(*columns).toArrow()
    return [table[name].to_pylist() for name in frame.columns]


def _text(schema):
    return "'" + json.dumps(schema).replace("\\", "\\\\").replace("'", "\\'") + "'"


def ours(kind, array, schema):
    plan = avro_plan(kind, schema)
    made, unfit = TWINS.load("c").ColumnEncoder(plan).encode(bound(plan, array), len(array), b"")
    assert unfit is None
    return made


def random_cases(rng, count):
    return [Making(rng, ROWS).record(3, ROWS, nullable=True) for _ in range(count)]


def compare(avro, cases):
    kinds, arrays = [case.type for case in cases], [case.column for case in cases]
    for case, theirs in zip(cases, to_avro(avro, kinds, arrays, [case.schema for case in cases]), strict=True):
        assert ours(case.type, case.column, json.dumps(case.schema)).to_pylist() == theirs, case.schema


def test_random_columns_are_those_of_to_avro(avro):
    compare(avro, random_cases(Random(3), 40))


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("part", range(20))
def test_thousands_of_random_columns_are_those_of_to_avro(avro, part):
    compare(avro, random_cases(Random(f"to_avro {part}"), 100))


def test_without_a_schema_values_and_schema_are_those_of_to_avro(spark, avro):
    rng = Random(5)
    kinds = [struct_of(rng, 3) for _ in range(30)]
    arrays = [column(rng, kind, ROWS, most=1) for kind in kinds]
    converters = spark._jvm.org.apache.spark.sql.avro.SchemaConverters
    columns = to_avro(avro, kinds, arrays, [None] * len(arrays))
    for kind, array, theirs in zip(kinds, arrays, columns, strict=True):
        java = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())
        schema = converters.toAvroType(java, False, "topLevelRecord", "").toString()
        assert parse(avro_schema_of(kind)) == parse(schema)
        of_a_union = [None if value is None else b"\0" + value for value in ours(kind, array, schema).to_pylist()]
        assert of_a_union == theirs, "to_avro has a column that may be null as a union"


def test_our_decoder_and_fastavro_read_what_is_written(monkeypatch):
    monkeypatch.setattr(written_samples, "TEXTS", [text for text in written_samples.TEXTS if text == text_of(text)])
    for number in range(100):
        case = Making(Random(f"back {number}"), ROWS, most=3).record(3, ROWS, nullable=True)
        text = json.dumps(case.schema)
        made = ours(case.type, case.column, text)
        decoded, malformed = AvroDecoder(text, None, False, {}.__getitem__).decode(made)
        assert malformed == []
        assert ours(_type(text), decoded, text).equals(made)
        schema = fastavro.parse_schema(case.schema)
        for value in made.to_pylist():
            if value is not None:
                rest = io.BytesIO(value)
                try:
                    fastavro.schemaless_reader(rest, schema, None)
                except (OverflowError, ValueError):
                    continue  # times that Python does not have
                assert rest.read() == b""


def _type(text):
    from spark_kafka_group.executor.schemas.avro_types import spark_type

    return spark_type(parse(text))


R = {"type": "record", "name": "R"}
REFUSED = {
    # a column, the schema's field f, why it is refused, and whether to_avro refuses it too
    "another type": ("f STRING", "int", "the field f is string, and the schema has int there: cast it", True),
    "a struct": ("f STRUCT<a: INT>", "int", "the field f is struct<a:int>, and the schema has int there", True),
    "a wide union": ("f INT", ["int", "string"], "the field f is int, and the schema has union there", True),
    "a decimal of less scale": (
        "f DECIMAL(4, 2)", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1},
        r"the field f is decimal\(4,2\), and the schema has bytes decimal\(9, 1\) there", True,
    ),
    "a time of another kind": (
        "f TIMESTAMP", {"type": "long", "logicalType": "local-timestamp-micros"},
        "the field f is timestamp, and the schema has long local-timestamp-micros there", True,
    ),
    "a field that the schema lacks": (
        "f INT, g INT", "int", "the schema's record R has no field for the column's g: it has f", True
    ),
    "a field that the column lacks": ("`F` INT", "int", None, False),
    "keys of numbers": ("f MAP<INT, INT>", {"type": "map", "values": "int"}, "the field f is map<int,int>", True),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_cannot_take_the_column_is_refused_in_a_sentence(avro, name):
    ddl, kind, why, there = REFUSED[name]
    schema = R | {"fields": [{"name": "f", "type": kind}]}
    spark = schema_of(ddl)
    if why is None:
        avro_plan(spark, json.dumps(schema))
    else:
        with pytest.raises(ValueError, match=why):
            avro_plan(spark, json.dumps(schema))
    frame = frame_of(avro, [spark], [column(Random(1), spark, 3, nullable=False)])
    if there:
        with pytest.raises(Py4JJavaError, match="IncompatibleSchemaException"):
            frame.selectExpr(f"to_avro(c0, {_text(schema)})").collect()


# what differs: a column, the field of the schema, its default, values, and what is written of them; to_avro refuses it
DIFFERENCES = {
    "an integer in a narrower one": ("BIGINT", "int", [7, -1], [b"\x0e", b"\x01"]),
    "an integer in a wider one": ("INT", "long", [7, -1], [b"\x0e", b"\x01"]),
    "a float in a double": ("FLOAT", "double", [1.5], [b"\0\0\0\0\0\0\xf8\x3f"]),
    "a decimal in a wider one": (
        "DECIMAL(3, 1)", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, ["1.5"],
        [b"\x04\0\x96"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENCES)
def test_it_differs_from_to_avro(avro, name):
    from decimal import Decimal

    from spark_kafka_group.executor.schemas.arrow_types import arrow_type

    ddl, kind, values, written = DIFFERENCES[name]
    schema = R | {"fields": [{"name": "f", "type": kind}]}
    spark = schema_of(f"f {ddl} NOT NULL")
    values = [Decimal(value) if isinstance(value, str) else value for value in values]
    array = pa.StructArray.from_arrays([pa.array(values, arrow_type(spark["f"].dataType))], names=["f"])
    assert ours(spark, array, json.dumps(schema)).to_pylist() == written
    frame = frame_of(avro, [spark], [array])
    with pytest.raises(Py4JJavaError, match="IncompatibleSchemaException"):
        frame.selectExpr(f"to_avro(c0, {_text(schema)})").collect()


def test_a_field_that_the_column_lacks_is_null_or_its_default():
    schema = R | {
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": ["string", "null"], "default": "x"},
            {"name": "c", "type": "string", "default": "yes"},
        ]
    }
    array = pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))
    assert ours(schema_of("a INT NOT NULL"), array, json.dumps(schema)).to_pylist() == [b"\2\2\6yes"]
    del schema["fields"][2]["default"]
    with pytest.raises(ValueError, match="the column lacks the field c, which the schema requires"):
        avro_plan(schema_of("a INT"), json.dumps(schema))


def test_a_name_in_another_case_is_found_unless_there_are_several():
    schema = R | {"fields": [{"name": "Ab", "type": "int"}, {"name": "aB", "type": "int"}]}
    for names, why in (
        ("AB INT", "several fields for the column's AB: name it Ab or aB"),
        ("Ab INT", "lacks the field aB"),
    ):
        with pytest.raises(ValueError, match=why):
            avro_plan(schema_of(names), json.dumps(schema))
    avro_plan(schema_of("aB INT, Ab INT"), json.dumps(schema))
    one = R | {"fields": [{"name": "ab", "type": "int"}]}
    with pytest.raises(ValueError, match="the column has two fields for the schema's field ab"):
        avro_plan(schema_of("AB INT, ab INT"), json.dumps(one))
