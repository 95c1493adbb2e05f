"""The steps by which both twins write values of a column, and what they say of rows that do not fit.

A plan is a tree of steps in a tuple, each before those in it. A step takes its values from one array: the column, a
field of a struct, the items of a list, or the keys or values of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

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
    # Protobuf
    MESSAGE = auto()
    """A struct behind its length, or before the tag a that ends a group."""
    WRAPPER = auto()
    """A value of any type that is in a message of its own, in the same way."""
    PACKED = auto()
    """Items behind their length."""
    REPEATED = auto()
    """Items, each with its tag."""
    ENTRIES = auto()
    """A map: entries, each behind the tag a and its length."""
    WHOLE = auto()
    """An integer of a bytes, or a decimal of 16, that has to be in ``RANGES[b]``, in the ``Form`` c."""
    SECONDS = auto()
    """The whole seconds of microseconds, in the ``Form`` c; rounded down, or towards 0 if b is 1."""
    NANOS = auto()
    """What is left of them, in nanoseconds."""
    UTF8 = auto()
    """Text behind its length, with a replacement character for what is no UTF-8."""
    BLOB = auto()
    """Bytes behind their length."""
    SYMBOL = auto()
    """A name of an enum; `symbols` are names, and behind each what is written."""
    NUMBERED = auto()
    """An integer of a bytes that an enum has; `symbols` are its numbers, of 8 bytes each."""


class Form(IntEnum):
    """How Protobuf writes a whole number."""

    VARINT = 0
    ZIGZAG = auto()
    UNSIGNED = auto()
    """A varint of the lowest 32 bits."""
    FOUR_BYTES = auto()
    EIGHT_BYTES = auto()


RANGES = (None, (-(1 << 31), 1 << 31), (0, 1 << 32), (0, 1 << 63), (0, 1 << 64))
"""The least of whole numbers, and the end. None: all fit."""


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
SAME = -2
"""In place of a field's number: the step takes the array of the step that it is in."""


@dataclass(frozen=True)
class Step:
    """A step: `field` is the number of its field in a struct, or ``SAME``; `name` is the dotted name of it.

    `before`: what is written before a value: a comma and a name, or the number of a union's branch.
    `null`: what is written for null; None if the schema does not take null.
    `a`, `b`, `c`: numbers, by ``Put``.
    `symbols`: of an enum.
    `wanted`: what the schema has here, for errors.
    `implicit`: whether a value whose bytes are all 0 is left out.
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
    implicit: bool = False


@dataclass(frozen=True)
class WritePlan:
    """Steps, the first for the column itself.

    `zone`: of timestamps in JSON.
    `may_fail`: whether there may be rows that do not fit.
    """

    steps: tuple[Step, ...]
    may_fail: bool = False
    zone: str = "UTC"


class PlanMaker:
    """Collects the steps of a plan, each before those in it."""

    def __init__(self) -> None:
        self.steps: list[Step | None] = []
        self.may_fail = False

    def begun(self) -> int:
        """The number of a step that comes before those in it, and is set after them."""
        self.steps.append(None)
        return len(self.steps) - 1

    def added(self, step: Step) -> int:
        """The number of a step that has none in it."""
        self.steps.append(step)
        return len(self.steps) - 1

    def plan(self, zone: str = "UTC") -> WritePlan:
        """The plan, after all steps."""
        return WritePlan(tuple(step for step in self.steps if step is not None), self.may_fail, zone)


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
        for child in step.children:
            if plan.steps[child].field == SAME:
                bind(child, array)
            elif plan.steps[child].field >= 0:
                bind(child, array.field(plan.steps[child].field))
        if pa.types.is_map(kind):
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
    Put.DECIMAL: 128, Put.DECIMAL_FIXED: 128, Put.SECONDS: 64, Put.NANOS: 64,
}  # fmt: skip
"""Of the numbers that steps take."""
OTHERS: dict[Put, Callable[[pa.DataType], bool]] = {
    Put.OBJECT: pa.types.is_struct, Put.RECORD: pa.types.is_struct, Put.UNION: pa.types.is_struct,
    Put.ARRAY: pa.types.is_list, Put.LIST: pa.types.is_list, Put.DICT: pa.types.is_map, Put.MAP: pa.types.is_map,
    Put.BOOLEAN: pa.types.is_boolean, Put.TRUE_OR_FALSE: pa.types.is_boolean, Put.MESSAGE: pa.types.is_struct,
    Put.PACKED: pa.types.is_list, Put.REPEATED: pa.types.is_list, Put.ENTRIES: pa.types.is_map,
    Put.WRAPPER: lambda _: True,
}  # fmt: skip


def _is_for(step: Step, kind: pa.DataType) -> bool:
    """Whether a step takes values of Arrow's type."""
    if step.do == Put.NULL:
        return bool(pa.types.is_null(kind))
    if step.do in OTHERS:
        return bool(OTHERS[step.do](kind))
    bits = 8 * step.a if step.do in (Put.NUMBER, Put.INTEGER, Put.WHOLE, Put.NUMBERED) else BITS.get(step.do)
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
    if problem == Misfit.BRANCHES and step.field == SAME:
        return f"several of {step.wanted} are set, and a oneof has one of them"
    if problem == Misfit.BRANCHES:
        return "several members of the struct are set, and a union has one of them"
    array = arrays[unfit.step]
    assert array is not None
    value = array[unfit.place]
    if problem == Misfit.SIZE:
        return f"it has {len(value.as_buffer())} bytes, and the schema's {step.wanted} has {step.a}"
    if problem == Misfit.SYMBOL:
        if step.do == Put.NUMBERED:
            return f"{value} is no number of the schema's {step.wanted}"
        text = value.as_buffer().to_pybytes().decode(errors="replace")
        return f"{shortened(repr(text))} is no symbol of the schema's {step.wanted}"
    if problem == Misfit.DIGITS:
        return f"{shortened(str(value))} has more digits than the schema's {step.wanted}"
    return f"{shortened(str(value))} is out of range for the schema's {step.wanted}"


def places(spark: StructType, fields: Sequence[str], owner: str, name: str) -> dict[str, int]:
    """The places of a struct's fields, by the names that the schema has for them: the same, else in another case.

    `fields`: names of the schema's `owner`. `name`: the dotted name of the struct.
    Raises ValueError for a field that the schema does not have, or has twice.
    """
    found: dict[str, int] = {}
    of_any_case: dict[str, list[str]] = {}
    for field in fields:
        of_any_case.setdefault(field.lower(), []).append(field)
    for place, given in enumerate(spark.names):
        alike = of_any_case.get(given.lower(), [])
        same = [field for field in alike if field == given] or alike
        path = part_of(name, given)
        if not same:
            have = ", ".join(fields[:20])
            raise ValueError(f"the schema's {owner} has no field for the column's {path}: it has {have}")
        if len(same) > 1:
            either = " or ".join(same)
            raise ValueError(f"the schema's {owner} has several fields for the column's {path}: name it {either}")
        if same[0] in found:
            raise ValueError(f"{place_of(name)} has two fields for the schema's field {same[0]}: leave one")
        found[same[0]] = place
    return found


def part_of(name: str, part: str) -> str:
    """The dotted name of a field, or of what arrays and maps have: ``element``, ``key`` and ``value``, as for Spark."""
    return f"{name}.{part}".lstrip(".")


def place_of(name: str) -> str:
    """How messages call a part of a column."""
    return f"the field {name}" if name else "the column"


def varint(number: int) -> bytes:
    """A whole number of 64 bits as Protobuf has it."""
    rest, data = number & 0xFFFF_FFFF_FFFF_FFFF, bytearray()
    while rest > 0x7F:
        data.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*data, rest])
