"""What Spark's from_json makes of documents: rows, and which are malformed, in one job for many schemas."""

from __future__ import annotations

import pyarrow as pa
from columns import plain
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, from_json, when
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampNTZType

CORRUPT = "_corrupt_record"


def from_json_of(spark, cases) -> list[tuple[list, list[bool] | None]]:
    """For each type and its documents: rows, and which are malformed, where the type is a struct."""
    places = [(case, value) for case, (_, values) in enumerate(cases) for value in values]
    table = pa.table(
        {"place": range(len(places)), "case": [case for case, _ in places], "value": [value for _, value in places]}
    )
    rows = spark.createDataFrame(table.cast(pa.schema({"place": pa.int32(), "case": pa.int32(), "value": pa.binary()})))
    columns = [
        when(col("case") == case, from_json(col("value").cast("string"), _with_corrupt(kind))).alias(f"case{case}")
        for case, (kind, _) in enumerate(cases)
    ]
    found = rows.coalesce(1).select("place", "case", *columns).toArrow().sort_by("place")
    of_case = found["case"].to_pylist()
    return [
        _rows_of(kind, found[f"case{case}"].filter(pa.array([each == case for each in of_case])))
        for case, (kind, _) in enumerate(cases)
    ]


def _with_corrupt(kind):
    return StructType([*kind.fields, StructField(CORRUPT, StringType())]) if isinstance(kind, StructType) else kind


def _rows_of(kind, column):
    rows = plain(column)
    if not isinstance(kind, StructType):
        return rows, None
    return rows, [row is not None and row.pop(CORRUPT) is not None for row in rows]


def fails_a_query(kind) -> bool:
    """Whether from_json ends the query for a string that is none, in each mode: of arrays, in no struct or map."""
    while isinstance(kind, ArrayType):
        kind = kind.elementType
    return isinstance(kind, TimestampNTZType)


def is_malformed(spark, kind, value: bytes) -> bool:
    """Whether from_json raises in its mode FAILFAST."""
    rows = spark.createDataFrame(pa.table({"value": pa.array([value], pa.binary())}))
    try:
        rows.select(from_json(col("value").cast("string"), kind, {"mode": "FAILFAST"})).toArrow()
    except PySparkException as error:
        if "MALFORMED_RECORD_IN_PARSING" not in str(error):
            raise
        return True
    return False
