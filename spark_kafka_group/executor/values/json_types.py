"""The types that from_json reads, checked once, for both twins of the JSON decoder."""

from __future__ import annotations

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
    StructType,
    TimestampNTZType,
    TimestampType,
)

MAX_DEPTH = 100
CORRUPT = "_corrupt_record"
"""A field of the root that gets the whole text of a malformed document: spark.sql.columnNameOfCorruptRecord."""

SIMPLE = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


def check(spark: DataType) -> None:
    """Refuse a type that from_json does not read, or that cannot be a column of ours.

    Raises
    ------
    ValueError
    """
    if not isinstance(spark, (StructType, ArrayType, MapType)):
        raise ValueError(f"JSON is read as a struct, an array or a map, not as {spark.simpleString()}")
    if isinstance(spark, StructType) and not spark.fields:
        raise ValueError("JSON is read as a struct with at least one field")
    _check(spark, "the value", 1)
    for field in spark.fields if isinstance(spark, StructType) else ():
        if field.name == CORRUPT and type(field.dataType) is not StringType:
            raise ValueError(f"the field {CORRUPT} gets the text of a malformed document: its type has to be STRING")


def _check(spark: DataType, place: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"JSON is read as a type of at most {MAX_DEPTH} levels")
    if isinstance(spark, StructType):
        twice = {name for name in spark.names if spark.names.count(name) > 1} if _repeats(spark.names) else set()
        if twice:
            raise ValueError(f"{place} has two fields with the name {min(twice)}: give each its own name")
        for field in spark.fields:
            _check(field.dataType, f"the field {field.name}", depth + 1)
    elif isinstance(spark, ArrayType):
        _check(spark.elementType, place, depth + 1)
    elif isinstance(spark, MapType):
        if type(spark.keyType) is not StringType or spark.keyType != StringType():
            raise ValueError(f"{place} is a map with keys of {spark.keyType.simpleString()}: JSON has keys of STRING")
        _check(spark.valueType, place, depth + 1)
    elif not isinstance(spark, SIMPLE):
        raise ValueError(f"{place} cannot be read from JSON as {spark.simpleString()}: read it as STRING, and cast it")


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)
