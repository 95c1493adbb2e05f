"""What decoders of values give: a column of the same length, and what did not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Protocol

import pyarrow as pa

NO_LIMIT = 2**63 - 1
LARGEST_BYTES, LARGEST_TIMES = 256 << 20, 64
"""Most memory that the columns take of one value: so much, and so many times its bytes."""
EXPANDED = f"its columns take more than {LARGEST_BYTES >> 20} MiB and {LARGEST_TIMES} times its bytes"


@dataclass(frozen=True)
class Malformed:
    """A value that does not fit: its row, the writer's schema id or None, the dotted field or "", and the reason."""

    row: int
    schema_id: int | None
    field: str
    reason: str


class Problem(IntEnum):
    """Why a value of a binary format is malformed."""

    SHORT = 1
    OVERLONG = auto()
    NEGATIVE = auto()
    LARGE = auto()
    EXPANDED = auto()
    BRANCH = auto()
    SYMBOL = auto()
    UNKNOWN_SYMBOL = auto()
    ITEMS = auto()
    FAR_TIME = auto()
    NO_TIME = auto()
    DIGITS = auto()
    EMPTY_DECIMAL = auto()
    DEPTH = auto()
    NOT_READ = auto()
    TAG = auto()
    GROUP = auto()
    GROUPS = auto()
    OTHER_TYPE = auto()
    UNKNOWN_NUMBER = auto()
    REQUIRED = auto()
    NO_UTF8 = auto()


REASONS = {
    Problem.SHORT: "the value ends too early",
    Problem.OVERLONG: "a number has too many bytes",
    Problem.NEGATIVE: "a length is negative",
    Problem.LARGE: "the column has more than 2 GB with it: read less at a time",
    Problem.EXPANDED: EXPANDED,
    Problem.BRANCH: "a union has no branch of this number",
    Problem.SYMBOL: "an enum has no symbol of this number",
    Problem.UNKNOWN_SYMBOL: "the reader schema's enum has neither the symbol nor a default",
    Problem.ITEMS: "an array or map has more items than the value has bytes",
    Problem.FAR_TIME: "a time is too far away for its column",
    Problem.NO_TIME: "a time is not one of a day",
    Problem.DIGITS: "a decimal has more digits than its type",
    Problem.EMPTY_DECIMAL: "a decimal has no bytes",
    Problem.DEPTH: "more than 1000 types are inside each other",
    Problem.TAG: "a field has the number 0, or a wire type that there is not",
    Problem.GROUP: "a group ends that has not begun",
    Problem.GROUPS: "more than 100 groups are inside each other",
    Problem.OTHER_TYPE: "the field was written with another type",
    Problem.UNKNOWN_NUMBER: "an enum has no value of this number",
    Problem.REQUIRED: "a required field is missing",
    Problem.NO_UTF8: "a text is no UTF-8",
}


class ValueDecoder(Protocol):
    """Decodes a column of values to one of `type`.

    `values` is binary with 32-bit offsets; null gives null, and so does a malformed value. `ids` are the ids or GUIDs
    of schemas, a row each, where they are not in the values. Nothing but a ``Malformed`` comes of any bytes.

    The column has fewer rows than `values` where the first of them, one at least, take `most_bytes`.
    """

    type: pa.DataType

    def decode(
        self, values: pa.Array, ids: Sequence[int | str | None] | None = None, most_bytes: int = NO_LIMIT
    ) -> tuple[pa.Array, list[Malformed]]: ...
