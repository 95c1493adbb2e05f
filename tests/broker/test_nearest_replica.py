"""Executors that read from replicas in their own rack (KIP-392), also when a follower dies, lags, or is damaged."""

import logging
from collections import Counter

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from support import Record, name, options, partitions_of, produce
from test_executor import rows, task

from spark_kafka_group.driver.batch_read import read_tasks
from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import FetchConnection
from spark_kafka_group.wire.fetch import brokers

RACKS = ("a", "b", "c")
PARTITIONS, EACH = 6, 2000
OWN_SHARE = 0.95
SMALL_BATCHES = {"batch_size": 16_384}


@pytest.fixture(scope="module")
def racks():
    """Three brokers in three racks. A follower catches up in small steps."""
    steps = {"replica.fetch.response.max.bytes": "65536"}
    with KafkaCluster(nodes=3, properties=steps, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def topic(racks):
    topic = racks.create_topic(name("racks"), partitions=PARTITIONS)
    fill(racks, topic, EACH)
    return topic


@pytest.fixture
def sent(monkeypatch):
    """Bytes of records that each port has sent."""
    counts = Counter()
    receive = FetchConnection.receive

    def counted(connection):
        partitions = receive(connection)
        counts[connection._sock.getpeername()[1]] += sum(len(partition.records) for partition in partitions)
        return partitions

    monkeypatch.setattr(FetchConnection, "receive", counted)
    return counts


def fill(kafka, topic, each, first=0):
    records = (Record(p, None, b"%d" % n + bytes(100)) for n in range(first, first + each) for p in range(PARTITIONS))
    produce(kafka, topic, records, **SMALL_BATCHES)


def settings_of(kafka, topic, disconnected, **more):
    small = {"kafka.max.partition.fetch.bytes": "65536", "kafka.fetch.max.bytes": "262144"}
    settings = Options.parse(options(kafka, topic) | {"kafka.client.rack": "b"} | small | more)
    disconnected(settings)
    return settings


def everything(first=0, last=EACH):
    return sorted((p, n, b"%d" % n + bytes(100)) for p in range(PARTITIONS) for n in range(first, last))


def whole(topic, first=0, last=EACH):
    return task(topic, *[(first, last)] * PARTITIONS)


@pytest.mark.parametrize("rack", ["b", "${env:NODE_RACK}"])
def test_records_come_from_the_rack_of_the_executor(racks, topic, sent, disconnected, monkeypatch, rack):
    monkeypatch.setenv("NODE_RACK", "b")
    settings = settings_of(racks, topic, disconnected, **{"kafka.client.rack": rack, "kafka.client.id": name("rack")})
    assert sorted(rows(read(whole(topic), settings))) == everything()
    assert sent[racks.ports[1]] >= OWN_SHARE * sent.total() > 0


def test_a_request_without_a_rack_is_answered_by_leaders_only(racks, topic, disconnected):
    brokers = brokers_for(settings_of(racks, topic, disconnected, **{"kafka.client.rack": ""}))
    tp = TopicPartition(topic, 0)
    leader = racks.leader(topic, 0)
    answers = {}
    for node in (1, 2, 3):
        connection = brokers.connection(node)
        connection.send({tp: 0})
        (fetched,) = connection.receive()
        answers[node] = "records" if fetched.records else str(fetched.error)
    assert answers == {n: "records" if n == leader else "NotLeaderForPartitionError" for n in (1, 2, 3)}


def test_a_rack_that_no_broker_has_is_refused_before_data_moves(racks, topic, group, driver_of):
    settings = options(racks, topic, group) | {"kafka.client.rack": "elsewhere"}
    refused = "elsewhere.*the brokers' racks are a, b, c"
    with pytest.raises(OptionError, match=refused):
        read_tasks(Options.parse(settings))
    driver = driver_of(racks, topic, group, **{"kafka.client.rack": "elsewhere"})
    with pytest.raises(OptionError, match=refused):
        driver.latest_offset(driver.initial_offset(), None)
    assert racks.group_state(group)[0] == "Dead"


@pytest.mark.soak
def test_a_rack_whose_brokers_are_away_is_accepted(racks, topic):
    settings = Options.parse(options(racks, topic) | {"kafka.client.rack": "b"})
    racks.node(1).kill()
    try:
        racks.wait_until_ready()
        wait_until(lambda: in_sync(racks, topic) == {1, 3}, within=60)
        assert read_tasks(settings)
    finally:
        racks.node(1).start()
        racks.wait_until_ready()


@pytest.mark.parametrize("rack", ["elsewhere", "${env:UNSET_RACK}"])
def test_leaders_are_read_where_no_replica_is_in_the_rack(racks, topic, sent, disconnected, caplog, rack):
    settings = settings_of(racks, topic, disconnected, **{"kafka.client.rack": rack})
    assert sorted(rows(read(whole(topic), settings))) == everything()
    assert len(sent) == len(RACKS)
    warned = [r.getMessage() for r in caplog.records if "kafka.client.rack" in r.getMessage()]
    assert len(warned) == rack.startswith("$")


@pytest.mark.soak
def test_a_follower_that_is_killed_loses_and_doubles_nothing_and_is_read_again(
    racks,
    topic,
    sent,
    disconnected,
    monkeypatch,
):
    settings = settings_of(racks, topic, disconnected)
    batches = read(whole(topic), settings)
    found = [next(batches)]
    racks.node(1).kill()
    try:
        found += batches
        assert sorted(rows(found)) == everything()
    finally:
        racks.node(1).start()
        racks.wait_until_ready()
    wait_until(lambda: in_sync(racks, topic) == {1, 2, 3}, within=60)
    monkeypatch.setattr(brokers, "LEADER_ONLY_S", 0.0)
    brokers_for(settings).nearest._leader_only.clear()
    sent.clear()
    assert sorted(rows(read(whole(topic), settings))) == everything()
    assert sent[racks.ports[1]] >= OWN_SHARE * sent.total() > 0


def in_sync(kafka, topic):
    """Nodes that are in-sync replicas of every partition."""
    found = [set(partition["isr_nodes"]) for partition in partitions_of(kafka, topic)]
    return set.intersection(*found) if found else set()


@pytest.mark.soak
def test_a_follower_that_lags_is_left_for_the_leader_and_nothing_counts_as_lost(
    racks,
    topic,
    disconnected,
    caplog,
):
    settings = settings_of(racks, topic, disconnected, **{"kafka.metadata.max.age.ms": "3600000"})
    assert sorted(rows(read(whole(topic), settings))) == everything()  # from here on it is known who is near
    caplog.set_level(logging.INFO, "spark_kafka_group.executor.reading.fetcher")
    throttle(racks, topic, "1")  # of replicas that are not in sync
    try:
        racks.node(1).kill()
        racks.wait_until_ready()
        wait_until(lambda: in_sync(racks, topic) == {1, 3}, within=60)
        fill(racks, topic, EACH, first=EACH)
        racks.node(1).start()
        racks.wait_until_ready()
        brokers_for(settings).drop(2)  # of the killed process
        behind = EACH + 100  # the follower's log ends before
        assert sorted(rows(read(whole(topic, behind, 2 * EACH), settings))) == everything(behind, 2 * EACH)
    finally:
        racks.node(1).start()
        racks.wait_until_ready()
        throttle(racks, topic, "1000000000")
    left = [r.getMessage() for r in caplog.records if "node 2, in this rack" in r.getMessage()]
    assert left
    assert all(line.endswith("; asking the leader") for line in left)


def throttle(kafka, topic, bytes_a_second):
    """Slow replication down, at leaders too: a follower that starts does not know yet that it is throttled."""
    of_broker = {f"{side}.replication.throttled.rate": bytes_a_second for side in ("leader", "follower")}
    of_topic = {f"{side}.replication.throttled.replicas": "*" for side in ("leader", "follower")}
    resources = [ConfigResource(ConfigResourceType.BROKER, str(n), configs=of_broker) for n in (1, 2, 3)]
    resources.append(ConfigResource(ConfigResourceType.TOPIC, topic, configs=of_topic))
    kafka.admin.alter_configs(resources, raise_on_unknown=False)  # it does not know the brokers'


def test_a_follower_s_damaged_copy_is_read_from_the_leader(racks, topic, disconnected, caplog):
    follower = next(p for p in range(PARTITIONS) if racks.leader(topic, p) != 2)
    log = racks.node(1).data / f"{topic}-{follower}" / "00000000000000000000.log"
    wait_until(lambda: log.stat().st_size > EACH * 100 and in_sync(racks, topic) == {1, 2, 3}, within=60)
    with log.open("r+b") as file:
        file.seek(log.stat().st_size // 2)
        file.write(b"\xff" * 64)  # the values have zeros
    caplog.set_level(logging.INFO, "spark_kafka_group.executor.reading.fetcher")
    assert sorted(rows(read(whole(topic), settings_of(racks, topic, disconnected)))) == everything()
    assert any("its copy cannot be read; asking the leader" in r.getMessage() for r in caplog.records)
