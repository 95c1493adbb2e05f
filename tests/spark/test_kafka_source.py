"""Checkpoints of Spark's own kafka source and sink go on with this source and sink; and the way back."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from pyspark.errors.exceptions.captured import StreamingQueryException
from support import committed, name, numbered, options, produce, topic_with

sys.path.insert(0, str(Path(__file__).parent / "kafka_source"))
from connector import connector_jars


class KafkaSource:
    """The other Spark."""

    def __init__(self, log):
        script = Path(__file__).parent / "kafka_source" / "queries.py"
        command = [sys.executable, str(script), ",".join(map(str, connector_jars()))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
        )

    def run(self, settings, place, counted=False, named=False):
        """Read all records up to now; returns the error, or None. With names there are settings for each."""
        order = {"options": settings, "out": f"{place}/out", "counted": counted, "named": named}
        return self._done(order, place)

    def write(self, folder, settings, place):
        """Write all lines of files up to now with Spark's own sink; returns the error, or None."""
        return self._done({"folder": str(folder), "sink": settings}, place)

    def _done(self, order, place):
        self._process.stdin.write(json.dumps(order | {"checkpoint": f"{place}/checkpoint"}) + "\n")
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def kafka_source(tmp_path_factory):
    with (tmp_path_factory.mktemp("kafka_source") / "spark.log").open("w") as log:
        source = KafkaSource(log)
        yield source
        source.close()


def of_kafka(kafka, topic, **more):
    base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    return base | {key: str(value) for key, value in more.items()}


def run(spark, settings, place, counted=False):
    df = spark.readStream.format("groupkafka").options(**settings).load().select("value")
    return run_of(df, place, counted)


def run_of(df, place, counted=False):
    def write(df, batch_id):
        df.write.mode("overwrite").parquet(f"{place}/out/batch={batch_id}")

    df = df.groupBy("value").count() if counted else df
    writer = df.writeStream.foreachBatch(write).outputMode("update")
    query = writer.option("checkpointLocation", f"{place}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    return [p for p in query.recentProgress if p.numInputRows]


def values(spark, place):
    rows = spark.read.parquet(f"{place}/out").collect()
    return sorted(int(bytes(row.value)[1:]) for row in rows)


def counts(spark, place):
    """How often each value came, as batches that found more of it said last."""
    rows = spark.read.parquet(f"{place}/out").groupBy("value").agg({"count": "max"}).collect()
    return {int(bytes(row.value)[1:]): row["max(count)"] for row in rows}


def last_offsets(place):
    """The path of the newest entry of the offset log, and its lines."""
    path = max((place / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return path, path.read_text().split("\n")


def rewrite(path, lines):
    path.write_text("\n".join(lines))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@pytest.mark.soak
def test_a_query_changes_its_source_and_changes_it_back(spark, kafka, kafka_source, tmp_path):
    topic = topic_with(kafka, numbered(100, 2), partitions=2)
    place, cut, far = tmp_path / "one", tmp_path / "cut", tmp_path / "far"
    assert kafka_source.run(of_kafka(kafka, topic, maxOffsetsPerTrigger=40), place) is None
    assert values(spark, place) == list(range(100))
    for copy in (cut, far):
        shutil.copytree(place, copy)
    # One that was cut short: the last batch is in the offset log, and not in the commit log.
    for file in (cut / "checkpoint" / "commits").glob("*2*"):
        file.unlink()
    shutil.rmtree(cut / "out" / "batch=2")
    (cut / "out" / "_SUCCESS").unlink(missing_ok=True)
    produce(kafka, topic, numbered(60, 2, first=100))

    groups = [name("group") for _ in range(2)]
    progress = run(spark, options(kafka, topic, groups[0], maxOffsetsPerTrigger=20), place)
    assert [(p.batchId, p.numInputRows) for p in progress] == [(3, 20), (4, 20), (5, 20)]
    assert values(spark, place) == list(range(160))
    progress = run(spark, options(kafka, topic, groups[1]), cut)
    assert [(p.batchId, p.numInputRows) for p in progress] == [(2, 20), (3, 60)]
    assert values(spark, cut) == list(range(160))
    for group in groups:
        assert committed(kafka, group) == {(topic, 0): 80, (topic, 1): 80}
    # Its own group comes later than the checkpoint, and has other offsets: Spark's source never commits.
    progress = run(spark, options(kafka, topic), far)
    assert [p.batchId for p in progress] == [3]
    assert values(spark, far) == list(range(160))

    # Back: Spark's source knows topics and partitions, and nothing else.
    produce(kafka, topic, numbered(20, 2, first=160))
    assert "Expected e.g." in kafka_source.run(of_kafka(kafka, topic), place)
    path, lines = last_offsets(place)
    positions = {key: value for key, value in json.loads(lines[-1]).items() if key != "@group"}
    elsewhere = tmp_path / "elsewhere"
    assert kafka_source.run(of_kafka(kafka, topic, startingOffsets=json.dumps(positions)), elsewhere) is None
    assert values(spark, elsewhere) == list(range(160, 180))
    rewrite(path, [*lines[:-1], json.dumps(positions)])
    assert kafka_source.run(of_kafka(kafka, topic), place) is None
    assert values(spark, place) == list(range(180))
    # And here again: what the group says is this query's own, under another id, and older.
    produce(kafka, topic, numbered(20, 2, first=180))
    run(spark, options(kafka, topic, groups[0]), place)
    assert values(spark, place) == list(range(200))
    assert committed(kafka, groups[0]) == {(topic, 0): 100, (topic, 1): 100}


@pytest.mark.soak
def test_named_sources_change_back_line_by_line(spark, kafka, kafka_source, tmp_path):
    topics = {"orders": topic_with(kafka, numbered(20, 2)), "payments": topic_with(kafka, numbered(20, 2, first=20))}
    setting = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    version_of_log = "spark.sql.streaming.offsetLog.formatVersion"  # Spark 4.3 has it by itself
    spark.conf.set(setting, "true")
    spark.conf.set(version_of_log, "2")
    try:
        streams = [
            spark.readStream.name(one).format("groupkafka").options(**options(kafka, topic)).load().select("value")
            for one, topic in topics.items()
        ]
        run_of(streams[0].union(streams[1]), tmp_path)
    finally:
        spark.conf.unset(setting)
        spark.conf.unset(version_of_log)
    path, (version, metadata, *lines) = last_offsets(tmp_path)
    assert version == "v2"
    for number, line in enumerate(lines):
        named, offset = re.fullmatch(r"(\w+:)(.*)", line).groups()
        positions = {key: value for key, value in json.loads(offset).items() if key != "@group"}
        lines[number] = f"{named}{json.dumps(positions)}"
    rewrite(path, [version, metadata, *lines])
    for first, topic in zip((40, 60), topics.values(), strict=True):
        produce(kafka, topic, numbered(20, 2, first=first))
    in_another_order = {one: of_kafka(kafka, topics[one]) for one in reversed(topics)}
    assert kafka_source.run(in_another_order, tmp_path, named=True) is None
    assert values(spark, tmp_path) == list(range(80))


@pytest.mark.soak
def test_a_query_with_state_changes_its_source_and_keeps_its_state(spark, kafka, kafka_source, group, tmp_path):
    prefix = name("state")
    one, other = f"{prefix}-one", f"{prefix}-other"
    pattern = {"subscribePattern": f"{prefix}-.*"}
    for topic, first in ((one, 0), (other, 5)):
        kafka.create_topic(topic, partitions=2)
        produce(kafka, topic, numbered(20, 2, first=first))
    settings = of_kafka(kafka, "", maxOffsetsPerTrigger=24) | pattern
    del settings["subscribe"]
    assert kafka_source.run(settings, tmp_path, counted=True) is None
    assert counts(spark, tmp_path) == {n: 1 + (5 <= n < 20) for n in range(25)}
    # While the query is away: more in both topics, and a third one that matches.
    third = f"{prefix}-third"
    kafka.create_topic(third)
    for topic, first in ((one, 10), (other, 20), (third, 0)):
        produce(kafka, topic, numbered(10, 1, first=first))
    settings = options(kafka, "", group, maxOffsetsPerTrigger=12) | pattern
    del settings["subscribe"]
    progress = run(spark, settings, tmp_path, counted=True)
    assert [(p.batchId, p.numInputRows) for p in progress] == [(2, 12), (3, 12), (4, 6)]
    assert progress[0].stateOperators[0].numRowsTotal >= 25
    more = {n: (n < 10) + (10 <= n < 20) + (20 <= n < 30) for n in range(30)}
    assert counts(spark, tmp_path) == {n: (n < 25) + (5 <= n < 20) + more[n] for n in range(30)}
    # Also where nothing was new: a group that has nothing of a partition learns what the checkpoint says of it.
    ends = {(one, 0): 20, (one, 1): 10, (other, 0): 20, (other, 1): 10, (third, 0): 10}
    assert committed(kafka, group) == ends


@pytest.mark.soak
def test_an_offset_log_of_a_newer_version_is_an_error_that_says_so(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    place = tmp_path / "one"
    run(spark, options(kafka, topic, group), place)
    path, lines = last_offsets(place)
    offset = json.loads(lines[-1])
    for change, message in [({"version": 2}, "offset format 2 .* reads format 1"), ({"epoch": 3}, "'epoch': 3")]:
        rewrite(path, [*lines[:-1], json.dumps(offset | {"@group": offset["@group"] | change})])
        with pytest.raises(StreamingQueryException, match=message):
            run(spark, options(kafka, topic, group), place)
    rewrite(path, lines)
    produce(kafka, topic, numbered(10, 1, first=10))
    run(spark, options(kafka, topic, group), place)
    assert values(spark, place) == list(range(20))


@pytest.mark.soak
def test_a_query_changes_its_sink_and_changes_it_back(spark, kafka, kafka_source, tmp_path):
    settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": kafka.create_topic(name("out"))}
    folder, place = tmp_path / "in", tmp_path / "one"
    folder.mkdir()

    def write():
        writer = spark.readStream.text(str(folder)).writeStream.format("groupkafka").options(**settings)
        writer = writer.option("checkpointLocation", f"{place}/checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()

    for number, sink in enumerate(("kafka", "groupkafka", "kafka", "groupkafka")):
        (folder / f"{number}.txt").write_text(f"{number} by {sink}\n")
        if sink == "kafka":
            assert kafka_source.write(folder, settings, place) is None
        else:
            write()
    found = KafkaConsumer(
        settings["topic"], bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest",
        consumer_timeout_ms=5_000,
    )  # fmt: skip
    try:
        values = sorted(record.value for record in found)
    finally:
        found.close()
    assert values == [b"0 by kafka", b"1 by groupkafka", b"2 by kafka", b"3 by groupkafka"]
