"""How to_avro writes a type with an Avro schema: fields by their names, numbers and times as the schema has them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
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
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
)

from spark_kafka_group.executor.schemas.avro_schema import (
    MAX_DEPTH,
    NO_DEFAULT,
    Array,
    AvroSchema,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Node,
    Primitive,
    RecordType,
    Union,
    is_null,
    name_of,
    parse,
)
from spark_kafka_group.executor.schemas.avro_types import MAX_DECIMAL, SIMPLE, WIDENED
from spark_kafka_group.executor.values.avro_defaults import encoded, zigzag
from spark_kafka_group.executor.values.avro_resolution import UnresolvableError
from spark_kafka_group.executor.values.write_plan import PlanMaker, Put, Step, WritePlan, part_of, place_of, places

Type = Primitive | Array | Map | Union | Named

TEXTS = (StringType, CharType, VarcharType)
INTEGERS: dict[type[DataType], int] = {ByteType: 1, ShortType: 2, IntegerType: 4, LongType: 8}
PLAIN: dict[tuple[type[DataType], str], Put] = {
    (BooleanType, "boolean"): Put.BOOLEAN,
    (FloatType, "float"): Put.FLOAT,
    (FloatType, "double"): Put.FLOAT_AS_DOUBLE,
    (DoubleType, "double"): Put.DOUBLE,
    (StringType, "string"): Put.BYTES,
    (BinaryType, "bytes"): Put.BYTES,
}
TIMES: dict[tuple[type[DataType], str, str | None], tuple[Put, int]] = {
    (DateType, "int", None): (Put.INTEGER, 4),
    (DateType, "int", "date"): (Put.INTEGER, 4),
    (DateType, "int", "time-millis"): (Put.INTEGER, 4),
    (TimestampType, "long", None): (Put.THOUSANDTH, 8),
    (TimestampType, "long", "timestamp-millis"): (Put.THOUSANDTH, 8),
    (TimestampType, "long", "timestamp-micros"): (Put.INTEGER, 8),
    (TimestampNTZType, "long", None): (Put.THOUSANDTH, 8),
    (TimestampNTZType, "long", "local-timestamp-millis"): (Put.THOUSANDTH, 8),
    (TimestampNTZType, "long", "local-timestamp-micros"): (Put.INTEGER, 8),
    (TimeType, "long", "time-micros"): (Put.THOUSANDTH, 8),
    (DayTimeIntervalType, "long", None): (Put.INTEGER, 8),
}
"""What of Spark's times is written as what; None is a number without a logical type."""


@lru_cache(maxsize=256)
def avro_plan(spark: DataType, schema_text: str) -> WritePlan:
    """The plan for a column of type `spark` and a schema.

    Raises
    ------
    ValueError
        When the schema cannot take the column.
    """
    maker = _AvroSteps(parse(schema_text))
    maker.add(StructField("", spark, nullable=False), maker.schema.root, "", 0)
    return maker.plan()


class _AvroSteps(PlanMaker):
    def __init__(self, schema: AvroSchema) -> None:
        super().__init__()
        self.schema = schema

    def add(self, given: StructField, node: Node, name: str, depth: int, place: int = -1) -> int:
        """Add the steps of a column, or a part of it, for what the schema has there; the number of the first."""
        if depth > MAX_DEPTH:
            raise ValueError(f"Avro is written of a type of at most {MAX_DEPTH} levels")
        number = self.begun()
        before, null, kind = self._branches(node, given.dataType)
        if null is None and given.nullable:
            self.may_fail = True
        spark = given.dataType
        if isinstance(spark, NullType):
            if null is None and not is_null(kind):
                raise _refused(spark, kind, name)
            self.steps[number] = Step(Put.NULL, name, place, null=null or b"")
        elif isinstance(spark, (StructType, ArrayType, MapType)):
            self.steps[number] = self._nested(spark, kind, name, depth, place, before, null)
        else:
            do, a, b, c, symbols = self._simple(spark, kind, name)
            wanted = _shown(kind)
            self.steps[number] = Step(do, name, place, before, null, (), a, b, c, symbols, wanted)
        return number

    def _branches(self, node: Node, spark: DataType | None = None) -> tuple[bytes, bytes | None, Type]:
        """What stands before a value and for null, and the type itself, of what may be a union with null, or of two
        numbers that are one of Spark's."""
        kind = self.schema.definition(node)
        if not isinstance(kind, Union):
            return b"", None, kind
        null = next((zigzag(i) for i, branch in enumerate(kind.branches) if is_null(branch)), None)
        others = [i for i, branch in enumerate(kind.branches) if not is_null(branch)]
        wide = WIDENED.get(frozenset(name_of(kind.branches[i]) for i in others))
        if wide is not None and SIMPLE[wide] == spark:
            others = [i for i in others if name_of(kind.branches[i]) == wide]
        if len(others) != 1:
            return b"", null, kind
        return zigzag(others[0]), null, self.schema.definition(kind.branches[others[0]])

    def _nested(
        self,
        spark: StructType | ArrayType | MapType,
        kind: Type,
        name: str,
        depth: int,
        place: int,
        before: bytes,
        null: bytes | None,
    ) -> Step:
        if isinstance(spark, StructType) and isinstance(kind, RecordType):
            do, children = Put.RECORD, self._fields(spark, kind, name, depth)
        elif isinstance(spark, StructType) and isinstance(kind, Union):
            do, children = Put.UNION, self._members(spark, kind, name, depth)
            self.may_fail = True
        elif isinstance(spark, ArrayType) and isinstance(kind, Array):
            inner = StructField("", spark.elementType, spark.containsNull)
            do, children = Put.LIST, (self.add(inner, kind.items, part_of(name, "element"), depth + 1),)
        elif isinstance(spark, MapType) and isinstance(kind, Map) and isinstance(spark.keyType, TEXTS):
            inner = StructField("", spark.valueType, spark.valueContainsNull)
            key = self.added(Step(Put.BYTES, part_of(name, "key")))
            do, children = Put.MAP, (key, self.add(inner, kind.values, part_of(name, "value"), depth + 1))
        else:
            raise _refused(spark, kind, name)
        return Step(do, name, place, before, null, children, wanted=_shown(kind))

    def _fields(self, spark: StructType, record: RecordType, name: str, depth: int) -> tuple[int, ...]:
        """A step for each field of a record, in its order."""
        found = places(spark, [field.name for field in record.fields], f"record {record.name}", name)
        return tuple(self._field(field, found.get(field.name), spark, name, depth) for field in record.fields)

    def _field(self, field: Field, place: int | None, spark: StructType, name: str, depth: int) -> int:
        path = part_of(name, field.name)
        if place is not None:
            given = spark.fields[place]
            return self.add(given, field.schema, part_of(name, given.name), depth + 1, place)
        null = self._branches(field.schema)[1]
        if null is None and field.default is NO_DEFAULT and not is_null(self.schema.definition(field.schema)):
            raise ValueError(
                f"the column lacks the field {path}, which the schema requires: add it, or give it a default in the "
                f"schema"
            )
        if null is None:
            try:
                null = encoded(self.schema, field) if field.default is not NO_DEFAULT else b""
            except UnresolvableError as error:
                raise ValueError(str(error)) from None
        return self.added(Step(Put.CONSTANT, path, before=null))

    def _members(self, spark: StructType, union: Union, name: str, depth: int) -> tuple[int, ...]:
        """A step for each branch of a union but null, whose values are the struct's fields."""
        branches = [(zigzag(i), branch) for i, branch in enumerate(union.branches) if not is_null(branch)]
        if spark.names != [f"member{i}" for i in range(len(branches))]:
            raise _refused(spark, union, name)
        children = []
        for place, (given, (index, branch)) in enumerate(zip(spark.fields, branches, strict=True)):
            child = self.add(given, branch, part_of(name, given.name), depth + 1, place)
            made = self.steps[child]
            assert made is not None
            self.steps[child] = replace(made, before=index)
            children.append(child)
        return tuple(children)

    def _simple(self, spark: DataType, kind: Type, name: str) -> tuple[Put, int, int, int, tuple[bytes, ...]]:
        if isinstance(spark, DecimalType):
            return self._decimal(spark, kind, name)
        base = StringType if isinstance(spark, TEXTS) else type(spark)
        if base is StringType and isinstance(kind, Enum):
            self.may_fail = True
            return Put.ENUM, 0, 0, 0, tuple(symbol.encode() for symbol in kind.symbols)
        if base is BinaryType and isinstance(kind, Fixed):
            self.may_fail = True
            return Put.FIXED, kind.size, 0, 0, ()
        if isinstance(kind, Primitive):
            if (width := INTEGERS.get(base)) and kind.kind in ("int", "long"):
                narrow = width == 8 and kind.kind == "int"
                self.may_fail |= narrow
                return Put.INTEGER, width, int(narrow), 0, ()
            if (base, kind.kind) in PLAIN:
                return PLAIN[base, kind.kind], 0, 0, 0, ()
            if (base, kind.kind, kind.logical) in TIMES:
                do, width = TIMES[base, kind.kind, kind.logical]
                return do, width, 0, 0, ()
        raise _refused(spark, kind, name)

    def _decimal(self, spark: DecimalType, kind: Type, name: str) -> tuple[Put, int, int, int, tuple[bytes, ...]]:
        if not isinstance(kind, Primitive | Fixed) or kind.logical != "decimal" or kind.scale < spark.scale:
            raise _refused(spark, kind, name)
        if kind.precision > MAX_DECIMAL:
            raise _refused(spark, kind, name)
        more = kind.scale - spark.scale
        self.may_fail |= spark.precision + more > kind.precision
        if isinstance(kind, Fixed):
            return Put.DECIMAL_FIXED, kind.precision, more, kind.size, ()
        return Put.DECIMAL, kind.precision, more, 0, ()


def _shown(kind: Type) -> str:
    """What messages call a type of the schema."""
    if isinstance(kind, Primitive | Fixed) and kind.logical == "decimal":
        return f"{name_of(kind)} decimal({kind.precision}, {kind.scale})"
    logical = kind.logical if isinstance(kind, Primitive | Fixed) else None
    named = f"{type(kind).__name__.lower().removesuffix('type')} " if isinstance(kind, Named) else ""
    return f"{named}{name_of(kind)}{f' {logical}' if logical else ''}"


def _refused(spark: DataType, kind: Type, name: str) -> ValueError:
    return ValueError(f"{place_of(name)} is {spark.simpleString()}, and the schema has {_shown(kind)} there: cast it")
