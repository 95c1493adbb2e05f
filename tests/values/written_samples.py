"""Random columns to write: types with and without nulls, as Arrow has them, and Avro schemas that can take them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from spark_kafka_group.executor.schemas.arrow_types import arrow_type

SIMPLE = (
    BinaryType(), BooleanType(), ByteType(), DateType(), DecimalType(10, 2), DecimalType(38, 18), DecimalType(5, 0),
    DecimalType(20, 20), DoubleType(), FloatType(), IntegerType(), LongType(), ShortType(), StringType(),
    TimestampNTZType(), TimestampType(),
)  # fmt: skip
TEXTS = (
    b"", b"a", b"plain text of many letters", b'q"uo\\te', b"\x00\x01\x08\x09\x0a\x0b\x0c\x0d\x1f\x7f/",
    "grüße \u65e5\u672c \U0001f600".encode(), b"\xff", b"a\xc3", b"\xed\xa0\x80x", b"\xf0\x9f\x98",
    b'abcdefg\xe2\x82\xacabcdefghijk"', "\u2028".encode(),
)  # fmt: skip
DOUBLES = (
    0.0, -0.0, 1.0, -1.5, 0.1, 1e7, 9999999.5, 1e-3, 9.99e-4, 123456.789, 1e22, 1e23, 1e300, 5e-324, 2.5e-10, 1 / 3,
    float("nan"), float("inf"), float("-inf"), 2.0**53 + 2, 4503599627370497.5, 100.0, 1234567.25, 3.0e-5,
)  # fmt: skip
NAMES = ("a", "b", "id", "naïve", "ts", "v_1", "Other", "zz")
FIELDS_OF_JSON = (*NAMES, "x.y", "a b", 'qu"ote', "")
KEYS = (
    StringType(), StringType(), IntegerType(), LongType(), BooleanType(), DoubleType(), DateType(), TimestampType(),
    DecimalType(10, 2),
)  # fmt: skip
DAY_S = 86_400


def frame_of(spark: SparkSession, kinds: list[DataType], arrays: list[pa.Array]) -> DataFrame:
    """Columns c0, c1, ... in one partition."""
    names = [f"c{i}" for i in range(len(arrays))]
    schema = StructType([StructField(name, kind) for name, kind in zip(names, kinds, strict=True)])
    return spark.createDataFrame(pa.table(arrays, names=names), schema).coalesce(1)


def type_of(rng: Random, depth: int, names: tuple[str, ...], of_avro: bool) -> DataType:
    """A random type."""
    kinds = ["simple"] * 5 + (["struct", "struct", "array", "map"] if depth else [])
    kind = rng.choice(kinds)
    if kind == "struct":
        return struct_of(rng, depth, names, of_avro)
    if kind == "array":
        return ArrayType(type_of(rng, depth - 1, names, of_avro), rng.random() < 0.7)
    if kind == "map":
        key = StringType() if of_avro else rng.choice(KEYS)
        return MapType(key, type_of(rng, depth - 1, names, of_avro), rng.random() < 0.7)
    return rng.choice(SIMPLE if of_avro else (*SIMPLE, TimeType()))


def struct_of(rng: Random, depth: int, names: tuple[str, ...] = NAMES, of_avro: bool = True) -> StructType:
    """A random struct."""
    chosen = rng.sample(names, rng.randint(1, 5))
    return StructType(
        [StructField(name, type_of(rng, depth - 1, names, of_avro), rng.random() < 0.7) for name in chosen]
    )


def column(rng: Random, spark: DataType, rows: int, nullable: bool = True, most: int = 3) -> pa.Array:
    """A random column; strings may be no UTF-8, and maps have at most `most` entries."""
    valid = [not nullable or rng.random() < 0.8 for _ in range(rows)]
    mask = pa.array([not each for each in valid], pa.bool_())
    if isinstance(spark, StructType):
        arrays = [column(rng, field.dataType, rows, field.nullable, most) for field in spark.fields]
        fields = [
            pa.field(field.name, array.type, field.nullable) for field, array in zip(spark.fields, arrays, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
    if isinstance(spark, (ArrayType, MapType)):
        counts = [rng.randint(0, most) if each else 0 for each in valid]
        ends = [sum(counts[:row]) for row in range(rows + 1)]
        starts = pa.array([end if each else None for end, each in zip(ends, [*valid, True], strict=True)], pa.int32())
        if isinstance(spark, ArrayType):
            items = column(rng, spark.elementType, ends[-1], spark.containsNull, most)
            kind = pa.list_(pa.field("element", items.type, spark.containsNull))
            return pa.ListArray.from_arrays(starts, items, type=kind)
        keys = distinct_keys(rng, spark.keyType, counts)
        items = column(rng, spark.valueType, ends[-1], spark.valueContainsNull, most)
        kind = pa.map_(
            pa.field("key", keys.type, nullable=False), pa.field("value", items.type, spark.valueContainsNull)
        )
        return pa.MapArray.from_arrays(starts, keys, items, type=kind)
    values = [value_of(rng, spark) if each else None for each in valid]
    return simple_column(spark, values)


def distinct_keys(rng: Random, spark: DataType, counts: list[int]) -> pa.Array:
    keys: list[Any] = []
    for count in counts:
        of_map: list[Any] = []
        while len(of_map) < count:
            key = f'k{rng.randrange(50)}"'.encode() if isinstance(spark, StringType) else value_of(rng, spark)
            if key not in of_map and key == key:
                of_map.append(key)
            elif isinstance(spark, BooleanType) and len(of_map) == 2:
                of_map.append(True)
        keys += of_map
    return simple_column(spark, keys)


def simple_column(spark: DataType, values: list[Any]) -> pa.Array:
    """Values as numbers and bytes, as an array of the type."""
    kind = arrow_type(spark)
    if isinstance(spark, StringType):
        array = pa.array(values, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(values), array.buffers())
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return pa.array(values, pa.int64()).view(kind)
    if isinstance(spark, DecimalType):
        words = [None if value is None else value.to_bytes(16, "little", signed=True) for value in values]
        array = pa.array(words, pa.binary(16))
        return pa.Array.from_buffers(kind, len(values), array.buffers())
    return pa.array(values, kind)


def value_of(rng: Random, spark: DataType) -> Any:
    if isinstance(spark, StringType):
        return rng.choice(TEXTS)
    if isinstance(spark, BinaryType):
        return rng.randbytes(rng.choice((0, 1, 2, 3, 10)))
    if isinstance(spark, BooleanType):
        return rng.random() < 0.5
    if isinstance(spark, DecimalType):
        most = 10**spark.precision - 1
        return rng.choice((0, 1, -1, most, -most, rng.randint(-most, most), 10 ** rng.randrange(spark.precision)))
    if isinstance(spark, FloatType):
        found = pa.scalar(rng.choice((*DOUBLES, rng.random(), rng.uniform(-1e9, 1e9), rng.randrange(10**7) / 100)))
        return found.cast(pa.float32(), safe=False).as_py()
    if isinstance(spark, DoubleType):
        return rng.choice((*DOUBLES, rng.random(), rng.uniform(-1e12, 1e12), rng.randrange(10**9) / 1000))
    if isinstance(spark, DateType):
        return rng.choice((0, -1, 19_000, -719_528, -719_529, 2_932_896, 2_932_897, rng.randint(-(10**6), 10**6)))
    if isinstance(spark, (TimestampType, TimestampNTZType)):
        day = rng.choice((0, -1, -719_162, 2_932_896, 18_350, 18_564, rng.randint(-200_000, 100_000)))
        return (day * DAY_S + rng.randrange(DAY_S)) * 1_000_000 + rng.choice((0, 999, 1000, rng.randrange(10**6)))
    if isinstance(spark, TimeType):
        return rng.choice((0, 1000, DAY_S * 10**9 - 1000, rng.randrange(DAY_S * 10**6) * 1000, 45_296 * 10**9))
    bits = {ByteType: 7, ShortType: 15, IntegerType: 31}.get(type(spark), 63)
    return rng.choice((0, 1, -1, 2**bits - 1, -(2**bits), rng.randint(-(2**bits), 2**bits - 1)))


def damaged(rng: Random, array: pa.Array) -> pa.Array | None:
    """The column with bytes changed in Arrow's buffers; None where Arrow itself refuses it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("c", array.type)])) as stream:
        stream.write_batch(pa.record_batch([array], names=["c"]))
    data = bytearray(sink.getvalue())
    for _ in range(rng.randint(1, 4)):
        data[-rng.randrange(9, max(array.nbytes, 10))] ^= 1 << rng.randrange(8)  # of the buffers, not of the schema
    try:
        column = pa.ipc.open_stream(bytes(data)).read_next_batch().column(0)
        column.validate()
    except (pa.ArrowException, OSError, StopIteration):
        return None
    return column if column.type == array.type else None


@dataclass(frozen=True)
class Written:
    """An Avro schema, and a column of Spark's type that it can take."""

    schema: Any
    type: DataType
    column: pa.Array


class Making:
    """Schemas and columns made together; `exactly` as to_avro takes them."""

    def __init__(self, rng: Random, rows: int, most: int = 1) -> None:
        self.rng, self.rows, self.most, self.named = rng, rows, most, 0

    def name(self) -> str:
        self.named += 1
        return f"N{self.named}"

    def record(self, depth: int, rows: int, nullable: bool) -> Written:
        """A struct whose fields are in another order, and lacks some that may be null."""
        rng = self.rng
        found = [(name, self.field(depth - 1, rows)) for name in rng.sample(NAMES, rng.randint(1, 5))]
        fields = [{"name": self.cased(name), "type": written.schema} for name, (written, _) in found]
        more = (
            [{"name": "more", "type": rng.choice((["null", "int"], ["string", "null"]))}] if rng.random() < 0.3 else []
        )
        fields += more
        rng.shuffle(fields)
        spark = StructType([StructField(name, written.type, null) for name, (written, null) in found])
        arrays = [written.column for _, (written, _) in found]
        types = [pa.field(field.name, array.type, field.nullable) for field, array in zip(spark, arrays, strict=True)]
        mask = pa.array([nullable and rng.random() < 0.2 for _ in range(rows)], pa.bool_())
        schema = {"type": "record", "name": self.name(), "fields": fields}
        return Written(schema, spark, pa.StructArray.from_arrays(arrays, fields=types, mask=mask))

    def cased(self, name: str) -> str:
        return name.swapcase() if self.rng.random() < 0.1 and name.isascii() else name

    def field(self, depth: int, rows: int) -> tuple[Written, bool]:
        """A field, and whether it may be null."""
        nullable = self.rng.random() < 0.6
        made = self.value(depth, rows, nullable)
        if nullable or self.rng.random() < 0.2:
            own = made.schema if isinstance(made.schema, list) else [made.schema]
            branches = ["null", *own] if self.rng.random() < 0.6 else [*own, "null"]
            return Written(branches, made.type, made.column), nullable
        return made, False

    def value(self, depth: int, rows: int, nullable: bool) -> Written:
        rng = self.rng
        kind = rng.choice(["simple"] * 6 + (["record", "array", "map", "union"] if depth else []))
        if kind == "record":
            return self.record(depth, rows, nullable)
        if kind == "union":
            return self.union(rows)
        if kind == "simple":
            return self.simple(rows, nullable)
        counts = [rng.randint(0, 3 if kind == "array" else self.most) for _ in range(rows)]
        valid = [not nullable or rng.random() < 0.8 for _ in range(rows)]
        counts = [count if each else 0 for count, each in zip(counts, valid, strict=True)]
        ends = [sum(counts[:row]) for row in range(rows + 1)]
        starts = pa.array([end if each else None for end, each in zip(ends, [*valid, True], strict=True)], pa.int32())
        inner, null = self.field(depth - 1, ends[-1])
        if kind == "array":
            spark, schema = ArrayType(inner.type, null), {"type": "array", "items": inner.schema}
            arrow = pa.list_(pa.field("element", inner.column.type, null))
            return Written(schema, spark, pa.ListArray.from_arrays(starts, inner.column, type=arrow))
        keys = distinct_keys(rng, StringType(), counts)
        arrow = pa.map_(pa.field("key", keys.type, nullable=False), pa.field("value", inner.column.type, null))
        column = pa.MapArray.from_arrays(starts, keys, inner.column, type=arrow)
        return Written({"type": "map", "values": inner.schema}, MapType(StringType(), inner.type, null), column)

    def simple(self, rows: int, nullable: bool) -> Written:
        rng = self.rng
        chance = rng.random()
        valid = [not nullable or rng.random() < 0.8 for _ in range(rows)]
        if chance < 0.1:
            symbols = rng.sample("ABCDEFG", rng.randint(1, 7))
            values = [rng.choice(symbols).encode() if each else None for each in valid]
            schema = {"type": "enum", "name": self.name(), "symbols": symbols}
            return Written(schema, StringType(), simple_column(StringType(), values))
        if chance < 0.2:
            size = rng.choice((1, 4, 16))
            values = [rng.randbytes(size) if each else None for each in valid]
            return Written(
                {"type": "fixed", "name": self.name(), "size": size}, BinaryType(), simple_column(BinaryType(), values)
            )
        spark = rng.choice(SIMPLE)
        values = [value_of(rng, spark) if each else None for each in valid]
        return Written(self.schema_of(spark), spark, simple_column(spark, values))

    def union(self, rows: int) -> Written:
        """A struct of two members, one of which is set, or a number of two widths."""
        if self.rng.random() < 0.5:
            wide, branches = self.rng.choice(((LongType(), ["long", "int"]), (DoubleType(), ["float", "double"])))
            return Written(branches, wide, simple_column(wide, [value_of(self.rng, wide) for _ in range(rows)]))
        first = [self.rng.random() < 0.5 for _ in range(rows)]
        numbers = pa.array([7 if each else None for each in first], pa.int32())
        texts = pa.array([None if each else "x" for each in first], pa.string())
        spark = StructType([StructField("member0", IntegerType()), StructField("member1", StringType())])
        return Written(["int", "string"], spark, pa.StructArray.from_arrays([numbers, texts], names=spark.names))

    def schema_of(self, spark: DataType) -> Any:
        rng = self.rng
        if isinstance(spark, DecimalType):
            logical = {"logicalType": "decimal", "precision": spark.precision, "scale": spark.scale}
            return {"type": "bytes"} | logical if rng.random() < 0.5 else {
                "type": "fixed", "name": self.name(), "size": rng.choice((16, 17, 20))
            } | logical  # fmt: skip
        times = {
            DateType: ["int", {"type": "int", "logicalType": "date"}],
            TimestampType: [
                "long", *({"type": "long", "logicalType": f"timestamp-{of}"} for of in ("millis", "micros"))
            ],
            TimestampNTZType: [
                "long", *({"type": "long", "logicalType": f"local-timestamp-{of}"} for of in ("millis", "micros"))
            ],
        }  # fmt: skip
        if type(spark) in times:
            return rng.choice(times[type(spark)])
        return {
            BinaryType: "bytes", BooleanType: "boolean", ByteType: "int", ShortType: "int", IntegerType: "int",
            LongType: "long", DoubleType: "double", FloatType: "float", StringType: "string",
        }[type(spark)]  # fmt: skip
