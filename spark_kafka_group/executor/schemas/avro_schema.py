"""Avro schemas as values, parsed as Java's Avro 1.12 parses them for Spark.

A named type stands once in ``AvroSchema.named``; a ``Reference`` stands wherever it is used, so that a recursive schema
is a finite value. Sizes are bounded, as a registry may hold anybody's text.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_TEXT = 8 << 20
"""Most characters of a schema."""
MAX_DEPTH = 100
"""Most types inside each other."""
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
        "local-timestamp-micros", "local-timestamp-nanos",
    ),
    "string": ("uuid",),
    "bytes": ("decimal", "big-decimal"),
    "fixed": ("decimal", "uuid", "duration"),
}  # fmt: skip
"""The logical types of each type. Others, and those that do not fit, are ignored, as the specification says."""


class AvroSchemaError(ValueError):
    """Raised when a text is no Avro schema that Spark reads."""


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT = _NoDefault()


@dataclass(frozen=True)
class Primitive:
    """A type without name; `precision` and `scale` are those of a decimal, `own_type` is the name of a Spark type."""

    kind: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    own_type: str | None = None


@dataclass(frozen=True)
class Array:
    """An array of `items`."""

    items: Node


@dataclass(frozen=True)
class Map:
    """A map from strings to `values`."""

    values: Node


@dataclass(frozen=True)
class Union:
    """One of `branches`."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class NamedReference:
    """A record, enum or fixed, by its full name."""

    name: str


@dataclass(frozen=True)
class Fixed:
    """`size` bytes."""

    name: str
    size: int
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    aliases: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Enum:
    """One of `symbols`; a reader takes `default` for a symbol that it does not know."""

    name: str
    symbols: tuple[str, ...]
    default: str | None = None
    aliases: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Field:
    """A field of a record; `default` is JSON, or NO_DEFAULT."""

    name: str
    schema: Node
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class RecordType:
    """Fields in order."""

    name: str
    fields: tuple[Field, ...]
    aliases: tuple[str, ...] = field(default=(), compare=False)


Node = Primitive | Array | Map | Union | NamedReference
Named = Fixed | Enum | RecordType


@dataclass(frozen=True)
class AvroSchema:
    """A schema and the named types in it. Two are equal if they differ in aliases and documentation only."""

    root: Node
    named: Mapping[str, Named]

    def definition(self, node: Node) -> Primitive | Array | Map | Union | Named:
        """The type itself, where `node` may be a reference to it."""
        return self.named[node.name] if isinstance(node, NamedReference) else node


def name_of(node: Node | Named) -> str:
    """What messages call a type: a full name, or the kind."""
    if isinstance(node, Primitive):
        return node.kind
    return node.name if isinstance(node, NamedReference | Named) else type(node).__name__.lower()


def parse(text: str) -> AvroSchema:
    """An Avro schema from its JSON.

    Raises
    ------
    AvroSchemaError
        In one sentence, with the name of the type where there is one.
    """
    if len(text) > MAX_TEXT:
        raise AvroSchemaError(f"the Avro schema has {len(text)} characters, and {MAX_TEXT} are allowed")
    try:
        given = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"the Avro schema is no JSON: {shortened(str(error))}") from None
    parser = _SchemaParser()
    try:
        root = parser.node(given, None, 0)
    except RecursionError:  # by repr() of what is no type
        raise AvroSchemaError(
            f"the Avro schema has values too deep where a type belongs: {shortened(text)!r}"
        ) from None
    unknown = sorted(parser.referred - parser.named.keys())
    if unknown:
        raise AvroSchemaError(f"the Avro schema has no type {shortened(unknown[0])}, which it names")
    parser.check_unions()
    return AvroSchema(root, parser.named)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def shortened(value: object) -> str:
    """A name or value of others, as an error shows it."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


class _SchemaParser:
    """One parse of a schema: the named types found, and those only referred to yet."""

    def __init__(self) -> None:
        self.named: dict[str, Named] = {}
        self.referred: set[str] = set()
        self._unions: list[Union] = []
        self._objects: dict[str, Callable[[dict[str, Any], str | None, int], Node]] = {
            "record": self._record, "error": self._record, "enum": self._enum, "fixed": self._fixed,
            "array": lambda given, space, depth: Array(self._inner(given, "items", space, depth)),
            "map": lambda given, space, depth: Map(self._inner(given, "values", space, depth)),
        }  # fmt: skip

    def node(self, given: Any, space: str | None, depth: int) -> Node:
        """A type from its JSON, in the namespace `space`."""
        if depth > MAX_DEPTH:
            raise AvroSchemaError(f"the Avro schema has more than {MAX_DEPTH} types inside each other")
        if isinstance(given, str):
            return self._called(given, space)
        if isinstance(given, list):
            union = Union(tuple(self.node(branch, space, depth + 1) for branch in given))
            self._unions.append(union)
            return union
        if not isinstance(given, dict):
            raise AvroSchemaError(f"{shortened(given)} is no Avro type: give a name, an object or a union")
        kind = given.get("type")
        if not isinstance(kind, str):
            raise AvroSchemaError(f"an Avro type has no type name in its 'type': {shortened(given)}")
        if kind in PRIMITIVES:
            return Primitive(kind, *_logical(given, kind), own_type=_text(given, "spark.sql.catalyst.type"))
        made = self._objects.get(kind)
        return made(given, space, depth) if made else self._called(kind, space)

    def _called(self, name: str, space: str | None) -> Node:
        if name in PRIMITIVES:
            return Primitive(name)
        full = f"{space}.{name}" if space and "." not in name else name
        if full not in self.named and name in self.named:
            full = name
        self.referred.add(full)
        return NamedReference(full)

    def _inner(self, given: dict[str, Any], key: str, space: str | None, depth: int) -> Node:
        if key not in given:
            raise AvroSchemaError(f"an Avro {given['type']} has no '{key}'")
        return self.node(given[key], space, depth + 1)

    def _record(self, given: dict[str, Any], space: str | None, depth: int) -> Node:
        name, inner = _name(given, space)
        listed = given.get("fields")
        if not isinstance(listed, list):
            raise AvroSchemaError(f"the record {name} has no fields")
        fields: dict[str, Field] = {}
        for each in listed:
            made = self._field(each, name, inner, depth)
            if made.name in fields:
                raise AvroSchemaError(f"the record {name} has the field {made.name} twice")
            fields[made.name] = made
        return self._defined(RecordType(name, tuple(fields.values()), _aliases(given, inner)))

    def _field(self, given: Any, record: str, space: str | None, depth: int) -> Field:
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            raise AvroSchemaError(f"the record {record} has a field without name")
        name = _checked_name(given["name"])
        if "type" not in given:
            raise AvroSchemaError(f"the field {name} of the record {record} has no type")
        schema = self.node(given["type"], space, depth + 1)
        default = given.get("default", NO_DEFAULT)
        if isinstance(default, str) and isinstance(schema, Primitive) and schema.kind in ("float", "double"):
            default = _number(default)
        aliases = tuple(given["aliases"]) if _aliases(given, None, qualify=False) else ()
        return Field(name, schema, default, aliases)

    def _enum(self, given: dict[str, Any], space: str | None, _: int) -> Node:
        name, inner = _name(given, space)
        listed = given.get("symbols")
        if not isinstance(listed, list) or not all(isinstance(symbol, str) for symbol in listed):
            raise AvroSchemaError(f"the enum {name} has no symbols")
        symbols = tuple(_checked_name(symbol) for symbol in listed)
        if len(set(symbols)) < len(symbols):
            raise AvroSchemaError(f"the enum {name} has a symbol twice")
        default = given.get("default")
        if isinstance(default, str) and default not in symbols:
            raise AvroSchemaError(f"the enum {name} has not the symbol {shortened(default)}, its default")
        return self._defined(Enum(name, symbols, default if isinstance(default, str) else None, _aliases(given, inner)))

    def _fixed(self, given: dict[str, Any], space: str | None, _: int) -> Node:
        name, inner = _name(given, space)
        size = given.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
            raise AvroSchemaError(f"the fixed {name} has no size from 0 to 2147483647")
        return self._defined(Fixed(name, size, *_logical(given, "fixed", size), aliases=_aliases(given, inner)))

    def _defined(self, made: Named) -> NamedReference:
        if made.name in PRIMITIVES:
            raise AvroSchemaError(f"a type of an Avro schema has the name {made.name}, which is taken")
        if made.name in self.named:
            raise AvroSchemaError(f"the Avro schema has the type {made.name} twice")
        self.named[made.name] = made
        return NamedReference(made.name)

    def check_unions(self) -> None:
        """Unions have no union in them, and no type twice."""
        for union in self._unions:
            if any(isinstance(branch, Union) for branch in union.branches):
                raise AvroSchemaError("the Avro schema has a union in a union")
            counts = Counter(name_of(branch) for branch in union.branches)
            for name, count in counts.most_common(1):
                if count > 1:
                    raise AvroSchemaError(f"a union of the Avro schema has {shortened(name)} {count} times")


def _text(given: dict[str, Any], key: str) -> str | None:
    value = given.get(key)
    return value if isinstance(value, str) else None


def _name(given: dict[str, Any], space: str | None) -> tuple[str, str | None]:
    """A type's full name, and the namespace of the types in it."""
    name = given.get("name")
    if not isinstance(name, str):
        raise AvroSchemaError(f"an Avro {given['type']} has no name")
    own = _text(given, "namespace")
    space = space if own is None else own
    before, dot, last = name.rpartition(".")
    space = (before if dot else space) or None
    _checked_name(last)
    return f"{space}.{last}" if space else last, space


def _checked_name(name: str) -> str:
    """Letters, digits and underscores, of any language, as Java's Avro takes them."""
    kinds = [unicodedata.category(character) for character in name]
    if not name or not all(kind[0] == "L" or kind == "Nd" or c == "_" for kind, c in zip(kinds, name, strict=True)):
        raise AvroSchemaError(f"{shortened(repr(name))} is no Avro name: letters, digits and underscores")
    if kinds[0] == "Nd":
        raise AvroSchemaError(f"{shortened(repr(name))} is no Avro name: it begins with a digit")
    return name


def _aliases(given: dict[str, Any], space: str | None, qualify: bool = True) -> tuple[str, ...]:
    """Other names of a type, in full."""
    listed = given.get("aliases")
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(isinstance(alias, str) for alias in listed):
        raise AvroSchemaError(f"{shortened(given.get('name'))} has aliases that are no list of names")
    return tuple(f"{space}.{alias}" if qualify and space and "." not in alias else alias for alias in listed)


def _number(text: str) -> Any:
    """The default of a float that is written as text: as NaN, which JSON does not have."""
    try:
        return float(text)
    except ValueError:
        raise AvroSchemaError(f"{shortened(text)} is no number, for the default of a float or double") from None


def _logical(given: dict[str, Any], kind: str, size: int = 0) -> tuple[str | None, int, int]:
    """The logical type with precision and scale, or nothing where it does not fit the type."""
    logical = given.get("logicalType")
    if not isinstance(logical, str) or logical not in LOGICAL.get(kind, ()):
        return None, 0, 0
    if logical != "decimal":
        fits = kind != "fixed" or size == {"uuid": 16, "duration": 12}[logical]
        return (logical if fits else None), 0, 0
    precision, scale = (_whole(given.get(key, missing)) for key, missing in (("precision", None), ("scale", 0)))
    if precision is None or scale is None or not 0 < precision < 1 << 31 or not 0 <= scale <= precision:
        return None, 0, 0
    if kind == "fixed" and precision > math.floor(math.log10(2) * (8 * size - 1)):
        return None, 0, 0
    return logical, precision, scale


def _whole(number: Any) -> int | None:
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def is_null(node: Node | Named) -> bool:
    """Whether a union's branch is the null."""
    return isinstance(node, Primitive) and node.kind == "null"


def with_references(text: str, others: Sequence[str]) -> str:
    """A schema with the named types of `others` written where the schema first names them, as registries keep
    schemas that refer to others. Raises AvroSchemaError where one of them is no JSON."""
    missing: dict[str, dict[str, Any]] = {}
    try:
        whole, parts = json.loads(text), [json.loads(other) for other in others]
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"the Avro schema, or a schema that it refers to, is no JSON: {error}") from None
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("name"), str):
            space = part.get("namespace")
            full = f"{space}.{part['name']}" if space and "." not in part["name"] else part["name"]
            missing[full] = part | {"name": full.rpartition(".")[2], "namespace": full.rpartition(".")[0]}
    return json.dumps(_filled(whole, "", missing, 0))


def _filled(node: Any, space: str, missing: dict[str, dict[str, Any]], depth: int) -> Any:
    """`node` with the types it lacks; each is taken out of `missing` as it is written."""
    if depth > MAX_DEPTH:
        raise AvroSchemaError(f"the Avro schema has more than {MAX_DEPTH} types inside each other")
    if isinstance(node, str):
        full = node if "." in node or not space else f"{space}.{node}"
        found = missing.pop(full, None) or missing.pop(node, None)
        return node if found is None else _filled(found, space, missing, depth + 1)
    if isinstance(node, list):
        return [_filled(branch, space, missing, depth + 1) for branch in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("name"), str):
        own = node["name"].rpartition(".")[0]
        space = own or (node["namespace"] if isinstance(node.get("namespace"), str) else space)
    filled = dict(node)
    for key in ("type", "items", "values"):
        if key in node:
            filled[key] = _filled(node[key], space, missing, depth + 1)
    if isinstance(node.get("fields"), list):
        filled["fields"] = [
            each | {"type": _filled(each["type"], space, missing, depth + 1)}
            if isinstance(each, dict) and "type" in each else each
            for each in node["fields"]
        ]  # fmt: skip
    return filled


def fields_beyond(writer: AvroSchema, reader: AvroSchema) -> list[str]:
    """Names of the writer's fields that the reader's record does not have, nor as aliases; of the outermost record."""
    written, read = writer.definition(writer.root), reader.definition(reader.root)
    if not isinstance(written, RecordType) or not isinstance(read, RecordType):
        return []
    known = {name for field in read.fields for name in (field.name, *field.aliases)}
    return [field.name for field in written.fields if field.name not in known]
