#!/usr/bin/env bash
# Spark 4.3.0 (pyspark from PyPI) with spark-avro 4.2.0 and the Avro 1.12.1 that Spark ships; from_avro, option avroSchema, mode FAILFAST;
# fastavro 1.13.1 and avro 1.12.2 (Apache's for Python). Events are an Order or, since a new version, a Cancellation; a reader
# keeps its schema, which has only Order, with a default for each field.
# Guess: a Cancellation is an error, as records match by name in Avro's rules, and as both libraries of Python say.
# Instead it is an Order, of the defaults: number 0, amount 0. Java's reader takes a record for any other whose fields have defaults
# or are there, of whatever name, with and without its fast reader. Java's own check of compatibility says that the schemas do not fit.
# Of an enum the name has to match.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile pyspark==4.3.0 fastavro==1.13.1 avro==1.12.2
cd "$folder"
curl -sfO https://repo1.maven.org/maven2/org/apache/spark/spark-avro_2.13/4.2.0/spark-avro_2.13-4.2.0.jar
cat > program.py <<'PYTHON'
import io
import json
import sys

import avro.errors
import avro.io
import avro.schema
import fastavro
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.avro.functions import from_avro

FAST = sys.argv[1]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "512m")
builder = builder.config("spark.driver.extraJavaOptions", f"-Dorg.apache.avro.fastread={FAST}")
spark = builder.config("spark.jars", "spark-avro_2.13-4.2.0.jar").getOrCreate()


def event(*types):
    return {"type": "record", "name": "Event", "fields": [{"name": "what", "type": list(types)}]}


def record(name, *fields, **more):
    return {"type": "record", "name": name, "fields": [{"name": field, "type": "int", **more} for field in fields]}


def enum(name):
    return {"type": "enum", "name": name, "symbols": ["RED"]}


def read(value, writer, reader):
    column = from_avro("value", json.dumps(writer), {"avroSchema": json.dumps(reader), "mode": "FAILFAST"}).alias("event")
    return spark.createDataFrame([(bytearray(value),)], "value binary").select(column).first().event.what


written = event(record("Order", "number"), record("Cancellation", "reference"))
expected = event("null", record("Order", "number", "amount", default=0))
order, cancellation = b"\0\x0e", b"\2\x12"
found = [read(value, written, expected).asDict() for value in (order, cancellation)]
print("fast reader", FAST, "from_avro reads", *found)
assert found == [{"number": 7, "amount": 0}, {"number": 0, "amount": 0}]
parse = spark._jvm.org.apache.avro.Schema.Parser
check = spark._jvm.org.apache.avro.SchemaCompatibility.checkReaderWriterCompatibility
said = check(*(parse().parse(json.dumps(schema)) for schema in (expected, written))).getType().toString()
print("Java's check says", said)
assert said == "INCOMPATIBLE"
try:
    read(b"\2\0", event("null", enum("Colour")), event("null", enum("Mood")))
    sys.exit("an enum of another name was read")
except Py4JJavaError as error:
    refusal = "Found Colour, expecting union[null, Mood]"
    print("of an enum:", refusal)
    assert refusal in str(error)
try:
    fastavro.schemaless_reader(io.BytesIO(cancellation), written, expected)
    sys.exit("fastavro read it")
except fastavro.read.SchemaResolutionError as error:
    print("fastavro:", type(error).__name__)
schemas = [avro.schema.parse(json.dumps(schema)) for schema in (written, expected)]
try:
    avro.io.DatumReader(*schemas).read(avro.io.BinaryDecoder(io.BytesIO(cancellation)))
    sys.exit("avro read it")
except avro.errors.SchemaResolutionException as error:
    print("avro of Python:", type(error).__name__)
PYTHON
for fast in true false; do
    "$folder/venv/bin/python" program.py "$fast" 2> "$folder/log" || { tail -5 "$folder/log"; exit 1; }
done
