"""Files of descriptors, as ``protoc --descriptor_set_out`` writes them: the messages of descriptor.proto that count."""

from __future__ import annotations

import base64
import re
from collections import defaultdict

from spark_kafka_group.executor.schemas.protobuf_files import (
    ENCODING,
    ENUM_TYPE,
    EXPANDED,
    GROUP,
    LISTS,
    OPTIONAL,
    PACKED,
    PRESENCE,
    REPEATED,
    REQUIRED,
    UTF8,
    DeclaredEnum,
    DeclaredField,
    DeclaredFile,
    DeclaredMessage,
    Features,
)
from spark_kafka_group.executor.schemas.protobuf_schema import MAX_DEPTH, MAX_TEXT, ProtobufSchemaError

KINDS = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string",
    10: GROUP, 11: "", 12: "bytes", 13: "uint32", 14: "", 15: "sfixed32", 16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
LABELS = {1: "", 2: REQUIRED, 3: REPEATED}
EDITIONS = {998: "proto2", 999: "proto3", 1000: "2023", 1001: "2024"}
FEATURES = {
    1: (PRESENCE, {1: "EXPLICIT", 2: "IMPLICIT", 3: "LEGACY_REQUIRED"}),
    2: (ENUM_TYPE, {1: "OPEN", 2: "CLOSED"}),
    3: (LISTS, {1: PACKED, 2: EXPANDED}),
    4: (UTF8, {2: "VERIFY", 3: "NONE"}),
    5: (ENCODING, {1: "LENGTH_PREFIXED", 2: "DELIMITED"}),
}
NO_SET = "it is no FileDescriptorSet: write it with protoc --include_imports --descriptor_set_out"
Entries = dict[int, list[int | bytes]]


def files(data: bytes) -> list[DeclaredFile]:
    """The files of a FileDescriptorSet.

    Raises
    ------
    ProtobufSchemaError
    """
    if len(data) > MAX_TEXT:
        raise ProtobufSchemaError(f"it has {len(data)} bytes, and {MAX_TEXT} are allowed")
    try:
        found = [_file(_entries(each)) for each in _parts(_entries(data), 1)]
    except (ValueError, LookupError) as error:  # UnicodeDecodeError too
        raise ProtobufSchemaError(NO_SET) from error
    if not found:
        raise ProtobufSchemaError(NO_SET)
    return list({file.name: file for file in reversed(found)}.values())[::-1]


def of_base64(name: str, text: str) -> DeclaredFile:
    """A file from base64 of its FileDescriptorProto, as some serializers register it. Raises ProtobufSchemaError."""
    try:
        made = _file(_entries(base64.b64decode(text)))
    except (ValueError, LookupError) as error:
        raise ProtobufSchemaError(f"{name} is neither the text of a .proto file nor a FileDescriptorProto") from error
    made.name = name
    return made


def _entries(data: bytes) -> Entries:
    """The fields of a message, each with all its values. Raises ValueError or IndexError."""
    found: Entries = defaultdict(list)
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            found[tag >> 3].append(value)
            continue
        size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, -1), at)
        if size < 0 or size > len(data) - at:
            raise ValueError
        if wire == 2:
            found[tag >> 3].append(data[at : at + size])
        at += size
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError


def _parts(entries: Entries, number: int) -> list[bytes]:
    found = entries.get(number, [])
    if not all(isinstance(each, bytes) for each in found):
        raise ValueError
    return [bytes(each) for each in found if isinstance(each, bytes)]


def _text(entries: Entries, number: int) -> str:
    return (_parts(entries, number) or [b""])[-1].decode()


def _number(entries: Entries, number: int) -> int:
    found = (entries.get(number) or [0])[-1]
    if not isinstance(found, int):
        raise ValueError
    return found


def _file(file: Entries) -> DeclaredFile:
    options = _merged(file, 8)
    edition = EDITIONS.get(_number(file, 14), "") if 14 in file else _text(file, 12) or "proto2"
    features = _features(options, 50)
    if edition == "proto2" and _number(options, 27):  # java_string_check_utf8
        features[UTF8] = "VERIFY"
    return DeclaredFile(
        _text(file, 1),
        _text(file, 2),
        edition or str(_number(file, 14)),
        [_message(_entries(each), MAX_DEPTH) for each in _parts(file, 4)],
        [_enum(_entries(each)) for each in _parts(file, 5)],
        features,
    )


def _message(message: Entries, depth: int) -> DeclaredMessage:
    if not depth:
        raise ValueError
    options = _merged(message, 7)
    oneofs = [_features(_merged(_entries(each), 2), 1) for each in _parts(message, 8)]
    return DeclaredMessage(
        _text(message, 1),
        [_field(_entries(each), len(oneofs)) for each in _parts(message, 2)],
        [_message(_entries(each), depth - 1) for each in _parts(message, 3)],
        [_enum(_entries(each)) for each in _parts(message, 4)],
        oneofs,
        bool(_number(options, 7)),
        _features(options, 12),
    )


def _field(field: Entries, oneofs: int) -> DeclaredField:
    kind, optional = KINDS[_number(field, 5)], bool(_number(field, 17))
    oneof = _number(field, 9) if 9 in field and not optional else None
    if oneof is not None and oneof >= oneofs:
        raise ValueError
    default = _text(field, 7) if 7 in field else None
    options = _merged(field, 8)
    features = _features(options, 21)
    if 2 in options:
        features[LISTS] = PACKED if _number(options, 2) else EXPANDED
    return DeclaredField(
        _text(field, 1),
        _number(field, 3),
        kind,
        _text(field, 6),
        OPTIONAL if optional else LABELS[_number(field, 4) or 1],
        unescaped(default).decode("latin-1") if kind == "bytes" and default is not None else default,
        oneof,
        features,
    )


def _enum(enum: Entries) -> DeclaredEnum:
    values = [_entries(each) for each in _parts(enum, 2)]
    numbered = [(_text(each, 1), _signed(_number(each, 2))) for each in values]
    return DeclaredEnum(_text(enum, 1), numbered, _features(_merged(enum, 3), 7))


def _signed(number: int) -> int:
    return (number & 0xFFFFFFFF) - ((number & 0x80000000) << 1)


def _merged(entries: Entries, number: int) -> Entries:
    """A message in a message, which may be written in parts."""
    return _entries(b"".join(_parts(entries, number)))


def _features(options: Entries, number: int) -> Features:
    given = _merged(options, number)
    return {name: values.get(_number(given, at), "") for at, (name, values) in FEATURES.items() if at in given}


ESCAPES: dict[str, int] = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
ESCAPE = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", flags=re.DOTALL
)


def unescaped(text: str) -> bytes:
    """The bytes of a literal, as in C."""
    return ESCAPE.sub(_unescape, text.encode())


def _unescape(found: re.Match[bytes]) -> bytes:
    octal, digits, short, long, plain = found.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if digits:
        return bytes([int(digits, 16)])
    if short or long:
        return chr(min(int(short or long, 16), 0x10FFFF)).encode("utf-8", "surrogatepass")
    return bytes([ESCAPES[plain.decode("latin-1")]]) if plain.decode("latin-1") in ESCAPES else plain
