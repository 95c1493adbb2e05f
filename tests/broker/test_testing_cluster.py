"""The broker that tests and demos use."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from support import commit_for, committed, end_offset, name, numbered, options, produce, topic_with

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.spark.installation import java
from spark_kafka_group.testing import (
    GroupGeneration,
    KafkaCluster,
    OffsetCommitted,
    download,
    read_group_log,
    wait_until,
)
from spark_kafka_group.testing.__main__ import NOT_RUNNING, SOME_DOWN, main, runs
from spark_kafka_group.testing.download import VERSION


@pytest.mark.soak
def test_data_survive_kill_and_restart_of_a_node():
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        kafka.node(0).kill()
        assert not kafka.node(0).alive
        kafka.node(0).start()
        kafka.wait_until_ready()
        assert end_offset(kafka, topic) == 10
        kafka.node(0).stop()
        kafka.node(0).start()
        kafka.wait_until_ready()
        assert end_offset(kafka, topic) == 10


@pytest.mark.soak
def test_three_nodes_go_on_when_one_is_killed(kafka3):
    topic = topic_with(kafka3, numbered(10, 1), partitions=1)
    described = kafka3.admin.describe_topics([topic])[0]["partitions"][0]
    assert len(described["replica_nodes"]) == 3
    node = kafka3.node(described["leader_id"] - 1)
    node.kill()
    produce(kafka3, topic, numbered(10, 1))
    assert end_offset(kafka3, topic) == 20
    node.start()
    kafka3.wait_until_ready()


@pytest.mark.soak
def test_a_group_whose_coordinator_has_moved_or_does_not_run_is_found(kafka3, group):
    topic = topic_with(kafka3, numbered(10, 1), partitions=1)
    commit_for(kafka3, group, {(topic, 0): 4})
    cluster = kafka3.admin._manager.cluster
    assert committed(kafka3, group) == {(topic, 0): 4}
    ((key, coordinator),) = [found for found in cluster._coordinators.items() if found[0][1] == group]
    cluster._coordinators[key] = coordinator % 3 + 1  # as if it had been another one before
    assert committed(kafka3, group) == {(topic, 0): 4}
    assert kafka3.group_state(group) == ("Empty", [])
    node = kafka3.node(coordinator - 1)
    node.kill()
    try:
        # A broker that has just taken the group over says for a moment that it has no offset, unless it is asked for
        # stable ones.
        wait_until(lambda: committed(kafka3, group) == {(topic, 0): 4}, within=30)
        assert kafka3.group_state(group) == ("Empty", [])
    finally:
        node.start()
        kafka3.wait_until_ready()


@pytest.mark.soak
def test_a_directory_that_was_given_keeps_its_data_for_the_next_cluster(tmp_path):
    for end in (10, 20):
        with KafkaCluster(directory=str(tmp_path)) as kafka:
            if end == 10:
                kafka.create_topic("kept")
            kafka.produce("kept", [b"value"] * 10)
            assert end_offset(kafka, "kept") == end
            process = kafka.node(0).process
        assert process.poll() is not None


def consumed(servers, topic, count):
    """The records of a topic, once there are so many."""
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    found = []
    try:
        wait_until(
            lambda: found.extend(r for rs in consumer.poll(1000).values() for r in rs) or len(found) == count, within=30
        )
    finally:
        consumer.close(autocommit=False)
    return found


def test_what_is_produced_comes_back_with_keys_from_the_partition_named(kafka):
    topic = kafka.create_topic(name("topic"), partitions=2)
    kafka.produce(topic, [b"bare", (b"key", b"value"), (b"gone", None)], partition=1, compression="gzip")
    found = consumed(kafka.bootstrap_servers, topic, 3)
    assert [(r.partition, r.key, r.value) for r in found] == [
        (1, None, b"bare"),
        (1, b"key", b"value"),
        (1, b"gone", None),
    ]


def test_topics_gain_partitions_and_go(kafka):
    topic = kafka.create_topic(name("topic"), configs={"retention.ms": "60000"})
    kafka.add_partitions(topic, 4)
    assert len(kafka.admin.describe_topics([topic])[0]["partitions"]) == 4
    kafka.delete_topic(topic)
    assert topic not in kafka.admin.list_topics()


def test_a_paused_node_answers_nothing_until_it_is_resumed(kafka):
    topic = kafka.create_topic(name("topic"))
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        producer.send(topic, b"in time").get(timeout=30)
        kafka.node(0).pause()
        sent = producer.send(topic, b"late")
        with pytest.raises(KafkaTimeoutError):
            sent.get(timeout=1)
        kafka.node(0).resume()
        sent.get(timeout=30)
    finally:
        kafka.node(0).resume()
        producer.close()
    assert end_offset(kafka, topic) == 2


def test_a_broker_dies_with_the_process_that_started_it_even_by_kill_9(tmp_path):
    program = """
import sys, time
from spark_kafka_group.testing import KafkaCluster
kafka = KafkaCluster(directory=sys.argv[1]).start()
print(kafka.node(0).process.pid, flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        pid = int(owner.stdout.readline())
        assert runs(pid, str(tmp_path))
        owner.kill()
    wait_until(lambda: not runs(pid, str(tmp_path)), within=10)


def test_a_broker_takes_its_classes_from_those_that_the_first_start_kept(kafka):
    archive = kafka.started() / download.ARCHIVE
    assert str(archive) in Path(f"/proc/{kafka.node(0).process.pid}/maps").read_text()


def test_a_cluster_without_groups_has_an_empty_group_log():
    with KafkaCluster() as kafka:
        assert read_group_log(kafka, "nobody") == []
        assert kafka.group_state("nobody") == ("Dead", [])


def test_the_groups_own_records_are_read_back(kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    driver = StreamDriver(Options.parse(options(kafka, topic, group)))
    start = driver.initial_offset()
    end = driver.latest_offset(start, None)
    assert driver.latest_offset(end, None) == end
    driver.stop()
    events = read_group_log(kafka, group)
    generations = [e for e in events if isinstance(e, GroupGeneration) and e.members]
    commits = {(e.partition, e.offset) for e in events if isinstance(e, OffsetCommitted)}
    assert generations[-1].generation == end["@group"]["generation"]
    assert generations[-1].protocol == "range"
    assert generations[-1].leader in generations[-1].members
    assert commits == {(0, 10), (1, 10), (2, 10)}
    assert isinstance(events[-1], GroupGeneration)  # the last member left
    assert events[-1].members == ()


@pytest.mark.soak
def test_describe_is_parsed_with_and_without_members(kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    driver = StreamDriver(Options.parse(options(kafka, topic, group)))
    end = driver.latest_offset(driver.initial_offset(), 15)
    driver.latest_offset(end, 15)
    row = kafka.describe_group(group)[0]
    driver.stop()
    assert (row.topic, row.partition, row.current_offset, row.log_end_offset, row.lag) == (topic, 0, 5, 10, 5)
    assert row.consumer_id.startswith("groupkafka-")
    assert (row.host, row.client_id) == ("/127.0.0.1", "groupkafka-driver")
    left = kafka.describe_group(group)[0]
    assert (left.current_offset, left.consumer_id, left.host) == (5, None, None)
    assert committed(kafka, group) == {(topic, p): 5 for p in range(3)}


@pytest.mark.parametrize("version", [VERSION, pytest.param("4.3.1", marks=pytest.mark.soak)])  # which is downloaded
def test_start_status_and_stop_from_a_shell(tmp_path, capsys, version):
    state = ["--state", str(tmp_path)]
    assert main([*state, "status"]) == NOT_RUNNING
    properties = tmp_path / "broker.properties"
    properties.write_text("# a comment\nnum.partitions = 2\n")
    capsys.readouterr()
    started = [*state, "start", "--version", version]
    assert main([*started, "--properties", str(properties)]) == 0
    said = capsys.readouterr()
    servers = said.out.strip()
    assert said.err.splitlines()[-1] == (
        f"Kafka {version} runs; `python -m spark_kafka_group.testing stop` ends it and removes its topics and groups"
    )
    try:
        assert main([*state, "status"]) == 0
        shown = capsys.readouterr().out
        assert f"node 1: {servers} pid" in shown
        assert f"kafka-{version}/" in Path("/proc", shown.split()[4], "cmdline").read_text()
        asked = ["--version", version, "--properties", str(properties), "--nodes", "1"]
        for again in ([], [*asked, "--port", servers.rpartition(":")[2]]):
            assert main([*state, "start", *again]) == 0
            assert capsys.readouterr().out.strip() == servers
        _refuses_another_one(state, servers, capsys)
        _takes_records(state, servers, capsys)
    finally:
        assert main([*state, "stop"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "stopped 1 node; its topics and groups are removed"
    assert main([*state, "status"]) == NOT_RUNNING
    assert main([*state, "stop"]) == 0


def _refuses_another_one(state, servers, capsys):
    for argument in (
        "--port 1",
        "--nodes 3",
        "--version 3.9.1",
        f"--directory {state[1]}",
        f"--properties {state[1]}/other",
    ):
        assert main([*state, "start", *argument.split()]) == SOME_DOWN
        said = capsys.readouterr()
        name = argument.split()[0]
        assert said.err.startswith(f"Kafka runs already at {servers}, started without this {name}: stop it first ")
        assert said.out == ""


def _takes_records(state, servers, capsys):
    """Of a producer that has not made its topic, and of produce."""
    producer = KafkaProducer(bootstrap_servers=servers)
    try:
        assert producer.send("made-by-a-record", b"value").get(timeout=30).offset == 0
    finally:
        producer.close()
    arguments = [*state, "produce", "--topic", "orders", "--records", "20", "--values", "json", "--partitions", "2"]
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments[:-1], "3"]) == SOME_DOWN
    assert capsys.readouterr().err == "topic orders is there with 2 partitions: leave --partitions out\n"
    assert main([*state, "produce", "--topic", "or ders"]) == SOME_DOWN
    assert capsys.readouterr().err.startswith("'or ders' is not a topic name: letters, digits, ")
    found = consumed(servers, "orders", 20)
    orders = sorted((json.loads(record.value) for record in found), key=lambda order: order["order_id"])
    assert {record.partition for record in found} == {0, 1}
    assert [order["order_id"] for order in orders] == list(range(20))
    assert orders[3] == {
        "order_id": 3, "customer": "customer-57", "item": "croissant", "amount": 3.11,
        "ordered_at": "2026-01-01T09:00:03Z",
    }  # fmt: skip


def test_a_node_that_cannot_start_is_an_error_with_the_end_of_its_log():
    with pytest.raises(RuntimeError, match="log.retention.hours"):
        KafkaCluster(properties={"log.retention.hours": "many"}).start()


def test_a_port_in_use_is_named_in_the_error(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--state", str(tmp_path), "start", "--port", str(port)]) == SOME_DOWN
    assert capsys.readouterr().err == (
        f"port {port} of 127.0.0.1 cannot be opened: [Errno 98] Address already in use. Take another port, or end the "
        "process that has this one\n"
    )


def test_a_java_that_is_too_old_is_an_error_that_names_it(tmp_path, monkeypatch):
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match=f"Java 17 or newer, but {old} says"):
        java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(RuntimeError, match="JAVA_HOME is .*nowhere"):
        java()


def test_wait_until_returns_what_became_true_and_tells_the_last_value_when_nothing_did():
    assert wait_until(lambda: "there", within=1) == "there"
    with pytest.raises(TimeoutError, match="the last value was 0"):
        wait_until(lambda: 0, within=0.1)
