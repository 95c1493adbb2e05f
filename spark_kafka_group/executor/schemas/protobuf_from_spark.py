"""The .proto text of a struct, whose values from_protobuf gives back as they were."""

from __future__ import annotations

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from spark_kafka_group.executor.schemas.proto_texts import entry_name, in_capitals
from spark_kafka_group.executor.values.write_plan import part_of, place_of

SIMPLE: dict[type[DataType], str] = {
    BooleanType: "bool", ByteType: "int32", ShortType: "int32", IntegerType: "int32", LongType: "int64",
    FloatType: "float", DoubleType: "double", StringType: "string", BinaryType: "bytes", DateType: "int32",
    TimestampType: "google.protobuf.Timestamp", DayTimeIntervalType: "google.protobuf.Duration",
}  # fmt: skip
KEYS = ("bool", "int32", "int64", "string")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TOP = "TopLevelRecord"
RESERVED = 19_000
"""The least number that Protobuf keeps to itself."""


def proto_text_of(spark: DataType) -> str:
    """The text of a file with one message, of proto3. A scalar that may be null is ``optional``.

    Raises
    ------
    ValueError
        For a type that Protobuf does not have, and a field whose name is none of Protobuf's.
    """
    if not isinstance(spark, StructType):
        raise ValueError(f"Protobuf has no message for {spark.simpleString()}: make it a struct")
    message = "\n".join(_message(spark, TOP, ""))
    times = [name for name in ("Duration", "Timestamp") if f"google.protobuf.{name}" in message]
    imports = [f'import "google/protobuf/{name.lower()}.proto";' for name in times]
    return "\n".join(['syntax = "proto3";', *imports, message, ""])


def _message(spark: StructType, name: str, place: str) -> list[str]:
    if len(spark.fields) >= RESERVED:
        raise ValueError(f"{place_of(place)} has {len(spark.fields)} fields, and Protobuf numbers {RESERVED - 1}")
    _check_names(spark, place)
    entries = {entry_name(field.name) for field in spark.fields if isinstance(field.dataType, MapType)}
    taken, inner, fields = {*spark.names, *entries}, [], []
    for number, field in enumerate(spark.fields, 1):
        path = part_of(place, field.name)
        of, label = field.dataType, ""
        own = "".join(part.capitalize() for part in field.name.split("_"))
        own = own if own[:1].isalpha() else f"Message{own}"
        while own in taken:
            own += "_"
        struct = _struct_in(of)
        if struct is not None:
            taken.add(own)
            inner += _message(struct, own, path)
        if isinstance(of, MapType):
            key = _type(of.keyType, "", path)
            if key not in KEYS:
                raise ValueError(f"the field {path} has keys of {of.keyType.simpleString()}: cast them to STRING")
            kind = f"map<{key}, {_type(of.valueType, own, path)}>"
        elif isinstance(of, ArrayType):
            kind, label = _type(of.elementType, own, path), "repeated "
        else:
            kind = _type(of, own, path)
            label = "optional " if field.nullable and struct is None and "." not in kind else ""
        fields.append(f"{label}{kind} {field.name} = {number};")
    return [f"message {name} {{", *(f"  {line}" for line in (*inner, *fields)), "}"]


def _check_names(spark: StructType, place: str) -> None:
    """Refuse names that Protobuf does not have, or takes for the same."""
    has: dict[str, str] = {}
    for field in spark.fields:
        path = part_of(place, field.name)
        if not NAME.fullmatch(field.name):
            raise ValueError(f"{field.name!r} is no Protobuf name, of the field {path}: rename it")
        first, *others = field.name.split("_")
        alike = [f"the JSON name {first}{in_capitals(others)}"]
        if isinstance(field.dataType, MapType):
            alike.append(f"the message {entry_name(field.name)}")
            if not NAME.fullmatch(entry_name(field.name)):
                raise ValueError(f"{entry_name(field.name)!r} is no Protobuf name, of the map {path}: rename it")
        for what in alike:
            if what in has:
                raise ValueError(f"the fields {has[what]} and {path} have {what} in Protobuf: rename one")
            has[what] = path
    for what, path in has.items():
        name = what.removeprefix("the message ")
        if name != what and name in spark.names:
            raise ValueError(f"the field {path} has {what} in Protobuf, as {part_of(place, name)}: rename one")


def _struct_in(spark: DataType) -> StructType | None:
    """The struct that a field has, or its items or values are."""
    if isinstance(spark, ArrayType):
        spark = spark.elementType
    elif isinstance(spark, MapType):
        spark = spark.valueType
    return spark if isinstance(spark, StructType) else None


def _type(spark: DataType, own: str, path: str) -> str:
    """The type of one value; `own` is the message that a struct has."""
    if isinstance(spark, StructType) and own:
        return own
    found = SIMPLE.get(StringType if isinstance(spark, StringType) else type(spark))
    if found is None:
        raise ValueError(
            f"Protobuf has no type for {spark.simpleString()}, of the field {path}: cast it, or put it into a struct"
        )
    return found
