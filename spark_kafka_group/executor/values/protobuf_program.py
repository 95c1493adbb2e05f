"""How a message is read into the columns of its type: flat tables, made once, that both twins read by.

The messages are a tree, whatever the schema is, as each has columns of its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spark_kafka_group.executor.schemas.protobuf_schema import (
    ENUM,
    MESSAGE,
    ProtobufEnum,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    ProtobufSchemaError,
)
from spark_kafka_group.executor.schemas.protobuf_types import DUMMY, ProtobufOptions, is_time
from spark_kafka_group.executor.values.value_columns import Column
from spark_kafka_group.executor.values.value_contract import REASONS, Problem

GROUPS = 100
"""Most groups inside each other that are read over, as in Java."""


class Wire(IntEnum):
    """The form of a field's bytes, as its tag says."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP = 3
    END_GROUP = 4
    FIXED32 = 5


class FieldKind(IntEnum):
    """What becomes of a field's bytes. Names are those of the types in the schema."""

    INT32 = 1
    """And uint32, as in Spark: the lowest 32 bits."""
    UINT32_AS_LONG = auto()
    SINT32 = auto()
    INT64 = auto()
    UINT64_AS_DECIMAL = auto()
    SINT64 = auto()
    BOOL = auto()
    FIXED32 = auto()
    """And float: four bytes as they are."""
    FIXED64 = auto()
    ENUM_NAME = auto()
    ENUM_NUMBER = auto()
    TEXT = auto()
    """Text: what is no UTF-8 is replaced."""
    CHECKED_TEXT = auto()
    BYTES = auto()
    MESSAGE = auto()


class Shape(IntEnum):
    """How often a field may come."""

    ONE = 1
    LIST = auto()
    MAP = auto()


class Absent(IntEnum):
    """What an absent field is."""

    NULL = 1
    DEFAULT = auto()
    NULL_OR_ZERO = auto()
    """Null, and so is the default value where it is written: the field has no presence."""


WIRES = {
    **dict.fromkeys((FieldKind.FIXED32,), Wire.FIXED32),
    **dict.fromkeys((FieldKind.FIXED64,), Wire.FIXED64),
    **dict.fromkeys((FieldKind.TEXT, FieldKind.CHECKED_TEXT, FieldKind.BYTES, FieldKind.MESSAGE), Wire.BYTES),
}
"""The wire type of each; others are VARINT, and a delimited message is a GROUP."""
DOES = {
    "double": FieldKind.FIXED64, "float": FieldKind.FIXED32, "int64": FieldKind.INT64, "uint64": FieldKind.INT64,
    "int32": FieldKind.INT32,
    "fixed64": FieldKind.FIXED64, "fixed32": FieldKind.FIXED32, "bool": FieldKind.BOOL, "string": FieldKind.TEXT,
    "bytes": FieldKind.BYTES,
    "uint32": FieldKind.INT32, "sfixed32": FieldKind.FIXED32, "sfixed64": FieldKind.FIXED64,
    "sint32": FieldKind.SINT32, "sint64": FieldKind.SINT64,
    MESSAGE: FieldKind.MESSAGE, ENUM: FieldKind.ENUM_NAME,
}  # fmt: skip
UPCAST = {"uint32": FieldKind.UINT32_AS_LONG, "uint64": FieldKind.UINT64_AS_DECIMAL}


class FieldPlan(NamedTuple):
    """A field that is read; one without column is only looked at, as others of its oneof are.

    `column`: of a list or a map, too; -1 is none. `inner`: the index of a message's plan, or of an enum's table.
    `default`: a number's bits as they are written, or bytes.
    """

    number: int
    wire: Wire
    do: FieldKind
    shape: Shape
    column: int
    inner: int
    oneof: int
    absent: Absent
    required: bool
    closed: bool
    default: int | bytes
    name: str


NEVER = FieldPlan(0, Wire.BYTES, FieldKind.TEXT, Shape.ONE, -1, -1, -1, Absent.NULL, False, False, b"", "")
"""A field that no value has: none has the number 0."""


class MessagePlan(NamedTuple):
    """A message: its struct's column, or -1 where it has none, and whether its two fields are a time in `time`."""

    column: int
    time: int
    oneofs: int
    fields: tuple[FieldPlan, ...]
    name: str


class EnumTable(NamedTuple):
    """The names of an enum's numbers, and what is before the number of one that it does not have."""

    names: dict[int, bytes]
    unknown: bytes


@dataclass(frozen=True)
class MessageProgram:
    """The plans of messages, the value's first, and the tables of enums."""

    messages: tuple[MessagePlan, ...]
    enums: tuple[EnumTable, ...]

    def why(self, problem: int, message: int, field: int) -> tuple[str, str]:
        """Field and reason of a malformed value, whose field `field` did not fit; -1 is none of those that are read."""
        plan = self.messages[message]
        return (plan.fields[field] if field >= 0 else plan).name, REASONS[Problem(problem)]


def program(
    schema: ProtobufSchema, name: str, spark: DataType, columns: tuple[Column, ...], options: ProtobufOptions
) -> MessageProgram:
    """The program that reads a message into the columns of `spark`, its type or some fields of it."""
    return _MessageMaker(schema, columns, options).made(schema.messages[name], spark)


class _MessageMaker:
    """Writes one program."""

    def __init__(self, schema: ProtobufSchema, columns: tuple[Column, ...], options: ProtobufOptions) -> None:
        self._schema, self._columns, self._options = schema, columns, options
        self._messages: list[MessagePlan | None] = []
        self._enums: dict[str, EnumTable] = {}

    def made(self, message: ProtobufMessage, spark: DataType) -> MessageProgram:
        self._message(message, spark, 0)
        return MessageProgram(tuple(plan for plan in self._messages if plan is not None), tuple(self._enums.values()))

    def _message(self, message: ProtobufMessage, spark: DataType, c: int) -> int:
        """Write how a message is read into a struct, a time, or what its only field is in; the index of its plan."""
        index, name = len(self._messages), self._columns[c].name
        self._messages.append(None)
        if not isinstance(spark, StructType) and is_time(message):
            fields = [self._field(field, None, -1, name) for field in message.fields]
            self._messages[index] = MessagePlan(-1, c, 0, tuple(fields), name)
            return index
        if isinstance(spark, StructType):
            children = dict(zip(spark.names, zip(spark.fields, self._columns[c].children, strict=True), strict=True))
        else:
            children = {}
        wanted = []
        for field in message.fields:
            if not isinstance(spark, StructType):
                wanted.append((field, spark, c))  # a wrapper: what is in it has the column
            elif field.name in children:
                of, column = children[field.name]
                wanted.append((field, of.dataType, column))
        plan = self._plan(message, wanted, c if isinstance(spark, StructType) else -1, name)
        if DUMMY in children:
            plan = plan._replace(fields=(*plan.fields, NEVER._replace(column=children[DUMMY][1], name=plan.name)))
        self._messages[index] = plan
        return index

    def _plan(
        self, message: ProtobufMessage, wanted: list[tuple[ProtobufField, DataType, int]], c: int, name: str
    ) -> MessagePlan:
        fields = [self._field(field, of, column, name, message.map_entry) for field, of, column in wanted]
        read = {field.number for field, _, _ in wanted}
        oneofs = {field.oneof for field, _, _ in wanted if field.oneof is not None}
        fields += [
            self._field(field, None, -1, name)
            for field in message.fields
            if field.number not in read and field.oneof in oneofs
        ]
        return MessagePlan(c, -1, 1 + max(oneofs, default=-1), tuple(fields), name)

    def _field(
        self, field: ProtobufField, spark: DataType | None, c: int, name: str, in_entry: bool = False
    ) -> FieldPlan:
        do = DOES[field.kind]
        if self._options.upcast_unsigned:
            do = UPCAST.get(field.kind, do)
        if do == FieldKind.TEXT and field.checked:
            do = FieldKind.CHECKED_TEXT
        if do == FieldKind.ENUM_NAME and self._options.enums_as_ints:
            do = FieldKind.ENUM_NUMBER
        wire = Wire.GROUP if field.delimited else WIRES.get(do, Wire.VARINT)
        shape, inner = Shape.LIST if field.repeated else Shape.ONE, -1
        if do == FieldKind.MESSAGE and spark is not None:
            if isinstance(spark, MapType):
                shape, inner = Shape.MAP, self._entry(field, spark, c)
            elif isinstance(spark, ArrayType):
                inner = self._message(self._schema.messages[field.type_name], spark.elementType, self._item(c))
            else:
                inner = self._message(self._schema.messages[field.type_name], spark, c)
        elif field.kind == ENUM:
            inner = self._enum(field.type_name)
        return FieldPlan(
            field.number, wire, do, shape, c, inner, -1 if field.oneof is None else field.oneof,
            self._absent(field, in_entry), field.required, field.closed, self._default(field, do),
            f"{name}.{field.name}".lstrip("."),
        )  # fmt: skip

    def _item(self, c: int) -> int:
        return self._columns[c].children[0]

    def _entry(self, field: ProtobufField, spark: MapType, c: int) -> int:
        """Write how an entry of a map is read: into the columns of keys and values."""
        index = len(self._messages)
        self._messages.append(None)
        entry, types = self._schema.messages[field.type_name], (spark.keyType, spark.valueType)
        wanted = list(zip(entry.fields, types, self._columns[c].children, strict=True))
        self._messages[index] = self._plan(entry, wanted, -1, self._columns[c].name)
        return index

    def _absent(self, field: ProtobufField, in_entry: bool) -> Absent:
        if in_entry or field.default is not None:
            return Absent.DEFAULT
        if field.presence or field.repeated:
            return Absent.NULL
        return Absent.DEFAULT if self._options.emit_defaults else Absent.NULL_OR_ZERO

    def _default(self, field: ProtobufField, do: FieldKind) -> int | bytes:
        text = field.default
        if do in (FieldKind.TEXT, FieldKind.CHECKED_TEXT, FieldKind.BYTES):
            return (text or "").encode("latin-1" if do == FieldKind.BYTES else "utf-8", "replace")
        if field.kind == ENUM and text is None:
            return self._schema.enums[field.type_name].values[0][1] & MASK if field.closed else 0
        if not text or do == FieldKind.MESSAGE:
            return 0
        try:
            return _bits(field.kind, text)
        except (ValueError, struct.error, OverflowError) as error:
            raise ProtobufSchemaError(f"the field {field.name} has a default that it cannot have: {text}") from error

    def _enum(self, name: str) -> int:
        if name not in self._enums:
            enum: ProtobufEnum = self._schema.enums[name]
            names = {number: value.encode() for value, number in reversed(enum.values)}
            unknown = f"UNKNOWN_ENUM_VALUE_{name.rpartition('.')[2]}_".encode()
            self._enums[name] = EnumTable(names, unknown)
        return list(self._enums).index(name)


MASK = (1 << 64) - 1
FLOATS = {"double": ("<d", "<Q"), "float": ("<f", "<I")}


def _bits(kind: str, text: str) -> int:
    """The number of a default's text, as it is written."""
    if kind in FLOATS:
        form, whole = FLOATS[kind]
        value = float(text)
        if kind == "float" and abs(value) > 3.4028235677973366e38:
            value = float("inf") if value > 0 else float("-inf")
        bits: int = struct.unpack(whole, struct.pack(form, value))[0]
        return bits
    if kind == "bool":
        return int(text == "true")
    number = int(text)
    if kind in ("sint32", "sint64"):
        number = number << 1 if number >= 0 else (-number << 1) - 1
    return number & MASK
