"""The instructions by which both twins read Avro values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import NamedTuple

from spark_kafka_group.executor.values.value_contract import REASONS, Problem

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


class Instruction(NamedTuple):
    """One step of a program."""

    do: Do
    c: int = -1
    a: int = 0
    b: int = 0


@dataclass(frozen=True)
class Program:
    """Instructions, the dotted field of each, and the tables that they name.

    `unlike`: fields whose numbers are read in another unit or scale than they were written in, and in which.
    """

    instructions: tuple[Instruction, ...]
    fields: tuple[str, ...]
    places: tuple[tuple[int, ...], ...]
    symbols: tuple[tuple[bytes | None, ...], ...]
    constants: tuple[bytes, ...]
    reasons: tuple[str, ...]
    unlike: tuple[str, ...] = ()

    def why(self, problem: int, at: int) -> tuple[str, str]:
        """Field and reason of a malformed value, which failed at an instruction."""
        step = self.instructions[at]
        return self.fields[at], self.reasons[step.a] if problem == Problem.NOT_READ else REASONS[Problem(problem)]
