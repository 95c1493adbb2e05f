"""How values of one writer's schema are read into the columns of a reader's schema: one flat program, made once.

What only some values hit, as a branch of a union that the reader does not have, is an instruction that fails; what
concerns all values is an ``UnresolvableError``.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_group.executor.schemas.avro_schema import (
    NO_DEFAULT,
    Array,
    AvroSchema,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    RecordType,
    Union,
    is_null,
)
from spark_kafka_group.executor.schemas.avro_types import WIDENED
from spark_kafka_group.executor.values.avro_defaults import encoded
from spark_kafka_group.executor.values.avro_instructions import Do, Instruction, Program
from spark_kafka_group.executor.values.avro_resolution import SchemaResolution, Type, UnresolvableError, kind
from spark_kafka_group.executor.values.value_columns import Column

MAX_INSTRUCTIONS = 1_000_000
MILLIS = ("timestamp-millis", "local-timestamp-millis", "time-micros")
"""Logical types of a long whose column counts in a thousandth of their unit."""


def program(writer: AvroSchema, reader: AvroSchema, columns: tuple[Column, ...]) -> Program:
    """The program that reads values of `writer` into columns of `reader`, some or all of its fields.

    Raises
    ------
    UnresolvableError
        When no value of `writer` can be read.
    """
    return _Maker(SchemaResolution(writer, reader), columns).made()


NUMBERS = {
    # what is written, what the reader's schema has, and the width of its column where there are two
    ("int", "int", 4): Do.INT,
    ("int", "int", 8): Do.INT_AS_LONG,
    ("int", "long", 8): Do.INT_AS_LONG,
    ("int", "float", 4): Do.INT_AS_FLOAT,
    ("int", "float", 8): Do.INT_AS_FLOAT_AS_DOUBLE,
    ("int", "double", 8): Do.INT_AS_DOUBLE,
    ("long", "long", 8): Do.LONG,
    ("long", "float", 4): Do.LONG_AS_FLOAT,
    ("long", "float", 8): Do.LONG_AS_FLOAT_AS_DOUBLE,
    ("long", "double", 8): Do.LONG_AS_DOUBLE,
    ("float", "float", 4): Do.FLOAT,
    ("float", "float", 8): Do.FLOAT_AS_DOUBLE,
    ("float", "double", 8): Do.FLOAT_AS_DOUBLE,
    ("double", "double", 8): Do.DOUBLE,
}
TIMES_1000 = {"int": Do.INT_TIMES_1000, "long": Do.LONG_TIMES_1000}
SKIPPED = {
    "int": Instruction(Do.SKIP_INT),
    "long": Instruction(Do.SKIP_LONG),
    "float": Instruction(Do.SKIP_FIXED, a=4),
    "double": Instruction(Do.SKIP_FIXED, a=8),
    "boolean": Instruction(Do.SKIP_FIXED, a=1),
    "string": Instruction(Do.SKIP_BYTES),
    "bytes": Instruction(Do.SKIP_BYTES),
}


class _Maker:
    """Writes one program."""

    def __init__(self, resolution: SchemaResolution, columns: tuple[Column, ...]) -> None:
        self._resolution = resolution
        self._writer, self._reader = resolution.writer, resolution.reader
        self._empty, self._empty_in_reader = _empty_records(self._writer), _empty_records(self._reader)
        self._columns = columns
        self._steps: list[Instruction] = []
        self._fields: list[str] = []
        self._field = ""
        self._places: list[tuple[int, ...]] = []
        self._symbols: list[tuple[bytes | None, ...]] = []
        self._constants: list[bytes] = []
        self._reasons: list[str] = []
        self._unlike: list[str] = []
        self._called: dict[str, list[int]] = {}

    def made(self) -> Program:
        self._read(self._writer.root, self._reader.root, 0)
        self._step(Do.END)
        self._skip_called()
        return Program(
            tuple(self._steps),
            tuple(self._fields),
            tuple(self._places),
            tuple(self._symbols),
            tuple(self._constants),
            tuple(self._reasons),
            tuple(dict.fromkeys(self._unlike)),
        )

    def _step(self, do: Do, c: int = -1, a: int = 0, b: int = 0) -> int:
        if len(self._steps) >= MAX_INSTRUCTIONS:
            raise UnresolvableError("the writer's schema needs too many steps to be read with the reader's")
        self._steps.append(Instruction(do, c, a, b))
        self._fields.append(self._columns[c].name if c >= 0 else self._field)
        return len(self._steps) - 1

    def _set(self, at: int, a: int, b: int = 0) -> None:
        self._steps[at] = self._steps[at]._replace(a=a, b=b)

    # --- what the reader has ------------------------------------------------------------------------------------------

    def _read(self, writer: Node, reader: Node, c: int) -> None:
        """Write how `writer` is read as `reader` into column `c`."""
        w, r = self._writer.definition(writer), self._reader.definition(reader)
        self._field = self._columns[c].name
        why_not = self._resolution.why_not(writer, reader)
        if why_not is not None:
            self._reasons.append(why_not)
            self._step(Do.FAIL, c, len(self._reasons) - 1)
        elif isinstance(w, Union):
            self._union(w, reader, c)
        elif isinstance(r, Union):
            self._into_union(writer, r, c)
        elif isinstance(w, RecordType) and isinstance(r, RecordType):
            self._record(w, r, c)
        elif isinstance(w, Array) and isinstance(r, Array):
            (child,) = self._columns[c].children
            self._loop(Do.LIST, Do.LIST_NEXT, c, w.items, lambda: self._read(w.items, r.items, child))
        elif isinstance(w, Map) and isinstance(r, Map):
            self._map(w, r, c)
        elif isinstance(w, Enum) and isinstance(r, Enum):
            known = {symbol: symbol.encode() for symbol in r.symbols}
            other = None if r.default is None else r.default.encode()
            self._symbols.append(tuple(known.get(symbol, other) for symbol in w.symbols))
            self._step(Do.ENUM, c, len(self._symbols) - 1)
        else:
            self._simple(w, r, c)

    def _union(self, writer: Union, reader: Node, c: int) -> None:
        r = self._reader.definition(reader)
        same = isinstance(r, Union) and self._resolution.same_union(writer, r)

        def read(i: int) -> None:
            branch = writer.branches[i]
            if same and isinstance(r, Union):
                self._into_branch(branch, r, i, c)
            else:
                self._read(branch, reader, c)

        self._branches(Do.UNION, len(writer.branches), read)

    def _branches(self, do: Do, count: int, each: Callable[[int], None]) -> None:
        table = len(self._places)
        self._places.append(())
        self._step(do, a=table)
        places, jumps = [], []
        for i in range(count):
            places.append(len(self._steps))
            each(i)
            jumps.append(self._step(Do.JUMP))
        self._places[table] = tuple(places)
        for jump in jumps:
            self._set(jump, len(self._steps))

    def _into_union(self, writer: Node, reader: Union, c: int) -> None:
        i = self._resolution.branch(writer, reader)
        assert i is not None  # why_not() has said so
        self._into_branch(writer, reader, i, c)

    def _into_branch(self, writer: Node, reader: Union, i: int, c: int) -> None:
        """Write how a writer's type is read into branch `i` of a reader's union, whose column is as Spark's."""
        branch = reader.branches[i]
        others = [node for node in reader.branches if not is_null(node)]
        if is_null(branch):
            self._step(Do.NULL, c)
        elif len(others) == 1 or frozenset(kind(self._reader.definition(node)) for node in others) in WIDENED:
            self._read(writer, branch, c)
        else:
            self._member(writer, branch, f"member{others.index(branch)}", c)

    def _member(self, writer: Node, reader: Node, name: str, c: int) -> None:
        self._step(Do.STRUCT, c)
        names = [field.name for field in self._columns[c].type]
        for found, child in zip(names, self._columns[c].children, strict=True):
            if found == name:
                self._read(writer, reader, child)
            else:
                self._step(Do.NULL, child)
        if name not in names:
            self._skip(writer)

    def _record(self, writer: RecordType, reader: RecordType, c: int) -> None:
        self._step(Do.STRUCT, c)
        names = [field.name for field in self._columns[c].type]
        columns = dict(zip(names, self._columns[c].children, strict=True))
        fields = {field.name: field for field in reader.fields}
        for field in writer.fields:
            name = self._resolution.field_name(writer, field)
            column = columns.pop(name, None)
            if column is not None:
                self._read(field.schema, fields[name].schema, column)
            else:
                self._field = f"{self._columns[c].name}.{field.name}".lstrip(".")
                self._skip(field.schema)
        for name, column in columns.items():
            self._default(fields[name], column)

    def _default(self, field: Field, c: int) -> None:
        assert field.default is not NO_DEFAULT  # why_not() has said so
        if field.default is None and self._may_be_null(field.schema):
            self._step(Do.NULL, c)
            return
        self._constants.append(encoded(self._reader, field))
        self._step(Do.DEFAULT, c, len(self._constants) - 1)
        outer = self._resolution, self._writer, self._empty
        self._resolution, self._writer = SchemaResolution(self._reader, self._reader), self._reader
        self._empty = self._empty_in_reader
        self._read(field.schema, field.schema, c)
        self._resolution, self._writer, self._empty = outer
        self._step(Do.DEFAULT_END)

    def _may_be_null(self, reader: Node) -> bool:
        r = self._reader.definition(reader)
        return any(map(is_null, r.branches)) if isinstance(r, Union) else kind(r) == "null"

    def _loop(self, begin: Do, following: Do, c: int, item: Node, body: Callable[[], None]) -> None:
        empty = self._has_no_bytes(item) if begin in (Do.LIST, Do.SKIP_LIST) else False
        start = self._step(begin, c)
        body()
        self._step(following, c, start + 1, int(empty))
        self._set(start, len(self._steps), int(empty))

    def _map(self, w: Map, r: Map, c: int) -> None:
        key, value = self._columns[c].children

        def body() -> None:
            self._step(Do.STRING, key)
            self._read(w.values, r.values, value)

        self._loop(Do.MAP, Do.MAP_NEXT, c, w.values, body)

    def _simple(self, w: Type, r: Type, c: int) -> None:
        unlike = _unlike(w, r)
        if unlike is not None:
            self._unlike.append(f"{self._columns[c].name or 'the value'} ({unlike})")
        width = self._columns[c].width
        logical = r.logical if isinstance(r, Primitive | Fixed) else None
        number = NUMBERS.get((kind(w), kind(r), width))
        if logical == "decimal" and isinstance(r, Primitive | Fixed):
            size = r.size if isinstance(r, Fixed) else 0
            self._step(Do.DECIMAL_FIXED if isinstance(r, Fixed) else Do.DECIMAL, c, r.precision, size)
        elif number is not None:
            thousand = logical in MILLIS and not self._is_plain_long(c)
            self._step(TIMES_1000[kind(w)] if thousand else number, c, b=int(thousand and logical == "time-micros"))
        elif isinstance(r, Fixed):
            self._step(Do.FIXED, c, r.size)
        else:
            do = {"null": Do.NULL, "boolean": Do.BOOLEAN, "string": Do.STRING, "bytes": Do.BYTES}[kind(r)]
            self._step(do, c)

    def _is_plain_long(self, c: int) -> bool:
        """Whether a column has no times, as that of a union of int and long."""
        return str(self._columns[c].type) == "int64"

    # --- what the reader does not have --------------------------------------------------------------------------------

    def _skip(self, writer: Node) -> None:
        w = self._writer.definition(writer)
        if isinstance(w, RecordType):
            if w.name not in self._empty:  # so each call reads a byte in the end
                self._called.setdefault(w.name, []).append(self._step(Do.CALL))
        elif isinstance(w, Array):
            self._loop(Do.SKIP_LIST, Do.SKIP_NEXT, -1, w.items, lambda: self._skip(w.items))
        elif isinstance(w, Map):
            self._loop(Do.SKIP_LIST, Do.SKIP_NEXT, -1, Primitive("string"), lambda: self._skip_entry(w))
        elif isinstance(w, Union):
            self._branches(Do.SKIP_UNION, len(w.branches), lambda i: self._skip(w.branches[i]))
        elif isinstance(w, Enum):
            self._step(Do.SKIP_INT)
        elif isinstance(w, Fixed):
            self._step(Do.SKIP_FIXED, a=w.size)
        elif not is_null(w):
            self._step(*SKIPPED[w.kind])

    def _skip_entry(self, w: Map) -> None:
        self._step(Do.SKIP_BYTES)
        self._skip(w.values)

    def _skip_called(self) -> None:
        """Write how each record is skipped, once, as they may have each other in them."""
        done: dict[str, int] = {}
        while self._called:
            name, calls = self._called.popitem()
            if name not in done:
                done[name] = len(self._steps)
                record = self._writer.named[name]
                for field in record.fields if isinstance(record, RecordType) else ():
                    self._skip(field.schema)
                self._step(Do.RETURN)
            for call in calls:
                self._set(call, done[name])

    def _has_no_bytes(self, node: Node) -> bool:
        """Whether no value of a writer's type has a byte."""
        w = self._writer.definition(node)
        return w.name in self._empty if isinstance(w, RecordType) else _is_nothing(w)


def _unlike(w: Type, r: Type) -> str | None:
    """How the numbers of two types mean other things, which Avro's rules do not look at."""
    if not isinstance(w, Primitive | Fixed) or not isinstance(r, Primitive | Fixed) or not w.logical or not r.logical:
        return None
    if w.logical == r.logical == "decimal":
        return None if w.scale == r.scale else f"scale {w.scale} as {r.scale}"
    is_same = w.logical.removeprefix("local-") == r.logical.removeprefix("local-")
    return None if is_same else f"{w.logical} as {r.logical}"


def _is_nothing(found: Type) -> bool:
    return found.size == 0 if isinstance(found, Fixed) else kind(found) == "null"


def _empty_records(schema: AvroSchema) -> set[str]:
    """Names of the records no value of which has a byte, in one pass: types may name each other without end."""
    users: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    for record in schema.named.values():
        if isinstance(record, RecordType):
            types = [schema.definition(field.schema) for field in record.fields]
            left[record.name] = len(types) - sum(map(_is_nothing, types))
            for inner in types:
                if isinstance(inner, RecordType):
                    users.setdefault(inner.name, []).append(record.name)
    found = [name for name, count in left.items() if not count]
    empty = set(found)
    while found:
        for user in users.get(found.pop(), ()):
            left[user] -= 1
            if not left[user]:
                empty.add(user)
                found.append(user)
    return empty
