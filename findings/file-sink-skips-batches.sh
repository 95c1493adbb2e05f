#!/usr/bin/env bash
# Spark 4.3.0 (pyspark from PyPI), a streaming query into parquet.
# Guess: a query with a new checkpoint beside the output folder of an earlier query appends its rows, or fails.
# Instead: it succeeds, commits its batches, and writes none of their rows, without a warning: the file sink skips each
# batch whose number is in the folder's _spark_metadata, though another query has written it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.3.0
cd "$folder"
cat > program.py <<'PYTHON'
import pathlib

import pyspark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
here = pathlib.Path.cwd()
(here / "input").mkdir()


def run(checkpoint, lines):
    for number, line in enumerate(lines):
        (here / f"input/{checkpoint}-{number}").write_text(line)
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(here / "input"))
    writer = rows.writeStream.format("parquet").option("path", str(here / "out")).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(here / checkpoint)).start()
    query.awaitTermination()
    written = sorted(row.value for row in spark.read.parquet(str(here / "out")).collect())
    commits = sorted(p.name for p in (here / checkpoint / "commits").iterdir() if p.name.isdecimal())
    print(f"{checkpoint}: error {query.exception()}, batches committed {commits}, rows in the folder {written}")
    return written, commits


print("pyspark", pyspark.__version__)
first, _ = run("first", ["a", "b"])
for old in (here / "input").iterdir():
    old.unlink()
second, commits = run("second", ["c", "d", "e"])
assert first == ["a", "b"]
assert commits == ["0", "1", "2"], "all three batches count as done"
assert len(second) == 3, "and two of them were not written"
PYTHON
"$folder/venv/bin/python" program.py 2> "$folder/log" || { tail -5 "$folder/log"; exit 1; }
