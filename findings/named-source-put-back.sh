#!/usr/bin/env bash
# Spark 4.3.0 (pyspark from PyPI), named streaming sources (DataStreamReader.name, source evolution), offset log version 2.
# Guess: the log has a line of JSON for each source in the query's order, as in version 1, with "-" for one that is away;
# and a source that is taken out and put back under its name goes on where it was.
# Instead: a line is `name:{json}`, in another order than the query's; a source that is away has no line from the next
# batch on, so that one put back begins anew, without a warning, and its rows come again.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.3.0
cd "$folder"
cat > program.py <<'PYTHON'
import pathlib
import time

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
checkpoint = pathlib.Path.cwd() / "checkpoint"


def run(*names):
    """Two batches; returns the first value of each source, and the lines of the offset log."""
    first = {}
    streams = [
        spark.readStream.name(source).format("rate-micro-batch").option("rowsPerBatch", 10).load().withColumn("of", lit(source))
        for source in names
    ]
    rows = streams[0] if len(streams) == 1 else streams[0].union(streams[1])

    def see(batch, number):
        for row in batch.groupBy("of").agg({"value": "min"}).collect():
            first.setdefault(row["of"], row["min(value)"])

    query = rows.writeStream.foreachBatch(see).option("checkpointLocation", str(checkpoint)).start()
    while query.isActive and len([progress for progress in query.recentProgress if progress.numInputRows]) < 2:
        time.sleep(0.1)
    query.stop()
    log = max((file for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal()), key=lambda f: int(f.name))
    version, _, *lines = log.read_text().splitlines()
    print(f"query of {names}: first values {first}, offset log {version} {lines}")
    return first, version, lines


print("pyspark", pyspark.__version__)
first, version, lines = run("one", "two")
assert (first, version) == ({"one": 0, "two": 0}, "v2")
assert sorted(line.split(":")[0] for line in lines) == ["one", "two"]
first, _, lines = run("two")
assert first["two"] > 0, "it goes on"
assert [line.split(":")[0] for line in lines] == ["two"]
first, _, lines = run("one", "two")
assert first["two"] > 0, "it goes on"
assert first["one"] == 0, "and the one that was put back begins anew"
PYTHON
"$folder/venv/bin/python" program.py 2> "$folder/log" || { tail -5 "$folder/log"; exit 1; }
