#!/bin/bash
# pyspark 4.3.0, Python 3.11, OpenJDK 17.
#
# Guess: spark.read.option(name, None) is an option that is not given. pyspark's own type of the value is Optional, and
# Spark's file formats read on.
# Instead: a data source in Python fails with INTERNAL_ERROR ("please report it"). The JVM sends each option as text to the
# process that makes the source, and null has no text. The error names no option, and the source never sees it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 numpy==2.4.6
cat > "$work/read.py" <<'PROGRAM'
import logging
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader


class OneRow(DataSourceReader):
    def read(self, partition):
        yield (1,)


class Optional(DataSource):
    @classmethod
    def name(cls):
        return "optional"

    def schema(self):
        return "n int"

    def reader(self, schema):
        return OneRow()


logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Optional)
print("pyspark", spark.version)


def tried(read):
    try:
        return str(read.count())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


with open(f"{sys.argv[1]}/rows.csv", "w") as file:
    file.write("1\n")
print("a source in Python, without the option:", tried(spark.read.format("optional").load()))


def of_none():
    return spark.read.format("optional").option("limitation", None).load().count()


csv = tried(spark.read.option("nullValue", None).csv(f"{sys.argv[1]}/rows.csv"))
print("csv, option None:", csv)
try:
    python = str(of_none())
except Exception as error:
    python = f"{type(error).__name__}: {str(error).splitlines()[0]}"
print("a source in Python, option None:", python)
assert csv == "1"
assert "INTERNAL_ERROR" in python and "limitation" not in python
PROGRAM
PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 "$work/venv/bin/python" "$work/read.py" "$work" 2>/dev/null
