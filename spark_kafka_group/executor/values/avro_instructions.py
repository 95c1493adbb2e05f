"""The instructions by which both twins read Avro values, and what they say of values that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

from spark_kafka_group.executor.values.value_contract import EXPANDED

DAY_MICROS = 86_400_000_000
FRAMES = 1000
"""Most loops, calls and defaults inside each other, while a value is read."""
FREE_ITEMS = 100
"""So many items without bytes, as nulls, a value may have, besides one for each byte of it."""


class Do(IntEnum):
    """An instruction. `c` is a column, `a` and `b` are numbers; places are indexes of instructions."""

    END = auto()
    NULL = auto()
    """Add a null to c."""
    STRUCT = auto()
    """Add a struct to c; what fills its children follows."""
    BOOLEAN = auto()
    INT = auto()
    INT_AS_LONG = auto()
    INT_AS_FLOAT = auto()
    INT_AS_DOUBLE = auto()
    INT_AS_FLOAT_AS_DOUBLE = auto()
    INT_TIMES_1000 = auto()
    """Micro- from milliseconds, or nano- from microseconds; b is 1 for a time of a day."""
    LONG = auto()
    LONG_AS_FLOAT = auto()
    LONG_AS_DOUBLE = auto()
    LONG_AS_FLOAT_AS_DOUBLE = auto()
    LONG_TIMES_1000 = auto()
    FLOAT = auto()
    FLOAT_AS_DOUBLE = auto()
    DOUBLE = auto()
    STRING = auto()
    """Text behind its length: what is no UTF-8 is replaced."""
    BYTES = auto()
    FIXED = auto()
    """a bytes."""
    DECIMAL = auto()
    """Big-endian behind its length, of at most a digits."""
    DECIMAL_FIXED = auto()
    """b bytes, of at most a digits."""
    ENUM = auto()
    """The text of a symbol of table a."""
    LIST = auto()
    """Begin c: the place behind it is a; b is 1 if an item has no bytes."""
    LIST_NEXT = auto()
    """Go to a for one more item, if there is one."""
    MAP = auto()
    MAP_NEXT = auto()
    UNION = auto()
    """Go to the place that table a has for the branch."""
    JUMP = auto()
    """Go to a."""
    FAIL = auto()
    """The value has what the reader's schema does not: reason a."""
    DEFAULT = auto()
    """Read constant a up to DEFAULT_END."""
    DEFAULT_END = auto()
    SKIP_INT = auto()
    SKIP_LONG = auto()
    SKIP_FIXED = auto()
    """a bytes."""
    SKIP_BYTES = auto()
    """Bytes behind their length; a negative one is none, as in Java's Avro."""
    SKIP_LIST = auto()
    """Begin to skip items; the place behind them is a; b is 1 if an item has no bytes."""
    SKIP_NEXT = auto()
    SKIP_UNION = auto()
    CALL = auto()
    """Go to a, and come back at RETURN."""
    RETURN = auto()


class Problem(IntEnum):
    """Why a value is malformed."""

    SHORT = 1
    OVERLONG = auto()
    NEGATIVE = auto()
    BRANCH = auto()
    SYMBOL = auto()
    UNKNOWN_SYMBOL = auto()
    ITEMS = auto()
    FAR_TIME = auto()
    NO_TIME = auto()
    DIGITS = auto()
    EMPTY_DECIMAL = auto()
    DEPTH = auto()
    LARGE = auto()
    NOT_READ = auto()
    EXPANDED = auto()


REASONS = {
    Problem.SHORT: "the value ends too early",
    Problem.OVERLONG: "a number has too many bytes",
    Problem.NEGATIVE: "a length is negative",
    Problem.BRANCH: "a union has no branch of this number",
    Problem.SYMBOL: "an enum has no symbol of this number",
    Problem.UNKNOWN_SYMBOL: "the reader schema's enum has neither the symbol nor a default",
    Problem.ITEMS: "an array or map has more items than the value has bytes",
    Problem.FAR_TIME: "a time is too far away for its column",
    Problem.NO_TIME: "a time is not one of a day",
    Problem.DIGITS: "a decimal has more digits than its type",
    Problem.EMPTY_DECIMAL: "a decimal has no bytes",
    Problem.DEPTH: f"more than {FRAMES} types are inside each other",
    Problem.LARGE: "the column has more than 2 GB with it: read less at a time",
    Problem.EXPANDED: EXPANDED,
}


class Instruction(NamedTuple):
    """One step of a program."""

    do: Do
    c: int = -1
    a: int = 0
    b: int = 0


@dataclass(frozen=True)
class Program:
    """Instructions, the dotted field of each, and the tables that they name."""

    instructions: tuple[Instruction, ...]
    fields: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    symbols: tuple[tuple[bytes | None, ...], ...]
    constants: tuple[bytes, ...]
    reasons: tuple[str, ...]

    def why(self, problem: int, at: int) -> tuple[str, str]:
        """Field and reason of a malformed value, which failed at an instruction."""
        step = self.instructions[at]
        return self.fields[at], self.reasons[step.a] if problem == Problem.NOT_READ else REASONS[Problem(problem)]
