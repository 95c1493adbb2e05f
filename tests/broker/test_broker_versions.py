"""Lines of Kafka that clusters of spark_kafka_group.testing start: a query reads, commits, shares and goes on."""

import pytest
from running import settled
from support import committed, name, options
from support.batches import batch_of, log_of, numbered, numbers, sender
from support.triggers import batch_values

from spark_kafka_group.__main__ import main
from spark_kafka_group.errors import UnsupportedVersionError
from spark_kafka_group.options.producing import Producing
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import TopicPartition

pytestmark = pytest.mark.soak  # each is downloaded first

LINES = ["2.8.2", "3.3.2", "3.9.1", "4.3.1"]


@pytest.fixture(scope="module", params=LINES)
def kafka(request):
    """A broker of that version, instead of the one that all tests share."""
    with KafkaCluster(version=request.param) as kafka:
        yield kafka


@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "zstd"])
def test_a_query_reads_commits_and_goes_on_after_a_restart(kafka, group, stream_of, compression):
    topic = kafka.create_topic(name("line"))
    kafka.produce(topic, [b"%d" % n for n in range(100)], compression=compression)
    subscribed = {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "earliest"}
    stream = stream_of(kafka, subscribed)
    assert stream.trigger() == list(range(100))
    assert stream.trigger() is None
    assert committed(kafka, group) == {(topic, 0): 100}
    stream.restart()
    kafka.produce(topic, [b"100"], compression=compression)
    stream.wait_for(100)
    stream.reader.stop()
    (row,) = kafka.describe_group(group)
    assert (row.current_offset, row.lag) == (100, 1)
    assert batch_values(options(kafka, topic)) == list(range(101))


def test_a_query_shares_its_topic_with_another_consumer(kafka, group, query_of, neighbour_of):
    topic = kafka.create_topic(name("line"), partitions=2)
    query = query_of(kafka, topic, group)
    neighbour = neighbour_of(kafka, topic, group)
    settled(kafka, group, 2)
    kafka.produce(topic, [b""] * 10, partition=0)
    kafka.produce(topic, [b""] * 10, partition=1)
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}, within=30)
    assert (len(neighbour.records), sum(r.size for r in query.ranges)) == (10, 10)


def test_the_tools_look_into_a_group_and_set_it(kafka, group, stream_of, capsys):
    topic = kafka.create_topic(name("line"))
    kafka.produce(topic, [b"1", b"2"])
    stream = stream_of(kafka, {"subscribe": topic, "kafka.group.id": group, "startingOffsets": "earliest"})
    assert stream.trigger() == [1, 2]
    stream.trigger()
    stream.reader.stop()
    servers = ["--bootstrap-server", kafka.bootstrap_servers, "--group", group]
    for command in (["describe"], ["offsets"], ["reset", "--to-earliest", "--all-topics", "--execute"]):
        assert main([command[0], *servers, *command[1:]]) == 0, capsys.readouterr().err
    assert committed(kafka, group) == {(topic, 0): 0}


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_task_sends_records(kafka, compression):
    tp = TopicPartition(kafka.create_topic(name("line")), 0)
    idempotent = kafka.version != "2.8.2"  # that has no producer ids without ZooKeeper
    producing = Producing(compression_type=compression, enable_idempotence=idempotent)
    with sender(kafka.bootstrap_servers, producing) as sending:
        for n in range(0, 200, 20):
            sending.send(tp, batch_of(tp, numbered(n, n + 20), compression))
        sending.flush()
    assert numbers(log_of(kafka, tp)) == list(range(200))


def test_brokers_without_producer_ids_are_an_error_that_says_what_to_set(kafka):
    if kafka.version != "2.8.2":
        pytest.skip("has producer ids")
    tp = TopicPartition(kafka.create_topic(name("line")), 0)
    with (
        sender(kafka.bootstrap_servers) as sending,
        pytest.raises(UnsupportedVersionError, match=r"set kafka\.enable\.idempotence to false"),
    ):
        sending.send(tp, batch_of(tp, numbered(0, 10)))
