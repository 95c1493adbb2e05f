"""Burrow, a lag tool of others, sees a query as any consumer: its group, its partitions, and their lag."""

import json
import signal
import socket
import subprocess
import urllib.request

import prometheus_server
import pytest
from support import committed, numbered, options, topic_with

from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.testing.download import jars
from spark_kafka_group.testing.node import free_ports

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]  # it is downloaded first

BEFORE_4 = "3.9.1"
"""Kafka 4 refuses the ListOffsets of Burrow 1.2.1; this one has ZooKeeper's jars, too, where Burrow keeps its notes."""
RECORDS, PARTITIONS = 30, 3
BURROW = """\
[general]
pidfile="{directory}/burrow.pid"
[logging]
filename="{directory}/burrow.log"
level="info"
[zookeeper]
servers=["127.0.0.1:{zookeeper}"]
timeout=6
root-path="/burrow"
[client-profile.test]
client-id="burrow"
kafka-version="2.0.0"
[cluster.local]
class-name="kafka"
servers=["{servers}"]
client-profile="test"
topic-refresh=2
offset-refresh=1
[consumer.local]
class-name="kafka"
cluster="local"
servers=["{servers}"]
client-profile="test"
offsets-topic="__consumer_offsets"
start-latest=false
[httpserver.default]
address="127.0.0.1:{port}"
[storage.default]
class-name="inmemory"
workers=4
intervals=5
min-distance=0
"""


@pytest.fixture(scope="module")
def kafka():
    """A broker of that version, instead of the one that all tests share."""
    with KafkaCluster(version=BEFORE_4) as kafka:
        yield kafka


@pytest.fixture
def started(tmp_path):
    """Start a program whose output goes into a file; all are stopped in the end."""
    running = []

    def start(*command):
        with (tmp_path / f"program{len(running)}.log").open("wb") as log:
            running.append(subprocess.Popen([*map(str, command)], stdout=log, stderr=log, cwd=tmp_path))

    yield start
    for process in reversed(running):
        process.send_signal(signal.SIGTERM)
    for process in running:
        process.wait(timeout=30)


@pytest.fixture
def reading(spark, kafka, group, tmp_path):
    """A topic that a query reads, a few records at each trigger."""
    topic = topic_with(kafka, numbered(RECORDS, PARTITIONS))
    settings = options(kafka, topic, group, maxOffsetsPerTrigger=6)
    stream = spark.readStream.format("groupkafka").options(**settings).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(processingTime="1 second").start()
    wait_until(lambda: committed(kafka, group), within=60)
    yield topic
    query.stop()


def serves(port):
    """Whether ZooKeeper answers: it takes connections a little earlier."""
    try:
        with socket.create_connection(("127.0.0.1", port)) as asked:
            asked.sendall(b"srvr")
            return b"Mode: standalone" in b"".join(iter(lambda: asked.recv(4096), b""))
    except OSError:
        return False


def got(port, path):
    """The answer of a program; empty until it listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.read().decode()
    except OSError:
        return ""


def test_burrow_sees_the_group_its_partitions_and_that_it_has_caught_up(kafka, group, reading, started, tmp_path):
    zookeeper, port = free_ports(2)
    libraries = f"{jars('kafka_2.13', BEFORE_4)}/*"
    started(java(), "-cp", libraries, "org.apache.zookeeper.server.ZooKeeperServerMain", zookeeper, tmp_path / "zk")
    wait_until(lambda: serves(zookeeper), within=60)
    servers = kafka.bootstrap_servers
    config = BURROW.format(directory=tmp_path, zookeeper=zookeeper, servers=servers, port=port)
    (tmp_path / "burrow.toml").write_text(config)
    started(prometheus_server.command("Burrow", "burrow"), "--config-dir", tmp_path)

    def status():
        answer = json.loads(got(port, f"/v3/kafka/local/consumer/{group}/lag") or "{}")
        return answer.get("status", {})

    def lags():
        return {(each["topic"], each["partition"]): each["current_lag"] for each in status().get("partitions") or []}

    wait_until(lambda: lags() == {(reading, partition): 0 for partition in range(PARTITIONS)}, within=120)
    assert (status()["group"], status()["status"]) == (group, "OK")
