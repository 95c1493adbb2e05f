"""Share groups and streams groups, made by Kafka's own classes: no tool, query or table takes them for consumers."""

import json
import socket
import struct

import pytest
from support.java_gateway import JavaProcess

from spark_kafka_group import explore
from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.tools.arguments import ToolError

STREAMS_GROUP_HEARTBEAT = 88


@pytest.fixture(scope="module")
def kafka():
    """Brokers of their own: commands that show all groups name these."""
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def java():
    started = JavaProcess()
    yield started
    started.stop()


@pytest.fixture
def share_consumer(java, kafka, group, topic):
    """A member of the share group; `close` leaves the group empty."""
    settings = java.java.util.Properties()
    settings.put("bootstrap.servers", kafka.bootstrap_servers)
    settings.put("group.id", group)
    for side in ("key", "value"):
        settings.put(f"{side}.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer")
    consumer = java.kafka.clients.consumer.KafkaShareConsumer(settings)
    consumer.subscribe([topic])
    consumer.poll(java.java.time.Duration.ofMillis(100))
    wait_until(lambda: kinds(kafka).get(group) == ("share", "Stable"), within=30)
    yield consumer
    consumer.close()


@pytest.fixture
def streams_member(java, kafka, group, topic):
    """A member of a streams group, which has sent its first heartbeat: that takes no more of Kafka Streams."""
    messages = java.kafka.common.message
    topology = getattr(messages, "StreamsGroupHeartbeatRequestData$Topology")
    subtopology = getattr(messages, "StreamsGroupHeartbeatRequestData$Subtopology")()
    subtopology.setSubtopologyId("0").setSourceTopics([topic])
    heartbeat = messages.StreamsGroupHeartbeatRequestData().setGroupId(group).setMemberId("m")
    heartbeat.setProcessId("p").setRebalanceTimeoutMs(30_000)
    heartbeat.setActiveTasks([]).setStandbyTasks([]).setWarmupTasks([])
    heartbeat.setTopology(topology().setSubtopologies([subtopology]))

    def encoded(message, version):
        short = java.java.lang.Short.parseShort(version)
        buffer = java.kafka.common.protocol.MessageUtil.toByteBufferAccessor(message, short).buffer()
        return bytes(buffer.array())[: buffer.limit()]

    api_key = java.java.lang.Short.parseShort(str(STREAMS_GROUP_HEARTBEAT))
    header = messages.RequestHeaderData().setRequestApiKey(api_key).setCorrelationId(1).setClientId("c")
    request = encoded(header, "2") + encoded(heartbeat, "0")
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        wait_until(lambda: kinds(kafka).get(group, ("",))[0] == "streams", within=30)
        yield


def kinds(kafka):
    found = explore.groups({"kafka.bootstrap.servers": kafka.bootstrap_servers})
    return {group.group: (group.kind, group.state) for group in found}


@pytest.fixture
def ran(kafka, capsys):
    """Runs a command; returns its exit code, its output, and its stderr."""

    def run(command, *arguments):
        capsys.readouterr()
        code = main([command, "--bootstrap-server", kafka.bootstrap_servers, *arguments])
        return code, *capsys.readouterr()

    return run


def check_tools(kafka, ran, group, use, topic):
    tool = f"kafka-{use}-groups"
    error = f"group {group} is a {use} group, and not one of consumers: take {tool} --"
    for command in (["describe"], ["top", "--once"], ["reset", "--to-earliest", "--topic", topic, "--execute"]):
        code, output, said = ran(*command, "--group", group)
        doing = "reset-offsets" if command[0] == "reset" else "describe"
        assert (code, output) == (1, "")
        assert f"{error}{doing}\n" in said
    for command in (["describe"], ["top", "--once", "--interval", "0.1"]):
        code, output, said = ran(*command)
        assert code == 0
        assert group not in output
        assert "groups that are not of consumers are not shown: " in said
        assert f"{group} ({use})" in said
        assert tool in said
    code, output, said = ran("offsets", "--group", group)
    assert f"{use} group metadata (kind " in output
    assert f"not decoded: {tool} shows the group" in output
    with pytest.raises(ToolError, match=error):
        explore.lag({"kafka.bootstrap.servers": kafka.bootstrap_servers}, group)


def check_queries(stream_of, kafka, topic, group, use):
    """No query begins in the group, whether it would join or not: no row leaves."""
    for doing, read in (("joining", {"subscribe": topic}), ("looking up", {"assign": json.dumps({topic: [0]})})):
        query = stream_of(kafka, read, startingOffsets="earliest", **{"kafka.group.id": group})
        with pytest.raises(
            GroupKafkaError,
            match=f"{doing} group {group}: it is a {use} group, which consumers cannot join, not even while it is "
            "empty: take another kafka.group.id",
        ):
            query.plan()


def test_a_share_group_is_shown_by_kafkas_tool_and_no_query_begins_in_it(
    kafka, group, topic, share_consumer, stream_of, ran
):
    check_tools(kafka, ran, group, "share", topic)
    check_queries(stream_of, kafka, topic, group, "share")
    share_consumer.close()
    wait_until(lambda: kinds(kafka)[group] == ("share", "Empty"), within=30)
    check_queries(stream_of, kafka, topic, group, "share")
    code, _, said = ran("reset", "--group", group, "--to-earliest", "--topic", topic)
    assert code == 1
    assert "take kafka-share-groups --reset-offsets" in said


def test_a_streams_group_is_shown_by_kafkas_tool_and_no_query_begins_in_it(
    kafka, group, topic, streams_member, stream_of, ran
):
    check_tools(kafka, ran, group, "streams", topic)
    check_queries(stream_of, kafka, topic, group, "streams")
