"""Queries as people write them over Spark's own kafka source: windows, joins, unions, limits, losses."""

import itertools
import json
import time

import pytest
from kafka import KafkaProducer
from kafka.serializer import Serializer
from kafka.structs import TopicPartition
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql.functions import udf, window
from support import Record, name, options, produce, topic_with

from spark_kafka_group.testing import wait_until

NOW = 1_700_000_000_000


def numbers(values, partition=0, timestamp_ms=NOW):
    return [Record(partition, None, b"%d" % value, (), timestamp_ms) for value in values]


def rows_read(query):
    """Rows of each micro-batch, as the query's progress counts them."""
    return [p.numInputRows for p in query.recentProgress if p.numInputRows]


@pytest.mark.soak
def test_windows_over_the_records_timestamps_with_a_watermark(kafka, load, run):
    topic = topic_with(kafka, numbers([1, 2]) + numbers([3], timestamp_ms=NOW + 7000), partitions=1)
    counted = load(topic).withWatermark("timestamp", "10 seconds").groupBy(window("timestamp", "5 seconds")).count()
    query, batches = run(counted.selectExpr("unix_millis(window.start)", "count"), mode="complete")
    query.awaitTermination()
    assert sorted(batches[-1]) == [(NOW, 2), (NOW + 5000, 1)]


@pytest.mark.parametrize(("reuse", "read"), [pytest.param("false", 8, marks=pytest.mark.soak), ("true", 4)])
def test_a_stream_joined_with_itself_is_one_source_read_once_where_spark_may_reuse_it(
    spark, kafka, load, run, reuse, read
):
    topic = topic_with(kafka, [], partitions=2)
    keyed = load(topic).selectExpr("value", "value % 5 as key")
    spark.conf.set("spark.sql.exchange.reuse", reuse)
    try:
        query, batches = run(keyed.join(keyed, "key"), {"processingTime": "0 seconds"})
        produce(kafka, topic, numbers([1]) + numbers([2], partition=1))
        wait_until(lambda: sorted(itertools.chain(*batches)) == [(1, 1, 1), (2, 2, 2)], within=60)
        produce(kafka, topic, numbers([6]) + numbers([3], partition=1))
        joined = [(1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)]
        wait_until(lambda: sorted(itertools.chain(*batches)) == joined, within=60)
        wait_until(lambda: sum(rows_read(query)) >= read, within=30)
    finally:
        spark.conf.unset("spark.sql.exchange.reuse")
    plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
    query.stop()
    assert sum(rows_read(query)) == read
    assert plan.count("ReusedExchange") == (reuse == "true")
    assert {len(p.sources) for p in query.recentProgress} == {1}


@pytest.mark.soak
def test_a_limit_is_for_each_source_of_a_query_also_when_one_has_no_more_and_after_a_restart(kafka, load, run):
    small, large = (topic_with(kafka, numbers(values), partitions=1) for values in (range(10), range(100, 200)))
    limit, often = {"maxOffsetsPerTrigger": 5}, {"processingTime": "50 milliseconds"}
    # So that it stops after three batches, however long each takes.
    third = json.dumps({large: {"0": 15}})
    both = load(small, **limit).union(load(large, **limit, endingOffsets=third)).select("value")
    query, batches = run(both, often, place="union")
    wait_until(lambda: len(rows_read(query)) == 3, within=60)
    query.stop()
    again, more = run(load(small, **limit).union(load(large, **limit)).select("value"), often, place="union")
    wait_until(lambda: len(more) >= 2, within=60)
    again.stop()
    assert [sorted(value for (value,) in rows) for rows in [*batches, *more[:2]]] == [
        [*range(5), *range(100, 105)],
        [*range(5, 10), *range(105, 110)],
        [*range(110, 115)],
        [*range(115, 120)],
        [*range(120, 125)],
    ]


class NullForEmpty(Serializer):
    """The producer refuses a record with neither key nor value, before these are serialized."""

    def serialize(self, topic, headers, data):
        return data or None


def test_keys_and_values_that_are_null(spark, kafka, run):
    topic = name("nulls")
    kafka.create_topic(topic)
    committed_only = options(kafka, topic) | {"kafka.isolation.level": "read_committed"}
    stream = spark.readStream.format("groupkafka").options(**committed_only).load()
    query, batches = run(
        stream.selectExpr("cast(key as string)", "cast(value as string)"), {"processingTime": "100 milliseconds"}
    )
    pairs = [*[(None, None)] * 5, *((str(n), None) for n in range(1, 6)), *((None, str(n)) for n in range(6, 11))]
    producer = KafkaProducer(
        bootstrap_servers=kafka.bootstrap_servers,
        transactional_id=name("writer"),
        key_serializer=NullForEmpty(),
        value_serializer=NullForEmpty(),
    )
    producer.init_transactions()
    producer.begin_transaction()
    for key, value in pairs:
        producer.send(topic, key=(key or "").encode(), value=(value or "").encode())
    producer.commit_transaction()
    producer.close()
    wait_until(lambda: len(list(itertools.chain(*batches))) >= 15, within=60)
    query.stop()
    assert list(itertools.chain(*batches)) == pairs


def test_min_partitions_of_a_running_query(spark, kafka, tmp_path):
    topic = topic_with(kafka, numbers(range(10)) + numbers(range(10, 20), partition=1) + numbers([20], partition=2))
    stream = spark.readStream.format("groupkafka").options(**options(kafka, topic, minPartitions=6)).load()
    parts = []

    def keep(rows, batch_id):
        parts.extend(rows.selectExpr("cast(cast(value as string) as int)").rdd.map(lambda row: row[0]).glom().collect())

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="100 milliseconds").start()
    wait_until(lambda: parts or query.exception(), within=60)
    query.stop()
    assert len(parts) >= 6
    # Where Spark's own source cuts.
    cuts = itertools.pairwise([0, 3, 6, 10, 13, 16, 20, 21])
    assert sorted(parts) == [list(range(start, end)) for start, end in cuts]


@pytest.mark.soak
def test_how_far_a_query_is_behind_with_and_without_a_limit(kafka, load, run):
    topic = topic_with(kafka, numbers(range(1, 6)) + numbers(range(6, 11), partition=1), partitions=2)
    for limit, behind in (({"maxOffsetsPerTrigger": 1}, range(9, -1, -1)), ({}, [0])):
        query, batches = run(load(topic, **limit).select("value"))
        query.awaitTermination()
        assert sorted(value for rows in batches for (value,) in rows) == list(range(1, 11))
        sources = [p.sources[0] for p in query.recentProgress if p.numInputRows]
        assert [dict(source.metrics) for source in sources] == [{}] * len(behind)  # a Python source has none
        result = [json.loads(source.latestOffset)["@group"] for source in sources]
        # The partitions take turns, so half of what is left is in each.
        assert [t["minOffsetsBehindLatest"] for t in result] == [left // 2 for left in behind]
        assert [t["maxOffsetsBehindLatest"] for t in result] == [(left + 1) // 2 for left in behind]
        assert [t["avgOffsetsBehindLatest"] for t in result] == [left / 2 for left in behind]


@pytest.mark.soak
def test_a_minimum_holds_a_running_query_back_until_the_delay_and_once_takes_all(kafka, load, run):
    topic = topic_with(kafka, numbers(range(3)), partitions=1)
    df = load(topic, minOffsetsPerTrigger=5, maxOffsetsPerTrigger=6, maxTriggerDelay="2s").select("value")
    query, batches = run(df, {"processingTime": "50 milliseconds"})
    wait_until(lambda: batches, within=60)
    before = time.monotonic()
    produce(kafka, topic, numbers(range(3, 11)), linger_ms=60_000)  # all at once, or the first five may be a batch
    wait_until(lambda: len(batches) == 3, within=60)
    # The third batch waits for two seconds from when the second was planned, which was not before its records came.
    assert time.monotonic() - before >= 2
    wait_until(lambda: sum(rows_read(query)) == 11, within=60)
    query.stop()
    assert rows_read(query) == [len(rows) for rows in batches] == [3, 6, 2]
    once, rows = run(df, {"once": True})
    once.awaitTermination()
    assert len(rows[0]) == 11


def test_a_timestamp_too_large_for_spark_is_named_with_its_record(spark, kafka, load, run):
    topic = name("nanoseconds")
    kafka.create_topic(topic, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    produce(kafka, topic, [*numbers([1]), *numbers([2], timestamp_ms=1_712_345_678_123_456_789), *numbers([3])])
    message = (
        rf"(?s){topic}-0: offset 1: its timestamp does not fit Spark's TIMESTAMP.*: 1712345678123456789 ms\. Set on"
    )
    query, _ = run(load(topic))
    with pytest.raises(StreamingQueryException, match=message):
        query.awaitTermination()
    with pytest.raises(PySparkException, match=message):
        spark.read.format("groupkafka").options(**options(kafka, topic)).load().collect()
    query, batches = run(load(topic, onCorruptRecord="skip").selectExpr("value", "timestamp is null"))
    query.awaitTermination()
    assert batches == [[(1, False), (2, True), (3, False)]]
    narrow = spark.read.format("groupkafka").options(**options(kafka, topic, columns="offset")).load()
    assert [row.offset for row in narrow.collect()] == [0, 1, 2]


def test_records_that_are_gone_stop_a_query_and_the_error_has_their_name(kafka, load, run):
    topic = topic_with(kafka, numbers(range(50)), partitions=1)
    kafka.admin.delete_records({TopicPartition(topic, 0): 20})
    query, _ = run(load(topic, startingOffsets=json.dumps({topic: {"0": 0}})))
    with pytest.raises(StreamingQueryException, match=rf"(?s){topic}-0.*KAFKA_DATA_LOSS\.COULD_NOT_READ_OFFSET_RANGE"):
        query.awaitTermination()
    assert "/spark_kafka_group/" not in str(query.exception())  # no traceback of the source; foreachBatch has its own


def test_a_batch_read_is_planned_once_for_each_load_and_may_be_used_twice(spark, kafka):
    topic = topic_with(kafka, numbers(range(11)), partitions=1)
    source = spark.read.format("groupkafka").options(**options(kafka, topic, minPartitions=6))
    df = source.load()
    assert df.rdd.getNumPartitions() >= 6
    assert df.union(df).count() == 22
    produce(kafka, topic, numbers(range(11, 20)))
    assert df.count() == 11
    loaded = source.load()
    produce(kafka, topic, numbers(range(20, 23)))
    assert loaded.count() == 23  # it is planned at the first action


@pytest.mark.soak
def test_a_query_whose_progress_spark_logs_late_over_a_restart(kafka, load, tmp_path):
    topic = topic_with(kafka, numbers(range(15)), partitions=1)
    late = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "1000"}
    seen, checkpoint = tmp_path / "seen", tmp_path / "checkpoint"

    @udf("int", useArrow=False)
    def noted(value):
        with seen.open("a") as file:
            file.write(f"{value}\n")
        return value

    def values():
        return [int(line) for line in seen.read_text().splitlines()] if seen.exists() else []

    def read_to(end):
        # Spark has this for few sinks: foreachBatch is none of them, and what noop is given, it forgets.
        writer = load(topic, maxOffsetsPerTrigger=5).select(noted("value")).writeStream.format("noop").options(**late)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime="50 milliseconds").start()
        try:
            wait_until(lambda: query.exception() or sum(rows_read(query)) >= end - first, within=60)
        finally:
            query.stop()
        return rows_read(query)

    first = 0
    assert read_to(15) == [5, 5, 5]
    assert values() == list(range(15))
    produce(kafka, topic, numbers(range(15, 30)))
    # What Spark has not logged comes again, and nothing else.
    logged = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name)).name
    first = json.loads((checkpoint / "offsets" / logged).read_text().splitlines()[-1])[topic]["0"]
    assert first in (5, 10, 15)
    read_to(30)
    assert values() == [*range(15), *range(first, 30)]


@pytest.mark.soak
def test_a_query_that_died_in_a_batch_while_spark_had_not_logged_those_before_it(kafka, load, tmp_path):
    topic = topic_with(kafka, numbers(range(5)), partitions=1)
    late = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "4000"}
    seen, healed, checkpoint = tmp_path / "seen", tmp_path / "healed", tmp_path / "checkpoint"
    sent, fatal = list(range(5)), 1000

    @udf("int", useArrow=False)
    def noted(value):
        if value == fatal and not healed.exists():
            raise ValueError("not now")
        with seen.open("a") as file:
            file.write(f"{value}\n")
        return value

    def start():
        df = load(topic, **{"kafka.metadata.max.age.ms": 300}).select(noted("value"))
        writer = df.writeStream.format("noop").options(**late).option("checkpointLocation", str(checkpoint))
        return writer.trigger(processingTime="50 milliseconds").start()

    def send(partition, value):
        sent.append(value)
        produce(kafka, topic, numbers([value], partition))

    def all_is_read_once():
        return seen.exists() and sorted(int(line) for line in seen.read_text().splitlines()) == sorted(sent)

    def logged(what):
        return sorted(int(path.name) for path in (checkpoint / what).glob("[0-9]*"))

    query = start()
    wait_until(all_is_read_once, within=30)
    for partition in range(1, 6):
        before = logged("offsets")
        kafka.add_partitions(topic, partition + 1)
        for value in (10 * partition, 10 * partition + 1):
            send(partition, value)
            wait_until(all_is_read_once, within=20)
        if logged("offsets") == before:
            break  # quicker than the interval
    wait_until(lambda: time.time() - (checkpoint / "offsets" / str(before[-1])).stat().st_mtime > 4.5, within=30)
    send(partition, fatal)
    with pytest.raises(StreamingQueryException, match="not now"):
        query.awaitTermination()
    assert logged("commits") == before
    assert [*before, logged("offsets")[-1]] == logged("offsets")
    assert logged("offsets")[-1] > before[-1] + 1

    healed.touch()
    query = start()
    try:
        wait_until(lambda: query.exception() or all_is_read_once(), within=60)
        send(partition, 101)
        wait_until(lambda: query.exception() or all_is_read_once(), within=30)
        assert query.exception() is None
    finally:
        query.stop()


def test_real_time_mode_is_refused_by_spark_which_has_it_for_no_source_in_python(kafka, load, tmp_path):
    writer = load(topic_with(kafka, [], partitions=1)).writeStream.format("console").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(realTime="5 seconds").start()
    with pytest.raises(StreamingQueryException, match=r"STREAMING_REAL_TIME_MODE\.INPUT_STREAM_NOT_SUPPORTED.*Python"):
        query.awaitTermination()


@pytest.mark.soak
def test_a_limit_of_bytes_holds_in_running_queries_and_once_ignores_it(kafka, load, run):
    records = [Record(0, bytes(20_000), b"%d" % n) for n in range(40)]
    df = load(topic_with(kafka, records, partitions=1), maxBytesPerTrigger="100k").select("value")
    query, batches = run(df)
    query.awaitTermination()
    assert sorted(value for rows in batches for (value,) in rows) == list(range(40))
    assert 8 <= len(batches) <= 12
    once, rows = run(df, {"once": True})
    once.awaitTermination()
    assert len(rows[0]) == 40
