"""The readable twin of the encoder of values: what ``_write_c`` writes, and as slow as Python is."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa

from spark_kafka_group.executor.values import java_texts
from spark_kafka_group.executor.values._columns_py import text_of
from spark_kafka_group.executor.values.avro_defaults import zigzag
from spark_kafka_group.executor.values.java_numbers import double_as_text
from spark_kafka_group.executor.values.java_times import zone_of
from spark_kafka_group.executor.values.write_plan import (
    MOST_BYTES,
    RANGES,
    Form,
    Misfit,
    Put,
    Step,
    Unfit,
    WritePlan,
    varint,
)

ESCAPES = {i: f"\\u{i:04X}".encode() for i in range(32)} | {
    0x22: b'\\"', 0x5C: b"\\\\", 0x08: b"\\b", 0x09: b"\\t", 0x0A: b"\\n", 0x0C: b"\\f", 0x0D: b"\\r",
}  # fmt: skip


class _MisfitError(Exception):
    """Raised with the problem, a step and a place in its array."""


class ColumnEncoder:
    """Writes columns by one plan."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def encode(self, arrays: list[pa.Array | None], rows: int, prefix: bytes) -> tuple[pa.Array | None, Unfit | None]:
        """The values of `rows` rows, `prefix` before each that is not null; or the first row that does not fit.

        `arrays`: of ``write_plan.bound()``.
        """
        writer = _Writer(self._plan, arrays)
        first = self._plan.steps[0]
        values: list[bytes | None] = []
        total = 0
        for row in range(rows):
            if writer.is_null(0, row):
                values.append(None)
                continue
            try:
                value = prefix + first.before + writer.value(0, row)
            except _MisfitError as error:
                problem, step, place = error.args
                return None, Unfit(row, step, place, problem)
            total += len(value)
            if total > MOST_BYTES:
                return None, Unfit(row, 0, row, Misfit.LARGE)
            values.append(value)
        return pa.array(values, pa.binary()), None


class _Writer:
    """The values of each step as a list, and how each step writes one."""

    def __init__(self, plan: WritePlan, arrays: list[pa.Array | None]) -> None:
        self._steps = plan.steps
        self._values = [
            [] if array is None else _plain(step, array) for step, array in zip(plan.steps, arrays, strict=True)
        ]
        self._ends = [_ends(array) for array in arrays]
        self._zone = zone_of(plan.zone) or UTC
        self._write: dict[Put, Callable[[Step, int, int], bytes]] = {
            Put.OBJECT: self._object, Put.ARRAY: self._array, Put.DICT: self._dict,
            Put.RECORD: self._record, Put.UNION: self._union, Put.LIST: self._list, Put.MAP: self._map,
            Put.MESSAGE: self._message, Put.WRAPPER: self._message, Put.PACKED: self._packed,
            Put.REPEATED: self._repeated, Put.ENTRIES: self._entries,
        }  # fmt: skip

    def is_null(self, number: int, place: int) -> bool:
        return self._values[number][place] is None

    def value(self, number: int, place: int) -> bytes:
        """A value that is not null, without what is before it."""
        step = self._steps[number]
        write = self._write.get(step.do)
        if write is not None:
            return write(step, number, place)
        try:
            if step.do == Put.TIMESTAMP:
                return _quoted(java_texts.instant_as_text(self._values[number][place], self._zone))
            return SIMPLE[step.do](step, self._values[number][place])
        except _MisfitError as error:
            raise _MisfitError(error.args[0], number, place) from None

    def _item(self, number: int, place: int) -> bytes:
        """A value with what is before it, or what stands for null."""
        step = self._steps[number]
        if step.do == Put.CONSTANT:
            return step.before
        if self.is_null(number, place):
            if step.null is None:
                raise _MisfitError(Misfit.NULL, number, place)
            return step.null
        value = self.value(number, place)
        return b"" if step.implicit and not any(value) else step.before + value

    def _object(self, step: Step, number: int, place: int) -> bytes:
        fields = [self._item(child, place) for child in step.children if not self.is_null(child, place)]
        return b"{" + b"".join(fields).removeprefix(b",") + b"}"

    def _array(self, step: Step, number: int, place: int) -> bytes:
        [items] = step.children
        return b"[" + b",".join(self._item(items, item) for item in self._places(number, place)) + b"]"

    def _dict(self, step: Step, number: int, place: int) -> bytes:
        keys, values = step.children
        entries = [self._item(keys, i) + b":" + self._item(values, i) for i in self._places(number, place)]
        return b"{" + b",".join(entries) + b"}"

    def _record(self, step: Step, number: int, place: int) -> bytes:
        return b"".join(self._item(child, place) for child in step.children)

    def _union(self, step: Step, number: int, place: int) -> bytes:
        given = [child for child in step.children if not self.is_null(child, place)]
        if len(given) > 1:
            raise _MisfitError(Misfit.BRANCHES, number, place)
        if given:
            return self._item(given[0], place)
        if step.null is None:
            raise _MisfitError(Misfit.NO_BRANCH, number, place)
        return step.null

    def _list(self, step: Step, number: int, place: int) -> bytes:
        return self._blocks(number, place, step.children)

    def _map(self, step: Step, number: int, place: int) -> bytes:
        return self._blocks(number, place, step.children)

    def _blocks(self, number: int, place: int, children: tuple[int, ...]) -> bytes:
        places = self._places(number, place)
        items = [self._item(child, item) for item in places for child in children]
        return (zigzag(len(places)) if places else b"") + b"".join(items) + b"\0"

    def _message(self, step: Step, number: int, place: int) -> bytes:
        fields = self._record(step, number, place)
        return fields + varint(step.a) if step.a else _sized(fields)

    def _packed(self, step: Step, number: int, place: int) -> bytes:
        return _sized(self._repeated(step, number, place))

    def _repeated(self, step: Step, number: int, place: int) -> bytes:
        [items] = step.children
        return b"".join(self._item(items, item) for item in self._places(number, place))

    def _entries(self, step: Step, number: int, place: int) -> bytes:
        keys, values = step.children
        entries = [self._item(keys, i) + self._item(values, i) for i in self._places(number, place)]
        return b"".join(varint(step.a) + _sized(entry) for entry in entries)

    def _places(self, number: int, place: int) -> range:
        return range(self._ends[number][place], self._ends[number][place + 1])


def _plain(step: Step, array: pa.Array) -> list[Any]:
    """Values as numbers and bytes; of structs, lists and maps only whether they are null."""
    kind = array.type
    if pa.types.is_nested(kind):
        return [valid or None for valid in array.is_valid().to_pylist()]
    if step.do in (Put.FLOAT, Put.DOUBLE):
        array = _over(array, pa.binary(kind.bit_width // 8))  # as Python's floats NaNs may become others
    if pa.types.is_string(kind):
        array = _over(array, pa.binary())
    if pa.types.is_temporal(kind):
        array = _over(array, pa.int32() if kind.bit_width == 32 else pa.int64())
    if pa.types.is_decimal128(kind):
        words = _over(array, pa.binary(16)).to_pylist()
        return [None if word is None else int.from_bytes(word, "little", signed=True) for word in words]
    found: list[Any] = array.to_pylist()
    return found


def _over(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same buffers as an array of another type."""
    return pa.Array.from_buffers(kind, len(array), array.buffers(), offset=array.offset)


def _ends(array: pa.Array | None) -> list[int]:
    if array is None or not (pa.types.is_list(array.type) or pa.types.is_map(array.type)) or not len(array):
        return []
    ends = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset)
    found: list[int] = ends.to_pylist()
    return found


# --- JSON -------------------------------------------------------------------------------------------------------------


def _quoted(text: str) -> bytes:
    return b'"' + text.encode() + b'"'


def _number(step: Step, text: str) -> bytes:
    return _quoted(text) if step.b else text.encode()


def _float(step: Step, text: str) -> bytes:
    return _quoted(text) if step.b or text[-1] in "Ny" else text.encode()


def text_as_json(text: bytes) -> bytes:
    """A string of JSON."""
    return b'"' + b"".join(ESCAPES.get(byte) or bytes([byte]) for byte in text_of(text)) + b'"'


# --- Avro -------------------------------------------------------------------------------------------------------------


def _integer(step: Step, value: int) -> bytes:
    if step.b and not -(2**31) <= value < 2**31:
        raise _MisfitError(Misfit.RANGE)
    return zigzag(value)


def _fixed(step: Step, value: bytes) -> bytes:
    if len(value) != step.a:
        raise _MisfitError(Misfit.SIZE)
    return value


def _decimal(step: Step, value: int) -> bytes:
    value *= 10**step.b
    if abs(value) >= 10**step.a:
        raise _MisfitError(Misfit.DIGITS)
    if step.do == Put.DECIMAL_FIXED:
        return value.to_bytes(step.c, "big", signed=True)
    data = value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
    return zigzag(len(data)) + data


def _enum(step: Step, value: bytes) -> bytes:
    if value not in step.symbols:
        raise _MisfitError(Misfit.SYMBOL)
    return zigzag(step.symbols.index(value))


# --- Protobuf ---------------------------------------------------------------------------------------------------------


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data


FORMS: dict[int, Callable[[int], bytes]] = {
    Form.VARINT: varint,
    Form.ZIGZAG: zigzag,
    Form.UNSIGNED: lambda value: varint(value & 0xFFFF_FFFF),
    Form.FOUR_BYTES: lambda value: (value & 0xFFFF_FFFF).to_bytes(4, "little"),
    Form.EIGHT_BYTES: lambda value: (value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little"),
}


def _whole(step: Step, value: int) -> bytes:
    if (limits := RANGES[step.b]) is not None and not limits[0] <= value < limits[1]:
        raise _MisfitError(Misfit.RANGE)
    return FORMS[step.c](value)


def _seconds(step: Step, micros: int) -> bytes:
    return FORMS[step.c](-(-micros // 1_000_000) if step.b and micros < 0 else micros // 1_000_000)


def _nanos(step: Step, micros: int) -> bytes:
    rest = -(-micros % 1_000_000) if step.b and micros < 0 else micros % 1_000_000
    return FORMS[step.c](rest * 1000)


def _symbol(step: Step, value: bytes) -> bytes:
    if value not in step.symbols[::2]:
        raise _MisfitError(Misfit.SYMBOL)
    return step.symbols[2 * step.symbols[::2].index(value) + 1]


def _numbered(step: Step, value: int) -> bytes:
    if value.to_bytes(8, "little", signed=True) not in step.symbols:
        raise _MisfitError(Misfit.SYMBOL)
    return varint(value)


SIMPLE: dict[Put, Callable[[Step, Any], bytes]] = {
    Put.TRUE_OR_FALSE: lambda step, value: _number(step, "true" if value else "false"),
    Put.NUMBER: lambda step, value: _number(step, str(value)),
    Put.FLOAT_TEXT: lambda step, value: _float(step, java_texts.float_as_text(value)),
    Put.DOUBLE_TEXT: lambda step, value: _float(step, double_as_text(value)),
    Put.DECIMAL_TEXT: lambda step, value: _number(step, java_texts.decimal_as_text(value, step.a)),
    Put.TEXT: lambda _, value: text_as_json(value),
    Put.BASE64: lambda _, value: b'"' + base64.b64encode(value) + b'"',
    Put.DATE: lambda _, value: _quoted(java_texts.date_as_text(value)),
    Put.LOCAL_TIMESTAMP: lambda _, value: _quoted(java_texts.local_as_text(value)),
    Put.TIME: lambda _, value: _quoted(java_texts.time_as_text(value)),
    Put.BOOLEAN: lambda _, value: b"\1" if value else b"\0",
    Put.INTEGER: _integer,
    Put.THOUSANDTH: lambda _, value: zigzag(value // 1000),
    Put.FLOAT: lambda _, value: value,
    Put.DOUBLE: lambda _, value: value,
    Put.FLOAT_AS_DOUBLE: lambda _, value: struct.pack("<d", value),
    Put.BYTES: lambda _, value: zigzag(len(value)) + value,
    Put.FIXED: _fixed,
    Put.DECIMAL: _decimal,
    Put.DECIMAL_FIXED: _decimal,
    Put.ENUM: _enum,
    Put.WHOLE: _whole,
    Put.SECONDS: _seconds,
    Put.NANOS: _nanos,
    Put.UTF8: lambda _, value: _sized(text_of(value)),
    Put.BLOB: lambda _, value: _sized(value),
    Put.SYMBOL: _symbol,
    Put.NUMBERED: _numbered,
}
