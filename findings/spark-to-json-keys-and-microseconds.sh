#!/usr/bin/env bash
# Spark 4.3.0 (pyspark from PyPI), to_json, as it makes values for Kafka.
# Guess: to_json writes the key of a map as it writes the same value in a field, and a timestamp with its microseconds, so that
# from_json gives the rows back.
# Instead the key of a map is Spark's number for it, or Java's: a date is 20455, a timestamp 1767323045123456, and a binary the name
# of an object, as [B@6395791c, another in each run, from which nothing is had back. A timestamp in a field loses its microseconds,
# unless timestampFormat says otherwise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.3.0
cd "$folder"
cat > program.py <<'PYTHON'
import json

from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
micros = "map('timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\")"


def written(value, *options):
    """The value in a field, and as the key of a map."""
    arguments = ", ".join([f"named_struct('v', {value}, 'm', map({value}, 1))", *options])
    made = spark.sql(f"SELECT to_json({arguments}) j").first().j
    print(spark.version, value, made)
    return json.loads(made)["v"], list(json.loads(made)["m"])


assert written("date'2026-01-02'") == ("2026-01-02", ["20455"])
time = "timestamp'2026-01-02 03:04:05.123456'"
assert written(time) == ("2026-01-02T03:04:05.123Z", ["1767323045123456"])
assert written(time, micros) == ("2026-01-02T03:04:05.123456Z", ["1767323045123456"])
field, keys = written("cast('ab' as binary)")
assert field == "YWI=" and keys[0].startswith("[B@")
PYTHON
"$folder/venv/bin/python" program.py 2> "$folder/log" || { tail -5 "$folder/log"; exit 1; }
