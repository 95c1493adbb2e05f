"""Columns that values are decoded into, in plain Python: what ``value_columns.pxi`` is for the compiled decoders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor.values.value_columns import Column, ColumnKind, assembled, without_entries
from spark_kafka_group.executor.values.value_contract import Problem

INT32_MAX = (1 << 31) - 1


class UnreadableError(Exception):
    """Raised where a value does not fit; it goes no further than ``Rows``."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass
class Cursor:
    """Bytes that are read: each read is checked."""

    data: bytes
    at: int = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size < 0:
            raise UnreadableError(Problem.NEGATIVE)
        if size > self.left:
            raise UnreadableError(Problem.SHORT)
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int = 64) -> int:
        """A number of at most as many bytes as `bits` need, seven each; bits above are left out, as in Java."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value & (1 << bits) - 1
            if shift >= bits:
                raise UnreadableError(Problem.OVERLONG)


def zigzag(value: int) -> int:
    """The signed number that an unsigned one stands for."""
    return (value >> 1) ^ -(value & 1)


class Builder:
    """What one column has so far; `dropped` are entries of maps whose keys came again."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.valid: list[bool] = []
        self.bools: list[bool] = []
        self.data = bytearray()
        self.ends = [0]
        self.dropped: list[int] = []

    @property
    def size(self) -> int:
        """Bytes that the column takes, about."""
        return len(self.data) + 4 * len(self.ends) + len(self.bools)

    def add_null(self) -> None:
        self.valid.append(False)
        if self.column.kind == ColumnKind.BOOLS:
            self.bools.append(False)
        elif self.column.kind == ColumnKind.FIXED:
            self.data += bytes(self.column.width)
        else:
            self.ends.append(self.ends[-1])

    def add_fixed(self, data: bytes) -> None:
        self.valid.append(True)
        self.data += data

    def add_bytes(self, data: bytes) -> None:
        if len(data) > INT32_MAX - len(self.data):
            raise UnreadableError(Problem.LARGE)
        self.valid.append(True)
        self.data += data
        self.ends.append(len(self.data))

    def key(self, entry: int) -> object:
        """A value of a column of keys, as one that compares."""
        kind, width = self.column.kind, self.column.width
        if kind == ColumnKind.BOOLS:
            return self.bools[entry]
        if kind == ColumnKind.FIXED:
            return bytes(self.data[entry * width : (entry + 1) * width])
        return bytes(self.data[self.ends[entry] : self.ends[entry + 1]])

    def cut(self, rows: int) -> int:
        """Keep only the first `rows`, and give the rows of the columns in this one."""
        del self.valid[rows:]
        del self.bools[rows:]
        if self.column.kind == ColumnKind.STRUCT:
            return rows
        del self.ends[rows + 1 :]
        if self.column.kind in (ColumnKind.LIST, ColumnKind.MAP):
            while self.dropped and self.dropped[-1] >= self.ends[-1]:
                self.dropped.pop()
        else:
            del self.data[rows * self.column.width if self.column.kind == ColumnKind.FIXED else self.ends[-1] :]
        return self.ends[-1]

    def array(self, children: list[pa.Array]) -> pa.Array:
        rows, kind = len(self.valid), self.column.kind
        valid = None if all(self.valid) else pa.array(self.valid, pa.bool_()).buffers()[1]
        buffers: list[pa.Buffer] = []
        if self.dropped:
            self.ends, children = without_entries(len(children[0]), self.ends, self.dropped, children)
        if kind == ColumnKind.BOOLS:
            buffers = [pa.array(self.bools, pa.bool_()).buffers()[1]]
        elif kind == ColumnKind.FIXED:
            buffers = [pa.py_buffer(bytes(self.data))]
        elif kind in (ColumnKind.BYTES, ColumnKind.LIST, ColumnKind.MAP):
            buffers = [pa.array(self.ends, pa.int32()).buffers()[1]]
            if kind == ColumnKind.BYTES:
                buffers.append(pa.py_buffer(bytes(self.data)))
        return assembled(self.column, rows, valid, buffers, children)


def sum_of(builders: list[Builder]) -> int:
    return sum(builder.size for builder in builders)


def end_list(columns: tuple[Column, ...], builders: list[Builder], c: int) -> None:
    """Add a list or map of the items that were added since the last."""
    builder, inner = builders[c], builders[columns[c].children[0]]
    entries = len(inner.valid)
    if entries > INT32_MAX:
        raise UnreadableError(Problem.LARGE)
    if builder.column.kind == ColumnKind.MAP:
        _drop_again(builder, inner, entries)
    builder.valid.append(True)
    builder.ends.append(entries)


def _drop_again(builder: Builder, keys: Builder, entries: int) -> None:
    """Of entries with the same key the last stays."""
    last: dict[object, int] = {}
    again = []
    for entry in range(builder.ends[-1], entries):
        key = keys.key(entry)
        if key in last:
            again.append(last[key])
        last[key] = entry
    builder.dropped += sorted(again)


class ValueRows:
    """One column of values, row after row. What is malformed is in `problems`."""

    def __init__(self, columns: tuple[Column, ...], values: pa.Array, most_bytes: int) -> None:
        self._columns = columns
        self._builders = [Builder(column) for column in columns]
        self._values = values
        self._most_bytes = most_bytes
        self._row = 0
        self.problems: list[tuple[Any, ...]] = []

    def is_full(self) -> bool:
        """Whether the rows take the bytes that they may take."""
        return self._row > 0 and sum_of(self._builders) >= self._most_bytes

    def has_value(self, row: int) -> bool:
        """Whether a row has a value."""
        return bool(self._values[row].is_valid)

    def null(self) -> None:
        """A row without value."""
        self._null(0)
        self._row += 1

    def finish(self) -> pa.Array:
        """The column."""
        arrays: dict[int, pa.Array] = {}
        for i in reversed(range(len(self._columns))):
            arrays[i] = self._builders[i].array([arrays[child] for child in self._columns[i].children])
        return arrays[0]

    def malformed(self) -> None:
        """A row whose value did not fit: nothing of it stays."""
        self._cut()
        self.null()

    def _null(self, c: int) -> None:
        for each in (c, *self._columns[c].inside):
            self._builders[each].add_null()

    def _cut(self) -> None:
        """Leave no trace of the row that failed."""
        rows = {0: self._row}
        for c, (column, builder) in enumerate(zip(self._columns, self._builders, strict=True)):
            inner = builder.cut(rows[c])
            rows |= dict.fromkeys(column.children, inner)


def text_of(data: bytes) -> bytes:
    """`data` as UTF-8: a replacement character for what is none, where Java's String has one."""
    try:
        data.decode()
    except UnicodeDecodeError:
        # Python has a replacement for each byte of an encoded surrogate, and Java has one for all three.
        return _replaced(data)
    return data


def _replaced(data: bytes) -> bytes:
    parts, at = [], 0
    while at < len(data):
        size = next((n for n in range(1, 5) if _is_character(data[at : at + n])), 0)
        parts.append(data[at : at + size].decode() if size else "\ufffd")
        at += size or _bad_size(data[at : at + 4])
    return "".join(parts).encode()


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


def _bad_size(data: bytes) -> int:
    """How many bytes one replacement stands for: as many as begin a character, or all of an encoded surrogate."""
    if data[0] == 0xED and b"\xa0" <= data[1:2] < b"\xc0":
        return 3 if b"\x80" <= data[2:3] < b"\xc0" else 2
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return max(error.end - error.start, 1) if error.start == 0 else 1
    return 1
