"""The columns of a record: Spark's schema and Arrow's, side by side.

Names, types and order are those of Spark's own kafka source (``KafkaRecordToRowConverter.kafkaSchema``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

COLUMNS = {
    # Spark's type, and Arrow's
    "key": (BinaryType(), pa.binary()),
    "value": (BinaryType(), pa.binary()),
    "topic": (StringType(), pa.string()),
    "partition": (IntegerType(), pa.int32()),
    "offset": (LongType(), pa.int64()),
    "timestamp": (TimestampType(), pa.timestamp("us", tz="UTC")),
    "timestampType": (IntegerType(), pa.int32()),
    "headers": (
        ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        pa.list_(pa.field("element", HEADER)),
    ),
}
EVERY = tuple(COLUMNS)
NO_TYPES: Mapping[str, DataType] = {}
USUAL = EVERY[:-1]  # without the headers, as in Spark's own source
COLUMNS |= dict.fromkeys(("rawKey", "rawValue"), COLUMNS["value"])


def spark_schema(columns: tuple[str, ...], typed: Mapping[str, DataType] = NO_TYPES) -> StructType:
    """The schema ``load()`` reports, not as text, which a session's settings change; `typed`: of decoded columns."""
    return StructType([StructField(name, typed.get(name) or COLUMNS[name][0]) for name in columns])


def why_others(given: StructType, columns: tuple[str, ...], typed: Mapping[str, DataType] = NO_TYPES) -> str | None:
    """Why a read cannot have the columns that a table or a user gives it; None if they are its own."""
    own, asked = (_named(schema) for schema in (spark_schema(columns, typed), given))
    if [(name.lower(), kind) for name, kind in asked] == [(name.lower(), kind) for name, kind in own]:
        never_null = ", ".join(field.name for field in given.fields if not field.nullable)
        # Spark believes it, and leaves IS NULL out of plans.
        return f"the table, or schema(), has NOT NULL for {never_null}: leave it out" if never_null else None
    wanted, others = (", ".join(f"{name} {kind}" for name, kind in found) for found in (own, asked))
    return (
        f"the table, or schema(), has the columns {others}, and the source has {wanted}: give these, in this order, or "
        f"choose some of them with the option columns"
    )


def _named(schema: StructType) -> list[tuple[str, str]]:
    """Names and types as Spark writes them, but for the type that the session's TIMESTAMP may not be."""
    kinds = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return [(name, "timestamp_ltz" if kind == "timestamp" else kind) for name, kind in kinds]


@cache
def arrow_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of every RecordBatch a task yields; Spark checks only the first, so all must have exactly it."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in columns])
