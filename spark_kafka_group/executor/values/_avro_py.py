"""The readable twin of the Avro decoder: what ``_avro_c`` does, in plain Python.

``Rows`` fills columns by programs. A value is read through one checked cursor, and one that is malformed leaves a null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from spark_kafka_group.executor.values._columns_py import (
    Builder,
    Cursor,
    UnreadableError,
    ValueRows,
    end_list,
    sum_of,
    text_of,
    zigzag,
)
from spark_kafka_group.executor.values.avro_instructions import (
    DAY_MICROS,
    FRAMES,
    FREE_ITEMS,
    Do,
    Instruction,
    Program,
)
from spark_kafka_group.executor.values.value_columns import Column
from spark_kafka_group.executor.values.value_contract import LARGEST_BYTES, LARGEST_TIMES, Problem

INT64_MIN = -(1 << 63)
FRAME_SIZE = 5
NULL_VALUE, NO_FRAME = -2, -1
LOOKED_AT_OF = 1000
"""Of so many items of an array the size is looked at once."""


class AvroCursor(Cursor):
    """Bytes of a value, or of a default."""

    def number(self, bits: int) -> int:
        """A zig-zag number of at most as many bytes as `bits` need."""
        return zigzag(self.varint(bits))

    def sized(self) -> bytes:
        return self.take(self.number(64))


@dataclass
class CallFrame:
    """A loop, a call or a default that is under way."""

    column: int = -1
    left: int = 0
    back: int = 0
    cursor: AvroCursor = field(default_factory=lambda: AvroCursor(b""))


def prepared(program: Program) -> Program:
    """A program as ``Rows.run`` takes it."""
    return program


class Rows(ValueRows):
    """One column of values, row after row."""

    def frame_id(self, row: int) -> int:
        """The id of a row's schema, behind a zero byte."""
        value = self._values[row].as_py()
        if value is None:
            return NULL_VALUE
        if len(value) < FRAME_SIZE or value[0] != 0:
            return NO_FRAME
        return int.from_bytes(value[1:FRAME_SIZE], "big")

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

    def _read(self, program: Program, value: bytes, row: int, schema_id: int | None) -> None:
        machine = _Machine(program, self._columns, self._builders, value)
        try:
            machine.run()
        except UnreadableError as error:
            self.problems.append((row, schema_id, machine.place, error.problem))
            self.malformed()
        else:
            self._row += 1


class _Machine:
    """One value, read by a program."""

    def __init__(self, program: Program, columns: tuple[Column, ...], builders: list[Builder], value: bytes) -> None:
        self._program = program
        self._columns = columns
        self.builders = builders
        self.cursor = AvroCursor(value)
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
        self.cursor = AvroCursor(self._program.constants[step.a])

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
            end_list(self._columns, self.builders, step.c)
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
        end_list(self._columns, self.builders, step.c)
        return None

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
