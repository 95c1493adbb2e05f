"""The lag that a bar shows."""

import json

from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_group.live.bar import lag_of
from spark_kafka_group.values.offsets import GROUP_KEY


def test_a_commit_beyond_the_end_takes_nothing_from_the_lag_in_progress():
    source = {
        "description": "groupkafka", "inputRowsPerSecond": 0, "processedRowsPerSecond": 0, "numInputRows": 0,
        "startOffset": None, "metrics": {},
        "endOffset": json.dumps({GROUP_KEY: {"generation": 1}, "orders": {"0": 900, "1": 50}}),
        "latestOffset": json.dumps({"orders": {"0": 100, "1": 57}}),
    }  # fmt: skip
    progress = {
        "id": "00000000-0000-0000-0000-000000000001", "runId": "00000000-0000-0000-0000-000000000002",
        "name": None, "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 0, "batchDuration": 1, "durationMs": {},
        "eventTime": {}, "stateOperators": [], "sources": [source], "numInputRows": 0, "inputRowsPerSecond": 0,
        "processedRowsPerSecond": 0, "observedMetrics": {},
        "sink": {"description": "noop", "numOutputRows": 0, "metrics": {}},
    }  # fmt: skip
    assert lag_of(StreamingQueryProgress.fromJson(progress)) == 7
