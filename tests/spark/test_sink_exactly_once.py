"""deliveryGuarantee=exactly-once in real Spark: readers of committed records get each row once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import committed, name, options, wait_for_markers

from spark_kafka_group.testing import wait_until

PARTITIONS = 2
MANY = 105_000
"""Rows that Spark hands to a task in several batches."""


@pytest.fixture
def output(kafka):
    return kafka.create_topic(name("output"), partitions=PARTITIONS)


@pytest.fixture
def written_to(kafka, output):
    """Options of an exactly-once write."""
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": output,
        "deliveryGuarantee": "exactly-once",
        "kafka.transactional.id": name("w"),
    }


def read(kafka, topic):
    """Values that a consumer of committed records gets, sorted; partitions in which it would wait, too."""
    wait_for_markers(kafka)
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    ends = {}
    for isolation in ("read_uncommitted", "read_committed"):
        consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation)
        ends[isolation] = consumer.end_offsets(tps)
        if isolation == "read_committed":
            consumer.assign(tps)
            consumer.seek_to_beginning(*tps)
            found = []
            while any(consumer.position(tp) < ends[isolation][tp] for tp in tps):
                found += [int(r.value) for records in consumer.poll(200).values() for r in records]
        consumer.close()
    waits = [tp.partition for tp in tps if ends["read_uncommitted"][tp] != ends["read_committed"][tp]]
    return sorted(found), waits


def failing_once(file):
    """Fails the first task that comes to row 25."""

    def apply(batches):
        for batch in batches:
            if b"25" in batch.column("value").to_pylist() and not Path(file).exists():
                Path(file).touch()
                raise ValueError("once")
            yield batch

    return apply


@pytest.mark.soak
def test_a_query_that_fails_within_a_batch_publishes_each_row_once(spark, kafka, output, written_to, tmp_path):
    source = kafka.create_topic(name("input"), partitions=2)
    kafka.produce(source, [b"%d" % number for number in range(40)])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source, "maxOffsetsPerTrigger": "20"}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from).load().select("value")
    checked = rows.repartition(2).mapInArrow(failing_once(str(tmp_path / "failed")), "value binary")
    writer = checked.writeStream.format("groupkafka").options(**written_to)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with pytest.raises(Exception, match="once"):
        writer.start().awaitTermination()
    found, waits = read(kafka, output)
    assert set(found) < set(range(40))
    assert waits == []  # what the failed batch had written is aborted
    query = writer.start()
    query.awaitTermination()
    assert read(kafka, output) == (list(range(40)), [])
    assert sum(progress.numInputRows for progress in query.recentProgress) >= 20


def waiting_within(file):
    """Passes its rows on, and then waits, so that its task has written some and has not ended."""

    def apply(batches):
        yield from batches
        while not Path(file).exists():
            time.sleep(0.05)

    return apply


@pytest.mark.parametrize("own_source", [False, True], ids=["", "with offsets of the source"])
@pytest.mark.soak
def test_a_query_that_is_stopped_within_a_batch_leaves_nothing_open(
    spark, kafka, group, output, written_to, tmp_path, own_source
):
    source = kafka.create_topic(name("input"), partitions=1)
    kafka.produce(source, [b"%d" % number for number in range(MANY)])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    if own_source:
        read_from |= {"kafka.group.id": group, "kafka.transactional.id": written_to["kafka.transactional.id"]}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from).load().select("value")
    waits = rows.mapInArrow(waiting_within(str(tmp_path / "go")), "value binary")
    writer = waits.writeStream.format("groupkafka").options(**written_to, **{"kafka.batch.size": "1000"})
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.start()
    try:
        wait_until(lambda: read(kafka, output)[1], within=60)
        query.stop()
        wait_until(lambda: read(kafka, output) == ([], []), within=30)
    finally:
        (tmp_path / "go").touch()
    writer.start().awaitTermination()
    assert read(kafka, output) == (list(range(MANY)), [])


HELD_COMMIT = """#!/bin/sh
case "$*" in *python_streaming_sink_runner*)
    touch {folder}/committing
    while [ ! -e {folder}/stopped ]; do sleep 0.05; done
esac
exec {python} "$@"
"""


@pytest.mark.parametrize("how", ["", "by-itself", "held"])
@pytest.mark.soak
def test_a_program_that_is_stopped_just_before_a_commit_leaves_nothing_open_or_says_so(
    kafka, output, written_to, tmp_path, how
):
    python = tmp_path / "python"
    python.write_text(HELD_COMMIT.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)
    program = [str(Path(__file__).with_name("stopped_sink_program.py")), json.dumps(written_to), str(tmp_path), how]
    environment = {**os.environ, "PYSPARK_PYTHON": str(python)}
    try:
        with (tmp_path / "err").open("w") as err:  # no pipe, which Spark's JVM has, too: it may end later
            code = subprocess.run([sys.executable, *program], stderr=err, timeout=180, env=environment).returncode
    finally:
        (tmp_path / "stopped").touch()
    said = (tmp_path / "err").read_text()
    assert (tmp_path / "committing").exists(), said[-3000:]
    line = said.splitlines()[-1]
    if how == "held":
        assert line.startswith(
            f"stopped. Transactions of kafka.transactional.id {written_to['kafka.transactional.id']}"
        )
    else:
        assert line == "stopped"
        assert read(kafka, output) == ([], [])
    assert code == 130


@pytest.mark.parametrize("guarantee", ["exactly-once", pytest.param("at-least-once", marks=pytest.mark.soak)])
def test_a_sink_without_the_id_of_its_source_is_refused_before_it_writes(
    spark, kafka, group, output, written_to, tmp_path, guarantee
):
    source = kafka.create_topic(name("input"), partitions=2)
    kafka.produce(source, [b"%d" % number for number in range(20)])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source, "kafka.group.id": group}
    prefix = {"kafka.transactional.id": written_to["kafka.transactional.id"]}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from, **prefix).load()
    writer = rows.select("value").writeStream.format("groupkafka").trigger(availableNow=True)
    # Hadoop takes `..` out of the name; the system would find nothing below a folder that is missing.
    writer = writer.option("checkpointLocation", f"{tmp_path}/missing/../checkpoint")
    once = guarantee == "exactly-once"
    wrong = written_to | {"kafka.transactional.id": name("other")}
    if not once:
        wrong = {key: wrong[key] for key in ("kafka.bootstrap.servers", "topic")}
    with pytest.raises(Exception, match="give both the same" if once else "give the sink the same one"):
        writer.options(**wrong).start().awaitTermination()
    assert read(kafka, output) == ([], [])
    writer.options(**written_to).start().awaitTermination()
    assert read(kafka, output) == (list(range(20)), [])
    assert sum(committed(kafka, group).values()) == 20


def test_offsets_of_the_source_are_committed_together_with_the_rows(spark, kafka, group, output, written_to, tmp_path):
    source = kafka.create_topic(name("input"), partitions=2)
    kafka.produce(source, [b"%d" % number for number in range(20)])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source, "kafka.group.id": group}
    prefix = {"kafka.transactional.id": written_to["kafka.transactional.id"]}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from, **prefix).load()
    fails = rows.select("value").repartition(2).mapInArrow(failing_once(str(tmp_path / "failed")), "value binary")
    writer = fails.writeStream.format("groupkafka").options(**written_to)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination()
    first = committed(kafka, group)
    assert (sum(first.values()), read(kafka, output)) == (20, (list(range(20)), []))
    kafka.produce(source, [b"%d" % number for number in range(20, 40)])
    with pytest.raises(Exception, match="once"):
        writer.start().awaitTermination()
    assert (committed(kafka, group), read(kafka, output)) == (first, (list(range(20)), []))
    writer.start().awaitTermination()
    assert sum(committed(kafka, group).values()) == 40
    assert read(kafka, output) == (list(range(40)), [])


def test_a_batch_write_is_published_as_a_whole_or_not_at_all(spark, kafka, output, written_to, tmp_path):
    rows = spark.range(40).selectExpr("cast(cast(id as string) as binary) as value").repartition(2)
    fails = rows.mapInArrow(failing_once(str(tmp_path / "failed")), "value binary")
    with pytest.raises(Exception, match="once"):
        fails.write.format("groupkafka").mode("append").options(**written_to).save()
    assert read(kafka, output) == ([], [])
    fails.write.format("groupkafka").mode("append").options(**written_to).save()
    assert read(kafka, output) == (list(range(40)), [])


def test_a_function_for_foreach_batch_writes_its_rows_once_also_where_it_fails_after_it(
    spark, kafka, output, written_to, tmp_path
):
    source = kafka.create_topic(name("input"), partitions=2)
    kafka.produce(source, [b"%d" % number for number in range(20)])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from).load().select("value")
    failures = ["after the write"]

    def write(batch, number):
        batch.write.format("groupkafka").mode("append").options(**written_to).save()
        if failures:
            raise ValueError(failures.pop())

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="after the write"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert read(kafka, output) == (list(range(20)), [])


def test_a_function_for_foreach_batch_that_writes_twice_with_one_id_fails_and_loses_nothing(
    spark, kafka, output, written_to, tmp_path
):
    source = kafka.create_topic(name("input"), partitions=2)
    kafka.produce(source, [b"%d" % number for number in range(20)])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from).load().select("value")

    def write(batch, number):
        for part in ("cast(value as string) % 2 = 0", "cast(value as string) % 2 = 1"):
            batch.where(part).write.format("groupkafka").mode("append").options(**written_to).save()

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="give each write of the function for foreachBatch a kafka.transactional.id"):
        writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("fails_after", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_function_for_foreach_batch_writes_to_two_topics_once_each_with_an_id_for_each(
    spark, kafka, group, output, written_to, tmp_path, fails_after
):
    source, other = (kafka.create_topic(name(what), partitions=PARTITIONS) for what in ("input", "other"))
    kafka.produce(source, [b"%d" % number for number in range(20)])
    read_from = options(kafka, source, group, **{"kafka.transactional.id": written_to["kafka.transactional.id"]})
    rows = spark.readStream.format("groupkafka").options(**read_from).load().select("value")
    writes = [written_to, written_to | {"topic": other, "kafka.transactional.id": name("w")}]
    failures = ["between or behind the writes"]

    def write(batch, number):
        for done, options_of_write in enumerate(writes, start=1):
            batch.write.format("groupkafka").mode("append").options(**options_of_write).save()
            if failures and done == fails_after:
                raise ValueError(failures.pop())

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="between or behind the writes"):
        writer.trigger(availableNow=True).start().awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    assert (read(kafka, output), read(kafka, other)) == ((list(range(20)), []), (list(range(20)), []))
    assert sum(committed(kafka, group).values()) == 20


@pytest.mark.parametrize("mode", ["update", "complete"])
@pytest.mark.soak
def test_a_function_for_foreach_batch_writes_what_an_aggregation_updates(
    spark, kafka, output, written_to, tmp_path, mode
):
    source = kafka.create_topic(name("input"), partitions=1)
    kafka.produce(source, [b"a", b"b", b"a"])
    read_from = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": source}
    rows = spark.readStream.format("groupkafka").options(startingOffsets="earliest", **read_from).load()
    counts = rows.groupBy("value").count().selectExpr("cast(count as string) value")

    def write(batch, number):
        batch.write.format("groupkafka").mode("append").options(**written_to).save()

    writer = counts.writeStream.foreachBatch(write).outputMode(mode).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.start().awaitTermination()
    assert read(kafka, output) == ([1, 2], [])
    kafka.produce(source, [b"a"])
    writer.start().awaitTermination()
    assert read(kafka, output) == (sorted([1, 2, 3] if mode == "update" else [1, 2, 1, 3]), [])


UNPINNED = """
import sys
from pyspark.sql import SparkSession
from spark_kafka_group import GroupKafkaDataSource
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(GroupKafkaDataSource)
servers, source, group, output, prefix, checkpoint = sys.argv[1:]
connection = {"kafka.bootstrap.servers": servers, "kafka.transactional.id": prefix}
reads = connection | {"subscribe": source, "kafka.group.id": group, "startingOffsets": "earliest"}
writes = connection | {"topic": output, "deliveryGuarantee": "exactly-once"}
rows = spark.readStream.format("groupkafka").options(**reads).load().select("value")

def write(batch, number):
    batch.write.format("groupkafka").mode("append").options(**writes).save()

query = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).trigger(availableNow=True)
query.start().awaitTermination()
"""


@pytest.mark.soak
def test_without_pinned_threads_a_function_for_foreach_batch_publishes_nothing_with_the_id_of_the_source(
    kafka, group, output, tmp_path
):
    source = kafka.create_topic(name("input"), partitions=1)
    kafka.produce(source, [b"1"])
    arguments = [kafka.bootstrap_servers, source, group, output, name("w"), str(tmp_path / "checkpoint")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_PIN_THREAD": "false"}
    done = subprocess.run(
        [sys.executable, "-c", UNPINNED, *arguments], capture_output=True, text=True, timeout=180, env=environment,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    refused = (
        "DATA_SOURCE_NOT_FOUND.*groupkafka|write in the function's own thread, and without PYSPARK_PIN_THREAD=false"
    )
    assert re.search(refused, done.stderr), done.stderr
    assert read(kafka, output) == ([], [])
    assert set(committed(kafka, group).values()) == {0}


@pytest.mark.soak
def test_a_write_outside_of_the_micro_batch_commits_no_offsets_of_its_source(
    spark, kafka, group, output, written_to, tmp_path
):
    source = kafka.create_topic(name("input"), partitions=2)
    kafka.produce(source, [b"%d" % number for number in range(20)])
    read_from = options(kafka, source, group, **{"kafka.transactional.id": written_to["kafka.transactional.id"]})
    rows = spark.readStream.format("groupkafka").options(**read_from).load().select("value")

    def save(batch):
        batch.write.format("groupkafka").mode("append").options(**written_to).save()

    begun, ends = threading.Event(), threading.Event()

    def wait(batch, number):
        begun.set()
        ends.wait(60)
        raise ValueError("nothing is written")

    writer = rows.writeStream.foreachBatch(wait).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert begun.wait(60)
    with pytest.raises(Exception, match="is also that of a streaming query's source"):
        save(spark.sql("SELECT 'x' value"))
    ends.set()
    with pytest.raises(Exception, match="nothing is written"):
        query.awaitTermination()
    assert read(kafka, output) == ([], [])
    assert set(committed(kafka, group).values()) == {0}
    writer = rows.writeStream.foreachBatch(lambda batch, _: save(batch)).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert read(kafka, output) == (list(range(20)), [])
    assert sum(committed(kafka, group).values()) == 20


@pytest.mark.soak
def test_a_checkpoint_from_before_the_last_batch_stops_the_query_and_a_new_one_begins_anew(
    spark, kafka, output, written_to, tmp_path
):
    source, checkpoint = tmp_path / "input", tmp_path / "checkpoint"
    source.mkdir()

    def add(start):
        (tmp_path / "new.txt").write_text("\n".join(map(str, range(start, start + 10))))
        (tmp_path / "new.txt").rename(source / f"{start}.txt")

    def run(place):
        writer = spark.readStream.text(str(source)).writeStream.format("groupkafka").options(**written_to)
        writer = writer.option("checkpointLocation", str(place)).trigger(availableNow=True)
        writer.start().awaitTermination()

    add(0)
    run(checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    add(10)
    run(checkpoint)
    add(20)
    with pytest.raises(Exception, match="the checkpoint is older than the last run of the query"):
        run(tmp_path / "copy")
    assert read(kafka, output) == (list(range(20)), [])
    run(checkpoint)
    assert read(kafka, output) == (list(range(30)), [])
    run(tmp_path / "new")
    assert read(kafka, output) == (sorted([*range(30), *range(30)]), [])
