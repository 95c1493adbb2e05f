"""The columns of a record: Spark's schema and Arrow's, side by side.

Names, types and order are those of Spark's own kafka source (``KafkaRecordToRowConverter.kafkaSchema``).
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMNS = (
    #  name             Spark's DDL                                Arrow
    ("key", "binary", pa.binary()),
    ("value", "binary", pa.binary()),
    ("topic", "string", pa.string()),
    ("partition", "int", pa.int32()),
    ("offset", "bigint", pa.int64()),
    ("timestamp", "timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", "int", pa.int32()),
    ("headers", "array<struct<key: string, value: binary>>", pa.list_(pa.field("element", HEADER))),
)


def _columns(include_headers: bool) -> tuple[tuple[str, str, pa.DataType], ...]:
    return COLUMNS if include_headers else COLUMNS[:-1]


def spark_schema(include_headers: bool) -> str:
    """The schema ``load()`` reports, as DDL; ``headers`` only with includeHeaders=true.

    As text, because the process that Spark asks for it has no SparkContext to parse DDL with.
    """
    return ", ".join(f"{name} {spark}" for name, spark, _ in _columns(include_headers))


@cache
def arrow_schema(include_headers: bool) -> pa.Schema:
    """The schema of every RecordBatch a task yields; Spark checks only the first, so all must have exactly it."""
    return pa.schema([pa.field(name, arrow) for name, _, arrow in _columns(include_headers)])
