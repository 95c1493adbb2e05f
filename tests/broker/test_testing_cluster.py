"""The broker that tests and demos use."""

import pytest
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import GroupGeneration, KafkaCluster, OffsetCommitted, read_group_log, wait_until
from spark_kafka_group.testing.__main__ import NOT_RUNNING, main


def end_offset(kafka, topic):
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
    try:
        tp = TopicPartition(topic, 0)
        return consumer.end_offsets([tp])[tp]
    finally:
        consumer.close()


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


def test_start_status_and_stop_from_a_shell(tmp_path, capsys):
    state = ["--state", str(tmp_path)]
    assert main([*state, "status"]) == NOT_RUNNING
    properties = tmp_path / "broker.properties"
    properties.write_text("# a comment\nauto.create.topics.enable = true\n")
    capsys.readouterr()
    assert main([*state, "start", "--properties", str(properties)]) == 0
    servers = capsys.readouterr().out.strip()
    try:
        assert main([*state, "status"]) == 0
        assert f"node 1: {servers} pid" in capsys.readouterr().out
        assert main([*state, "start"]) == 0
        assert capsys.readouterr().out.strip() == servers
    finally:
        assert main([*state, "stop"]) == 0
    assert capsys.readouterr().out.strip() == "stopped 1 node(s)"
    assert main([*state, "status"]) == NOT_RUNNING
    assert main([*state, "stop"]) == 0


def test_a_node_that_cannot_start_is_an_error_with_the_end_of_its_log():
    with pytest.raises(RuntimeError, match="log.retention.hours"):
        KafkaCluster(properties={"log.retention.hours": "many"}).start()


def test_wait_until_returns_what_became_true_and_tells_the_last_value_when_nothing_did():
    assert wait_until(lambda: "there", within=1) == "there"
    with pytest.raises(TimeoutError, match="the last value was 0"):
        wait_until(lambda: 0, within=0.1)
