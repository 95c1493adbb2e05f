"""The topic of a write is looked up before any row moves: errors of one sentence, within seconds."""

import socket
import time

import pytest
from support import name

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.options.sink_options import SinkOptions
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import writable_topics
from spark_kafka_group.wire.leaders import Leaders
from spark_kafka_group.wire.writable_topics import WritableTopics


def options(servers, topic=None, **more):
    given = {"kafka.bootstrap.servers": servers} | ({} if topic is None else {"topic": topic})
    return SinkOptions.parse(given | more)


@pytest.fixture
def topics(kafka):
    leaders = Leaders(options(kafka.bootstrap_servers).client, "executor")
    yield WritableTopics(leaders, 10_000, 30_000)
    leaders.close()


@pytest.fixture(scope="module")
def making():
    """A broker that makes topics that are asked for."""
    with KafkaCluster(properties={"auto.create.topics.enable": "true", "num.partitions": "5"}) as cluster:
        yield cluster


def test_a_topic_that_exists_has_its_leaders(kafka, topics):
    topic = kafka.create_topic(name("topic"), partitions=3)
    found = topics.leaders(topic)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert found[0] is not None
    writable_topics.check(options(kafka.bootstrap_servers, topic))


def test_an_answer_is_kept_and_looked_up_again_where_that_is_asked_for(kafka, topics):
    topic = kafka.create_topic(name("topic"), partitions=1)
    assert len(topics.leaders(topic)) == 1
    kafka.add_partitions(topic, 3)
    assert len(topics.leaders(topic)) == 1
    wait_until(lambda: len(topics.leaders(topic, refresh=True)) == 3, within=20)


class Counted(Leaders):
    requests = 0

    def metadata_to_write(self, topics, within_ms):
        self.requests += 1
        return super().metadata_to_write(topics, within_ms)


def test_all_topics_of_a_task_are_looked_up_at_once_and_the_one_that_does_not_exist_is_named(kafka):
    there, absent = [kafka.create_topic(name("topic"), partitions=2) for _ in range(3)], name("absent")
    leaders = Counted(options(kafka.bootstrap_servers).client, "executor")
    try:
        topics = WritableTopics(leaders, 10_000, 30_000)
        wait_until(lambda: len(topics.leaders(there[-1], refresh=True)) == 2, within=20)
        leaders.requests = 0
        topics.look_up(there)
        assert [len(topics.leaders(topic)) for topic in there] == [2, 2, 2]
        assert leaders.requests == 1
        with pytest.raises(BrokerError, match=f"^topic {absent} does not exist: create it, or correct its name$"):
            topics.look_up([*there, absent])
    finally:
        leaders.close()


def test_a_topic_that_does_not_exist_is_an_error_within_seconds(kafka, topics):
    topic, began = name("absent"), time.monotonic()
    with pytest.raises(BrokerError, match=f"^topic {topic} does not exist: create it, or correct its name$"):
        writable_topics.check(options(kafka.bootstrap_servers, topic))
    assert time.monotonic() - began < 20
    assert topic not in kafka.admin.list_topics()


def test_a_topic_is_made_where_brokers_make_topics_that_are_written_to(making):
    topic = name("made")
    writable_topics.check(options(making.bootstrap_servers, topic))
    assert len(making.admin.describe_topics([topic])[0]["partitions"]) == 5


def test_a_topic_that_was_deleted_is_not_made_again_when_another_one_is_written_to(making):
    leaders = Leaders(options(making.bootstrap_servers).client, "executor")
    try:
        topics = WritableTopics(leaders, 10_000, 30_000)
        deleted, next_one = name("deleted"), name("next")
        assert len(topics.leaders(deleted)) == 5
        making.delete_topic(deleted)
        assert len(topics.leaders(next_one)) == 5
        assert len(topics.leaders(next_one, refresh=True)) == 5
        assert leaders.leaders([TopicPartition(next_one, 4)], refresh=True) != {}
        found = making.admin.list_topics()
        assert (deleted in found, next_one in found) == (False, True)
    finally:
        leaders.close()


def test_the_first_connection_of_a_task_takes_no_longer_than_max_block_ms():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        given = options(f"127.0.0.1:{silent.getsockname()[1]}", "t", **{"kafka.max.block.ms": "1500"})
        leaders = Leaders(given.client, "executor")
        began = time.monotonic()
        try:
            with pytest.raises(BrokerTimeoutError, match=r"^looking up topic t.* within kafka.max.block.ms"):
                WritableTopics(leaders, given.producing.max_block_ms, 30_000).leaders("t")
        finally:
            leaders.close()
        assert time.monotonic() - began < given.connection.request_timeout_ms / 2000


@pytest.mark.parametrize(("topic", "doing"), [("t", "looking up topic t"), (None, "connecting to")])
def test_brokers_that_cannot_be_reached_are_an_error_within_seconds(topic, doing):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{unused.getsockname()[1]}"
        began = time.monotonic()
        says = (
            rf"^{doing}.* within kafka.max.block.ms: {servers}.*Correct kafka.bootstrap.servers, or start the broker$"
        )
        with pytest.raises(BrokerTimeoutError, match=says):
            writable_topics.check(options(servers, topic, **{"kafka.max.block.ms": "2000"}))
        assert time.monotonic() - began < 20


def test_without_the_option_topic_brokers_are_reached_and_no_topic_is_looked_up(kafka):
    writable_topics.check(options(kafka.bootstrap_servers))
