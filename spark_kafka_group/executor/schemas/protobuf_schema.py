"""Protobuf messages as values: what a decoder and Spark's type need of them, whether a file of descriptors or a .proto
text has said it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from spark_kafka_group.text.foreign_text import printable

MAX_TEXT = 8 << 20
"""Most characters of a schema, and bytes of a file of descriptors."""
MAX_DEPTH = 100
"""Most messages inside each other."""
MESSAGE, ENUM, MAP_KEY, MAP_VALUE = "message", "enum", "key", "value"
SCALARS = (
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32",
    "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip


class ProtobufSchemaError(ValueError):
    """Raised when a schema cannot be read, or has no such message. The schema's names may be of any characters."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


@dataclass(frozen=True)
class ProtobufField:
    """A field of a message.

    Attributes
    ----------
    kind
        One of SCALARS, ``message`` or ``enum``; the last two have a `type_name`.
    delimited
        Whether a message is written as a group.
    presence
        Whether an absent field differs from one with the default value.
    oneof
        The number of the oneof that the field is in, in its message.
    checked
        Whether a text that is no UTF-8 makes the value malformed.
    closed
        Whether numbers that an enum does not have are unknown fields.
    default
        Its text in the schema: of an enum the number, of bytes a character for each.
    packed
        Whether the items of a list are written behind each other, without a tag for each.
    """

    name: str
    number: int
    kind: str
    type_name: str = ""
    repeated: bool = False
    required: bool = False
    delimited: bool = False
    presence: bool = False
    oneof: int | None = None
    checked: bool = False
    closed: bool = False
    default: str | None = None
    packed: bool = False


@dataclass(frozen=True)
class ProtobufMessage:
    """A message: its fields in the order of the schema, and where it is in its file.

    `paths`: Confluent's message indexes, which Java's serializers count without the entries of maps, and others with.
    """

    name: str
    fields: tuple[ProtobufField, ...]
    map_entry: bool = False
    paths: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class ProtobufEnum:
    """The names and numbers of an enum, in the order of the schema."""

    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class ProtobufSchema:
    """Messages and enums by their full names; `first` are the names of the messages in the file that was asked for."""

    messages: Mapping[str, ProtobufMessage]
    enums: Mapping[str, ProtobufEnum]
    first: tuple[str, ...] = field(default=(), compare=False)

    def message(self, name: str | None) -> ProtobufMessage:
        """A message by its full or simple name; None is the first one.

        Raises
        ------
        ProtobufSchemaError
        """
        if name is None:
            if not self.first:
                raise ProtobufSchemaError("the schema has no message")
            return self.messages[self.first[0]]
        if name in self.messages:
            return self.messages[name]
        found = [full for full in self.first if full.endswith(f".{name}")]
        if len(found) == 1:
            return self.messages[found[0]]
        if found:
            raise ProtobufSchemaError(
                f"the schema has {len(found)} messages {name}: give the full name, such as {found[0]}"
            )
        raise ProtobufSchemaError(f"the schema has no message {name}: it has {', '.join(self.first[:20])}")

    def only(self, name: str) -> ProtobufSchema:
        """The schema with only a message, and the types that it needs."""
        messages: dict[str, ProtobufMessage] = {}
        enums: dict[str, ProtobufEnum] = {}
        needed = [name]
        while needed:
            each = needed.pop()
            if each in self.enums:
                enums[each] = self.enums[each]
            elif each not in messages:
                messages[each] = self.messages[each]
                needed += [one.type_name for one in self.messages[each].fields if one.type_name]
        return ProtobufSchema(messages, enums, (name,))


def as_text(schema: ProtobufSchema) -> str:
    """A schema as JSON, which travels to the tasks."""
    return json.dumps(
        {
            "messages": [asdict(message) for message in schema.messages.values()],
            "enums": [asdict(enum) for enum in schema.enums.values()],
            "first": schema.first,
        },
        separators=(",", ":"),
    )


def of_text(text: str) -> ProtobufSchema:
    """The schema of ``as_text``."""
    given = json.loads(text)
    messages = [
        ProtobufMessage(
            each["name"],
            tuple(ProtobufField(**one) for one in each["fields"]),
            each["map_entry"],
            tuple(map(tuple, each["paths"])),
        )
        for each in given["messages"]
    ]
    enums = [ProtobufEnum(each["name"], tuple((name, n) for name, n in each["values"])) for each in given["enums"]]
    return ProtobufSchema(
        {message.name: message for message in messages}, {enum.name: enum for enum in enums}, tuple(given["first"])
    )
