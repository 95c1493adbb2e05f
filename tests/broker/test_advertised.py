"""Addresses that a broker advertises, and that nobody can reach, though those of kafka.bootstrap.servers answer."""

import time

import pytest
from support import a_full_queue, numbered, topic_with

from spark_kafka_group import explore
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import GroupKafkaError
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster

NAME, REFUSED = "kafka.invalid:9092", "127.0.0.1:1"
LISTENERS = dict.fromkeys(["NAME", "REFUSED", "SILENT"], "PLAINTEXT")


@pytest.fixture(scope="module")
def listeners():
    """The address of each listener, where it is reached, and a topic."""
    with a_full_queue() as silent:
        kafka = KafkaCluster(listeners=LISTENERS)
        reached = {name: kafka.servers_of(name) for name in LISTENERS}
        properties = kafka.nodes[0]._properties
        for name, advertised in {"NAME": NAME, "REFUSED": REFUSED, "SILENT": silent}.items():
            there, listed = f"{name}://{reached[name]}", properties["advertised.listeners"]
            properties["advertised.listeners"] = listed.replace(there, f"{name}://{advertised}")
        with kafka:
            yield reached, topic_with(kafka, numbered(3, 1), partitions=1)


def streamed(given):
    driver = StreamDriver(Options.parse(given))
    try:
        driver.latest_offset(driver.initial_offset(), None)
    finally:
        driver.stop()


@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ("NAME", r"kafka.invalid: this name has no address .*, or the name service of this machine"),
        pytest.param("REFUSED", "127.0.0.1:1: no broker listens there .*, or start the broker", marks=pytest.mark.soak),
        pytest.param(
            "SILENT", "127.0.0.1:.*: no answer to a conn.* connections from here pass", marks=pytest.mark.soak
        ),
    ],
)
def test_who_advertises_an_address_that_nobody_can_reach_is_named_soon(listeners, group, listener, why):
    reached, topic = listeners
    servers = {"kafka.bootstrap.servers": reached[listener]}
    stream = servers | {"subscribe": topic, "kafka.group.id": group}
    for look in (lambda: streamed(stream), lambda: explore.lag(servers, group)):
        began = time.monotonic()
        with pytest.raises(GroupKafkaError, match=f"node 1 advertises {why}") as raised:
            look()
        assert "Correct advertised.listeners of the brokers, or" in str(raised.value)
        assert time.monotonic() - began < 30
