"""Values that are large, and columns that are larger than the values in them."""

from __future__ import annotations

import json
import resource
from dataclasses import replace

import pyarrow as pa
import pytest
from avro_cases import varint
from protobuf_cases import varint as wire

from spark_kafka_group.executor.schemas import proto_texts, protobuf_files
from spark_kafka_group.executor.schemas.ddl import schema_of
from spark_kafka_group.executor.schemas.protobuf_types import ProtobufOptions
from spark_kafka_group.executor.schemas.typed_columns import resolved
from spark_kafka_group.executor.values.avro_decoder import AvroDecoder
from spark_kafka_group.executor.values.json_decoder import json_decoder
from spark_kafka_group.executor.values.protobuf_decoder import ProtobufDecoder
from spark_kafka_group.executor.values.typed_batches import MOST_BYTES, TypedBatches
from spark_kafka_group.executor.values.value_contract import EXPANDED, LARGEST_BYTES, LARGEST_TIMES
from spark_kafka_group.options import Options

MIB = 1 << 20
TEXT = "x" * MIB
ITEMS = list(range(-50_000, 50_000))
FIELDS = [f"f{number}" for number in range(10_000)]


def record(fields):
    return {"type": "record", "name": "R", "fields": fields}


NUMBERS = {"type": "array", "items": "long"}
WIDE = record([{"name": name, "type": ["null", "long"], "default": None} for name in FIELDS])
WIDE_2000 = record(WIDE["fields"][:2000])
DDL_2000 = ", ".join(f"{name} BIGINT" for name in FIELDS[:2000])
WIDE_DDL = ", ".join(f"{name} BIGINT" for name in FIELDS)


def avro(schema, twin, writer=None):
    writers = {1: json.dumps(writer or schema)}
    return AvroDecoder(json.dumps(schema), None, True, writers.__getitem__, twin)


def protobuf(fields, twin):
    text = f"message M {{ {fields} }}"
    schema = protobuf_files.linked([proto_texts.parsed("large", text)])
    return ProtobufDecoder(schema, "M", None, False, ProtobufOptions(), lambda key: None, twin)


def written(number, data):
    """A field of Protobuf's with bytes."""
    return wire(number << 3 | 2) + wire(len(data)) + data


PROTO = [f"optional int64 {name} = {number};" for number, name in enumerate(FIELDS, 1)]


def framed(*parts):
    return b"\0\0\0\0\1" + b"".join(parts)


LARGE = {
    "avro, a string": (lambda twin: avro("string", twin), framed(varint(MIB), TEXT.encode()), TEXT),
    "avro, an array": (
        lambda twin: avro(NUMBERS, twin), framed(varint(len(ITEMS)), *map(varint, ITEMS), b"\0"), ITEMS
    ),
    "avro, fields": (
        lambda twin: avro(WIDE, twin),
        framed(*(varint(1) + varint(number) for number in range(10_000))),
        {name: number for number, name in enumerate(FIELDS)},
    ),
    "protobuf, a string": (
        lambda twin: protobuf("optional string s = 1;", twin), written(1, TEXT.encode()), {"s": TEXT}
    ),
    "protobuf, an array": (
        lambda twin: protobuf("repeated int64 l = 1;", twin),
        b"".join(b"\x08" + wire(item) for item in ITEMS[:50_000]) + written(1, b"".join(map(wire, ITEMS[50_000:]))),
        {"l": ITEMS},
    ),
    "protobuf, fields": (
        lambda twin: protobuf(" ".join(PROTO), twin),
        b"".join(wire((number + 1) << 3) + wire(number) for number in reversed(range(10_000))),
        {name: number for number, name in enumerate(FIELDS)},
    ),
    "json, a string": (
        lambda twin: json_decoder(schema_of("s STRING"), decoder=twin), json.dumps({"s": TEXT}).encode(), {"s": TEXT}
    ),
    "json, an array": (
        lambda twin: json_decoder(schema_of("ARRAY<BIGINT>"), decoder=twin), json.dumps(ITEMS).encode(), ITEMS
    ),
    "json, fields": (
        lambda twin: json_decoder(schema_of(WIDE_DDL), decoder=twin),
        json.dumps({name: number for number, name in reversed(list(enumerate(FIELDS)))}).encode(),
        {name: number for number, name in enumerate(FIELDS)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LARGE)
def test_it_is_read(twin, case):
    decoder, value, expected = LARGE[case]
    column, malformed = decoder(twin).decode(pa.array([value], pa.binary()))
    assert (column.to_pylist(), malformed) == ([expected], [])


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_parts(decoder, values, most_bytes):
    """The columns of all values, one after the other, and rows and reasons of what is malformed."""
    columns, malformed, row = [], [], 0
    while row < len(values):
        column, problems = decoder.decode(values.slice(row), None, most_bytes)
        assert len(column) > 0
        malformed += [(row + one.row, one.schema_id, one.reason) for one in problems]
        columns.append(column)
        row += len(column)
    return columns, malformed


SMALL_WRITER = record([{"name": "f7", "type": "int"}])
WRITTEN = [
    # a field of 2,000, and what is malformed
    (lambda twin: avro(WIDE_2000, twin, SMALL_WRITER), [framed(varint(7)), framed(), None, b"x"]),
    (lambda twin: json_decoder(schema_of(DDL_2000), decoder=twin), [b'{"f7": 7}', b'{"f7": "x"}', None, b"x"]),
    (lambda twin: protobuf(" ".join(PROTO[:2000]), twin), [b"\x40\7", b"\x41", None, b""]),
    # a default that is larger than the value
    (
        lambda twin: avro(record([{"name": "s", "type": "string", "default": "x" * 20_000}]), twin, record([])),
        [framed(), None, b"x"],
    ),
    # items that are larger in the column, in a document that has to be read slowly too
    (
        lambda twin: json_decoder(schema_of(f"a ARRAY<STRUCT<{', '.join(f'{f}: INT' for f in FIELDS[:100])}>>"),
                                  decoder=twin),
        [b'{"a": [' + b"{}," * 50 + b'{"f7": 7}]}', b'{"a": [' + b"{}," * 50 + b'{"\\u0066": 7}], "b": 0x}', b"x"],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRITTEN)))
def test_a_column_that_takes_much_memory_comes_in_parts(twin, case):
    make, values = WRITTEN[case]
    column = pa.array([values[number % len(values)] for number in range(100)], pa.binary())
    whole, malformed = make(twin).decode(column)
    parts, in_them = in_parts(make(twin), column, MIB // 4)
    assert pa.concat_arrays(parts) == whole
    assert in_them == [(one.row, one.schema_id, one.reason) for one in malformed]
    assert len(parts) > 2
    assert max(part.nbytes for part in parts) < MIB


ITEM_DDL = ", ".join(f"{name}: BIGINT" for name in FIELDS[:1000])
ITEM_PROTO = f"message I {{ {' '.join(PROTO[:1000])} }}"
EXPANDING = {
    # a value with items of a byte or a few, which are 8,000 bytes in columns, and a small one
    "avro": (
        lambda twin: avro({"type": "array", "items": ["null", record(WIDE["fields"][:1000])]}, twin),
        framed(varint(45_000), bytes(45_000), b"\0"),
        framed(varint(2), bytes(3)),
    ),
    "protobuf": (
        lambda twin: protobuf(
            f"repeated I l = 1; optional int32 x = 2; message I {{ {' '.join(PROTO[:1000])} }}", twin
        ),
        b"\x0a\0" * 45_000,
        b"\x0a\0",
    ),
    "json": (
        lambda twin: json_decoder(schema_of(f"ARRAY<STRUCT<{ITEM_DDL}>>"), decoder=twin),
        b"[" + b"{}," * 45_000 + b"{}]",
        b"[null,{}]",
    ),
    "json, read slowly": (
        lambda twin: json_decoder(schema_of(f"MAP<STRING, STRUCT<{ITEM_DDL}>>"), decoder=twin),
        b'{"\\ud800":{},' + b'"b":{},' * 45_000 + b'"c":{}}',
        b'{"\\ud800":null,"b":{}}',
    ),
}


@pytest.mark.parametrize("case", EXPANDING)
def test_a_value_that_takes_far_more_memory_than_its_bytes_is_malformed(case):
    make, large, small = EXPANDING[case]
    began = peak_bytes()
    column, [found] = make("c").decode(pa.array([small, large, small], pa.binary()))
    assert (found.row, found.field, found.reason) == (1, "l" if case == "protobuf" else "", EXPANDED)
    assert [len(column[row]) if column[row].is_valid else None for row in range(3)] == [2, None, 2]
    assert peak_bytes() - began < 2 * (LARGEST_BYTES + LARGEST_TIMES * len(large))


def batch(values):
    rows = len(values)
    return pa.RecordBatch.from_pydict({
        "value": pa.array(values, pa.binary()), "topic": ["t"] * rows, "partition": pa.array([0] * rows, pa.int32()),
        "offset": list(range(rows)),
    })  # fmt: skip


def test_a_task_hands_large_columns_over_in_parts():
    given = {
        "kafka.bootstrap.servers": "localhost:1", "subscribe": "t", "valueFormat": "json", "valueSchema": DDL_2000,
        "keyFormat": "string", "columns": "value,offset", "onMalformedValue": "null",
    }  # fmt: skip
    options = Options.parse(given)
    parts = list(
        TypedBatches(replace(options, typed=resolved(options))).decoded([batch(([b'{"f7": 7}'] * 99 + [b"x"]) * 50)])
    )
    assert [offset for part in parts for offset in part.column("offset").to_pylist()] == list(range(5000))
    assert sum(part.column("value").null_count for part in parts) == 50
    assert sum(part.nbytes for part in parts) > 4 * MOST_BYTES
    assert max(part.nbytes for part in parts) < 2 * MOST_BYTES
