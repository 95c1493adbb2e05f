"""Spark's type of an Avro schema, as ``SchemaConverters.toSqlType`` gives it for from_avro."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from spark_kafka_group.executor.schemas.avro_schema import (
    MAX_DEPTH,
    Array,
    AvroSchema,
    AvroSchemaError,
    Enum,
    Fixed,
    Map,
    Node,
    Primitive,
    RecordType,
    Union,
    is_null,
    name_of,
    shortened,
)

MAX_COLUMNS = 50_000
"""Most types inside the type of a value, a column each."""
MAX_DECIMAL = 38
SIMPLE: dict[str, DataType] = {
    "null": NullType(), "boolean": BooleanType(), "int": IntegerType(), "long": LongType(), "float": FloatType(),
    "double": DoubleType(), "bytes": BinaryType(), "string": StringType(), "date": DateType(),
    "time-micros": TimeType(6), "timestamp-millis": TimestampType(), "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(), "local-timestamp-micros": TimestampNTZType(),
}  # fmt: skip
"""Spark's types (SchemaConverters.toSqlType); a logical type that is missing here is the type that it is written as."""
OWN_TYPES = (IntegerType(), LongType(), TimeType(6))
"""Where from_avro looks for a type of Spark's own."""
UNITS = {name: number for number, name in enumerate(("day", "hour", "minute", "second"))}
"""Of an interval, as DayTimeIntervalType numbers them."""
WIDENED = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}
"""Unions that are one number in Spark."""


def spark_type(schema: AvroSchema) -> DataType:
    """The type that Spark's from_avro gives for a schema in its mode FAILFAST, where only unions with null may be null.

    Raises
    ------
    AvroSchemaError
        For a recursive schema, and one that is too large for a table.
    """
    return _SparkTypes(schema).of(schema.root, ())


class _SparkTypes:
    """Counts the columns, as types that are used twice by each other become more and more of them."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._columns = 0

    def of(self, node: Node, inside: tuple[str, ...]) -> DataType:
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise AvroSchemaError(f"the Avro schema has more than {MAX_COLUMNS} fields, with those of types in it")
        if len(inside) > MAX_DEPTH:
            raise AvroSchemaError(f"the Avro schema has more than {MAX_DEPTH} types inside each other")
        inner = self._schema.definition(node)
        if isinstance(inner, RecordType):
            return self._record(inner, inside)
        if isinstance(inner, Array):
            return ArrayType(self.of(inner.items, (*inside, "")), self._may_be_null(inner.items))
        if isinstance(inner, Map):
            values = self.of(inner.values, (*inside, ""))
            return MapType(StringType(), values, self._may_be_null(inner.values))
        if isinstance(inner, Union):
            return self._union(inner, inside)
        if isinstance(inner, Enum):
            return SIMPLE["string"]
        return self._simple(inner)

    def _record(self, record: RecordType, inside: tuple[str, ...]) -> DataType:
        if record.name in inside:
            raise AvroSchemaError(
                f"the Avro type {record.name} has itself in it, which no column of Spark has: leave the field out of "
                f"the reader schema"
            )
        below = (*inside, record.name)
        return StructType(
            [
                StructField(field.name, self.of(field.schema, below), self._may_be_null(field.schema))
                for field in record.fields
            ]
        )

    def _may_be_null(self, node: Node) -> bool:
        inner = self._schema.definition(node)
        return is_null(node) or (isinstance(inner, Union) and any(map(is_null, inner.branches)))

    def _union(self, union: Union, inside: tuple[str, ...]) -> DataType:
        branches = [branch for branch in union.branches if not is_null(branch)]
        if len(branches) == 1:
            return self.of(branches[0], (*inside, ""))
        if widened := WIDENED.get(frozenset(name_of(branch) for branch in branches)):
            return SIMPLE[widened]
        members = [self.of(branch, (*inside, "")) for branch in branches]
        return StructType([StructField(f"member{i}", member) for i, member in enumerate(members)])

    def _simple(self, node: Primitive | Fixed) -> DataType:
        if node.logical == "decimal":
            if node.precision > MAX_DECIMAL:
                raise AvroSchemaError(
                    f"an Avro decimal has {node.precision} digits, and Spark has at most {MAX_DECIMAL}"
                )
            return DecimalType(node.precision, node.scale)
        if isinstance(node, Fixed):
            return SIMPLE["bytes"]
        simple = SIMPLE.get(node.logical or "", SIMPLE[node.kind])
        if node.own_type is None or simple not in OWN_TYPES or (node.logical or "").endswith("nanos"):
            return simple
        own = _own_type(node)
        if own is None:
            raise AvroSchemaError(
                f"the Avro schema has Spark's own type {shortened(node.own_type)}, which is not read: remove "
                f"spark.sql.catalyst.type from the reader schema"
            )
        return own


def _own_type(node: Primitive) -> DataType | None:
    """The type that Spark's to_avro has written besides Avro's: of times and intervals."""
    own = node.own_type or ""
    if node.logical == "time-micros" and (time := re.fullmatch(r"time\(([0-6])\)", own)):
        return TimeType(int(time[1]))
    interval = re.fullmatch(r"interval (\w+)(?: to (\w+))?", own)
    if node.kind != "long" or node.logical is not None or interval is None:
        return None
    start, end = (UNITS.get(unit) for unit in (interval[1], interval[2] or interval[1]))
    return None if start is None or end is None or start > end else DayTimeIntervalType(start, end)
