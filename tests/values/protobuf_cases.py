"""Random schemas of Protobuf, and values of them, written without any library: fields in any order, some again."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor as Of

SCALARS = tuple(number for number in range(1, 19) if number not in (10, 11, 14))
KEYS = tuple(number for number in SCALARS if number not in (1, 2, 12))
PACKABLE = tuple(number for number in SCALARS if number not in (9, 12))
FIXED = {Of.TYPE_DOUBLE: "<d", Of.TYPE_FIXED64: "<Q", Of.TYPE_SFIXED64: "<q"}
FIXED |= {Of.TYPE_FLOAT: "<f", Of.TYPE_FIXED32: "<I", Of.TYPE_SFIXED32: "<i"}
NUMBERS = (0, 0, 1, -1, 63, 64, 127, 128, -65, 300, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 53) + 1, (1 << 63) - 1)
TEXTS = ("", "a", "abcdefgh", "grüße", "日本", "\U0001f600x", "x" * 40)
SYNTAXES = ("proto3", "proto3", "proto2", "editions")
WRAPPERS = ("Bool", "Int32", "UInt32", "Int64", "UInt64", "String", "Bytes", "Float", "Double")
WELL_KNOWN = (timestamp_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR)
BIG = 1 << 29


@dataclass(frozen=True)
class Case:
    """A set of descriptors, the name of its message, google's class of the message, and values."""

    descriptors: bytes
    message: str
    made: Any
    values: tuple[bytes, ...]


class Making:
    """Makes a file of messages; those in lists may be in each other, and none is in itself."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.syntax = rng.choice(SYNTAXES)
        self.file = descriptor_pb2.FileDescriptorProto(name="test.proto", package="test.pack")
        self.file.dependency.extend(file.name for file in WELL_KNOWN)
        if self.syntax == "editions":
            self.file.syntax, self.file.edition = "editions", descriptor_pb2.EDITION_2023
        elif self.syntax == "proto3":
            self.file.syntax = "proto3"
        self.enum()
        self.count = 0

    def enum(self) -> None:
        enum = self.file.enum_type.add(name="Color")
        for name, number in (("RED", 0), ("GREEN", 1), ("BLUE", -5), ("FAR", 1 << 30)):
            enum.value.add(name=name, number=number)

    def message(self, depth: int) -> str:
        """Add a message; its full name."""
        self.count += 1
        made = descriptor_pb2.DescriptorProto(name=f"M{self.count}")
        full = f".test.pack.{made.name}"
        numbers = self.rng.sample((*range(1, 40), 100, 2000, BIG - 1), self.rng.randint(1, 7))
        oneofs = self.rng.choice((0, 0, 1, 2))
        for i in range(oneofs):
            made.oneof_decl.add(name=f"o{i}")
        for i, number in enumerate(numbers):
            self.field(made, f"f{i}", number, depth, full)
        used = {field.oneof_index for field in made.field if field.HasField("oneof_index")}
        for i in range(oneofs):
            if i not in used:
                made.field.add(name=f"only{i}", number=50 + i, label=1, type=5, oneof_index=i)
        self.synthetic(made)
        self.file.message_type.append(made)
        return full

    def synthetic(self, made: Any) -> None:
        for field in made.field:
            if field.proto3_optional:
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field.name}")

    def field(self, made: Any, name: str, number: int, depth: int, full: str) -> None:
        rng = self.rng
        field = made.field.add(name=name, number=number, label=1)
        chance = rng.random()
        if chance < 0.1 and depth:
            self.map(made, field, depth, full)
            return
        self.type(field, depth)
        oneofs = len(made.oneof_decl)
        if rng.random() < 0.3:
            field.label = 3
            if field.type in (*PACKABLE, Of.TYPE_ENUM) and rng.random() < 0.3 and self.syntax != "editions":
                field.options.packed = rng.random() < 0.5
        elif oneofs and rng.random() < 0.5:
            field.oneof_index = rng.randrange(oneofs)
        else:
            self.presence(field)

    def presence(self, field: Any) -> None:
        rng = self.rng
        plain = field.type in (*SCALARS, Of.TYPE_ENUM)
        if self.syntax == "proto3":
            field.proto3_optional = rng.random() < 0.2
        elif self.syntax == "editions":
            if rng.random() < 0.3 and plain:
                field.options.features.field_presence = descriptor_pb2.FeatureSet.IMPLICIT
            elif rng.random() < 0.05:
                field.options.features.field_presence = descriptor_pb2.FeatureSet.LEGACY_REQUIRED
        elif rng.random() < 0.07:
            field.label = 2
        elif rng.random() < 0.3 and plain:
            self.default(field)

    def default(self, field: Any) -> None:
        defaults = {
            Of.TYPE_STRING: "grüße",
            Of.TYPE_BYTES: "a\\001\\377\\n",
            Of.TYPE_BOOL: "true",
            Of.TYPE_ENUM: "BLUE",
        }
        if field.type in (Of.TYPE_DOUBLE, Of.TYPE_FLOAT):
            field.default_value = self.rng.choice(("1.5", "-inf", "nan", "1e-3"))
        else:
            field.default_value = defaults.get(field.type) or ("7" if field.type in (4, 6, 7, 13) else "-7")

    def type(self, field: Any, depth: int) -> None:
        rng = self.rng
        chance = rng.random()
        if chance < 0.1:
            field.type, field.type_name = Of.TYPE_ENUM, ".test.pack.Color"
        elif chance < 0.2:
            field.type = Of.TYPE_MESSAGE
            field.type_name = f".google.protobuf.{rng.choice(('Timestamp', 'Duration'))}"
        elif chance < 0.27:
            field.type, field.type_name = Of.TYPE_MESSAGE, f".google.protobuf.{rng.choice(WRAPPERS)}Value"
        elif chance < 0.45 and depth:
            field.type = Of.TYPE_GROUP if self.syntax == "proto2" and rng.random() < 0.3 else Of.TYPE_MESSAGE
            field.type_name = self.message(depth - 1)
            if self.syntax == "editions" and rng.random() < 0.3:
                field.options.features.message_encoding = descriptor_pb2.FeatureSet.DELIMITED
        else:
            field.type = rng.choice(SCALARS)

    def map(self, made: Any, field: Any, depth: int, full: str) -> None:
        entry = made.nested_type.add(name=f"{field.name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=1, type=self.rng.choice(KEYS))
        value = entry.field.add(name="value", number=2, label=1)
        self.type(value, depth - 1)
        while value.type in (Of.TYPE_GROUP, Of.TYPE_ENUM):
            value.ClearField("type_name")
            self.type(value, 0)
        value.options.ClearField("features")
        field.label, field.type, field.type_name = 3, Of.TYPE_MESSAGE, f"{full}.{entry.name}"


def varint(number: int) -> bytes:
    rest, data = number & ((1 << 64) - 1), bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])


def tag(number: int, wire: int) -> bytes:
    return varint(number << 3 | wire)


def value_of(rng: Random, message: Any, depth: int = 0) -> bytes:
    """A value of google's descriptor of a message."""
    parts = []
    entry = message.GetOptions().map_entry
    for field in message.fields:
        needed = entry and field.message_type is not None  # google looks for required fields in what is not there
        needed = needed or (field.is_required and rng.random() < 0.9)
        count = rng.choice((0, 1, 2, 5) if field.is_repeated else (0, 1, 1, 1, 2))
        parts += [_field(rng, field, depth) for _ in range(max(count, int(needed)))]
    if rng.random() < 0.2 and not entry:  # google takes entries with more than both as unknown
        parts.append(_unknown(rng))
    if rng.random() < 0.5:
        rng.shuffle(parts)
    return b"".join(parts)


def _unknown(rng: Random) -> bytes:
    number = rng.choice((45, 70_000))
    inner = tag(3, 0) + varint(5) + tag(9, 3) + tag(9, 4)
    return rng.choice(
        (
            tag(number, 0) + varint(rng.choice(NUMBERS)),
            tag(number, 1) + rng.randbytes(8),
            tag(number, 2) + b"\3abc",
            tag(number, 5) + rng.randbytes(4),
            tag(number, 3) + inner + tag(number, 4),
        )
    )


def _field(rng: Random, field: Any, depth: int) -> bytes:
    if field.type in (Of.TYPE_MESSAGE, Of.TYPE_GROUP):
        return _message(rng, field, depth)
    if field.is_repeated and field.type in (*PACKABLE, Of.TYPE_ENUM) and rng.random() < 0.5:
        data = b"".join(_scalar(rng, field.type)[1] for _ in range(rng.randint(0, 4)))
        return tag(field.number, 2) + varint(len(data)) + data
    wire, data = _scalar(rng, field.type)
    return tag(field.number, wire) + data


def _message(rng: Random, field: Any, depth: int) -> bytes:
    name = field.message_type.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        data = tag(1, 0) + varint(rng.choice((0, 1, -1, 1_700_000_000, -(1 << 35))))
        data += tag(2, 0) + varint(rng.choice((0, 1, 999, -999, 999_999_999, -1001))) if rng.random() < 0.8 else b""
    else:
        data = value_of(rng, field.message_type, depth + 1)
    if field.type == Of.TYPE_GROUP:
        return tag(field.number, 3) + data + tag(field.number, 4)
    return tag(field.number, 2) + varint(len(data)) + data


def _scalar(rng: Random, kind: int) -> tuple[int, bytes]:
    if kind in FIXED:
        form = FIXED[kind]
        value: Any = rng.choice((0.0, -0.0, 1.5, float("inf"), float("nan"), 2e30)) if form[1] in "df" else 0
        if form[1] not in "df":
            value = rng.choice((0, 1, 7, (1 << 31) - 1, *((-1,) if form[1] in "qi" else ())))
        data = struct.pack(form, value)
        return (1 if len(data) == 8 else 5), data
    if kind == Of.TYPE_STRING:
        data = rng.choice(TEXTS).encode()
        return 2, varint(len(data)) + data
    if kind == Of.TYPE_BYTES:
        data = rng.randbytes(rng.choice((0, 0, 1, 5, 20)))
        return 2, varint(len(data)) + data
    if kind == Of.TYPE_BOOL:
        return 0, varint(rng.choice((0, 1, 1, 2)))
    if kind == Of.TYPE_ENUM:
        return 0, varint(rng.choice((0, 1, -5, 1 << 30, 1, 1, 2, -6)))
    return 0, varint(rng.choice(NUMBERS))


def damaged(rng: Random, value: bytes) -> bytes:
    """A value with some bytes changed, left out or put in."""
    data = bytearray(value)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        chance = rng.randrange(5)
        if chance == 0:
            del data[at:]
        elif chance == 1:
            data[at:at] = rng.choice(
                (b"\x80", b"\xff\xff\xff\xff\x0f", b"\0", b"\xed\xa0\x80", b"\x0b\x0c", rng.randbytes(2))
            )
        elif at < len(data):
            data[at] = rng.choice((data[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0xFF, 0))
    return bytes(data)


def case_of(rng: Random, values: int = 6, good: bool = True) -> Case:
    """A random case: the values are sound, or damaged too."""
    making = Making(rng)
    name = making.message(3).removeprefix(".")
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet()
    for each in WELL_KNOWN:
        each.CopyToProto(files.file.add())
        pool.Add(files.file[-1])
    files.file.append(making.file)
    pool.Add(making.file)
    descriptor = pool.FindMessageTypeByName(name)
    data = [value_of(rng, descriptor) for _ in range(values)]
    if not good:
        data = [damaged(rng, value) if rng.random() < 0.8 else value for value in data]
    return Case(files.SerializeToString(), name, message_factory.GetMessageClass(descriptor), tuple(data))
