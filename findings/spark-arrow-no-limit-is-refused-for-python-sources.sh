#!/bin/bash
# pyspark 4.3.0, Python 3.11, OpenJDK 17.
#
# Guess: spark.sql.execution.arrow.maxRecordsPerBatch=0 is "no limit" everywhere, as Spark's description of the setting says
# ("If set to zero or negative there is no limit"), and as pandas UDFs take it.
# Instead: every read of a data source in Python fails with an AssertionError, "The maximum arrow batch size should be greater
# than 0", also of a source that yields Arrow batches of its own size, to which the limit means nothing.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 numpy==2.4.6
cat > "$work/read.py" <<'PROGRAM'
import logging

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType


class Batches(DataSourceReader):
    def read(self, partition):
        yield pa.record_batch({"n": pa.array([1, 2, 3], pa.int64())})


class Arrow(DataSource):
    @classmethod
    def name(cls):
        return "arrow_batches"

    def schema(self):
        return "n bigint"

    def reader(self, schema):
        return Batches()


@pandas_udf(LongType())
def doubled(n):
    return 2 * n


logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Arrow)
setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
print("pyspark", spark.version)


def tried(read):
    try:
        return str(read())
    except Exception as error:
        return [line for line in str(error).splitlines() if "Error: " in line][-1]


found = {}
for value in ("10000", "0", "-1"):
    spark.conf.set(setting, value)
    found[value] = [
        tried(lambda: spark.range(3).select(doubled("id")).count()),
        tried(lambda: spark.read.format("arrow_batches").load().count()),
    ]
    print(f"{setting}={value}: pandas UDF {found[value][0]}, Python source {found[value][1]}")
assert [udf for udf, _ in found.values()] == ["3"] * 3
assert found["10000"][1] == "3"
assert all("should be greater than 0" in found[value][1] for value in ("0", "-1"))
PROGRAM
PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 "$work/venv/bin/python" "$work/read.py" 2>"$work/err" || { tail -n 5 "$work/err"; exit 1; }
