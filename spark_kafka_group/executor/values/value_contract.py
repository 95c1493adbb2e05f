"""What decoders of values give: a column of the same length, and what did not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
