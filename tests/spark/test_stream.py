"""readStream.format("groupkafka"): batches, generations and commits of a query alone in its group."""

import itertools
import json

import pytest
from chispa import assert_df_equality
from into_parquet import ends
from pyspark.errors.exceptions.captured import StreamingQueryException
from support import commit_for, committed, members, numbered, options, produce, topic_with

from spark_kafka_group.testing import GroupGeneration, OffsetCommitted, read_group_log, wait_until


def test_rows_equal_what_was_produced(spark, kafka, group, sink):
    topic = topic_with(kafka, numbered(1000, 3))
    sink.run(options(kafka, topic, group))
    batch = spark.read.format("groupkafka").options(**options(kafka, topic)).load()
    stream = spark.read.parquet(f"{sink.directory}/out").drop("batch")
    assert_df_equality(stream, batch, ignore_row_order=True, ignore_nullable=True)


def test_every_batch_is_a_generation_and_is_committed_right_after_it(kafka, group, sink):
    topic = topic_with(kafka, numbered(500, 2), partitions=2)
    progress = sink.run(options(kafka, topic, group, maxOffsetsPerTrigger=100))
    assert [p.numInputRows for p in progress] == [100] * 5
    # Not our log but Kafka's: what the coordinator wrote to __consumer_offsets.
    events = [
        ("generation", event.generation)
        if isinstance(event, GroupGeneration)
        else ("commit", json.loads(event.metadata)["generation"], event.partition, event.offset)
        for event in read_group_log(kafka, group)
        if isinstance(event, OffsetCommitted) or (isinstance(event, GroupGeneration) and event.members)
    ]
    runs = [(kind, list(run)) for kind, run in itertools.groupby(events, key=lambda event: event[0])]
    assert [kind for kind, _ in runs] == ["generation", "commit"] * 5
    generations = [run[-1][1] for kind, run in runs if kind == "generation"]
    assert generations == list(range(generations[0], generations[0] + 5))
    assert [end["@group"]["generation"] for end in ends(progress)] == generations
    for number, (generation, (_, commits)) in enumerate(zip(generations, runs[1::2], strict=True), start=1):
        assert sorted(commits) == [("commit", generation, p, 50 * number) for p in (0, 1)]


@pytest.mark.soak
def test_generation_stable_keeps_one_generation_for_all_batches(kafka, group, sink):
    topic = topic_with(kafka, numbered(300, 2), partitions=2)
    progress = sink.run(options(kafka, topic, group, maxOffsetsPerTrigger=100, generation="stable"))
    assert len({end["@group"]["generation"] for end in ends(progress)}) == 1
    assert committed(kafka, group) == {(topic, 0): 150, (topic, 1): 150}


@pytest.mark.soak
def test_a_trigger_without_data_starts_no_generation_and_no_batch(kafka, group, sink, progress_often):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    query = sink.start(options(kafka, topic, group), {"processingTime": "100 milliseconds"})
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 10}, within=30)
    generation = json.loads(query.lastProgress.sources[0].endOffset)["@group"]["generation"]
    seen = query.lastProgress.timestamp
    wait_until(lambda: query.recentProgress[-1].timestamp != seen or not query.isActive, within=30)
    produce(kafka, topic, numbered(10, 1))
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 20}, within=30)
    after = json.loads([p for p in query.recentProgress if p.numInputRows][-1].sources[0].endOffset)
    query.stop()
    assert after["@group"]["generation"] == generation + 1


@pytest.mark.soak
def test_a_topic_that_goes_quiet_is_committed_within_two_triggers(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    query = sink.start(options(kafka, topic, group), {"processingTime": "3 seconds"})
    wait_until(lambda: sink.values() == list(range(10)), within=30)
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 10}, within=30)
    query.stop()


def test_the_last_batch_of_available_now_is_committed(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    sink.run(options(kafka, topic, group, maxOffsetsPerTrigger=4))
    assert committed(kafka, group) == {(topic, 0): 10}


def test_available_now_ends_where_the_topic_ended_when_it_started(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    query = sink.start(
        options(kafka, topic, group, maxOffsetsPerTrigger=5),
        during=lambda batch_id: produce(kafka, topic, numbered(5, 1, first=100)),
    )
    query.awaitTermination()
    assert sink.values() == list(range(10))


def test_a_sink_that_raises_leaves_the_committed_offsets_and_the_rows_come_again(kafka, group, sink):
    topic = topic_with(kafka, numbered(30, 3))
    sink.run(options(kafka, topic, group))
    produce(kafka, topic, numbered(30, 3, first=30))
    before = committed(kafka, group)

    def fail(batch_id):
        raise RuntimeError("disk full")

    query = sink.start(options(kafka, topic, group), during=fail)
    with pytest.raises(StreamingQueryException, match="disk full"):
        query.awaitTermination()
    assert committed(kafka, group) == before
    sink.run(options(kafka, topic, group))
    assert sink.values() == list(range(60))
    assert committed(kafka, group) == {(topic, p): 20 for p in range(3)}


@pytest.mark.soak
def test_a_query_that_runs_once_from_somebody_elses_offset_does_not_read_its_batch_twice(kafka, group, sink):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    commit_for(kafka, group, {(topic, 0): 7})
    for _ in range(2):  # the end of a batch is all that Spark tells the source of its success, at the next start
        sink.start(options(kafka, topic, group, startingOffsets="group"), {"once": True}).awaitTermination()
    assert sink.values() == list(range(7, 20))
    assert committed(kafka, group) == {(topic, 0): 20}


@pytest.mark.soak
def test_a_topic_that_is_left_and_subscribed_again_after_a_batch_cut_short_comes_once(kafka, group, sink):
    kept, left = (topic_with(kafka, numbered(10, 1, first), partitions=1) for first in (0, 10))
    both = options(kafka, f"{kept},{left}", group)

    def fail(batch_id):
        raise RuntimeError("stopped")

    with pytest.raises(StreamingQueryException, match="stopped"):
        sink.start(both, during=fail).awaitTermination()
    produce(kafka, kept, numbered(5, 1, 20))
    for settings in (options(kafka, kept, group), both):
        sink.run(settings)
    assert sink.values() == list(range(25))
    assert committed(kafka, group) == {(kept, 0): 15, (left, 0): 10}


def test_a_failed_task_commits_nothing(spark, kafka, group, tmp_path):
    from pyspark.sql.functions import udf

    @udf("int", useArrow=False)
    def explode(value):
        raise ValueError("poison")

    topic = topic_with(kafka, numbered(30, 3))
    stream = spark.readStream.format("groupkafka").options(**options(kafka, topic, group)).load()
    query = (
        stream.select(explode("value"))
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="poison"):
        query.awaitTermination()
    assert committed(kafka, group) == {}


def test_load_and_schema_touch_no_group(spark, kafka, group):
    topic = topic_with(kafka, numbered(3, 1))
    df = spark.readStream.format("groupkafka").options(**options(kafka, topic, group)).load()
    df.printSchema()
    assert df.isStreaming
    state, _ = kafka.group_state(group)
    assert state == "Dead"


def test_kafkas_own_tool_shows_member_host_client_committed_offset_and_lag(kafka, group, sink):
    topic = topic_with(kafka, numbered(30, 3))
    query = sink.start(options(kafka, topic, group), {"processingTime": "100 milliseconds"})
    wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)}, within=30)
    rows = kafka.describe_group(group)
    query.stop()
    assert [(row.topic, row.partition, row.current_offset, row.log_end_offset, row.lag) for row in rows] == [
        (topic, p, 10, 10, 0) for p in range(3)
    ]
    assert {row.client_id for row in rows} == {"groupkafka-driver"}
    assert {row.host for row in rows} == {"/127.0.0.1"}
    assert all(row.consumer_id.startswith("groupkafka-") for row in rows)


@pytest.mark.soak
def test_the_client_id_is_the_users(kafka, group, sink):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    settings = options(kafka, topic, group) | {"kafka.client.id": "invoices"}
    query = sink.start(settings, {"processingTime": "100 milliseconds"})
    wait_until(lambda: committed(kafka, group), within=30)
    assert [m["client_id"] for m in members(kafka, group)] == ["invoices-driver"]
    query.stop()


@pytest.mark.soak
def test_without_a_group_id_a_query_has_a_group_of_its_own_that_stays_the_same(kafka, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    progress = sink.run(options(kafka, topic))
    group = "spark-groupkafka-" + ends(progress)[-1]["@group"]["reader"]
    assert committed(kafka, group) == {(topic, 0): 10}
    produce(kafka, topic, numbered(10, 1))
    sink.run(options(kafka, topic))
    assert committed(kafka, group) == {(topic, 0): 20}


@pytest.mark.soak
def test_a_user_may_name_the_static_member_and_it_stays_in_the_group(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = options(kafka, topic, group) | {"kafka.group.instance.id": "mine", "kafka.session.timeout.ms": "6000"}
    sink.run(settings)
    assert [m["group_instance_id"] for m in members(kafka, group)] == ["mine"]
    sink.run(settings)  # comes back at once, as the same member
    assert [m["group_instance_id"] for m in members(kafka, group)] == ["mine"]


@pytest.mark.soak
def test_headers_with_include_headers(spark, kafka, group, sink):
    from support import Record

    topic = topic_with(kafka, [Record(0, b"k", b"v1", (("h", b"x"), ("h", b"")))], partitions=1)
    sink.run(options(kafka, topic, group, includeHeaders="true"))
    row = spark.read.parquet(f"{sink.directory}/out").first()
    assert [(h.key, h.value) for h in row.headers] == [("h", bytearray(b"x")), ("h", bytearray())]


def test_a_query_has_the_columns_that_it_names_in_their_order(spark, kafka, group, sink):
    topic = topic_with(kafka, numbered(30, 3))
    sink.run(options(kafka, topic, group, columns="offset, VALUE"))
    df = spark.read.parquet(f"{sink.directory}/out")
    assert df.columns == ["offset", "value", "batch"]
    assert sorted((row.offset, bytes(row.value)) for row in df.collect()) == sorted(
        (n // 3, record.value) for n, record in enumerate(numbered(30, 3))
    )
    assert committed(kafka, group) == {(topic, p): 10 for p in range(3)}


@pytest.mark.soak
def test_a_limit_is_shared_so_that_small_partitions_do_not_starve(kafka, group, sink):
    from support import Record

    records = [Record(0, b"k", b"v%d" % n) for n in range(1000)] + [Record(p, b"k", b"v1") for p in range(1, 6)]
    topic = topic_with(kafka, records, partitions=6)
    first = sink.run(options(kafka, topic, group, maxOffsetsPerTrigger=100))[0]
    assert json.loads(first.sources[0].endOffset)[topic] == {"0": 95} | {str(p): 1 for p in range(1, 6)}


def test_progress_shows_the_backlog_and_the_querys_place_in_the_group(kafka, group, sink):
    topic = topic_with(kafka, numbered(30, 1), partitions=1)
    progress = sink.run(options(kafka, topic, group, maxOffsetsPerTrigger=10))
    shown = [json.loads(p.sources[0].latestOffset) for p in progress]
    assert [offset[topic] for offset in shown] == [{"0": 30}] * 3
    groups = [offset["@group"] for offset in shown]
    assert [g["committed"] for g in groups] == [{}, {topic: {"0": 10}}, {topic: {"0": 20}}]
    assert [g["lag"] for g in groups] == [30, 20, 10]
    assert [g["commits"] for g in groups] == [0, 1, 2]
    assert [g["generation"] for g in groups] == [end["@group"]["generation"] for end in ends(progress)]
    assert {(g["group"], g["role"], g["strategy"], g["rebalances"]) for g in groups} == {(group, "leader", "range", 0)}
    assert groups[-1]["commitLatencyMs"] > 0
    assert groups[0]["member"].startswith("groupkafka-")
