"""The steps by which both twins write values of a column, as JSON or Avro, and what they say of rows that do not fit.

A plan is a tree of steps in a tuple, each before those in it. A step takes its values from one array: the column, a
field of a struct, the items of a list, or the keys or values of a map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_group.text.foreign_text import shortened


class Put(IntEnum):
    """What a step writes of a value that is not null."""

    CONSTANT = 1
    """Nothing but what is before it; there is no array."""
    NULL = auto()
    """All values are null."""
    # JSON
    OBJECT = auto()
    """A struct: fields that are null are left out."""
    ARRAY = auto()
    DICT = auto()
    """A map: keys, and values."""
    TRUE_OR_FALSE = auto()
    NUMBER = auto()
    """An integer of a bytes; as a name if b is 1, as all that follow."""
    FLOAT_TEXT = auto()
    DOUBLE_TEXT = auto()
    DECIMAL_TEXT = auto()
    """Of scale a."""
    TEXT = auto()
    BASE64 = auto()
    DATE = auto()
    TIMESTAMP = auto()
    """In the plan's zone."""
    LOCAL_TIMESTAMP = auto()
    TIME = auto()
    # Avro
    RECORD = auto()
    UNION = auto()
    """A struct of branches, one of which is not null."""
    LIST = auto()
    MAP = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    """An integer of a bytes; one of 32 bits if b is 1."""
    THOUSANDTH = auto()
    """An integer of 64 bits, divided by 1000 and rounded down."""
    FLOAT = auto()
    DOUBLE = auto()
    FLOAT_AS_DOUBLE = auto()
    BYTES = auto()
    FIXED = auto()
    """a bytes."""
    DECIMAL = auto()
    """Of at most a digits, after b zeros were put behind it."""
    DECIMAL_FIXED = auto()
    """The same in c bytes."""
    ENUM = auto()


class Misfit(IntEnum):
    """Why a row does not fit."""

    NULL = 1
    RANGE = auto()
    SIZE = auto()
    DIGITS = auto()
    SYMBOL = auto()
    NO_BRANCH = auto()
    BRANCHES = auto()
    LARGE = auto()


MOST_BYTES = 2**31 - 1
"""Most bytes of a column of values."""


@dataclass(frozen=True)
class Step:
    """A step: `field` is the number of its field in a struct, `name` the dotted name of it.

    `before`: what is written before a value: a comma and a name, or the number of a union's branch.
    `null`: what is written for null; None if the schema does not take null.
    `a`, `b`, `c`: numbers, by ``Put``.
    `symbols`: of an enum.
    `wanted`: what the schema has here, for errors.
    """

    do: Put
    name: str = ""
    field: int = -1
    before: bytes = b""
    null: bytes | None = None
    children: tuple[int, ...] = ()
    a: int = 0
    b: int = 0
    c: int = 0
    symbols: tuple[bytes, ...] = ()
    wanted: str = ""


@dataclass(frozen=True)
class WritePlan:
    """Steps, the first for the column itself.

    `zone`: of timestamps in JSON.
    `may_fail`: whether there may be rows that do not fit.
    """

    steps: tuple[Step, ...]
    may_fail: bool = False
    zone: str = "UTC"


class Unfit(NamedTuple):
    """A row that does not fit: the step, and the place of the value in its array."""

    row: int
    step: int
    place: int
    problem: int


def bound(plan: WritePlan, column: pa.Array) -> list[pa.Array | None]:
    """The array of each step. Raises ValueError where Arrow's buffers contradict each other, so twins need not look."""
    arrays: list[pa.Array | None] = [None] * len(plan.steps)

    def bind(place: int, array: pa.Array) -> None:
        array = arrays[place] = _usual(array)
        step, kind = plan.steps[place], array.type
        if not _is_for(step, kind):
            raise ValueError(f"a column of Arrow's type {kind} is not what is written here")
        if pa.types.is_struct(kind):
            for child in step.children:
                if plan.steps[child].field >= 0:
                    bind(child, array.field(plan.steps[child].field))
        elif pa.types.is_map(kind):
            _check_order(array)
            for child, part in zip(step.children, (array.values.field(0), array.values.field(1)), strict=True):
                bind(child, part)
        elif pa.types.is_list(kind):
            _check_order(array)
            bind(step.children[0], array.values)
        elif pa.types.is_binary(kind) or pa.types.is_string(kind):
            _check_order(array)

    column.validate()
    bind(0, column)
    return arrays


def _usual(array: pa.Array) -> pa.Array:
    """Arrays with 64-bit offsets, which a session may ask for, as those with 32-bit offsets."""
    kind = array.type
    if any(of(kind) for of in (pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_string_view)):
        return array.cast(pa.binary())
    if pa.types.is_large_list(array.type):
        return array.cast(pa.list_(array.type.value_field))
    return array


BITS = {
    Put.FLOAT_TEXT: 32, Put.DOUBLE_TEXT: 64, Put.DECIMAL_TEXT: 128, Put.DATE: 32, Put.TIMESTAMP: 64,
    Put.LOCAL_TIMESTAMP: 64, Put.TIME: 64, Put.THOUSANDTH: 64, Put.FLOAT: 32, Put.DOUBLE: 64, Put.FLOAT_AS_DOUBLE: 32,
    Put.DECIMAL: 128, Put.DECIMAL_FIXED: 128,
}  # fmt: skip
"""Of the numbers that steps take."""
OTHERS: dict[Put, Callable[[pa.DataType], bool]] = {
    Put.OBJECT: pa.types.is_struct, Put.RECORD: pa.types.is_struct, Put.UNION: pa.types.is_struct,
    Put.ARRAY: pa.types.is_list, Put.LIST: pa.types.is_list, Put.DICT: pa.types.is_map, Put.MAP: pa.types.is_map,
    Put.BOOLEAN: pa.types.is_boolean, Put.TRUE_OR_FALSE: pa.types.is_boolean,
}  # fmt: skip


def _is_for(step: Step, kind: pa.DataType) -> bool:
    """Whether a step takes values of Arrow's type."""
    if step.do == Put.NULL:
        return bool(pa.types.is_null(kind))
    if step.do in OTHERS:
        return bool(OTHERS[step.do](kind))
    bits = 8 * step.a if step.do in (Put.NUMBER, Put.INTEGER) else BITS.get(step.do)
    if bits is None:
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
    fixed = pa.types.is_primitive(kind) or pa.types.is_decimal128(kind)
    return bool(fixed and not pa.types.is_boolean(kind) and kind.bit_width == bits)


def _check_order(array: pa.Array) -> None:
    """Raise ValueError for offsets that go backward or beyond. Arrow looks at the ends of a whole array, and not of a
    slice."""
    if not len(array):
        return
    buffers = array.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, buffers[1]], offset=array.offset)
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        most = len(array.values)
    else:
        most = buffers[2].size if buffers[2] is not None else 0
    in_order = pc.all(pc.less_equal(ends[:-1], ends[1:])).as_py()
    if not in_order or ends[0].as_py() < 0 or ends[-1].as_py() > most:
        raise ValueError("the offsets of the column are not in order")


def reason(plan: WritePlan, arrays: list[pa.Array | None], unfit: Unfit) -> str:
    """Why a row does not fit."""
    step, problem = plan.steps[unfit.step], Misfit(unfit.problem)
    if problem == Misfit.NULL:
        return f"it is null, and the schema has {step.wanted} here, which takes no null"
    if problem == Misfit.LARGE:
        return "the row makes more than 2 GB"
    if problem == Misfit.NO_BRANCH:
        return "no member of the struct is set, and the schema's union takes no null"
    if problem == Misfit.BRANCHES:
        return "several members of the struct are set, and a union has one of them"
    array = arrays[unfit.step]
    assert array is not None
    value = array[unfit.place]
    if problem == Misfit.SIZE:
        return f"it has {len(value.as_buffer())} bytes, and the schema's {step.wanted} has {step.a}"
    if problem == Misfit.SYMBOL:
        text = value.as_buffer().to_pybytes().decode(errors="replace")
        return f"{shortened(repr(text))} is no symbol of the schema's {step.wanted}"
    if problem == Misfit.DIGITS:
        return f"{shortened(str(value))} has more digits than the schema's {step.wanted}"
    return f"{shortened(str(value))} is too large for the schema's {step.wanted}"
