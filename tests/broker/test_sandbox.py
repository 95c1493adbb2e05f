"""The sandbox of notebooks: on a broker of others it touches nothing of theirs, and it leaves nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import name, numbered, produce

from spark_kafka_group.testing import Sandbox, open_sandbox, wait_until


@pytest.fixture
def sandbox(kafka):
    made = Sandbox(kafka.bootstrap_servers)
    yield made
    made.close()


def records(kafka, topic):
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        tps = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)]
        return sum(consumer.end_offsets(tps).values())
    finally:
        consumer.close()


def test_a_topic_of_others_with_the_same_name_stays_as_it_is(kafka, sandbox):
    theirs = kafka.create_topic(name("orders"))
    produce(kafka, theirs, numbered(3, 1))
    ours = sandbox.topic(theirs)
    assert ours.startswith(f"{theirs}-")
    assert sandbox.group(theirs) == ours
    sandbox.close()
    assert records(kafka, theirs) == 3
    assert ours not in kafka.admin.list_topics()


def test_a_cell_that_runs_again_has_an_empty_topic_and_an_empty_folder(kafka, sandbox):
    topic = sandbox.topic("orders", 2, beside=["-dlt"])
    produce(kafka, topic, numbered(4, 2))
    Path(sandbox.folder("files"), "file").touch()
    assert sandbox.topic("orders", 2, beside=["-dlt"]) == topic
    assert records(kafka, topic) == 0
    assert list(Path(sandbox.folder("files")).iterdir()) == []
    assert {f"{topic}-dlt"} == {found for found in kafka.admin.list_topics() if found.startswith(f"{topic}-")}


def test_a_sandbox_is_one_for_a_process_until_it_is_closed(kafka, monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    first = open_sandbox()
    folder = Path(first.folder("files"))
    assert open_sandbox() is first
    first.close()
    first.close()
    assert not folder.parent.exists()
    second = open_sandbox()
    assert second is not first
    second.close()


OPENING = """
from spark_kafka_group.testing import open_sandbox
sandbox = open_sandbox()
print(sandbox.topic("orders"), sandbox.group("billing"), sandbox.folder("files"))
print(sandbox._cluster.nodes[0].process.pid, sandbox._cluster.directory, flush=True)
"""
QUERYING = """
import sys
spark = sandbox.spark()
assert sandbox.spark() is spark
print(spark.sparkContext.pythonExec, spark._jvm.java.lang.ProcessHandle.current().pid())
spark.sql("select timestamp_millis(0) text").show()
stream = spark.readStream.format("groupkafka").option("kafka.bootstrap.servers", sandbox.servers)
stream = stream.option("subscribe", "orders").option("eventLog", sys.argv[1]).load()
stream.writeStream.format("noop").start().processAllAvailable()
"""


@pytest.fixture
def program(monkeypatch):
    """Run a program that has a broker of its own, which ends with it; returns its lines, and what it says on stderr."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)

    def run(code, *arguments):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        (topic, group, folder), (broker, directory), *more = map(str.split, done.stdout.splitlines())
        assert (topic, group) == ("orders", "billing")
        wait_until(lambda: not Path("/proc", broker).exists(), within=60)
        assert not Path(folder).parent.exists()
        assert not Path(directory).exists()
        return more, done.stderr

    return run


def test_a_sandboxs_own_broker_and_its_folders_end_with_the_process(program):
    program(OPENING)


@pytest.mark.soak
def test_a_sandboxs_spark_is_quiet_and_stops_its_queries_with_the_process(program, monkeypatch, tmp_path):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    events = tmp_path / "events.jsonl"
    ((python, jvm), *shown), said = program(OPENING + QUERYING, events)
    assert python == sys.executable
    assert ["|1970-01-01", "00:00:00|"] in shown
    quiet = said.partition('Setting Spark log level to "ERROR"')[2]  # Spark says more while it starts
    assert len(quiet.splitlines()) <= 1, quiet
    assert json.loads(events.read_text().splitlines()[-1])["event"] == "stopped"
    wait_until(lambda: not Path("/proc", jvm).exists(), within=60)
