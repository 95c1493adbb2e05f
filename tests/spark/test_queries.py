"""Queries as people write them over Spark's own kafka source: windows, joins, unions, limits, losses."""

import itertools
import json

import pytest
from kafka.structs import TopicPartition
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql.functions import window
from support import Record, name, options, produce, topic_with

from spark_kafka_group.testing import wait_until

NOW = 1_700_000_000_000


def numbers(values, partition=0, timestamp_ms=NOW):
    return [Record(partition, None, b"%d" % value, (), timestamp_ms) for value in values]


@pytest.fixture
def load(spark, kafka):
    """A stream of a topic's values, as numbers."""

    def make(topic, **more):
        stream = spark.readStream.format("groupkafka").options(**options(kafka, topic, **more)).load()
        return stream.selectExpr("cast(cast(value as string) as int) value", "timestamp")

    return make


@pytest.fixture
def run(tmp_path):
    """Start a query that keeps the rows of each batch; stops it in the end."""
    started = []

    def start(df, trigger=None, mode="append", **settings):
        batches = []

        def keep(rows, batch_id):
            batches.append([tuple(row) for row in rows.collect()])

        writer = df.writeStream.foreachBatch(keep).outputMode(mode)
        checkpoint = str(tmp_path / f"checkpoint{len(started)}")
        writer = writer.options(**settings).option("checkpointLocation", checkpoint)
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        started.append(query)
        return query, batches

    yield start
    for query in started:
        query.stop()


def rows_read(query):
    """Rows of each micro-batch, as the query's progress counts them."""
    return [p.numInputRows for p in query.recentProgress if p.numInputRows]


def test_windows_over_the_records_timestamps_with_a_watermark(kafka, load, run):
    topic = topic_with(kafka, numbers([1, 2]) + numbers([3], timestamp_ms=NOW + 7000), partitions=1)
    counted = load(topic).withWatermark("timestamp", "10 seconds").groupBy(window("timestamp", "5 seconds")).count()
    query, batches = run(counted.selectExpr("unix_millis(window.start)", "count"), mode="complete")
    query.awaitTermination()
    assert sorted(batches[-1]) == [(NOW, 2), (NOW + 5000, 1)]


def test_a_stream_joined_with_itself_is_one_source(kafka, load, run):
    topic = topic_with(kafka, numbers([1, 2]) + numbers([6, 3], partition=1), partitions=2)
    keyed = load(topic).selectExpr("value", "value % 5 as key")
    query, batches = run(keyed.join(keyed, "key"))
    query.awaitTermination()
    assert sorted(itertools.chain(*batches)) == [(1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)]
    progress = [p for p in query.recentProgress if p.numInputRows]
    assert {len(p.sources) for p in progress} == {1}
    assert progress[0].numInputRows in (4, 8)  # Spark reads it once where it can use one exchange twice


def test_a_limit_is_for_each_source_of_a_query_also_when_one_has_no_more(kafka, load, run):
    small, large = (topic_with(kafka, numbers(values), partitions=1) for values in (range(10), range(100, 120)))
    both = load(small, maxOffsetsPerTrigger=5).union(load(large, maxOffsetsPerTrigger=5)).select("value")
    query, batches = run(both)
    query.awaitTermination()
    assert [sorted(value for (value,) in rows) for rows in batches] == [
        [*range(5), *range(100, 105)],
        [*range(5, 10), *range(105, 110)],
        [*range(110, 115)],
        [*range(115, 120)],
    ]


def test_a_minimum_holds_a_running_query_back_until_the_delay_and_once_takes_all(kafka, load, run):
    topic = topic_with(kafka, numbers(range(3)), partitions=1)
    df = load(topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6, maxTriggerDelay="2s").select("value")
    query, batches = run(df, {"processingTime": "50 milliseconds"})
    wait_until(lambda: batches, within=60)
    produce(kafka, topic, numbers(range(3, 11)))
    read = wait_until(lambda: (p := rows_read(query)) and sum(p) == 11 and p, within=60)
    query.stop()
    assert read == [len(rows) for rows in batches] == [3, 6, 2]
    once, rows = run(df, {"once": True})
    once.awaitTermination()
    assert len(rows[0]) == 11


def test_a_timestamp_too_large_for_spark_is_named_with_its_record(spark, kafka):
    topic = name("nanoseconds")
    kafka.create_topic(topic, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    produce(kafka, topic, numbers([1], timestamp_ms=1_712_345_678_123_456_789))
    with pytest.raises(PySparkException, match=f"{topic}-0: offset 0: .*timestamp that does not fit"):
        spark.read.format("groupkafka").options(**options(kafka, topic)).load().collect()


def test_records_that_are_gone_stop_a_query_and_their_name_is_told(kafka, load, run):
    topic = topic_with(kafka, numbers(range(50)), partitions=1)
    kafka.admin.delete_records({TopicPartition(topic, 0): 20})
    query, _ = run(load(topic, startingOffsets=json.dumps({topic: {"0": 0}})))
    with pytest.raises(StreamingQueryException, match=rf"(?s){topic}-0.*KAFKA_DATA_LOSS\.COULD_NOT_READ_OFFSET_RANGE"):
        query.awaitTermination()


def test_a_batch_read_is_planned_once_for_each_load_and_may_be_used_twice(spark, kafka):
    topic = topic_with(kafka, numbers(range(11)), partitions=1)
    source = spark.read.format("groupkafka").options(**options(kafka, topic, minPartitions=6))
    df = source.load()
    assert df.rdd.getNumPartitions() >= 6
    assert df.union(df).count() == 22
    produce(kafka, topic, numbers(range(11, 20)))
    assert df.count() == 11
    assert source.load().count() == 20


def test_a_query_whose_progress_spark_logs_late(kafka, load, tmp_path):
    topic = topic_with(kafka, numbers(range(15)), partitions=1)
    late = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "1000"}
    # Spark has this for few sinks, foreachBatch is none of them.
    writer = load(topic, maxOffsetsPerTrigger=5).writeStream.format("noop").options(**late)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(processingTime="50 milliseconds").start()
    try:
        wait_until(lambda: sum(rows_read(query)) >= 15, within=60)
        assert rows_read(query) == [5, 5, 5]
    finally:
        query.stop()
