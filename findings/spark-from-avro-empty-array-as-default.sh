#!/usr/bin/env bash
# Spark 4.3.0 (pyspark from PyPI) with spark-avro 4.2.0 and the Avro 1.12.1 that Spark ships; from_avro, option avroSchema.
# Guess: a record without the field `tags`, read with a schema that has gained it with the default [], has an empty array.
# Instead: that is so for an array, but not for an array that may be null: every record is malformed. Avro's fast reader,
# the default, makes the empty list of the field's type, which is a union, and fails (FastReaderBuilder.getDefaultingStep).
# With -Dorg.apache.avro.fastread=false the array is empty.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.3.0
cd "$folder"
curl -sfO https://repo1.maven.org/maven2/org/apache/spark/spark-avro_2.13/4.2.0/spark-avro_2.13-4.2.0.jar
cat > program.py <<'PYTHON'
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.jars", "spark-avro_2.13-4.2.0.jar")
spark = builder.config("spark.driver.extraJavaOptions", f"-Dorg.apache.avro.fastread={sys.argv[1]}").getOrCreate()


def record(*fields):
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, *fields]})


def read(kind):
    reader = record({"name": "tags", "type": kind, "default": []})
    value = from_avro("value", record(), {"avroSchema": reader, "mode": "PERMISSIVE"}).alias("value")
    return spark.createDataFrame([(bytearray(b"\x02"),)], "value binary").select(value).first().value.asDict()


array = {"type": "array", "items": "string"}
found = read(array), read([array, "null"])
print("fast reader", sys.argv[1], found)
good, malformed = {"id": 1, "tags": []}, {"id": None, "tags": None}
assert found == ((good, malformed) if sys.argv[1] == "true" else (good, good))
PYTHON
for fast in true false; do
  "$folder/venv/bin/python" program.py $fast 2> "$folder/log" || { tail -5 "$folder/log"; exit 1; }
done
