#!/usr/bin/env bash
# Spark 4.3.0 (pyspark from PyPI) with spark-avro 4.2.0; from_avro of schemas that are unions themselves, mode PERMISSIVE.
# Guess: the null of ["null", "int"] is null, and ["int", "string"] is a struct with a member for each, as in a field.
# Instead: the null is 0 (false for a boolean), where nothing is malformed; and every value of ["int", "string"] is
# malformed, though from_avro gives the struct as its type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.3.0
cd "$folder"
curl -sfO https://repo1.maven.org/maven2/org/apache/spark/spark-avro_2.13/4.2.0/spark-avro_2.13-4.2.0.jar
cat > program.py <<'PYTHON'
import json

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.jars", "spark-avro_2.13-4.2.0.jar").getOrCreate()


def read(schema, value, **options):
    column = from_avro("value", json.dumps(schema), options).alias("value")
    rows = spark.createDataFrame([(bytearray(value),)], "value binary").select(column)
    found = rows.first().value
    print(schema, value, rows.schema["value"].dataType.simpleString(), found)
    return found


assert read(["null", "int"], b"\0", mode="FAILFAST") == 0
assert read(["null", "boolean"], b"\0", mode="FAILFAST") is False
assert read(["int", "string"], b"\0\x0e", mode="PERMISSIVE").asDict() == {"member0": None, "member1": None}
field = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["int", "string"]}]}
assert read(field, b"\0\x0e", mode="PERMISSIVE").f.asDict() == {"member0": 7, "member1": None}
PYTHON
"$folder/venv/bin/python" program.py 2> "$folder/log" || { tail -5 "$folder/log"; exit 1; }
