"""The readable twin of the Protobuf decoder: what ``_protobuf_c`` does, in plain Python.

A message is read in two steps, as its fields come in any order, and more than once: first its bytes, where the last of
a field counts, and lists and messages in parts are kept whole; then each column gets its value.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
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
from spark_kafka_group.executor.values.protobuf_program import (
    GROUPS,
    Absent,
    FieldKind,
    FieldPlan,
    MessagePlan,
    MessageProgram,
    Shape,
    Wire,
)
from spark_kafka_group.executor.values.value_columns import Column
from spark_kafka_group.executor.values.value_contract import LARGEST_BYTES, LARGEST_TIMES, Problem

NUMBERS = (Wire.VARINT, Wire.FIXED64, Wire.FIXED32)
"""What a list may have packed."""
INT64_MAX = (1 << 63) - 1
LOOKED_AT_OF = 1000
"""After so many items of a list the size of the columns is looked at."""
MOST_SECONDS = INT64_MAX // 1_000_000
Payload = int | bytes


def prepared(program: MessageProgram) -> MessageProgram:
    """A program as ``Rows.run`` takes it."""
    return program


class Rows(ValueRows):
    """One column of values, row after row. A problem is a row, a message, a field, and a ``Problem``."""

    def run(self, program: MessageProgram, prefixes: Sequence[bytes], row: int, end: int) -> int:
        """Read the rows from `row` to `end`, up to one that begins with none of `prefixes` or until the columns are
        full."""
        while row < end and not self.is_full():
            value = self._values[row].as_py()
            if value is None:
                self.null()
            else:
                prefix = next((each for each in prefixes if value.startswith(each)), None)
                if prefix is None:
                    return row
                self._read(program, value[len(prefix) :], row)
            row += 1
        return row

    def _read(self, program: MessageProgram, value: bytes, row: int) -> None:
        machine = _MessageMachine(program, self._columns, self._builders, len(value))
        try:
            machine.message(0, [value])
        except UnreadableError as error:
            self.problems.append((row, machine.at, machine.field, error.problem))
            self.malformed()
        else:
            self._row += 1


class _MessageMachine:
    """One value, read by a program; `at` and `field` are the message and the field where it is."""

    def __init__(
        self, program: MessageProgram, columns: tuple[Column, ...], builders: list[Builder], size: int
    ) -> None:
        self._program, self._columns, self._builders = program, columns, builders
        self._most_size = sum_of(builders) + LARGEST_BYTES + LARGEST_TIMES * size
        self.at, self.field = 0, -1

    def message(self, index: int, bodies: list[bytes]) -> None:
        """Add a message that is written in these parts; without any it is the default one."""
        plan = self._program.messages[index]
        seen: dict[int, Any] = {}
        cases: dict[int, int] = {}
        for body in bodies:
            self._scan(index, plan, Cursor(body), seen, cases)
        for i, field in enumerate(plan.fields):
            if field.required and i not in seen:
                self.at, self.field = index, i
                raise UnreadableError(Problem.REQUIRED)
        if plan.column >= 0:
            self._builders[plan.column].valid.append(True)
        if plan.time >= 0:
            self.at, self.field = index, -1
            self._time(plan, seen)
        for i, field in enumerate(plan.fields):
            if field.column >= 0:
                self.at, self.field = index, i
                self._column(field, seen.get(i))

    # --- the bytes of a message ---------------------------------------------------------------------------------------

    def _scan(self, index: int, plan: MessagePlan, cursor: Cursor, seen: dict[int, Any], cases: dict[int, int]) -> None:
        numbers = {field.number: i for i, field in enumerate(plan.fields) if field.number}
        while cursor.left:
            self.at, self.field = index, -1
            number, wire = self._tag(cursor)
            i = self.field = numbers.get(number, -1)
            payload = self._payload(cursor, number, wire)
            if i < 0:
                continue
            field = plan.fields[i]
            why_not = self._why_unknown(field, wire, payload)
            if why_not is not None:
                if index == 0:  # as Spark, which looks at the unknown fields of the whole value only
                    raise UnreadableError(why_not)
                continue
            if field.oneof >= 0:
                before = cases.get(field.oneof, i)
                cases[field.oneof] = i
                if before != i:
                    seen.pop(before, None)
            if field.shape == Shape.ONE and field.do != FieldKind.MESSAGE:
                seen[i] = payload
            else:
                seen.setdefault(i, []).append((wire, payload))

    def _tag(self, cursor: Cursor) -> tuple[int, int]:
        tag = cursor.varint() & 0xFFFFFFFF
        if not tag >> 3:
            raise UnreadableError(Problem.TAG)
        return tag >> 3, tag & 7

    def _payload(self, cursor: Cursor, number: int, wire: int) -> Payload:
        if wire == Wire.VARINT:
            return cursor.varint()
        if wire == Wire.FIXED64:
            return int.from_bytes(cursor.take(8), "little")
        if wire == Wire.FIXED32:
            return int.from_bytes(cursor.take(4), "little")
        if wire == Wire.BYTES:
            return cursor.take(cursor.varint())
        if wire == Wire.GROUP:
            return self._group(cursor, number)
        raise UnreadableError(Problem.GROUP if wire == Wire.END_GROUP else Problem.TAG)

    def _group(self, cursor: Cursor, number: int) -> bytes:
        """The bytes up to the end of a group."""
        start, inside = cursor.at, [number]
        while True:
            end = cursor.at
            inner, wire = self._tag(cursor)
            if wire == Wire.GROUP:
                if len(inside) >= GROUPS:
                    raise UnreadableError(Problem.GROUPS)
                inside.append(inner)
            elif wire == Wire.END_GROUP:
                if inside.pop() != inner:
                    raise UnreadableError(Problem.GROUP)
                if not inside:
                    return cursor.data[start:end]
            else:
                self._payload(cursor, inner, wire)

    def _why_unknown(self, field: FieldPlan, wire: int, payload: Payload) -> Problem | None:
        """Why a field is an unknown one, though its number is known."""
        if wire != field.wire and not (field.shape == Shape.LIST and wire == Wire.BYTES and field.wire in NUMBERS):
            return Problem.OTHER_TYPE
        if field.closed and field.shape == Shape.ONE and not self._has_name(field, payload):
            return Problem.UNKNOWN_NUMBER
        return None

    def _has_name(self, field: FieldPlan, payload: Payload) -> bool:
        return signed(payload, 32) in self._program.enums[field.inner].names

    # --- columns ------------------------------------------------------------------------------------------------------

    def _column(self, field: FieldPlan, found: Any) -> None:
        if field.shape != Shape.ONE:
            for number, (wire, payload) in enumerate(found or ()):
                self._items(field, wire, payload)
                if number % LOOKED_AT_OF == 0 and sum_of(self._builders) > self._most_size:
                    raise UnreadableError(Problem.EXPANDED)
            end_list(self._columns, self._builders, field.column)
        elif field.do == FieldKind.MESSAGE:
            if found is None and field.absent != Absent.DEFAULT:
                self._null(field.column)
            else:
                self.message(field.inner, [payload for _, payload in found or ()])
        elif found is None:
            if field.absent == Absent.DEFAULT:
                self._scalar(field, field.column, field.default)
            else:
                self._null(field.column)
        elif field.absent == Absent.NULL_OR_ZERO and not significant(field.do, found):
            self._null(field.column)
        else:
            self._scalar(field, field.column, found)

    def _null(self, c: int) -> None:
        for each in (c, *self._columns[c].inside):
            self._builders[each].add_null()

    def _items(self, field: FieldPlan, wire: int, payload: Payload) -> None:
        """Add an item of a list, or those that are packed, or an entry of a map."""
        if field.do == FieldKind.MESSAGE:
            assert isinstance(payload, bytes)
            at, which = self.at, self.field
            self.message(field.inner, [payload])
            self.at, self.field = at, which
        elif isinstance(payload, bytes) and field.wire in NUMBERS:
            cursor = Cursor(payload)
            while cursor.left:
                self._item(field, self._payload(cursor, 0, field.wire))
        else:
            self._item(field, payload)

    def _item(self, field: FieldPlan, payload: Payload) -> None:
        if field.closed and not self._has_name(field, payload):
            if self.at == 0:
                raise UnreadableError(Problem.UNKNOWN_NUMBER)
            return
        self._scalar(field, self._columns[field.column].children[0], payload)

    def _scalar(self, field: FieldPlan, c: int, payload: Payload) -> None:
        builder, do = self._builders[c], field.do
        if isinstance(payload, bytes):
            if do == FieldKind.CHECKED_TEXT and text_of(payload) is not payload:
                raise UnreadableError(Problem.NO_UTF8)
            builder.add_bytes(text_of(payload) if do == FieldKind.TEXT else payload)
        elif do == FieldKind.BOOL:
            builder.valid.append(True)
            builder.bools.append(payload != 0)
        elif do == FieldKind.ENUM_NAME:
            number, enum = signed(payload, 32), self._program.enums[field.inner]
            builder.add_bytes(enum.names.get(number, b"%s%d" % (enum.unknown, number)))
        elif do == FieldKind.UINT64_AS_DECIMAL:
            builder.add_fixed(payload.to_bytes(16, "little"))
        elif do == FieldKind.UINT32_AS_LONG:
            builder.add_fixed(struct.pack("<q", payload & 0xFFFFFFFF))
        else:
            number = whole(do, payload)
            builder.add_fixed(struct.pack("<i" if do in NARROW else "<q", number))

    def _time(self, plan: MessagePlan, seen: dict[int, Any]) -> None:
        """Microseconds of two fields, seconds and nanoseconds."""
        seconds, nanos = (whole(field.do, seen.get(i, 0)) for i, field in enumerate(plan.fields))
        micros = seconds * 1_000_000 + (abs(nanos) // 1000) * (1 if nanos >= 0 else -1)
        if abs(seconds) > MOST_SECONDS or not -INT64_MAX - 1 <= micros <= INT64_MAX:
            raise UnreadableError(Problem.FAR_TIME)
        self._builders[plan.time].add_fixed(struct.pack("<q", micros))


NARROW = (FieldKind.INT32, FieldKind.SINT32, FieldKind.FIXED32, FieldKind.ENUM_NAME, FieldKind.ENUM_NUMBER)


def signed(payload: Payload, bits: int) -> int:
    """The lowest bits of a number, as a signed one."""
    assert isinstance(payload, int)
    low = payload & (1 << bits) - 1
    return low - ((low >> bits - 1) << bits)


def whole(do: FieldKind, payload: Payload) -> int:
    """A whole number of 32 or 64 bits, or the bits of a fraction."""
    assert isinstance(payload, int)
    if do == FieldKind.SINT32:
        return zigzag(payload & 0xFFFFFFFF)
    if do == FieldKind.SINT64:
        return zigzag(payload)
    return signed(payload, 32 if do in (*NARROW, FieldKind.UINT32_AS_LONG) else 64)


def significant(do: FieldKind, payload: Payload) -> bool:
    """Whether a payload is not that of the default value."""
    if isinstance(payload, bytes):
        return bool(payload)
    return bool(payload if do in (FieldKind.BOOL, FieldKind.FIXED64) else whole(do, payload))
