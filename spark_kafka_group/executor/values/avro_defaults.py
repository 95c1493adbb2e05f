"""A reader's default for a field that a writer does not have, as the bytes that a writer would write."""

from __future__ import annotations

import struct
from typing import Any

from spark_kafka_group.executor.schemas.avro_schema import (
    NO_DEFAULT,
    Array,
    AvroSchema,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    RecordType,
    Union,
    name_of,
    shortened,
)
from spark_kafka_group.executor.values.avro_resolution import UnresolvableError
from spark_kafka_group.executor.values.value_contract import LARGEST_BYTES
from spark_kafka_group.executor.values.write_plan import varint


def encoded(schema: AvroSchema, field: Field) -> bytes:
    """The default of a field.

    Raises
    ------
    UnresolvableError
        When it does not fit the field's type.
    """
    data = bytearray()
    try:
        _encode(schema, field.schema, field.default, data)
    except (_UnfitError, struct.error, OverflowError, UnicodeError) as error:
        raise UnresolvableError(
            f"the default of the reader schema's field {field.name} does not fit its type: {shortened(str(error))}"
        ) from None
    return bytes(data)


class _UnfitError(ValueError):
    """Raised when a value of JSON does not fit a type."""


def zigzag(number: int) -> bytes:
    """A number of at most 64 bits as Avro writes it."""
    return varint((number << 1) ^ (number >> 63))


def _encode(schema: AvroSchema, node: Node, value: Any, data: bytearray) -> None:
    kind = schema.definition(node)
    _check(len(data) <= LARGEST_BYTES, node, value)
    if isinstance(kind, Union):
        _encode_branch(schema, kind, value, data)
    elif isinstance(kind, RecordType):
        _check(isinstance(value, dict), node, value)
        for field in kind.fields:
            inner = value.get(field.name, field.default)
            _check(inner is not NO_DEFAULT, node, value)
            _encode(schema, field.schema, inner, data)
    elif isinstance(kind, Array):
        _check(isinstance(value, list), node, value)
        data += zigzag(len(value)) if value else b""
        for item in value:
            _encode(schema, kind.items, item, data)
        data.append(0)
    elif isinstance(kind, Map):
        _check(isinstance(value, dict), node, value)
        data += zigzag(len(value)) if value else b""
        for key, item in value.items():
            data += zigzag(len(key.encode())) + key.encode()
            _encode(schema, kind.values, item, data)
        data.append(0)
    elif isinstance(kind, Enum):
        _check(isinstance(value, str) and value in kind.symbols, node, value)
        data += zigzag(kind.symbols.index(value))
    elif isinstance(kind, Fixed):
        _check(isinstance(value, str), node, value)
        _check(kind.size <= LARGEST_BYTES, node, value)
        # as Java's Avro does: what is too short or too long is cut or filled
        data += value.encode("latin-1")[: kind.size].ljust(kind.size, b"\0")
    else:
        _encode_primitive(kind.kind, node, value, data)


def _encode_branch(schema: AvroSchema, union: Union, value: Any, data: bytearray) -> None:
    """The first branch that the value fits."""
    for i, branch in enumerate(union.branches):
        inner = bytearray()
        try:
            _encode(schema, branch, value, inner)
        except (_UnfitError, struct.error, OverflowError, UnicodeError):
            continue
        data += zigzag(i) + inner
        return
    _check(False, union, value)


def _encode_primitive(kind: str, node: Node, value: Any, data: bytearray) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "null":
        _check(value is None, node, value)
    elif kind == "boolean":
        _check(isinstance(value, bool), node, value)
        data.append(value)
    elif kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        _check(number and value == int(value) and -(1 << bits) <= value < 1 << bits, node, value)
        data += zigzag(int(value))
    elif kind in ("float", "double"):
        _check(number, node, value)
        data += struct.pack("<f" if kind == "float" else "<d", value)
    else:
        _check(isinstance(value, str), node, value)
        text = value.encode() if kind == "string" else value.encode("latin-1")
        data += zigzag(len(text)) + text


def _check(fits: bool, node: Node, value: Any) -> None:
    if not fits:
        raise _UnfitError(f"{shortened(value)} is no {name_of(node)}")
