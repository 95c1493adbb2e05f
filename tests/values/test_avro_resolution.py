"""What a value of a writer's schema is in a reader's: by the specification, and as Java's Avro has it."""

from __future__ import annotations

import decimal
import json

import pyarrow as pa
import pytest
from avro_cases import varint

from spark_kafka_group.executor.values.avro_decoder import AvroDecoder


def record(*fields, name="R", **more):
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), f, strict=False)) for f in fields],
        **more,
    }


def enum(*symbols, name="E", **more):
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size, name="F", **more):
    return {"type": "fixed", "name": name, "size": size, **more}


def renamed(old, new, kind):
    return {"name": new, "type": kind, "aliases": [old]}


INT, TEXT = varint(7), b"\x02a"
TIME = {"type": "long", "logicalType": "time-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
A, B = record(("x", "int"), name="A"), record(("y", "string"), name="B")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}

READ = {
    "the same": ("int", "int", INT, 7),
    "int as long": ("int", "long", INT, 7),
    "int as float": ("int", "float", varint((1 << 24) + 1), float(1 << 24)),
    "int as double": ("int", "double", INT, 7.0),
    "long as float, rounded once": ("long", "float", varint((1 << 60) + (1 << 36) + 1), float((1 << 60) + (1 << 37))),
    "long as double": ("long", "double", varint(1 << 40), float(1 << 40)),
    "float as double": ("float", "double", b"\0\0\xc0\x3f", 1.5),
    "string as bytes": ("string", "bytes", b"\x04\xc3\xa9", "é".encode()),
    "bytes as string": ("bytes", "string", b"\x04\xc3\xa9", "é"),
    "int of milliseconds": ("int", {"type": "long", "logicalType": "local-timestamp-millis"}, INT, 7000),
    "microseconds as milliseconds, in the reader's unit": (MICROS, MILLIS, INT, 7000),
    "milliseconds as microseconds, in the reader's unit": (MILLIS, MICROS, INT, 7),
    "a decimal of another scale, in the reader's scale": (
        DECIMAL,
        {**DECIMAL, "scale": 4},
        b"\x04\x04\xd2",
        decimal.Decimal("0.1234"),
    ),
    "fields in another order": (
        record(("a", "int"), ("b", "string")),
        record(("b", "string"), ("a", "int")),
        INT + TEXT,
        {"b": "a", "a": 7},
    ),
    "a field left out": (record(("a", "int"), ("b", "string")), record(("b", "string")), INT + TEXT, {"b": "a"}),
    "a field added": (record(("a", "int")), record(("a", "int"), ("b", "string", "é")), INT, {"a": 7, "b": "é"}),
    "an array added that may be null": (
        record(("a", "int")),
        record(("a", "int"), ("b", [{"type": "array", "items": "int"}, "null"], [])),
        INT,
        {"a": 7, "b": []},
    ),
    "a record added, with the defaults of its fields": (
        record(("a", "int")),
        record(("a", "int"), ("b", record(("c", "int", 3), name="C"), {})),
        INT,
        {"a": 7, "b": {"c": 3}},
    ),
    "bytes added": (record(), record(("b", "bytes", "ÿ")), b"", {"b": b"\xff"}),
    "a fixed added": (record(), record(("b", fixed(2), "ÿ")), b"", {"b": b"\xff\0"}),
    "NaN added": (record(), record(("b", "float", "Infinity")), b"", {"b": float("inf")}),
    "a field renamed": (
        record(("old", "int")),
        {**record(), "fields": [renamed("old", "new", "int")]},
        INT,
        {"new": 7},
    ),
    "a record renamed": (
        record(("a", "int"), name="Old"),
        record(("a", "int"), name="n.New", aliases=["Old"]),
        INT,
        {"a": 7},
    ),
    "a record of another name": (record(("a", "int"), name="One"), record(("a", "int"), name="Other"), INT, {"a": 7}),
    "a field renamed in a renamed record": (
        record(("old", "int"), name="Old"),
        {**record(name="New", aliases=["Old"]), "fields": [renamed("old", "new", "int")]},
        INT,
        {"new": 7},
    ),
    "an enum in another order": (enum("A", "B"), enum("B", "A"), varint(1), "B"),
    "an enum's default": (enum("A", "B"), enum("A", "Z", default="Z"), varint(1), "Z"),
    "an enum of another namespace": (enum("A", namespace="a"), enum("A", namespace="b"), varint(0), "A"),
    "a union of a null": ("int", ["null", "int"], INT, 7),
    "a union's branch as no union": (["null", "int"], "long", varint(1) + INT, 7),
    "null of a union": (["null", "int"], ["int", "null"], varint(0), None),
    "the first branch that takes it by promotion": (
        "int",
        ["string", "double", "long"],
        INT,
        {"member0": None, "member1": 7.0, "member2": None},
    ),
    "int and long as long": (["int", "long"], ["int", "long"], varint(0) + INT, 7),
    "float and double as double": (["float", "double"], ["float", "double"], varint(0) + b"\0\0\xc0\x3f", 1.5),
    "int to float in a union of float and double": ("int", ["float", "double"], varint((1 << 24) + 1), float(1 << 24)),
    "times in a union of int and long are numbers": (["int", MILLIS], ["int", MILLIS], varint(1) + INT, 7),
    "members of a union": (["int", "string"], ["int", "string"], varint(1) + TEXT, {"member0": None, "member1": "a"}),
    "members of a union in another order": (
        ["int", "string", "null"],
        ["null", "string", "int"],
        varint(0) + INT,
        {"member0": None, "member1": 7},
    ),
    "records of a union by name": ([A, B], [B, A], varint(0) + INT, {"member0": None, "member1": {"x": 7}}),
    "a record of a union by its structure": (
        record(("x", "int"), name="Z"),
        [B, A],
        INT,
        {"member0": None, "member1": {"x": 7}},
    ),
    "a record that the union lacks": ([A, B], ["null", record(("x", "int", 0), name="A")], varint(1) + TEXT, {"x": 0}),
    "only null": (["null"], ["null"], varint(0), None),
    "an array": ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, b"\x04\x02\x04\0", [1, 2]),
    "an array in blocks with sizes": (
        {"type": "array", "items": "int"},
        {"type": "array", "items": "int"},
        b"\x01\x99\x01\x02\x02\x04\0",
        [1, 2],
    ),
    "a map whose keys come again": (
        {"type": "map", "values": "int"},
        {"type": "map", "values": "int"},
        b"\x04\x02k\x02\x02k\x04\0",
        [("k", 2)],
    ),
    "a decimal": (DECIMAL, DECIMAL, b"\x04\xff\x85", decimal.Decimal("-1.23")),
    "a decimal's lowest 64 bits": (DECIMAL, DECIMAL, b"\x12\x01" + bytes(7) + b"\x05", decimal.Decimal("0.05")),
    "a boolean that is neither 0 nor 1": ("boolean", "boolean", b"\x02", False),
    "text that is no UTF-8": ("string", "string", b"\x0aa\xffb\xc3(", "a\ufffdb\ufffd("),
    "the begin of a surrogate at the end": ("string", "string", b"\x06a\xed\xa0", "a\ufffd"),
    "a surrogate": ("string", "string", b"\x06\xed\xa0\x80", "\ufffd"),
    "bytes behind the value": ("int", "int", INT + b"more", 7),
    "a number with bits above": ("int", "int", b"\x8e\x80\x80\x80\x70", 7),
    "an array left out by its size": (
        record(("a", {"type": "array", "items": "string"}), ("b", "int")),
        record(("b", "int")),
        b"\x01\x06xyz\0" + INT,
        {"b": 7},
    ),
}


@pytest.mark.parametrize("name", READ)
def test_it_is_read(twin, name):
    writer, reader, data, expected = READ[name]
    array, malformed = decoder(twin, writer, reader).decode(pa.array([data], pa.binary()), [1])
    assert malformed == []
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int64())
    assert array.to_pylist() == [expected]


def decoder(twin, writer, reader, wanted=None):
    return AvroDecoder(json.dumps(reader), wanted, False, {1: json.dumps(writer)}.__getitem__, twin)


BAD = {
    "long as int": ("long", "int", INT, "", "the writer's long is not read as the reader's int"),
    "a string as an int": (
        record(("a", "string")),
        record(("a", "int")),
        TEXT,
        "a",
        "the writer's string is not read as the reader's int",
    ),
    "a field without default": (
        record(),
        record(("a", "int")),
        b"",
        "",
        "the writer's record R has no field a, which has no default",
    ),
    "a default that does not fit": (
        record(),
        record(("a", "int", "x")),
        b"",
        "",
        "the default of the reader schema's field a does not fit its type: x is no int",
    ),
    "two names for a field": (
        record(("a", "int"), ("b", "int")),
        {**record(), "fields": [renamed("a", "b", "int")]},
        INT + INT,
        "",
        "the reader schema's aliases give the writer's record R the field b twice",
    ),
    "an enum of another name": (
        enum("A"),
        enum("A", name="Z"),
        varint(0),
        "",
        "the writer's E is not read as the reader's Z",
    ),
    "an enum's symbol": (
        enum("A", "B"),
        enum("A"),
        varint(1),
        "",
        "the reader schema's enum has neither the symbol nor a default",
    ),
    "a fixed of another size": (fixed(2), fixed(3), b"ab", "", "the writer's F has 2 bytes, and the reader's 3"),
    "a branch that the reader does not have": (
        ["int", "string"],
        ["null", "int"],
        varint(1) + TEXT,
        "",
        "the writer's string is not read as the reader's union",
    ),
    "a branch of no number": (["null", "int"], "int", varint(2), "", "a union has no branch of this number"),
    "a negative branch": (["null", "int"], "int", varint(-1), "", "a union has no branch of this number"),
    "a symbol of no number": (enum("A"), enum("A"), varint(1), "", "an enum has no symbol of this number"),
    "no bytes": ("int", "int", b"", "", "the value ends too early"),
    "half a double": (
        record(("a", record(("b", "double"), name="I"))),
        record(("a", record(("b", "double"), name="I"))),
        b"1234",
        "a.b",
        "the value ends too early",
    ),
    "six bytes of an int": ("int", "int", b"\x80" * 5 + b"\0", "", "a number has too many bytes"),
    "eleven bytes of a long": ("long", "long", b"\x80" * 10 + b"\0", "", "a number has too many bytes"),
    "a negative length": ("string", "string", varint(-1), "", "a length is negative"),
    "a length of 2 GB": ("string", "string", varint(1 << 31), "", "the value ends too early"),
    "more items than bytes": (
        {"type": "array", "items": "int"},
        {"type": "array", "items": "int"},
        varint(1 << 40),
        "",
        "the value ends too early",
    ),
    "items without bytes": (
        {"type": "array", "items": "null"},
        {"type": "array", "items": "null"},
        varint(1 << 40),
        "",
        "an array or map has more items than the value has bytes",
    ),
    "a decimal of no bytes": (DECIMAL, DECIMAL, b"\0", "", "a decimal has no bytes"),
    "a decimal of five digits": (DECIMAL, DECIMAL, b"\x06\0\x27\x10", "", "a decimal has more digits than its type"),
    "no time of a day": (TIME, TIME, varint(-1), "", "a time is not one of a day"),
    "milliseconds too far away": (MILLIS, MILLIS, varint(1 << 60), "", "a time is too far away for its column"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_malformed(twin, name):
    writer, reader, data, field, reason = BAD[name]
    made = decoder(twin, writer, reader)
    array, [found] = made.decode(pa.array([data, None], pa.binary()), [1, 1])
    assert (found.row, found.schema_id, found.field, found.reason) == (0, 1, field, reason)
    assert array.null_count == 2


def test_a_recursive_field_that_is_left_out_may_be_deep_but_not_endless(twin):
    node = record(("next", ["null", "Node"]), ("x", "int"), name="Node")
    made = decoder(twin, node, record(("x", "int"), name="Node"))
    deep, deeper = (varint(1) * count + varint(0) + INT * (count + 1) for count in (400, 2000))
    array, [found] = made.decode(pa.array([deep, deeper], pa.binary()), [1, 1])
    assert array.to_pylist() == [{"x": 7}, None]
    assert found.reason == "more than 1000 types are inside each other"


def test_wanted_fields_come_in_the_order_of_the_schema_and_others_are_not_built(twin):
    inner = record(("b", "int"), ("c", "string"), name="I")
    schema = record(("a", "string"), ("i", ["null", inner]), ("z", "int"))
    made = decoder(twin, schema, schema, ("z", "i.c"))
    assert str(made.type) == "struct<i: struct<c: string not null>, z: int32 not null>"
    array, malformed = made.decode(pa.array([TEXT + varint(1) + INT + TEXT + INT], pa.binary()), [1])
    assert (array.to_pylist(), malformed) == ([{"i": {"c": "a"}, "z": 7}], [])


@pytest.mark.parametrize("wanted", [("q",), ("a.q",), ("i.q",)])
def test_a_wanted_field_that_is_not_there_is_named(wanted):
    schema = record(("a", "string"), ("i", record(("b", "int"), name="I")))
    with pytest.raises(ValueError, match="has no field q"):
        decoder("python", schema, schema, wanted)


def test_each_id_is_asked_for_once_and_ids_may_alternate(twin):
    asked = []

    def writer_of(schema_id):
        asked.append(schema_id)
        return {1: '"int"', 2: '"string"', 3: "no JSON"}[schema_id]

    made = AvroDecoder('"string"', None, True, writer_of, twin)
    values = [bytes([0, 0, 0, 0, number]) + TEXT for number in (2, 1, 2, 3, 9, 2, 9, 3)]
    array, malformed = made.decode(pa.array([None, *values, b"", b"\1" * 9], pa.binary()))
    assert array.to_pylist() == [None, "a", None, "a", None, None, "a", None, None, None, None]
    assert [(found.row, found.schema_id) for found in malformed] == [
        (2, 1),
        (4, 3),
        (5, 9),
        (7, 9),
        (8, 3),
        (9, None),
        (10, None),
    ]
    assert "is no JSON" in malformed[1].reason
    assert asked == [2, 1, 3, 9]
    made.decode(pa.array(values, pa.binary()))
    assert asked == [2, 1, 3, 9]


def test_ids_of_headers_may_be_numbers_and_guids_and_may_be_missing(twin):
    made = AvroDecoder('"string"', None, False, {1: '"bytes"', "guid": '"string"'}.__getitem__, twin)
    array, malformed = made.decode(
        pa.array([TEXT, TEXT, TEXT, None, b""], pa.binary()), [1, "guid", None, None, "guid"]
    )
    assert array.to_pylist() == ["a", "a", None, None, None]
    assert [(found.row, found.schema_id, found.reason) for found in malformed] == [
        (2, None, "the record has no header with a schema id"),
        (4, None, "the value ends too early"),
    ]


def test_fields_that_are_read_in_another_unit_or_scale_are_told(twin):
    def schema(unit, scale, **decimal):
        time = {"type": "long", "logicalType": f"timestamp-{unit}"}
        price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} | decimal
        return record(("at", ["null", time]), ("prices", {"type": "array", "items": price}), ("left", time))

    writers = {1: schema("millis", 2), 2: schema("micros", 4), 3: schema("micros", 4, precision=8)}
    told = []
    made = AvroDecoder(
        json.dumps(writers[2]), ("at", "prices"), False, {key: json.dumps(each) for key, each in writers.items()}.get,
        twin, on_unlike=lambda *what: told.append(what),
    )  # fmt: skip
    _, malformed = made.decode(pa.array([bytes(3)] * 4, pa.binary()), [1, 2, 3, 1])
    assert malformed == []
    assert told == [(1, ("at (timestamp-millis as timestamp-micros)", "prices (scale 2 as 4)"))]


def test_a_process_makes_the_program_of_two_schemas_once(twin):
    one, other = (decoder(twin, record(("a", "int")), record(("a", "long"))) for _ in range(2))
    for made in (one, other):
        assert made.decode(pa.array([INT], pa.binary()), [1])[0].to_pylist() == [{"a": 7}]
    assert one._ready[1] is other._ready[1]


def test_an_outage_of_who_knows_schemas_is_no_malformed_value(twin):
    def writer_of(schema_id):
        raise ConnectionError("the registry is away")

    with pytest.raises(ConnectionError):
        AvroDecoder('"int"', None, True, writer_of, twin).decode(pa.array([bytes(6)], pa.binary()))


def test_many_keys_that_come_again_take_no_quadratic_time(twin):
    count = 3000
    keys = b"".join(b"\x08" + f"{i % 1000:04}".encode() + varint(i) for i in range(count))
    schema = {"type": "map", "values": "long"}
    array, malformed = decoder(twin, schema, schema).decode(
        pa.array([varint(count) + keys + b"\0", b"\0"], pa.binary()), [1, 1]
    )
    array.validate(full=True)
    assert malformed == []
    assert array.to_pylist() == [[(f"{i:04}", 2000 + i) for i in range(1000)], []]


def left_out(*named):
    """A value's schema with an array of the first of records that name each other, and the same without it."""
    fields = [(f"f{i}", one) for i, one in enumerate(named)]
    return record(("l", {"type": "array", "items": "N0"}), *fields, ("x", "int")), record(("x", "int"))


def test_empty_records_that_have_each_other_twice_take_no_exponential_time(twin):
    doubling = [record(("a", f"N{i + 1}"), ("b", f"N{i + 1}"), name=f"N{i}") for i in range(60)]
    made = decoder(twin, *left_out(*doubling, record(name="N60")))
    array, malformed = made.decode(pa.array([varint(0) + INT, varint(5) + varint(0) + INT], pa.binary()), [1, 1])
    assert (array.to_pylist(), malformed) == ([{"x": 7}, {"x": 7}], [])


def test_a_record_that_is_left_out_may_need_thousands_of_others(twin):
    chain = [record(("a", f"N{i + 1}"), name=f"N{i}") for i in range(2000)]
    made = decoder(twin, *left_out(record(("a", ["null", "N1"]), name="N0"), *chain[1:], record(name="N2000")))
    array, malformed = made.decode(pa.array([varint(0) * 2 + INT], pa.binary()), [1])
    assert (array.to_pylist(), malformed) == ([{"x": 7}], [])


def test_symbols_of_a_large_enum_take_no_quadratic_time(twin):
    schema = enum(*(f"s{i}" for i in range(50_000)))
    array, malformed = decoder(twin, schema, schema).decode(pa.array([varint(49_999)], pa.binary()), [1])
    assert (array.to_pylist(), malformed) == (["s49999"], [])


def test_a_default_that_fills_gigabytes_is_refused(twin):
    large = fixed(2**31 - 1)
    for kind, default in ((large, ""), ({"type": "array", "items": [large]}, [""])):
        made = decoder(twin, record(("x", "int")), record(("x", "int"), ("y", kind, default)))
        _, [found] = made.decode(pa.array([INT], pa.binary()), [1])
        assert "the default of the reader schema's field y does not fit its type" in found.reason
