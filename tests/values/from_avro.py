"""Spark's from_avro beside ours: the same cases through both, as columns that compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from spark_kafka_group.executor.values._columns_py import text_of
from spark_kafka_group.testing.download import cache_directory, once, retrieve

VERSION = "4.2.0"
"""The newest spark-avro on Maven Central; it runs in Spark 4.3 too."""
MOST = 100_000
"""Most items and bytes that Java's Avro may allocate for a value: it takes the length's word."""


def with_avro(spark: SparkSession) -> SparkSession:
    """A session of `spark` that has from_avro."""

    def make(parts: Path) -> None:
        retrieve("org.apache.spark", "spark-avro_2.13", VERSION, parts, "-notransitive")

    folder = once(cache_directory() / f"spark-avro-{VERSION}", make, f"downloading spark-avro {VERSION}, once")
    [jar] = folder.glob("spark-avro_2.13-*.jar")
    for limit in ("collectionItems", "bytes", "string"):
        spark._jvm.java.lang.System.setProperty(f"org.apache.avro.limits.{limit}.maxLength", str(MOST))  # type: ignore
    session = spark.newSession()
    for name, value in (
        ("wholeStage", "false"),
        ("factoryMode", "NO_CODEGEN"),
    ):  # code for a hundred columns takes long
        session.conf.set(f"spark.sql.codegen.{name}", value)
    session.sql(f"ADD JAR '{jar}'")
    return session


def read(spark: SparkSession, cases: list[Any], mode: str) -> tuple[StructType, list[pa.Array]]:
    """What from_avro makes of all cases: the type of each, and its column."""
    count = max(len(case.values) for case in cases)
    rows = [tuple(case.values[i] if i < len(case.values) else None for case in cases) for i in range(count)]
    names = [f"c{i}" for i in range(len(cases))]
    frame = spark.createDataFrame(rows, StructType([StructField(name, _binary()) for name in names])).coalesce(1)
    columns = [
        f"from_avro({name}, {_text(case.writer)}, map('mode', '{mode}', 'avroSchema', {_text(case.reader)})) {name}"
        for name, case in zip(names, cases, strict=True)
    ]
    read = frame.selectExpr(*columns)
    table = read.toArrow()
    columns = [
        pa.concat_arrays(table.column(name).chunks)[: len(case.values)] for name, case in zip(names, cases, strict=True)
    ]
    return read.schema, columns


def _binary() -> Any:
    from pyspark.sql.types import BinaryType

    return BinaryType()


def _text(schema: str) -> str:
    escaped = schema.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def plain(array: pa.Array) -> list[Any]:
    """Values that compare by their bits: times as numbers, text as bytes with replacements, maps in order of keys."""
    kind = array.type
    if pa.types.is_struct(kind):
        children = [plain(array.field(i)) for i in range(kind.num_fields)]
        names = [field.name for field in kind]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*children, strict=True)] or [{}] * len(array)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if pa.types.is_map(kind):
        keys, items = plain(array.keys), plain(array.items)
        return _lists(array, sorted, list(zip(keys, items, strict=True)))
    if pa.types.is_list(kind):
        return _lists(array, list, plain(array.values))
    if pa.types.is_string(kind):
        return [value if value is None else text_of(value) for value in array.cast(pa.binary(), safe=False).to_pylist()]
    if pa.types.is_floating(kind):
        return [value if value is None else repr(value) for value in array.to_pylist()]
    if pa.types.is_temporal(kind):
        return array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    return array.to_pylist()


def _lists(array: pa.Array, make: Any, values: list[Any]) -> list[Any]:
    ends = array.offsets.to_pylist()
    return [
        make(values[start:end]) if valid else None
        for start, end, valid in zip(ends, ends[1:], array.is_valid().to_pylist(), strict=False)
    ]
