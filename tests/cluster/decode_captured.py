"""Decodes captured records with the compiled decoder that this Python has installed; prints where that is."""

import json
from pathlib import Path

import pyspark_groupkafka  # noqa: F401 - Spark finds the source by it
from spark_kafka_group.executor.decode import load
from spark_kafka_group.values.schema import EVERY

CAPTURED = Path(__file__).parents[1] / "decode" / "captured"
TOPIC = "lz4"

produced = [record for record in json.loads((CAPTURED / "captured.json").read_text()) if record[0] == TOPIC]
twin = load("c")
builder = twin.RecordBatchBuilder(columns=EVERY, check_crcs=True, unpacked_limit=1 << 26, target_bytes=1 << 26)
builder.append(TOPIC, 0, (CAPTURED / f"{TOPIC}.bin").read_bytes(), 0, 0, 2**63 - 1, None)
rows = builder.finish().to_pylist()
if [row["offset"] for row in rows] != [record[1] for record in produced] or not rows:
    raise SystemExit(f"{twin.__file__} gives {len(rows)} records, {len(produced)} were produced")
print(twin.__file__)
