"""Spark's type of a Protobuf message, as ``SchemaConverters.toSqlType`` gives it for from_protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_kafka_group.executor.schemas.protobuf_schema import (
    ENUM,
    MAX_DEPTH,
    MESSAGE,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    ProtobufSchemaError,
)

MAX_COLUMNS = 50_000
"""Most types inside the type of a value, a column each."""
DUMMY = "__dummy_field_in_empty_struct"
"""The field that Spark gives to a message without fields, with `retain_empty`."""
SIMPLE: dict[str, DataType] = {
    "double": DoubleType(), "float": FloatType(), "bool": BooleanType(), "string": StringType(), "bytes": BinaryType(),
    **dict.fromkeys(("int32", "uint32", "sint32", "fixed32", "sfixed32"), IntegerType()),
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64"), LongType()),
}  # fmt: skip
UPCAST: dict[str, DataType] = {"uint32": LongType(), "uint64": DecimalType(20, 0)}
"""Spark leaves fixed32 and fixed64 as they are."""
OF_OBJECTS = UPCAST | {"fixed32": UPCAST["uint32"], "fixed64": UPCAST["uint64"]}
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "UInt32", "Int64", "UInt64", "String", "Bytes", "Float", "Double")
)
TIMES: dict[str, DataType] = {"Timestamp": TimestampType(), "Duration": DayTimeIntervalType(0, 3)}
WHOLE = {
    "seconds": ("int64", "uint64", "sint64", "fixed64", "sfixed64"),
    "nanos": ("int32", "uint32", "sint32", "fixed32", "sfixed32"),
}


@dataclass(frozen=True)
class ProtobufOptions:
    """from_protobuf's options: `max_depth` is ``recursive.fields.max.depth``, 0 without it.

    `of_objects`: not of from_protobuf. The type is that of objects to write: with all messages without fields, wrappers
        as what is in them, and room for all unsigned numbers.
    """

    enums_as_ints: bool = False
    emit_defaults: bool = False
    upcast_unsigned: bool = False
    unwrap: bool = False
    retain_empty: bool = False
    max_depth: int = 0
    of_objects: bool = False


def spark_type(schema: ProtobufSchema, name: str, options: ProtobufOptions) -> StructType:
    """The type that Spark's from_protobuf gives for a message.

    What is required is not null, nor are items and values of lists and maps, but those that `unwrap` leaves without
    default.

    Raises
    ------
    ProtobufSchemaError
        For a recursive message without `max_depth`, and one that is too large for a table.
    """
    return _MessageTypes(schema, options).whole(schema.messages[name])


def is_time(message: ProtobufMessage) -> bool:
    """Whether a message is a timestamp or a duration: as for Spark, its simple name and its fields decide."""
    return (
        message.name.rpartition(".")[2] in TIMES
        and [field.name for field in message.fields] == list(WHOLE)
        and all(not field.repeated and field.kind in WHOLE[field.name] for field in message.fields)
    )


class _MessageTypes:
    """Counts the columns, as messages that are used twice by each other become more and more of them."""

    def __init__(self, schema: ProtobufSchema, options: ProtobufOptions) -> None:
        self._schema, self._options = schema, options
        self._columns = 0

    def whole(self, message: ProtobufMessage) -> StructType:
        fields = self._fields(message, {message.name: 1}, 1)
        if not fields and not self._options.of_objects:
            raise ProtobufSchemaError(
                f"the message {message.name} has no fields, and a column of it would have none: read the bytes"
            )
        return StructType(fields)

    def _fields(self, message: ProtobufMessage, inside: Mapping[str, int], depth: int) -> list[StructField]:
        if depth > MAX_DEPTH:
            raise ProtobufSchemaError(f"the schema has more than {MAX_DEPTH} messages inside each other")
        typed = [(field, self._type(field, inside, depth)) for field in message.fields]
        found = [StructField(field.name, of, not field.required) for field, of in typed if of is not None]
        return found or ([StructField(DUMMY, StringType())] if self._options.retain_empty else [])

    def _type(self, field: ProtobufField, inside: Mapping[str, int], depth: int) -> DataType | None:
        """The type of a field; None of a message without fields, and at the limit of a recursion."""
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise ProtobufSchemaError(f"the schema has more than {MAX_COLUMNS} fields, with those of messages in it")
        if field.kind == MESSAGE:
            message = self._schema.messages[field.type_name]
            if message.map_entry and field.repeated:
                return self._map(message, inside, depth)
            found = self._message(message, inside, depth)
        elif field.kind == ENUM:
            found = IntegerType() if self._options.enums_as_ints else StringType()
        else:
            types = OF_OBJECTS if self._options.of_objects else UPCAST if self._options.upcast_unsigned else SIMPLE
            found = types.get(field.kind) or SIMPLE[field.kind]
        return ArrayType(found, self._may_be_null(field)) if field.repeated and found is not None else found

    def _may_be_null(self, field: ProtobufField) -> bool:
        """Whether a message that is there is null: what is in a wrapper may be absent."""
        return self._options.unwrap and not self._options.emit_defaults and field.type_name in WRAPPERS

    def _map(self, entry: ProtobufMessage, inside: Mapping[str, int], depth: int) -> DataType | None:
        key, value = (self._type(field, inside, depth + 1) for field in entry.fields)
        may_be_null = self._may_be_null(entry.fields[1])
        return None if key is None or value is None else MapType(key, value, may_be_null)

    def _message(self, message: ProtobufMessage, inside: Mapping[str, int], depth: int) -> DataType | None:
        if is_time(message):
            return TIMES[message.name.rpartition(".")[2]]
        if (self._options.unwrap or self._options.of_objects) and message.name in WRAPPERS:
            return self._type(message.fields[0], inside, depth + 1)
        seen = inside.get(message.name, 0)
        if seen and not self._options.max_depth:
            raise ProtobufSchemaError(
                f"the message {message.name} has itself in it, which no column of Spark has: set "
                f"recursive.fields.max.depth, from 1 to 10"
            )
        if seen and seen >= self._options.max_depth:
            return None
        fields = self._fields(message, {**inside, message.name: seen + 1}, depth + 1)
        return StructType(fields) if fields or self._options.of_objects else None
