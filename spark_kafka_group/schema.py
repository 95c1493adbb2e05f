"""The columns of a record: Spark's schema and Arrow's, side by side.

Names, types and order are those of Spark's own kafka source (``KafkaRecordToRowConverter.kafkaSchema``).
"""

from __future__ import annotations

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


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of every RecordBatch a task yields; Spark checks only the first, so all must have exactly it."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in columns])
