"""The Arrow type that Spark takes for a Spark type, from a Python data source."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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
)

SIMPLE: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    DateType: pa.date32(),
    DayTimeIntervalType: pa.duration("us"),
    DoubleType: pa.float64(),
    FloatType: pa.float32(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    NullType: pa.null(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimeType: pa.time64("ns"),
    TimestampNTZType: pa.timestamp("us"),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_type(spark: DataType) -> pa.DataType:
    """The Arrow type of a column, which may be null where Spark's may.

    Raises
    ------
    ValueError
        For a type that a Python data source cannot give.
    """
    if isinstance(spark, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in spark.fields])
    if isinstance(spark, ArrayType):
        return pa.list_(pa.field("element", arrow_type(spark.elementType), spark.containsNull))
    if isinstance(spark, MapType):
        key = pa.field("key", arrow_type(spark.keyType), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(spark.valueType), spark.valueContainsNull))
    if isinstance(spark, DecimalType):
        return pa.decimal128(spark.precision, spark.scale)
    simple = SIMPLE.get(type(spark))
    if simple is None:
        raise ValueError(f"a column of Spark's type {spark.simpleString()} cannot come from a Python data source")
    return simple


def nullable(spark: DataType) -> DataType:
    """`spark`, where everything may be null, as from_json and from_avro make it in their mode PERMISSIVE."""
    return spark.toNullable() if isinstance(spark, (ArrayType, MapType, StructType)) else spark


def chosen(spark: DataType, wanted: tuple[str, ...] | None) -> DataType:
    """`spark` with only the fields of structs that `wanted` names, dotted, in the order of the type; None is all.

    Raises
    ------
    ValueError
        For a name that the type does not have.
    """
    return spark if wanted is None else _chosen(spark, [name.split(".") for name in wanted], "")


def _chosen(spark: DataType, paths: list[list[str]], place: str) -> DataType:
    if not all(paths):  # one of them ends here
        return spark
    if not isinstance(spark, StructType):
        raise ValueError(f"{place or 'the value'} is a {spark.typeName()}, which has no field {'.'.join(paths[0])}")
    below: dict[str, list[list[str]]] = {}
    for first, *rest in paths:
        if first not in spark.names:
            have = ", ".join(spark.names[:20])
            raise ValueError(f"{place or 'the value'} has no field {first}: it has {have}")
        below.setdefault(first, []).append(rest)
    return StructType(
        [
            StructField(
                field.name,
                _chosen(field.dataType, below[field.name], f"{place}.{field.name}".lstrip(".")),
                field.nullable,
            )
            for field in spark.fields
            if field.name in below
        ]
    )
