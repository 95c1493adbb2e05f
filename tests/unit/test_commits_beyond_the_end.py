"""A commit beyond the end of its log, as after a truncation, takes nothing from the lag of other partitions."""

import json

from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_group.explore.group_lag import Lag
from spark_kafka_group.live.bar import lag_of
from spark_kafka_group.tools.describe import PartitionRow
from spark_kafka_group.values.offsets import GROUP_KEY, TopicPartition


def row(partition, committed, end):
    lag = None if end is None else end - committed
    return PartitionRow(TopicPartition("orders", partition), committed, end, lag, None, None, None, None)


def test_a_commit_beyond_the_end_takes_nothing_from_the_lag_in_a_table():
    lag = Lag((row(0, 900, 100), row(1, 50, 57), row(2, 5, None)), "billing", "Empty")
    assert lag.records == 7
    assert lag.title().endswith("7 records behind")
    assert str(lag).endswith("\n1 partition without a commit or a leader, whose lag is not known")
    assert Lag((row(1, 50, 57),), "billing", "Empty").remark() == ""


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
