"""However a query ends, it leaves its group at once."""

import contextlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from support import committed, members, numbered, options, produce, topic_with
from support.sockets_of import sockets_of

from faults import ROOT
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until

SOON_S = 30
"""A member that does not leave stays for its session timeout of 45 s; a busy machine may take seconds over leaving."""


def gone(kafka, group):
    return lambda: members(kafka, group) == []


@pytest.fixture
def running(kafka, group, tmp_path, start_query):
    """A query that has caught up and waits for data."""
    topic = topic_with(kafka, numbered(30, 3))
    query = start_query(options(kafka, topic, group))
    query.wait_for(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)})
    assert len(members(kafka, group)) == 1
    return query


def stream(spark, kafka, topic, group, directory, **trigger):
    source = spark.readStream.format("groupkafka").options(**options(kafka, topic, group)).load()
    return (
        source.writeStream.format("parquet")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


@pytest.mark.soak
def test_available_now_leaves_when_it_ends(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(30, 3))
    stream(spark, kafka, topic, group, tmp_path, availableNow=True).awaitTermination()
    wait_until(gone(kafka, group), within=SOON_S)


@pytest.mark.soak
def test_stop_leaves(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(30, 3))
    query = stream(spark, kafka, topic, group, tmp_path, processingTime="100 milliseconds")
    wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)}, within=30)
    query.stop()
    wait_until(gone(kafka, group), within=SOON_S)


@pytest.mark.soak
def test_stop_and_start_again_twenty_times(spark, kafka, group, tmp_path):
    topic = topic_with(kafka, numbered(3, 3))
    for count in range(1, 21):
        query = stream(spark, kafka, topic, group, tmp_path, processingTime="50 milliseconds")
        wait_until(lambda n=count: committed(kafka, group) == {(topic, p): n for p in range(3)}, within=30)
        query.stop()
        produce(kafka, topic, numbered(3, 3))
    wait_until(gone(kafka, group), within=SOON_S)


def program_with(kafka, topic, group, directory, *then):
    """A program that starts a query and goes on with `then`."""
    return [
        sys.executable, "-c", f"""
import os, signal, time
from pyspark.sql import SparkSession
from spark_kafka_group import GroupKafkaDataSource

def wait_for(mark):
    while not os.path.exists({str(directory)!r} + "/" + mark):
        time.sleep(0.05)

def say(mark):
    open({str(directory)!r} + "/" + mark, "w").close()

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.dataSource.register(GroupKafkaDataSource)
query = (spark.readStream.format("groupkafka").options(**{options(kafka, topic, group)!r}).load()
    .writeStream.format("noop").option("checkpointLocation", {str(directory / "checkpoint")!r}).start())
""" + "\n".join(then),
    ]  # fmt: skip


@pytest.mark.soak
def test_stopping_the_session_leaves(kafka, group, tmp_path, start_program):
    topic = topic_with(kafka, numbered(30, 3))
    then = ('wait_for("go")', "spark.stop()", 'say("stopped")', "time.sleep(60)")
    program = start_program(program_with(kafka, topic, group, tmp_path, *then))
    program.wait_for(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)})
    (tmp_path / "go").touch()
    program.wait_for((tmp_path / "stopped").exists)
    wait_until(gone(kafka, group), within=SOON_S)


@pytest.mark.soak
def test_ctrl_c_in_a_program_that_handles_it_leaves_the_query_alone_and_in_one_that_does_not_ends_it(
    kafka, group, tmp_path, start_program
):
    topic = topic_with(kafka, numbered(30, 3))
    then = (
        "signal.signal(signal.SIGINT, lambda *_: say('heard'))",  # as a notebook's kernel does
        "say('handles'); wait_for('go')",
        "signal.signal(signal.SIGINT, signal.default_int_handler); say('as usual')",
        "time.sleep(60)",
    )
    program = start_program(program_with(kafka, topic, group, tmp_path, *then))
    program.wait_for(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)})
    program.wait_for((tmp_path / "handles").exists)
    before = [member["member_id"] for member in members(kafka, group)]
    os.killpg(program.process.pid, signal.SIGINT)
    program.wait_for((tmp_path / "heard").exists)
    produce(kafka, topic, numbered(3, 3))
    program.wait_for(lambda: committed(kafka, group) == {(topic, p): 11 for p in range(3)})
    assert [member["member_id"] for member in members(kafka, group)] == before  # no other process went on in its place
    (tmp_path / "go").touch()
    program.wait_for((tmp_path / "as usual").exists)
    os.killpg(program.process.pid, signal.SIGINT)
    assert program.ends() != 0
    wait_until(gone(kafka, group), within=30)
    assert "StreamingQueryException" not in program.log.read_text()


@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),  # as a terminal does, to the whole foreground group
        # As kill does, to spark-submit's process, which is the JVM.
        pytest.param(signal.SIGTERM, os.kill, marks=pytest.mark.soak),
    ],
)
def test_a_signal_in_spark_submit_leaves_and_is_one_line(kafka, group, tmp_path, start_program, number, send):
    topic = topic_with(kafka, numbered(30, 3))
    program = start_program(
        [
            Path(sys.executable).with_name("spark-submit"),
            "--master", "local[2]", "--conf", "spark.ui.enabled=false",
            "--properties-file", ROOT / "conf/spark-defaults.conf", ROOT / "jobs/stream_to_parquet.py",
            "--bootstrap-servers", kafka.bootstrap_servers, "--group", group, "--topics", topic,
            "--output", tmp_path / "out", "--checkpoint", tmp_path / "checkpoint", "--trigger", "200 milliseconds",
        ]
    )  # fmt: skip
    program.wait_for(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(3)})
    program.wait_for(lambda: "batch     0" in program.log.read_text())
    before = program.log.read_text()
    send(program.process.pid, number)
    wait_until(gone(kafka, group), within=SOON_S)
    assert program.ends() == 128 + number
    assert re.sub("(?m)^batch .*\n", "", program.log.read_text()[len(before) :]) == f"stopped; left group {group}\n"


@pytest.mark.soak
def test_the_jvm_killed_alone_leaves(kafka, group, running):
    os.kill(running.program.jvm(), signal.SIGKILL)
    wait_until(gone(kafka, group), within=SOON_S)


@pytest.mark.soak
def test_the_jvm_killed_alone_leaves_also_where_its_sockets_outlive_it(kafka, group, running):
    jvm = running.program.jvm()
    with sockets_of(jvm):
        os.kill(jvm, signal.SIGKILL)
        wait_until(gone(kafka, group), within=SOON_S)


@pytest.mark.soak
def test_the_reader_process_leaves_when_it_gets_sigterm_even_twice(kafka, group, running):
    reader = running.program.reader()
    (before,) = [member["member_id"] for member in members(kafka, group)]
    os.kill(reader, signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        os.kill(reader, signal.SIGTERM)
    # Spark may start another reader for a query that goes on; it is a member with another member id.
    wait_until(lambda: before not in [member["member_id"] for member in members(kafka, group)], within=SOON_S)

    def seen():
        """Whether Spark knows: in a trigger it says why, between two it finds a broken pipe."""
        another = set(running.program.readers()) - {reader}
        return "user_classes.Terminated" in running.log.read_text() or not running.running or another

    wait_until(seen, within=60)
    # The program, which handles no error of its query, may print a traceback of its own.
    assert "python_streaming_source_runner.py" not in running.log.read_text()


def test_stopping_with_a_dead_broker_is_bounded_by_the_request_timeout_and_twice_is_harmless(tmp_path, group):
    from spark_kafka_group.driver.stream import StreamDriver

    with KafkaCluster() as cluster:
        topic = topic_with(cluster, numbered(30, 3))
        settings = options(cluster, topic, group) | {"kafka.request.timeout.ms": "3000"}
        driver = StreamDriver(Options.parse(settings))
        start = driver.initial_offset()
        assert driver.latest_offset(start, None) != start
        cluster.node(0).kill()
        began = time.monotonic()
        driver.stop()
        driver.stop()
        assert time.monotonic() - began < 20


@pytest.mark.soak
def test_a_query_stops_with_a_dead_broker(spark, group, tmp_path):
    with KafkaCluster() as cluster:
        topic = topic_with(cluster, numbered(30, 3))
        settings = options(cluster, topic, group) | {"kafka.request.timeout.ms": "3000"}
        source = spark.readStream.format("groupkafka").options(**settings).load()
        query = (
            source.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        wait_until(lambda: committed(cluster, group) == {(topic, p): 10 for p in range(3)}, within=30)
        cluster.node(0).kill()
        began = time.monotonic()
        try:
            query.stop()
        except Exception as error:  # noqa: BLE001 - the query may have failed by itself meanwhile
            assert "request.timeout" in str(error)  # noqa: PT017
        assert time.monotonic() - began < 15
