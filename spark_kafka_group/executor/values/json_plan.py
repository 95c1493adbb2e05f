"""How to_json writes a type: structs without fields that are null, maps with the text of their keys."""

from __future__ import annotations

from functools import lru_cache

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
)

from spark_kafka_group.executor.values._write_py import text_as_json
from spark_kafka_group.executor.values.json_types import MAX_DEPTH
from spark_kafka_group.executor.values.write_plan import PlanMaker, Put, Step, WritePlan, part_of, place_of

NULL = b"null"
SIMPLE: dict[type[DataType], tuple[Put, int]] = {
    BooleanType: (Put.TRUE_OR_FALSE, 0),
    ByteType: (Put.NUMBER, 1),
    ShortType: (Put.NUMBER, 2),
    IntegerType: (Put.NUMBER, 4),
    LongType: (Put.NUMBER, 8),
    FloatType: (Put.FLOAT_TEXT, 0),
    DoubleType: (Put.DOUBLE_TEXT, 0),
    StringType: (Put.TEXT, 0),
    BinaryType: (Put.BASE64, 0),
    DateType: (Put.DATE, 0),
    TimestampType: (Put.TIMESTAMP, 0),
    TimestampNTZType: (Put.LOCAL_TIMESTAMP, 0),
    TimeType: (Put.TIME, 0),
    NullType: (Put.NULL, 0),
}
AS_KEYS: dict[type[DataType], tuple[Put, int]] = {
    DateType: (Put.NUMBER, 4),
    TimestampType: (Put.NUMBER, 8),
    TimestampNTZType: (Put.NUMBER, 8),
}
"""Keys are written as Spark keeps them: of a date the days."""
NO_KEYS = (BinaryType, TimeType, NullType)


@lru_cache(maxsize=64)
def json_plan(spark: DataType, zone: str) -> WritePlan:
    """The plan for a column of type `spark`.

    Raises
    ------
    ValueError
        For a type that to_json, or this sink, does not write.
    """
    if not isinstance(spark, (StructType, ArrayType, MapType)):
        raise ValueError(f"JSON is written of a struct, an array or a map, not of {spark.simpleString()}")
    maker = _JsonSteps()
    maker.add(spark, "", 1)
    return maker.plan(zone)


class _JsonSteps(PlanMaker):
    def add(self, spark: DataType, name: str, depth: int, field: int = -1, before: bytes = b"") -> int:
        """Add the steps of a type; the number of the first."""
        if depth > MAX_DEPTH:
            raise ValueError(f"JSON is written of a type of at most {MAX_DEPTH} levels")
        number = self.begun()
        do, a = Put.OBJECT, 0
        children: tuple[int, ...] = ()
        if isinstance(spark, StructType):
            children = tuple(
                self.add(
                    each.dataType, part_of(name, each.name), depth + 1, place,
                    b"," + text_as_json(each.name.encode()) + b":",
                )
                for place, each in enumerate(spark.fields)
            )  # fmt: skip
        elif isinstance(spark, ArrayType):
            do, children = Put.ARRAY, (self.add(spark.elementType, part_of(name, "element"), depth + 1),)
        elif isinstance(spark, MapType):
            values = self.add(spark.valueType, part_of(name, "value"), depth + 1)
            do, children = Put.DICT, (self._key(spark.keyType, name), values)
        else:
            do, a = self._simple(spark, name, {})
        self.steps[number] = Step(do, name, field, before, NULL, children, a)
        return number

    def _key(self, spark: DataType, name: str) -> int:
        if isinstance(spark, (StructType, ArrayType, MapType, *NO_KEYS)):
            raise ValueError(f"{place_of(name)} is a map with keys of {spark.simpleString()}, which JSON does not have")
        do, a = self._simple(spark, name, AS_KEYS)
        return self.added(Step(do, name, a=a, b=1))

    def _simple(self, spark: DataType, name: str, others: dict[type[DataType], tuple[Put, int]]) -> tuple[Put, int]:
        if isinstance(spark, DecimalType):
            return Put.DECIMAL_TEXT, spark.scale
        kind = StringType if isinstance(spark, (StringType, CharType, VarcharType)) else type(spark)
        found = others.get(kind) or SIMPLE.get(kind)
        if found is None:
            raise ValueError(f"{place_of(name)} is {spark.simpleString()}, which is not written as JSON: cast it")
        return found
