"""Log offsets of partitions that have no leader for a while, or another one: never taken for those of an empty log."""

import contextlib
import logging
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka import TopicPartition as KafkaTopicPartition
from support import Record, name, numbered, options, produce
from support.triggers import send
from test_executor import task

from spark_kafka_group import BrokerTimeoutError
from spark_kafka_group.driver import batch_read
from spark_kafka_group.driver.steps import backlog
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import LogClient
from spark_kafka_group.wire.admin import GroupAdmin

FIRST_MS = 1_700_000_000_000
IMPATIENT = {"kafka.request.timeout.ms": 1200, "kafka.fetch.max.wait.ms": 100, "fetchOffset.numRetries": 1}
FOLLOWED_WITHIN_S = 15.0


def leaders(kafka, topic):
    # A broker that has just started may not know the topic yet.
    partitions = wait_until(lambda: kafka.admin.describe_topics([topic])[0]["partitions"], within=30)
    return {p["partition_index"]: p["leader_id"] for p in partitions}


@pytest.mark.soak
def test_lookups_wait_for_a_leader_and_name_the_partition_that_has_none(kafka3):
    topic = name("leaderless")
    kafka3.create_topic(topic, partitions=2, replication=1, configs={"min.insync.replicas": "1"})
    produce(kafka3, topic, [Record(n % 2, None, b"x", timestamp_ms=FIRST_MS + n) for n in range(10)])
    led, not_led = TopicPartition(topic, 0), TopicPartition(topic, 1)
    node = kafka3.node(leaders(kafka3, topic)[1] - 1)
    impatient = Options.parse(options(kafka3, topic, **IMPATIENT))
    late = {"startingTimestamp": str(FIRST_MS + 4), "startingOffsetsByTimestampStrategy": "latest"}
    by_time = Options.parse(options(kafka3, topic, **IMPATIENT, **late))
    client, patient = LogClient(impatient), LogClient(Options.parse(options(kafka3, topic)))
    try:
        node.stop()
        wait_until(lambda: leaders(kafka3, topic)[1] < 0, within=30)
        waits = pytest.raises(BrokerTimeoutError, match=f"without a leader: {not_led}$")
        for lookup in (
            client.end_offsets,
            client.beginning_offsets,
            lambda tps: client.offsets_at(dict.fromkeys(tps, 0)),
        ):
            with waits:
                lookup([led, not_led])
            assert lookup([led])
        with waits, GroupAdmin(impatient) as admin:
            admin.log_ranges([led, not_led])
        with waits:
            batch_read.plan(by_time)  # which would skip what it has for an empty log
        node.start()
        assert patient.end_offsets([led, not_led]) == {led: 5, not_led: 5}
        assert patient.offsets_at({led: FIRST_MS + 4, not_led: FIRST_MS + 100}) == {led: 2, not_led: None}
        (task,) = batch_read.plan(Options.parse(options(kafka3, topic, **late)))
        assert set(task) == {OffsetRange(led, 2, 5), OffsetRange(not_led, 2, 5)}
    finally:
        client.close()
        patient.close()
        node.start()
        kafka3.wait_until_ready()


def test_a_lookup_follows_a_leader_that_has_moved_without_a_connection_being_lost(kafka3):
    topic = name("moved")
    kafka3.create_topic(topic, partitions=1)
    produce(kafka3, topic, [Record(0, None, b"x", timestamp_ms=FIRST_MS + n) for n in range(5)])
    tp, old = TopicPartition(topic, 0), leaders(kafka3, topic)[0]
    others = [node.number for node in kafka3.nodes if node.number != old]
    # A fifth of it would be waited for an answer that does not come.
    patient = {"kafka.request.timeout.ms": 300_000, "kafka.default.api.timeout.ms": 300_000}
    with contextlib.closing(LogClient(Options.parse(options(kafka3, topic) | patient))) as client:
        assert client.end_offsets([tp]) == {tp: 5}
        kafka3.admin.alter_partition_reassignments({KafkaTopicPartition(*tp): [*others, old]})
        wait_until(lambda: not kafka3.admin.list_partition_reassignments(), within=30)
        kafka3.admin.elect_leaders(0, {topic: [0]})  # the preferred one
        wait_until(lambda: leaders(kafka3, topic) == {0: others[0]}, within=30)
        for lookup in (client.end_offsets, lambda tps: client.offsets_at(dict.fromkeys(tps, FIRST_MS + 5))):
            asked = time.monotonic()
            assert lookup([tp]) in ({tp: 5}, {tp: None})
            assert time.monotonic() - asked < FOLLOWED_WITHIN_S


@pytest.mark.soak
def test_a_batch_read_goes_on_with_the_partitions_that_have_leaders(kafka3, disconnected):
    topic = name("leaderless")
    kafka3.create_topic(topic, partitions=2, replication=1, configs={"min.insync.replicas": "1"})
    produce(kafka3, topic, numbered(2000, 2), batch_size=200)
    settings = Options.parse(options(kafka3, topic, **{"kafka.max.partition.fetch.bytes": 1000}))
    disconnected(settings)
    node = kafka3.node(leaders(kafka3, topic)[1] - 1)
    try:
        node.stop()
        wait_until(lambda: leaders(kafka3, topic)[1] < 0, within=30)
        scan = decode.load("auto").scan
        chunks = Fetcher(brokers_for(settings), task(topic, (0, 1000), (0, 1000)).ranges, scan, 60).chunks()
        read = 0
        while read < 1000:
            chunk = next(chunks)
            assert chunk.tp.partition == 0
            _, read = scan(topic, 0, chunk.records)
        node.start()
        assert {chunk.tp.partition for chunk in chunks} == {1}
    finally:
        node.start()
        kafka3.wait_until_ready()


@pytest.fixture
def one_led(kafka3):
    """A topic of two partitions of one replica each, and the node that leads the second; it runs again at the end."""
    topic = name("leaderless")
    kafka3.create_topic(topic, partitions=2, replication=1, configs={"min.insync.replicas": "1"})
    node = kafka3.node(leaders(kafka3, topic)[1] - 1)
    try:
        yield topic, node
    finally:
        node.start()
        kafka3.wait_until_ready()


def without_leader(kafka, topic, node):
    node.stop()
    wait_until(lambda: leaders(kafka, topic)[1] < 0, within=30)


def test_a_stream_goes_on_with_the_partitions_that_have_leaders(kafka3, one_led, stream_of, caplog):
    caplog.set_level(logging.INFO)
    topic, node = one_led
    led, not_led = TopicPartition(topic, 0), TopicPartition(topic, 1)
    stream = stream_of(kafka3, {"subscribe": topic, "startingOffsets": "earliest"}, **IMPATIENT)
    send(kafka3, topic, 0, range(10))
    send(kafka3, topic, 1, range(10, 20))
    stream.wait_for(*range(20))
    send(kafka3, topic, 1, range(20, 25))
    without_leader(kafka3, topic, node)
    for n in range(100, 110):
        send(kafka3, topic, 0, [n])
        stream.wait_for(n)
    assert stream.positions(topic) == {0: 20, 1: 10}
    progress = stream.reader.reportLatestOffset()
    assert progress[topic]["0"] == 20
    assert progress[topic]["1"] in (10, 15)  # as last looked up
    since_ms = progress["@group"]["leaderlessSinceMs"][topic]
    assert since_ms.keys() == {"1"}
    assert 0 < time.time() * 1000 - since_ms["1"] < 600_000
    assert stream.trigger() is None
    assert "brokers are away" not in caplog.text
    assert caplog.text.count(f"no broker leads {not_led}: the query goes on") == 1
    node.start()
    stream.wait_for(*range(20, 25))
    assert stream.positions(topic) == {0: 20, 1: 15}
    assert "leaderlessSinceMs" not in stream.reader.reportLatestOffset()["@group"]
    assert f"{not_led} has a leader again, after" in caplog.text
    assert f"{led} has" not in caplog.text


def test_a_query_none_of_whose_partitions_has_a_leader_waits_without_holding_up_its_group(
    kafka3, one_led, stream_of, caplog
):
    topic, node = one_led
    assigned = {"assign": f'{{"{topic}": [1]}}', "startingOffsets": "earliest"}
    stream = stream_of(kafka3, assigned, **IMPATIENT)
    send(kafka3, topic, 1, range(5))
    stream.wait_for(*range(5))
    without_leader(kafka3, topic, node)
    wait_until(lambda: stream.trigger() is None and "no broker leads" in caplog.text, within=30)
    metadata = []
    cluster = stream.reader._driver._session.member.client._manager.cluster
    refresh = cluster.refresh_metadata
    cluster.refresh_metadata = lambda node=None: metadata.append(node) or refresh(node)
    ends_at = time.monotonic() + 5
    slowest = 0.0
    while (asked := time.monotonic()) < ends_at:
        assert stream.trigger() is None
        slowest = max(slowest, time.monotonic() - asked)
    assert slowest < 2.5
    assert 0 < sum(node is not None for node in metadata) <= 8  # about once a second, beside kafka-python's own
    assert "brokers are away" not in caplog.text
    node.start()
    send(kafka3, topic, 1, [5])
    stream.wait_for(5)


@pytest.mark.parametrize("ending", [{"endingTimestamp": "9999999999999"}, {"endingOffsets": "latest"}])
@pytest.mark.soak
def test_a_stream_that_ends_somewhere_goes_on_with_the_partitions_that_have_leaders(kafka3, one_led, stream_of, ending):
    topic, node = one_led
    stream = stream_of(kafka3, {"subscribe": topic, "startingOffsets": "earliest"}, **IMPATIENT)
    send(kafka3, topic, 0, range(10))
    send(kafka3, topic, 1, range(10, 20))
    stream.wait_for(*range(20))
    send(kafka3, topic, 0, [100])
    send(kafka3, topic, 1, [101])
    without_leader(kafka3, topic, node)
    stream.restart(**ending)
    stream.wait_for(100)
    node.start()
    stream.wait_for(101)


@pytest.mark.soak
def test_the_lag_of_a_partition_without_a_leader_is_known_after_a_rebalance(kafka3, one_led, stream_of):
    topic, node = one_led
    stream = stream_of(
        kafka3, {"subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}, **IMPATIENT, maxOffsetsPerTrigger=4
    )
    send(kafka3, topic, 1, range(6))
    assert stream.trigger() == [0, 1, 2, 3]
    without_leader(kafka3, topic, node)
    wait_until(lambda: stream.trigger() is None, within=30)

    def shown():
        group = stream.reader.reportLatestOffset()["@group"]
        return group["lag"], [*group["leaderlessSinceMs"][topic]]

    assert shown() == (2, ["1"])
    kafka3.wait_until_ready()  # the client that makes topics may have asked that node
    kafka3.create_topic(f"{topic}-more", partitions=1, replication=1, configs={"min.insync.replicas": "1"})
    send(kafka3, f"{topic}-more", 0, [100])
    stream.wait_for(100)
    assert stream.trigger() is None  # which commits the last batch
    assert shown() == (2, ["1"])


@pytest.mark.soak
def test_a_query_that_ends_at_the_ends_of_logs_waits_for_a_leader(kafka3, one_led, stream_of, caplog, monkeypatch):
    monkeypatch.setattr(backlog, "ENDS_HOLD_S", 0.0)
    topic, node = one_led
    stream = stream_of(kafka3, {"subscribe": topic, "startingOffsets": "earliest"}, **IMPATIENT, maxOffsetsPerTrigger=2)
    send(kafka3, topic, 0, [0])
    send(kafka3, topic, 1, [1, 2, 3])
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.trigger() == [0, 1]
    without_leader(kafka3, topic, node)
    with ThreadPoolExecutor(1) as running:
        batch = running.submit(stream.trigger)
        wait_until(lambda: f"without a leader: {TopicPartition(topic, 1)}" in caplog.text, within=30)
        node.start()
        assert batch.result(60) == [2, 3]
