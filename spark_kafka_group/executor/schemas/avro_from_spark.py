"""The Avro schema of a Spark type, as ``SchemaConverters.toAvroType`` makes it for to_avro."""

from __future__ import annotations

import json
from typing import Any

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
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    VarcharType,
)

from spark_kafka_group.executor.schemas.avro_schema import parse

SIMPLE: dict[type[DataType], Any] = {
    BooleanType: "boolean", ByteType: "int", ShortType: "int", IntegerType: "int", LongType: "long",
    FloatType: "float", DoubleType: "double", StringType: "string", CharType: "string", VarcharType: "string",
    BinaryType: "bytes", NullType: "null",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}  # fmt: skip
TOP = "topLevelRecord"


def avro_schema_of(spark: DataType) -> str:
    """The schema of a column that is not null, as its JSON.

    Raises
    ------
    ValueError
        For a type that Avro does not have, and a field whose name is none of Avro's.
    """
    text = json.dumps(_schema(spark, False, TOP, ""))
    parse(text)  # the names in it
    return text


def _schema(spark: DataType, nullable: bool, name: str, space: str) -> Any:
    found = _not_null(spark, name, space)
    return [found, "null"] if nullable and not isinstance(spark, NullType) else found


def _not_null(spark: DataType, name: str, space: str) -> Any:
    inner = f"{space}.{name}" if space else name
    if isinstance(spark, StructType):
        fields = [{"name": f.name, "type": _schema(f.dataType, f.nullable, f.name, inner)} for f in spark.fields]
        return {"type": "record", "name": name, "fields": fields} | ({"namespace": space} if space else {})
    if isinstance(spark, ArrayType):
        return {"type": "array", "items": _schema(spark.elementType, spark.containsNull, name, space)}
    if isinstance(spark, MapType) and isinstance(spark.keyType, StringType):
        return {"type": "map", "values": _schema(spark.valueType, spark.valueContainsNull, name, space)}
    if isinstance(spark, DecimalType):
        size = next(n for n in range(1, 17) if 1 << 8 * n - 1 >= 10**spark.precision)
        return {
            "type": "fixed", "name": "fixed", "namespace": inner, "size": size, "logicalType": "decimal",
            "precision": spark.precision, "scale": spark.scale,
        }  # fmt: skip
    if isinstance(spark, TimeType):
        return {"type": "long", "logicalType": "time-micros", "spark.sql.catalyst.type": spark.simpleString()}
    if isinstance(spark, DayTimeIntervalType):
        return {"type": "long", "spark.sql.catalyst.type": spark.simpleString()}
    found = SIMPLE.get(StringType if isinstance(spark, StringType) else type(spark))
    if found is None:
        raise ValueError(f"Avro has no type for {spark.simpleString()}: cast it")
    return found
