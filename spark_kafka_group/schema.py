"""The columns of a record: Spark's schema and Arrow's, side by side.

Names, types and order are those of Spark's own kafka source (``KafkaRecordToRowConverter.kafkaSchema``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMNS = {
    # Spark's DDL, and Arrow's type
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "timestampType": ("int", pa.int32()),
    "headers": ("array<struct<key: string, value: binary>>", pa.list_(pa.field("element", HEADER))),
}
EVERY = tuple(COLUMNS)
USUAL = EVERY[:-1]
"""Without the headers, as in Spark's own source."""


def spark_schema(columns: tuple[str, ...]) -> str:
    """The schema ``load()`` reports, as DDL.

    As text, because the process that Spark asks for it has no SparkContext to parse DDL with.
    """
    return ", ".join(f"{name} {COLUMNS[name][0]}" for name in columns)


def why_others(given: Sequence[tuple[str, str]], columns: tuple[str, ...]) -> str | None:
    """Why a read cannot have the columns that a table or a user gives it; None if they are its own.

    Parameters
    ----------
    given
        Names and Spark's types.
    """
    own = [(name, COLUMNS[name][0].replace(" ", "")) for name in columns]
    if [(name.lower(), kind) for name, kind in given] == [(name.lower(), kind) for name, kind in own]:
        return None
    wanted, asked = (", ".join(f"{name} {kind}" for name, kind in found) for found in (own, given))
    return (
        f"the table, or schema(), has the columns {asked}, and the source has {wanted}: give these, in this order, or "
        f"choose some of them with the option columns"
    )


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of every RecordBatch a task yields; Spark checks only the first, so all must have exactly it."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in columns])
