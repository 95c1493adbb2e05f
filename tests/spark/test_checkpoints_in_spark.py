"""Spark's checkpoints: what this package reads of them, and what a new one does to each sink."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import IllegalArgumentException, StreamingQueryException
from support import committed, name, numbered, produce, topic_with

from spark_kafka_group import GroupKafkaListener
from spark_kafka_group.tools import checkpoint
from spark_kafka_group.values.files import local_folder
from spark_kafka_group.values.offsets import TopicPartition

sys.path.insert(0, str(Path(__file__).parent / "kafka_source"))
from connector import connector_jars, delta_jars

NAMES = st.lists(st.sampled_from(["a", "..", ".", "b c", "%20", "...", "", "é", "a+b"]), max_size=7).map("/".join)
PREFIXES = st.sampled_from(["/", "/x/", "file:/", "file:///", "file:////", "", "x/"])


@pytest.mark.soak
def test_a_folder_is_the_one_that_hadoop_takes_a_name_for(spark):
    jvm, settings_of_hadoop = spark._jvm, spark._jsc.hadoopConfiguration()

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(PREFIXES, NAMES)
    def agree(prefix, named):
        text = prefix + named
        try:
            path = jvm.org.apache.hadoop.fs.Path(text)
            found = path.getFileSystem(settings_of_hadoop).makeQualified(path).toUri().getPath()
        except (IllegalArgumentException, Py4JJavaError):
            return  # no name, or a host in it
        assert str(local_folder(text)) == os.path.normpath(found), text  # which takes out .. above the root

    agree()


@pytest.fixture
def source_evolution(spark):
    setting = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    spark.conf.set(setting, "true")
    yield
    spark.conf.unset(setting)


@pytest.mark.soak
def test_positions_of_named_sources_are_read_also_where_they_change_places_or_go(
    spark, kafka, tmp_path, source_evolution
):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    groups = {"orders": name("orders"), "payments": name("payments")}

    def run(*names):
        """How many rows were read, and the positions after them."""
        streams = [rows_of(kafka, topic, groups[one], spark, one) for one in names]
        rows = streams[0] if len(streams) == 1 else streams[0].union(streams[1])
        writer = rows.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination()
        found = checkpoint.positions([tmp_path])
        read = sum(progress.numInputRows for progress in query.recentProgress)
        return read, {one: checkpoint.of_group(found, groups[one]) for one in groups}

    def at(offset):
        return {TopicPartition(topic, partition): offset for partition in range(2)}

    assert run("orders", "payments") == (40, {"orders": at(10), "payments": at(10)})
    produce(kafka, topic, numbered(20, 2, first=20))
    assert run("payments", "orders") == (40, {"orders": at(20), "payments": at(20)})
    produce(kafka, topic, numbered(20, 2, first=40))
    assert run("orders") == (20, {"orders": at(30), "payments": {}})
    # Spark has forgotten the source, and the group has not.
    assert run("orders", "payments") == (20, {"orders": at(30), "payments": at(30)})


def rows_of(kafka, topic, group, spark, named=None):
    settings = {"subscribe": topic, "kafka.group.id": group, "kafka.auto.offset.reset": "earliest"}
    reader = spark.readStream if named is None else spark.readStream.name(named)
    reader = reader.format("groupkafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**settings).load().select("value")


def into_parquet(rows, folder, checkpoint):
    writer = rows.writeStream.format("parquet").option("path", str(folder)).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(checkpoint))


def numbers(values):
    return sorted(int(bytes(value)[1:]) for value in values)


def in_files(spark, folder):
    return numbers(row.value for row in spark.read.parquet(str(folder)).select("value").collect())


@pytest.mark.soak
def test_a_listener_stops_a_query_whose_file_sink_would_skip_its_batches(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    rows = rows_of(kafka, topic, group, spark)
    into_parquet(rows, tmp_path / "out", tmp_path / "checkpoint").start().awaitTermination()
    produce(kafka, topic, numbered(20, 2, first=20))
    with GroupKafkaListener(spark):
        query = into_parquet(rows, tmp_path / "out", tmp_path / "new").start()
        with pytest.raises(StreamingQueryException, match="has batches up to 0 of another checkpoint"):
            query.awaitTermination()
        assert committed(kafka, group) == {(topic, p): 10 for p in range(2)}
        into_parquet(rows, tmp_path / "out2", tmp_path / "new").start().awaitTermination()
        into_parquet(rows, tmp_path / "out2", tmp_path / "new").start().awaitTermination()
    assert in_files(spark, tmp_path / "out") == list(range(20))
    assert in_files(spark, tmp_path / "out2") == list(range(20, 40))
    assert committed(kafka, group) == {(topic, p): 20 for p in range(2)}


class OfFiles:
    """Spark's file sink."""

    left = range(10)

    def writer(self, rows, folder):
        return rows.writeStream.format("parquet").option("path", f"{folder}/out")

    def numbers(self, spark, folder):
        return in_files(spark, f"{folder}/out")


class Overwriting:
    """A function for foreachBatch that overwrites by batch id."""

    left = range(10, 20)

    def writer(self, rows, folder):
        return rows.writeStream.foreachBatch(
            lambda batch, number: batch.write.mode("overwrite").parquet(f"{folder}/out/batch={number}")
        )

    def numbers(self, spark, folder):
        return in_files(spark, f"{folder}/out")


class AtLeastOnce:
    """The groupkafka sink."""

    left = range(20)

    def __init__(self, kafka, **more):
        self.topic = kafka.create_topic(name("output"), partitions=1)
        self.more = {"kafka.bootstrap.servers": kafka.bootstrap_servers} | more

    def writer(self, rows, folder):
        return rows.writeStream.format("groupkafka").options(topic=self.topic, **self.more)

    def numbers(self, spark, folder):
        read = {"subscribe": self.topic, "kafka.isolation.level": "read_committed"}
        servers = {"kafka.bootstrap.servers": self.more["kafka.bootstrap.servers"]}
        rows = spark.read.format("groupkafka").options(**servers, **read).load()
        return numbers(row.value for row in rows.select("value").collect())


def exactly_once(kafka):
    sink = AtLeastOnce(kafka, deliveryGuarantee="exactly-once")
    sink.more["kafka.transactional.id"] = name("id")
    return sink


SINKS = {
    "files": lambda kafka: OfFiles(),
    "overwrites by batch id": lambda kafka: Overwriting(),
    "at least once": AtLeastOnce,
    "exactly once": exactly_once,
}


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.soak
def test_what_a_new_checkpoint_does_to_each_sink(spark, kafka, group, tmp_path, kind):
    """As docs/guarantees.md has it: batch 0 of the first checkpoint has ten records, and so has that of the next."""
    sink = SINKS[kind](kafka)
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    for place in ("checkpoint", "new"):
        writer = sink.writer(rows_of(kafka, topic, group, spark), tmp_path).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{tmp_path}/{place}").start().awaitTermination()
        produce(kafka, topic, numbered(10, 1, first=10))
    assert committed(kafka, group) == {(topic, 0): 20}
    assert sink.numbers(spark, tmp_path) == list(sink.left)


@pytest.mark.parametrize(("kind", "jars"), [("delta", delta_jars), ("kafka", connector_jars)])
@pytest.mark.soak
def test_with_a_new_checkpoint_a_sink_that_knows_no_batch_of_the_old_query_appends(kafka, group, tmp_path, kind, jars):
    try:
        needed = ",".join(map(str, jars()))
    except RuntimeError as error:
        pytest.skip(str(error).splitlines()[0])
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    kafka.create_topic(f"{topic}-written", partitions=1)
    program = str(Path(__file__).parent / "appending_program.py")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    for place in ("checkpoint", "new"):
        command = [program, needed, kind, str(tmp_path), place, kafka.bootstrap_servers, topic, group]
        command = [sys.executable, *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
        produce(kafka, topic, numbered(10, 1, first=10))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == list(range(20))
    assert committed(kafka, group) == {(topic, 0): 20}
