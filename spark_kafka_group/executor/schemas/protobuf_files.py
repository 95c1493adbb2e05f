"""Files of Protobuf as they are declared, and the schema that they are together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from spark_kafka_group.executor.schemas.protobuf_schema import (
    ENUM,
    MESSAGE,
    SCALARS,
    ProtobufEnum,
    ProtobufField,
    ProtobufMessage,
    ProtobufSchema,
    ProtobufSchemaError,
)

GROUP = "group"
OPTIONAL, REQUIRED, REPEATED = "optional", "required", "repeated"
PRESENCE, ENUM_TYPE, UTF8, ENCODING = "field_presence", "enum_type", "utf8_validation", "message_encoding"
LISTS, PACKED, EXPANDED = "repeated_field_encoding", "PACKED", "EXPANDED"
EDITIONS: dict[str, dict[str, str]] = {
    "proto2": {PRESENCE: "EXPLICIT", ENUM_TYPE: "CLOSED", UTF8: "NONE", LISTS: EXPANDED},
    "proto3": {PRESENCE: "IMPLICIT", ENUM_TYPE: "OPEN", UTF8: "VERIFY", LISTS: PACKED},
    "2023": {PRESENCE: "EXPLICIT", ENUM_TYPE: "OPEN", UTF8: "VERIFY", LISTS: PACKED},
    "2024": {PRESENCE: "EXPLICIT", ENUM_TYPE: "OPEN", UTF8: "VERIFY", LISTS: PACKED},
}
"""What each edition means where a file says nothing else."""
MAX_TYPES = 20_000
MAX_NUMBER = (1 << 29) - 1
Features = dict[str, str]


@dataclass
class DeclaredField:
    """A field; `kind` is a scalar's, ``group``, or empty for a `type_name` that may be an enum's too."""

    name: str
    number: int
    kind: str = ""
    type_name: str = ""
    label: str = ""
    default: str | None = None
    oneof: int | None = None
    features: Features = field(default_factory=dict)


@dataclass
class DeclaredEnum:
    """An enum."""

    name: str
    values: list[tuple[str, int]] = field(default_factory=list)
    features: Features = field(default_factory=dict)


@dataclass
class DeclaredMessage:
    """A message, with the types in it; `oneofs` are the features of each."""

    name: str
    fields: list[DeclaredField] = field(default_factory=list)
    messages: list[DeclaredMessage] = field(default_factory=list)
    enums: list[DeclaredEnum] = field(default_factory=list)
    oneofs: list[Features] = field(default_factory=list)
    map_entry: bool = False
    features: Features = field(default_factory=dict)


@dataclass
class DeclaredFile:
    """A file."""

    name: str
    package: str = ""
    edition: str = "proto2"
    messages: list[DeclaredMessage] = field(default_factory=list)
    enums: list[DeclaredEnum] = field(default_factory=list)
    features: Features = field(default_factory=dict)


@dataclass(frozen=True)
class _Found:
    """A type and what is known where it is declared."""

    name: str
    declared: DeclaredMessage | DeclaredEnum
    edition: str
    features: Features
    paths: tuple[tuple[int, ...], ...] = ()


def linked(
    files: Iterable[DeclaredFile], first: str | None = None, others: Iterable[DeclaredFile] = ()
) -> ProtobufSchema:
    """The schema of files that need each other; `first` is the name of the file that was asked for, None all of them.

    `others`: files whose types count where the files do not have them.

    Raises
    ------
    ProtobufSchemaError
        When there is no type of a name, or one of a name that comes twice.
    """
    found: dict[str, _Found] = {}
    of_first: list[str] = []
    for file in files:
        for each in _types(file):
            if each.name in found:
                raise ProtobufSchemaError(f"the schema has the type {each.name} twice")
            if len(found) >= MAX_TYPES:
                raise ProtobufSchemaError(f"the schema has more than {MAX_TYPES} types")
            found[each.name] = each
            if (
                first in (None, file.name)
                and isinstance(each.declared, DeclaredMessage)
                and not each.declared.map_entry
            ):
                of_first.append(each.name)
    for file in others:
        for each in _types(file):
            found.setdefault(each.name, each)
    messages, enums = {}, {}
    for name, each in found.items():
        if isinstance(each.declared, DeclaredEnum):
            enums[name] = ProtobufEnum(name, tuple(each.declared.values))
        else:
            fields = tuple(_field(one, each, each.declared, found) for one in each.declared.fields)
            _check(name, fields, each.declared.map_entry)
            messages[name] = ProtobufMessage(name, fields, each.declared.map_entry, each.paths)
    return ProtobufSchema(messages, enums, tuple(of_first))


def names_at(file: DeclaredFile, path: tuple[int, ...]) -> frozenset[str]:
    """The full names of the messages that Confluent's message indexes may mean."""
    return frozenset(each.name for each in _types(file) if path in each.paths)


def fields_beyond(file: DeclaredFile, schema: ProtobufSchema) -> list[str]:
    """The fields of a file that the messages of a schema do not have, each with the message's name."""
    more = []
    for each in _types(file):
        if isinstance(each.declared, DeclaredMessage) and each.name in schema.messages:
            known = {field.number for field in schema.messages[each.name].fields}
            simple = each.name.rpartition(".")[2]
            more += [f"{simple}.{field.name}" for field in each.declared.fields if field.number not in known]
    return more


def _check(name: str, fields: tuple[ProtobufField, ...], map_entry: bool) -> None:
    """Refuse what protoc would not have written."""
    for what, each in (("name", {one.name for one in fields}), ("number", {one.number for one in fields})):
        if len(each) < len(fields):
            raise ProtobufSchemaError(f"the message {name} has two fields with one {what}")
    if not all(0 < one.number <= MAX_NUMBER for one in fields):
        raise ProtobufSchemaError(f"the message {name} has a field whose number is not from 1 to {MAX_NUMBER}")
    if map_entry and (
        [(one.name, one.number, one.repeated) for one in fields] != [("key", 1, False), ("value", 2, False)]
        or fields[0].kind in ("double", "float", "bytes", MESSAGE, ENUM)
    ):
        raise ProtobufSchemaError(f"the message {name} is no entry of a map")


def _types(file: DeclaredFile) -> Iterator[_Found]:
    if file.edition not in EDITIONS:
        raise ProtobufSchemaError(f"{file.name} has the edition {file.edition}, which is not known here")
    features = EDITIONS[file.edition] | file.features
    for enum in file.enums:
        yield _Found(_joined(file.package, enum.name), enum, file.edition, features | enum.features)
    yield from _inner(file.messages, file.package, file.edition, features, ((), ()))


def _inner(
    messages: list[DeclaredMessage], scope: str, edition: str, features: Features, paths: tuple[tuple[int, ...], ...]
) -> Iterator[_Found]:
    """Messages and the types in them. Of the two paths the first counts no entries of maps."""
    counted = 0
    for number, message in enumerate(messages):
        name, own = _joined(scope, message.name), features | message.features
        both = ((*paths[0], counted), (*paths[1], number))
        counted += not message.map_entry
        yield _Found(name, message, edition, own, tuple(dict.fromkeys(both)))
        for enum in message.enums:
            yield _Found(_joined(name, enum.name), enum, edition, own | enum.features)
        yield from _inner(message.messages, name, edition, own, both)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _field(one: DeclaredField, at: _Found, message: DeclaredMessage, found: Mapping[str, _Found]) -> ProtobufField:
    features = at.features | (message.oneofs[one.oneof] if one.oneof is not None else {}) | one.features
    kind, type_name, closed = one.kind, "", False
    is_map = False
    if kind not in SCALARS:
        type_name = _resolved(one, at.name, found)
        declared = found[type_name].declared
        kind = ENUM if isinstance(declared, DeclaredEnum) else MESSAGE
        # as Java, which takes enums in files of proto2 as closed wherever they are declared
        closed = kind == ENUM and "CLOSED" in (found[type_name].features[ENUM_TYPE], EDITIONS[at.edition][ENUM_TYPE])
        is_map = isinstance(declared, DeclaredMessage) and declared.map_entry
    repeated = one.label == REPEATED
    delimited = one.kind == GROUP or (features.get(ENCODING) == "DELIMITED" and not is_map and not message.map_entry)
    explicit = kind == MESSAGE or one.oneof is not None or one.label == OPTIONAL or features[PRESENCE] != "IMPLICIT"
    return ProtobufField(
        one.name,
        one.number,
        kind,
        type_name,
        repeated,
        required=one.label == REQUIRED or (features[PRESENCE] == "LEGACY_REQUIRED" and not repeated),
        delimited=delimited and kind == MESSAGE,
        presence=explicit and not repeated,
        oneof=one.oneof,
        checked=kind == "string" and (message.map_entry or features[UTF8] == "VERIFY"),
        closed=closed,
        default=_default(one, kind, type_name, found),
        packed=repeated and kind not in ("string", "bytes", MESSAGE) and features[LISTS] == PACKED,
    )


def _resolved(one: DeclaredField, scope: str, found: Mapping[str, _Found]) -> str:
    """The full name of a field's type: as in C++, the innermost scope that has the name counts."""
    if one.type_name.startswith("."):
        candidates = [one.type_name[1:]]
    else:
        parts = scope.split(".")
        candidates = [".".join((*parts[:size], one.type_name)) for size in range(len(parts), -1, -1)]
    for each in candidates:
        if each in found:
            return each
    raise ProtobufSchemaError(
        f"the schema has no type {one.type_name.lstrip('.')}, which the field {scope}.{one.name} has: put it into the "
        f"schema's text, or give a file of descriptors that protoc has written with --include_imports"
    )


def _default(one: DeclaredField, kind: str, type_name: str, found: Mapping[str, _Found]) -> str | None:
    """The default's text, of an enum its number; an enum without presence has 0."""
    if one.default is None or kind in ("string", "bytes", "bool", MESSAGE):
        return one.default
    if kind != ENUM:
        try:
            return str(float(one.default) if kind in ("float", "double") else int(one.default))
        except ValueError as error:
            raise ProtobufSchemaError(f"the field {one.name} has a default that is no number") from error
    enum = found[type_name].declared
    assert isinstance(enum, DeclaredEnum)
    numbers = dict(reversed(enum.values))
    if one.default not in numbers:
        raise ProtobufSchemaError(f"the enum {type_name} has no value {one.default}, the default of {one.name}")
    return str(numbers[one.default])
