"""Metadata that are asked for now, while kafka-python has just asked for others."""

import pytest

from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers, LogClient
from spark_kafka_group.wire.admin import GroupAdmin


@pytest.fixture
def asking(broker):
    """Sends a request for metadata of the topics known so far, whose answer takes a while."""

    def ask(client):
        manager = client._manager
        broker.takes_s["Metadata"] = 0.5
        manager.call_soon(manager.cluster.refresh_metadata)
        wait_until(
            lambda: any(connection.in_flight_requests for connection in list(manager._conns.values())), within=10
        )

    return ask


def test_partitions_of_a_topic_are_known_although_metadata_without_it_were_under_way(broker, asking):
    options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    client = LogClient(options)
    try:
        asking(client)
        assert client.partitions(options.reading.subscription) == {
            TopicPartition("orders", 0),
            TopicPartition("orders", 1),
        }
    finally:
        client.close()


def test_leaders_of_a_topic_are_known_although_metadata_without_it_were_under_way(broker, asking):
    options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    with GroupAdmin(options) as admin:
        asking(admin)
        assert set(admin.leaders(["bills"])) == {TopicPartition("bills", 0)}


def test_ends_of_logs_are_looked_up_although_metadata_without_a_leaders_broker_came_meanwhile(broker):
    """1. A partition's leader is looked up. 2. Metadata come in which its broker is gone. 3. The leader is asked."""
    options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    client = LogClient(options)
    try:
        partitions = client.partitions(options.reading.subscription)
        manager = client._manager

        async def forget_brokers():
            manager.cluster._brokers = {}
            for connection in list(manager._conns.values()):
                connection.close()

        manager.run(forget_brokers)
        assert client.end_offsets(partitions) == dict.fromkeys(partitions, 10)
    finally:
        client.close()


def test_a_connection_in_place_of_a_closed_one_is_taken_over_once_it_has_its_response(broker):
    options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    brokers = Brokers(options, "executor")
    try:
        (node_id,) = set(brokers.leaders([TopicPartition("orders", 0)], refresh=False).values())
        manager = brokers._bootstrapped()._manager
        get, made = manager.get_connection, []

        async def closed():
            made.append(await get(node_id))
            made[0].close()
            return made[0]

        async def asked_for_metadata():
            made.append(await get(node_id))
            broker.takes_s["Metadata"] = 0.5
            manager.get_connection = get
            manager.call_soon(lambda: manager.cluster.refresh_metadata(node_id))
            while not made[1].in_flight_requests:
                await manager._net.sleep(0.01)
            return made[1]

        attempts = iter([closed, asked_for_metadata])
        manager.get_connection = lambda _: next(attempts)()
        conn = brokers._run(lambda: brokers._connected(node_id))
        assert conn is made[1]
        assert not conn.in_flight_requests
    finally:
        brokers.close()
