"""One broker with a listener for each way to be safe, and users with and without rights."""

import uuid

import pytest
from secured import LISTENERS, SCRAM_USER, add_user, settings
from support.certificates import Authority

from spark_kafka_group.testing import KafkaCluster


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """The CA of the broker and its clients."""
    made = Authority(tmp_path_factory.mktemp("certificates"), "ca")
    made.sign("broker", san="IP:127.0.0.1,DNS:localhost")
    made.sign("elsewhere", san="DNS:elsewhere.example")
    made.sign("client")
    return made


@pytest.fixture(scope="session")
def stranger(tmp_path_factory):
    """A CA that the broker does not know."""
    made = Authority(tmp_path_factory.mktemp("certificates"), "stranger")
    made.sign("client")
    return made


@pytest.fixture(scope="session")
def kafka(authority):
    """Instead of the one that all tests share, a broker that is safe; its tests administer it without TLS and SASL."""
    with KafkaCluster(properties=settings(authority), listeners=LISTENERS) as kafka:
        for name in ("alice", SCRAM_USER):
            add_user(kafka, name)
        yield kafka


@pytest.fixture(scope="session")
def records(kafka):
    """A topic with 30 records in 3 partitions."""
    topic = kafka.create_topic(f"topic-{uuid.uuid4().hex[:10]}", partitions=3)
    for partition in range(3):
        kafka.produce(topic, [b"v%d" % n for n in range(10)], partition=partition)
    return topic
