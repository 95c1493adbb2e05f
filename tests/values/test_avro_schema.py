"""Avro schemas from their text, Spark's types of them, and what is said of texts that are none."""

from __future__ import annotations

import json

import pytest

from spark_kafka_group.executor.schemas.arrow_types import arrow_type
from spark_kafka_group.executor.schemas.avro_schema import (
    AvroSchemaError,
    Enum,
    Fixed,
    NamedReference,
    RecordType,
    parse,
    with_references,
)
from spark_kafka_group.executor.schemas.avro_types import spark_type


def of(schema):
    return spark_type(parse(json.dumps(schema))).simpleString()


def logical(kind, logical_type, **more):
    return {"type": kind, "logicalType": logical_type, **more}


OWN = "spark.sql.catalyst.type"
TYPES = [
    ("null", "void"),
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "bigint"),
    ("float", "float"),
    ("double", "double"),
    ("bytes", "binary"),
    ("string", "string"),
    ({"type": "string"}, "string"),
    (logical("int", "date"), "date"),
    (logical("long", "date"), "bigint"),
    (logical("int", "time-millis"), "int"),
    (logical("long", "time-micros"), "time(6)"),
    (logical("long", "timestamp-millis"), "timestamp"),
    (logical("long", "timestamp-micros"), "timestamp"),
    (logical("long", "timestamp-nanos"), "bigint"),
    (logical("long", "local-timestamp-millis"), "timestamp_ntz"),
    (logical("string", "uuid"), "string"),
    (logical("bytes", "decimal", precision=5), "decimal(5,0)"),
    (logical("bytes", "decimal", precision=5, scale=6), "binary"),
    (logical("bytes", "decimal"), "binary"),
    (logical("bytes", "decimal", precision="5"), "binary"),
    (logical("fixed", "decimal", name="F", size=2, precision=4), "decimal(4,0)"),
    (logical("fixed", "decimal", name="F", size=2, precision=5), "binary"),
    (logical("fixed", "duration", name="F", size=12), "binary"),
    ({"type": "enum", "name": "E", "symbols": []}, "string"),
    ({"type": "array", "items": ["null", "int"]}, "array<int>"),
    ({"type": "map", "values": {"type": "array", "items": "string"}}, "map<string,array<string>>"),
    (["null", "string"], "string"),
    (["int"], "int"),
    (["long", "int"], "bigint"),
    (["null", "float", "double"], "double"),
    (["int", "null", "string"], "struct<member0:int,member1:string>"),
    (["null"], "struct<>"),
    ([], "struct<>"),
    ({"type": "record", "name": "R", "fields": []}, "struct<>"),
    (logical("long", "time-micros", **{OWN: "time(3)"}), "time(3)"),
    (logical("long", "timestamp-micros", **{OWN: "time(3)"}), "timestamp"),
    (logical("long", "timestamp-nanos", **{OWN: "timestamp_ltz(9)"}), "bigint"),
    ({"type": "long", OWN: "interval day to second"}, "interval day to second"),
    ({"type": "long", OWN: "interval hour"}, "interval hour"),
]


@pytest.mark.parametrize(("schema", "expected"), TYPES)
def test_sparks_type_is_that_of_from_avro(schema, expected):
    assert of(schema) == expected
    arrow_type(spark_type(parse(json.dumps(schema))))


def test_names_are_found_by_namespace_and_before_they_are_defined():
    schema = parse(
        """{"type": "record", "name": "R", "namespace": "a.b", "aliases": ["Old", "c.Old"], "fields": [
        {"name": "e", "type": "E"},
        {"name": "d", "type": {"type": "enum", "name": "E", "symbols": ["X"], "default": "X"}},
        {"name": "f", "type": {"type": "fixed", "name": "q.F", "size": 2, "aliases": ["G"]}},
        {"name": "g", "type": "q.F"}
        ]}"""
    )
    assert schema.root == NamedReference("a.b.R")
    assert schema.named["a.b.E"] == Enum("a.b.E", ("X",), "X")
    assert schema.named["q.F"] == Fixed("q.F", 2)
    record = schema.named["a.b.R"]
    assert isinstance(record, RecordType)
    assert [field.schema for field in record.fields] == [
        NamedReference("a.b.E"),
        NamedReference("a.b.E"),
        NamedReference("q.F"),
        NamedReference("q.F"),
    ]
    assert record.aliases == ("a.b.Old", "c.Old")
    assert schema.named["q.F"].aliases == ("q.G",)


def record(*fields, name="R"):
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(fields)],
    }


BAD = [
    ("", "no JSON"),
    ("{", "no JSON"),
    ("[" * 100_000, "no JSON"),
    ('{"type": NaN}', "no JSON"),
    ("1", "no Avro type"),
    ("null", "no Avro type"),
    ('{"type": {"type": "int"}}', "no type name"),
    ("{}", "no type name"),
    ('"Unknown"', "no type Unknown"),
    (record("S"), "no type S"),
    ({"type": "record", "name": "R"}, "no fields"),
    ({"type": "array"}, "no 'items'"),
    ({"type": "record", "fields": []}, "no name"),
    ({"type": "record", "name": "1a", "fields": []}, "begins with a digit"),
    ({"type": "record", "name": "a-b", "fields": []}, "no Avro name"),
    ({"type": "record", "name": "int", "fields": []}, "taken"),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2}, "field a twice"),
    ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "has no type"),
    ({"type": "record", "name": "R", "fields": ["a"]}, "without name"),
    ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "symbol twice"),
    ({"type": "enum", "name": "E"}, "no symbols"),
    ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not the symbol B"),
    ({"type": "fixed", "name": "F", "size": -1}, "no size"),
    ({"type": "fixed", "name": "F", "size": True}, "no size"),
    (["int", "int"], "int 2 times"),
    ([["int"]], "union in a union"),
    (record(record(), record()), "type R twice"),
    ({**record(), "aliases": "x"}, "no list of names"),
    ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "float", "default": "x"}]}, "no number"),
]


@pytest.mark.parametrize(("schema", "said"), BAD)
def test_what_is_wrong_is_said_in_one_sentence(schema, said):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(AvroSchemaError) as error:
        parse(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(["null", "R"]), "has itself in it"),
        (record({"type": "array", "items": "R"}), "has itself in it"),
        (logical("bytes", "decimal", precision=39), "39 digits"),
        ({"type": "int", OWN: "interval year"}, "Spark's own type"),
        ({"type": "long", OWN: "bigint"}, "Spark's own type"),
    ],
)
def test_a_schema_that_is_no_column_is_refused(schema, said):
    with pytest.raises(AvroSchemaError, match=said):
        of(schema)


def test_a_schema_that_grows_by_its_own_types_is_refused():
    kinds = ["int"]
    for i in range(60):
        kinds.append(record(*(kinds[-1:] if i == 0 else [f"T{i - 1}", f"T{i - 1}"]), name=f"T{i}"))
    everything = record(*kinds[1:], name="All")
    with pytest.raises(AvroSchemaError, match="more than 50000 fields"):
        of(everything)


def test_types_inside_each_other_are_bounded():
    schema = "int"
    for _ in range(101):
        schema = {"type": "array", "items": schema}
    with pytest.raises(AvroSchemaError, match="more than 100 types inside each other"):
        of(schema)
    chain = [record("int", name="T0"), *(record(f"T{i}", name=f"T{i + 1}") for i in range(200))]
    with pytest.raises(AvroSchemaError, match="more than 100 types inside each other"):
        of(record(*chain, name="All"))


def test_a_schema_with_references_that_is_too_deep_is_no_json():
    with pytest.raises(AvroSchemaError, match="no JSON"):
        with_references("[" * 100_000, ['"int"'])


@pytest.mark.parametrize("deep", range(400, 1000, 25))
def test_what_is_deep_where_a_type_belongs_is_refused(deep):
    with pytest.raises(AvroSchemaError):
        parse('{"type": "array", "items": ' * 60 + '{"type": ' + "[" * deep + "]" * deep + "}" * 61)
