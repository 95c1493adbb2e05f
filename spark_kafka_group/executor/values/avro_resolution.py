"""Which type of a reader's schema a type of a writer's schema is read as: the rules of Java's Avro (``Resolver``).

They differ from the specification's text where Java's do: records match by any name, fixed and enums by the last part
of their names, and a branch of a union is looked for by exact type, then by structure of records, then by promotion.
"""

from __future__ import annotations

from collections import Counter

from spark_kafka_group.executor.schemas.avro_schema import (
    NO_DEFAULT,
    Array,
    AvroSchema,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Node,
    Primitive,
    RecordType,
    Union,
    name_of,
)

PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
Type = Primitive | Array | Map | Union | Named


class UnresolvableError(ValueError):
    """Raised when no value of a writer's schema can be read with the reader's; the text says why."""


class SchemaResolution:
    """A pair of schemas, with the reader's aliases applied to the writer's names.

    Raises
    ------
    UnresolvableError
        When an alias gives a record of the writer the same field twice.
    """

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        self.writer, self.reader = writer, reader
        self._names: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        if writer != reader:
            self._take_aliases()
            self._check_fields()

    def _take_aliases(self) -> None:
        for named in self.reader.named.values():
            self._names |= dict.fromkeys(named.aliases, named.name)
            if isinstance(named, RecordType):
                renamed = {alias: field.name for field in named.fields for alias in field.aliases}
                self._fields |= dict.fromkeys((named.name, *named.aliases), renamed)

    def _check_fields(self) -> None:
        for record in self.writer.named.values():
            names = (
                [self.field_name(record, field) for field in record.fields] if isinstance(record, RecordType) else []
            )
            for name, count in Counter(names).most_common(1):
                if count > 1:
                    raise UnresolvableError(
                        f"the reader schema's aliases give the writer's record {record.name} the field {name} twice"
                    )

    def name(self, writer: Named) -> str:
        """The full name of a writer's type, as the reader calls it."""
        return self._names.get(writer.name, writer.name)

    def field_name(self, record: RecordType, field: Field) -> str:
        """A writer's field, as the reader calls it."""
        return self._fields.get(self.name(record), {}).get(field.name, field.name)

    def missing(self, writer: RecordType, reader: RecordType) -> str | None:
        """A field of the reader that the writer does not have, and that has no default."""
        written = {self.field_name(writer, field) for field in writer.fields}
        return next((f.name for f in reader.fields if f.name not in written and f.default is NO_DEFAULT), None)

    def why_not(self, writer: Node, reader: Node) -> str | None:
        """Why no value of `writer` is read as `reader`; None where all, or only some, are."""
        w, r = self.writer.definition(writer), self.reader.definition(reader)
        if isinstance(w, Union):
            return None
        if kind(w) == kind(r):
            return self._why_named_not(w, r)
        if isinstance(r, Union):
            return None if self.branch(writer, r) is not None else _others(w, r)
        return None if kind(r) in PROMOTIONS.get(kind(w), ()) else _others(w, r)

    def _why_named_not(self, w: Type, r: Type) -> str | None:
        if isinstance(w, RecordType) and isinstance(r, RecordType):
            missing = self.missing(w, r)
            return missing and f"the writer's record {w.name} has no field {missing}, which has no default"
        if isinstance(w, Fixed | Enum) and isinstance(r, Fixed | Enum):
            if last_part(self.name(w)) != last_part(r.name):
                return _others(w, r)
            if isinstance(w, Fixed) and isinstance(r, Fixed) and w.size != r.size:
                return f"the writer's {w.name} has {w.size} bytes, and the reader's {r.size}"
        return None

    def branch(self, writer: Node, reader: Union) -> int | None:
        """The branch of a reader's union that reads what is no union."""
        w = self.writer.definition(writer)
        similar: int | None = None
        for i, node in enumerate(reader.branches):
            r = self.reader.definition(node)
            if kind(w) != kind(r):
                continue
            if not isinstance(w, RecordType | Enum | Fixed) or not isinstance(r, RecordType | Enum | Fixed):
                return i
            if self.name(w) == r.name:
                return i
            nearer = similar is None or last_part(self.name(w)) == last_part(r.name)
            if nearer and isinstance(w, RecordType) and isinstance(r, RecordType) and self._similar(w, r):
                similar = i
        if similar is not None:
            return similar
        promotions = PROMOTIONS.get(kind(w), ())
        kinds = [kind(self.reader.definition(node)) for node in reader.branches]
        return next((i for i, found in enumerate(kinds) if found in promotions), None)

    def _similar(self, writer: RecordType, reader: RecordType) -> bool:
        if self.missing(writer, reader) is not None:
            return False
        read = {field.name: field for field in reader.fields}
        pairs = [(f.schema, read.get(self.field_name(writer, f))) for f in writer.fields]
        return all(found is None or self.why_not(schema, found.schema) is None for schema, found in pairs)

    def same_union(self, writer: Node, reader: Node, seen: frozenset[tuple[str, str]] = frozenset()) -> bool:
        """Whether two unions have the same branches, so that their numbers are the same."""
        w, r = self.writer.definition(writer), self.reader.definition(reader)
        if kind(w) != kind(r):
            return False
        if isinstance(w, Array) and isinstance(r, Array):
            return self.same_union(w.items, r.items, seen)
        if isinstance(w, Map) and isinstance(r, Map):
            return self.same_union(w.values, r.values, seen)
        if isinstance(w, Union) and isinstance(r, Union):
            pairs = zip(w.branches, r.branches, strict=False)
            return len(w.branches) == len(r.branches) and all(self.same_union(a, b, seen) for a, b in pairs)
        if isinstance(w, RecordType | Enum | Fixed) and isinstance(r, RecordType | Enum | Fixed):
            return last_part(self.name(w)) == last_part(r.name) and self._same_named(w, r, seen)
        return True

    def _same_named(self, w: Named, r: Named, seen: frozenset[tuple[str, str]]) -> bool:
        if isinstance(w, Fixed) and isinstance(r, Fixed):
            return w.size == r.size
        if isinstance(w, Enum) and isinstance(r, Enum):
            return w.symbols == r.symbols
        if not isinstance(w, RecordType) or not isinstance(r, RecordType) or len(w.fields) != len(r.fields):
            return False
        if (w.name, r.name) in seen:
            return True
        seen |= {(w.name, r.name)}
        pairs = zip(w.fields, r.fields, strict=True)
        return all(self.field_name(w, a) == b.name and self.same_union(a.schema, b.schema, seen) for a, b in pairs)


def kind(node: Type) -> str:
    """The kind of a type, as "int" or "record"."""
    return node.kind if isinstance(node, Primitive) else type(node).__name__.lower()


def last_part(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(".")[2]


def _others(w: Type, r: Type) -> str:
    return f"the writer's {name_of(w)} is not read as the reader's {name_of(r)}"
