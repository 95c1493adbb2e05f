"""The readable twin of the Avro decoder: what ``_avro_c`` does, in plain Python.

``Rows`` fills columns by programs. A value is read through one checked cursor, and one that is malformed leaves a null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor.values.avro_columns import Column, ColumnKind, assembled, without_entries
from spark_kafka_group.executor.values.avro_instructions import (
    DAY_MICROS,
    FRAMES,
    FREE_ITEMS,
    Do,
    Instruction,
    Problem,
    Program,
)
from spark_kafka_group.executor.values.value_contract import LARGEST_BYTES, LARGEST_TIMES

INT32_MAX = (1 << 31) - 1
INT64_MIN = -(1 << 63)
FRAME_SIZE = 5
NULL_VALUE, NO_FRAME = -2, -1
LOOKED_AT_OF = 1000
"""Of so many items of an array the size is looked at once."""


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

    def number(self, bits: int) -> int:
        """A zig-zag number of at most as many bytes as `bits` need; bits above are left out, as in Java's Avro."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                value &= (1 << bits) - 1
                return (value >> 1) ^ -(value & 1)
            if shift >= bits:
                raise UnreadableError(Problem.OVERLONG)

    def sized(self) -> bytes:
        return self.take(self.number(64))


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


@dataclass
class CallFrame:
    """A loop, a call or a default that is under way."""

    column: int = -1
    left: int = 0
    back: int = 0
    cursor: Cursor = field(default_factory=lambda: Cursor(b""))


def prepared(program: Program) -> Program:
    """A program as ``Rows.run`` takes it."""
    return program


class Rows:
    """One column of values, row after row."""

    def __init__(self, columns: tuple[Column, ...], values: pa.Array, most_bytes: int) -> None:
        self._columns = columns
        self._builders = [Builder(column) for column in columns]
        self._values = values
        self._most_bytes = most_bytes
        self._row = 0
        self.problems: list[tuple[int, int | None, int, int]] = []

    def frame_id(self, row: int) -> int:
        """The id of a row's schema, behind a zero byte."""
        value = self._values[row].as_py()
        if value is None:
            return NULL_VALUE
        if len(value) < FRAME_SIZE or value[0] != 0:
            return NO_FRAME
        return int.from_bytes(value[1:FRAME_SIZE], "big")

    def has_value(self, row: int) -> bool:
        """Whether a row has a value."""
        return bool(self._values[row].is_valid)

    def is_full(self) -> bool:
        """Whether the rows take the bytes that they may take."""
        return self._row > 0 and sum_of(self._builders) >= self._most_bytes

    def run(self, known: dict[Any, Program], row: int, end: int, framed: bool) -> int:
        """Read the rows from `row` to `end`, up to one whose id is not `known` or until the columns are full; not
        `framed`, all by the one known."""
        while row < end and not self.is_full():
            value, schema_id = self._values[row].as_py(), self.frame_id(row) if framed else next(iter(known))
            if value is None:
                self.null()
            elif schema_id not in known:
                return row
            else:
                data = value[FRAME_SIZE:] if framed else value
                self._read(known[schema_id], data, row, schema_id if framed else None)
            row += 1
        return row

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

    def _read(self, program: Program, value: bytes, row: int, schema_id: int | None) -> None:
        machine = _Machine(program, self._columns, self._builders, value)
        try:
            machine.run()
        except UnreadableError as error:
            self.problems.append((row, schema_id, machine.place, error.problem))
            self._cut()
            self._null(0)
        self._row += 1

    def _null(self, c: int) -> None:
        for each in (c, *self._columns[c].inside):
            self._builders[each].add_null()

    def _cut(self) -> None:
        """Leave no trace of the row that failed."""
        rows = {0: self._row}
        for c, (column, builder) in enumerate(zip(self._columns, self._builders, strict=True)):
            inner = builder.cut(rows[c])
            rows |= dict.fromkeys(column.children, inner)


class _Machine:
    """One value, read by a program."""

    def __init__(self, program: Program, columns: tuple[Column, ...], builders: list[Builder], value: bytes) -> None:
        self._program = program
        self._columns = columns
        self.builders = builders
        self.cursor = Cursor(value)
        self._frames: list[CallFrame] = []
        self._free = len(value) + FREE_ITEMS
        self._most_size = sum_of(builders) + LARGEST_BYTES + LARGEST_TIMES * len(value)
        self.place = 0

    def run(self) -> None:
        """Read the value; `place` is the instruction where it failed."""
        following = 0
        while True:
            self.place = following
            step = self._program.instructions[following]
            if step.do == Do.END:
                return
            jump = HANDLERS[step.do](self, step)
            following = self.place + 1 if jump is None else jump

    def null(self, step: Instruction) -> None:
        for each in (step.c, *self._columns[step.c].inside):
            self.builders[each].add_null()

    def struct(self, step: Instruction) -> None:
        self.builders[step.c].valid.append(True)

    def boolean(self, step: Instruction) -> None:
        value = self.cursor.take(1)[0] == 1  # as in Java's Avro: all others are false
        self.builders[step.c].valid.append(True)
        self.builders[step.c].bools.append(value)

    def add(self, step: Instruction, form: str, value: float) -> None:
        self.builders[step.c].add_fixed(struct.pack(form, value))

    def times_1000(self, step: Instruction, bits: int) -> None:
        value = self.cursor.number(bits) * 1000
        if step.b and not 0 <= value < DAY_MICROS * 1000:
            raise UnreadableError(Problem.NO_TIME)
        if not INT64_MIN <= value < -INT64_MIN:
            raise UnreadableError(Problem.FAR_TIME)
        self.add(step, "<q", value)

    def float32(self) -> float:
        value: float = struct.unpack("<f", self.cursor.take(4))[0]
        return value

    def string(self, step: Instruction) -> None:
        self.builders[step.c].add_bytes(text_of(self.cursor.sized()))

    def decimal(self, step: Instruction) -> None:
        data = self.cursor.take(step.b) if step.do == Do.DECIMAL_FIXED else self.cursor.sized()
        if not data:
            raise UnreadableError(Problem.EMPTY_DECIMAL)
        value = int.from_bytes(data, "big", signed=True)
        if step.a <= 18:  # as Spark, which takes the lowest 64 bits
            value = (value & (1 << 64) - 1) - ((value & 1 << 63) << 1)
        if abs(value) >= 10**step.a:
            raise UnreadableError(Problem.DIGITS)
        self.builders[step.c].add_fixed(value.to_bytes(16, "little", signed=True))

    def enum(self, step: Instruction) -> None:
        symbols, i = self._program.symbols[step.a], self.cursor.number(32)
        if not 0 <= i < len(symbols):
            raise UnreadableError(Problem.SYMBOL)
        symbol = symbols[i]
        if symbol is None:
            raise UnreadableError(Problem.UNKNOWN_SYMBOL)
        self.builders[step.c].add_bytes(symbol)

    def union(self, step: Instruction) -> int:
        places, i = self._program.places[step.a], self.cursor.number(32)
        if not 0 <= i < len(places):
            raise UnreadableError(Problem.BRANCH)
        return places[i]

    def fail(self, step: Instruction) -> None:
        raise UnreadableError(Problem.NOT_READ)

    def begin(self, frame: CallFrame) -> None:
        if len(self._frames) >= FRAMES:
            raise UnreadableError(Problem.DEPTH)
        self._frames.append(frame)

    def default(self, step: Instruction) -> None:
        self.begin(CallFrame(cursor=self.cursor))
        self.cursor = Cursor(self._program.constants[step.a])

    def default_end(self, step: Instruction) -> None:
        self.cursor = self._frames.pop().cursor

    def items(self, empty: bool, first: bool) -> int:
        """How many items a block has; 0 ends the array or map."""
        count = self.cursor.number(64)
        if count < 0:
            self.cursor.number(64)  # the size of the block, which Java's Avro does not look at
            if count == INT64_MIN:
                if first:
                    return 0  # Java's Avro negates it, which gives the same number, of whose low half it takes 0
                raise UnreadableError(Problem.NEGATIVE)
        return self.checked(abs(count), empty)

    def checked(self, count: int, empty: bool) -> int:
        if empty:
            self._free -= count
            if self._free < 0:
                raise UnreadableError(Problem.ITEMS)
        elif count > self.cursor.left:
            raise UnreadableError(Problem.SHORT)
        return count

    def list_begin(self, step: Instruction) -> int | None:
        count = self.items(bool(step.b), first=True)
        if not count:
            self.list_end(step.c)
            return step.a
        self.begin(CallFrame(step.c, count))
        return None

    def list_next(self, step: Instruction) -> int | None:
        frame = self._frames[-1]
        frame.left -= 1
        if frame.left % LOOKED_AT_OF == 0 and sum_of(self.builders) > self._most_size:
            raise UnreadableError(Problem.EXPANDED)
        if not frame.left:
            frame.left = self.items(bool(step.b), first=False)
        if frame.left:
            return step.a
        self._frames.pop()
        self.list_end(step.c)
        return None

    def list_end(self, c: int) -> None:
        builder = self.builders[c]
        inner = self.builders[self._columns[c].children[0]]
        entries = len(inner.valid)
        if entries > INT32_MAX:
            raise UnreadableError(Problem.LARGE)
        if builder.column.kind == ColumnKind.MAP:
            self.drop_again(builder, inner, entries)
        builder.valid.append(True)
        builder.ends.append(entries)

    def drop_again(self, builder: Builder, keys: Builder, entries: int) -> None:
        """Of entries with the same key the last stays."""
        last: dict[bytes, int] = {}
        again = []
        for entry in range(builder.ends[-1], entries):
            key = bytes(keys.data[keys.ends[entry] : keys.ends[entry + 1]])
            if key in last:
                again.append(last[key])
            last[key] = entry
        builder.dropped += sorted(again)

    def skip_items(self, step: Instruction) -> int:
        count = self.cursor.number(64)
        while count < 0:
            self.skip(self.cursor.number(64))
            count = self.cursor.number(64)
        if not step.b and count > self.cursor.left:
            raise UnreadableError(Problem.SHORT)
        return count

    def skip_list(self, step: Instruction) -> int | None:
        count = self.skip_items(step)
        while count and step.b:
            count = self.skip_items(step)
        if not count:
            return step.a
        self.begin(CallFrame(left=count))
        return None

    def skip_next(self, step: Instruction) -> int | None:
        frame = self._frames[-1]
        frame.left -= 1
        if not frame.left:
            frame.left = self.skip_items(step)
        if frame.left:
            return step.a
        self._frames.pop()
        return None

    def skip_number(self, bits: int) -> None:
        self.cursor.number(bits)

    def skip(self, size: int) -> None:
        self.cursor.take(max(size, 0))

    def call(self, step: Instruction) -> int:
        self.begin(CallFrame(back=self.place + 1))
        return step.a

    def back(self, step: Instruction) -> int:
        return self._frames.pop().back


HANDLERS: dict[Do, Callable[[_Machine, Instruction], int | None]] = {
    Do.NULL: _Machine.null,
    Do.STRUCT: _Machine.struct,
    Do.BOOLEAN: _Machine.boolean,
    Do.INT: lambda m, s: m.add(s, "<i", m.cursor.number(32)),
    Do.INT_AS_LONG: lambda m, s: m.add(s, "<q", m.cursor.number(32)),
    Do.INT_AS_FLOAT: lambda m, s: m.add(s, "<f", m.cursor.number(32)),
    Do.INT_AS_DOUBLE: lambda m, s: m.add(s, "<d", m.cursor.number(32)),
    Do.INT_AS_FLOAT_AS_DOUBLE: lambda m, s: m.add(s, "<d", nearest_float(m.cursor.number(32))),
    Do.INT_TIMES_1000: lambda m, s: m.times_1000(s, 32),
    Do.LONG: lambda m, s: m.add(s, "<q", m.cursor.number(64)),
    Do.LONG_AS_FLOAT: lambda m, s: m.add(s, "<f", nearest_float(m.cursor.number(64))),
    Do.LONG_AS_DOUBLE: lambda m, s: m.add(s, "<d", m.cursor.number(64)),
    Do.LONG_AS_FLOAT_AS_DOUBLE: lambda m, s: m.add(s, "<d", nearest_float(m.cursor.number(64))),
    Do.LONG_TIMES_1000: lambda m, s: m.times_1000(s, 64),
    Do.FLOAT: lambda m, s: m.builders[s.c].add_fixed(m.cursor.take(4)),
    Do.FLOAT_AS_DOUBLE: lambda m, s: m.add(s, "<d", m.float32()),
    Do.DOUBLE: lambda m, s: m.builders[s.c].add_fixed(m.cursor.take(8)),
    Do.STRING: _Machine.string,
    Do.BYTES: lambda m, s: m.builders[s.c].add_bytes(m.cursor.sized()),
    Do.FIXED: lambda m, s: m.builders[s.c].add_bytes(m.cursor.take(s.a)),
    Do.DECIMAL: _Machine.decimal,
    Do.DECIMAL_FIXED: _Machine.decimal,
    Do.ENUM: _Machine.enum,
    Do.LIST: _Machine.list_begin,
    Do.LIST_NEXT: _Machine.list_next,
    Do.MAP: _Machine.list_begin,
    Do.MAP_NEXT: _Machine.list_next,
    Do.UNION: _Machine.union,
    Do.JUMP: lambda m, s: s.a,
    Do.FAIL: _Machine.fail,
    Do.DEFAULT: _Machine.default,
    Do.DEFAULT_END: _Machine.default_end,
    Do.SKIP_INT: lambda m, s: m.skip_number(32),
    Do.SKIP_LONG: lambda m, s: m.skip_number(64),
    Do.SKIP_FIXED: lambda m, s: m.skip(s.a),
    Do.SKIP_BYTES: lambda m, s: m.skip(m.cursor.number(64)),
    Do.SKIP_LIST: _Machine.skip_list,
    Do.SKIP_NEXT: _Machine.skip_next,
    Do.SKIP_UNION: _Machine.union,
    Do.CALL: _Machine.call,
    Do.RETURN: _Machine.back,
}


def nearest_float(value: int) -> float:
    """The float of 32 bits nearest to a whole number, rounded once."""
    extra = max(abs(value).bit_length() - 24, 0)
    if not extra:
        return float(value)
    low, half = abs(value) & (1 << extra) - 1, 1 << extra - 1
    kept = abs(value) >> extra
    kept += low > half or (low == half and kept & 1)
    return float((kept << extra) * (1 if value >= 0 else -1))


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
