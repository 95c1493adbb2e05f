#!/bin/bash
# pyspark 4.3.0 (and 4.2.0), Python 3.11, OpenJDK 17.
#
# Guess: an error that a Python data source raises in streamReader(), such as "column x is missing", is the error of the
# query, as one that reader() raises is the error of a batch read.
# Instead: the query ends with "UnboundLocalError: cannot access local variable 'reader'". The process that Spark starts for
# a stream stops the reader in a finally block, also where there is none, and the query's error is that of the stop. The
# source's own is part of the traceback above it. A reader that raises at its first call does not lose its error.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3 numpy==2.4.6
cat > "$work/read.py" <<'PROGRAM'
import logging
import sys
import tempfile

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader


class Refusing(DataSourceStreamReader):
    def initialOffset(self):
        raise ValueError("column x is missing")

    def read(self, partition):
        yield ("never",)


class Picky(DataSource):
    @classmethod
    def name(cls):
        return "picky"

    def schema(self):
        return "value string"

    def reader(self, schema):
        raise ValueError("column x is missing")

    def streamReader(self, schema):
        if self.options["raise"] == "at once":
            raise ValueError("column x is missing")
        return Refusing()


logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.dataSource.register(Picky)
print("pyspark", spark.version, "python", sys.version.split()[0])


def streamed(when):
    query = spark.readStream.format("picky").option("raise", when).load().writeStream.format("noop")
    query.option("checkpointLocation", tempfile.mkdtemp(dir=sys.argv[1])).start().awaitTermination(100)


def last_line(read):
    try:
        read()
    except Exception as error:
        return [line for line in str(error).splitlines() if "Error: " in line][-1].rpartition("source: ")[2]


found = [
    last_line(lambda: spark.read.format("picky").load().count()),
    last_line(lambda: streamed("at once")),
    last_line(lambda: streamed("at the first call")),
]
print("reader() raises:", found[0])
print("streamReader() raises:", found[1])
print("its reader raises at the first call:", found[2])
assert "column x is missing" in found[0]
assert "column x is missing" in found[2]
assert "UnboundLocalError" in found[1] and "column x" not in found[1]
spark.stop()
PROGRAM
PYSPARK_PYTHON="$work/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 "$work/venv/bin/python" "$work/read.py" "$work" 2>"$work/err" || { tail -n 5 "$work/err"; exit 1; }
