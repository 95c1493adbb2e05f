#!/bin/bash
# pyspark 4.3.0, Python 3.11, OpenJDK 17.
#
# Guess: the DDL text that a Python data source returns from schema() means the same in every session, as the source, and
# not the session, knows what it yields.
# Instead: the session of whoever reads parses it. With spark.sql.timestampType=TIMESTAMP_NTZ a column "at timestamp" is a
# TIMESTAMP_NTZ, and rows with aware datetimes, which were right before, are refused. With
# spark.sql.ansi.enforceReservedKeywords=true the text is a syntax error: offset is a word of SQL. A StructType is the
# same everywhere.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 numpy==2.4.6
cat > "$work/read.py" <<'PROGRAM'
import logging
from datetime import datetime, timezone

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import LongType, StructType, TimestampType

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


class OneRow(DataSourceReader):
    def read(self, partition):
        yield AT, 7


class Text(DataSource):
    @classmethod
    def name(cls):
        return "text_schema"

    def schema(self):
        return "at timestamp, offset bigint"

    def reader(self, schema):
        return OneRow()


class Typed(Text):
    @classmethod
    def name(cls):
        return "typed_schema"

    def schema(self):
        return StructType().add("at", TimestampType()).add("offset", LongType())


logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Text)
spark.dataSource.register(Typed)
print("pyspark", spark.version)


def seen(source):
    kinds = "no schema,"
    try:
        found = spark.read.format(source).load()
        kinds = found.schema.simpleString()
        return f"{kinds} {found.count()} row"
    except Exception as error:
        said = [line for line in str(error).splitlines() if "Error" in line or "ERROR" in line]
        return f"{kinds} {said[-1][:90]}"


found = {}
for setting, value in (
    ("spark.app.name", "as it comes"),
    ("spark.sql.timestampType", "TIMESTAMP_NTZ"),
    ("spark.sql.ansi.enforceReservedKeywords", "true"),
):
    spark.conf.set(setting, value)
    found[setting] = [seen("text_schema"), seen("typed_schema")]
    print(f"{setting}={value}", *found[setting], sep="\n  ")
    spark.conf.unset(setting)
same = "struct<at:timestamp,offset:bigint> 1 row"
assert all(typed == same for _, typed in found.values())
assert found["spark.app.name"][0] == same
assert "timestamp_ntz" in found["spark.sql.timestampType"][0]
assert "PARSE_SYNTAX_ERROR" in found["spark.sql.ansi.enforceReservedKeywords"][0]
PROGRAM
PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 "$work/venv/bin/python" "$work/read.py" 2>"$work/err" || { tail -n 5 "$work/err"; exit 1; }
