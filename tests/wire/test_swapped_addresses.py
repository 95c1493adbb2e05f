"""Brokers that come back at each other's addresses, of which metadata tell later."""

import contextlib
import time

from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers, LogClient

ORDERS = [TopicPartition("orders", 0)]
AT_ONCE_S = 5.0
"""Less than a lookup may take."""


def test_a_connection_by_an_old_address_is_made_again_once_metadata_tell_the_new_one(broker):
    broker.fetch = (4, 11)
    settings = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    with contextlib.closing(Brokers(settings)) as brokers:
        brokers.leaders(ORDERS, refresh=True)
        before = brokers.connection(1)
        assert brokers.connection(1) is before
        first, second = broker._nodes
        broker.swap_addresses()  # steps 1 and 2: the address was already that of another broker
        brokers.leaders(ORDERS, refresh=True)  # step 3: that broker has answered that it does not lead
        assert brokers.connection(1)._sock.getpeername()[1] == second.port
        assert brokers.connection(2)._sock.getpeername()[1] == first.port


def test_the_driver_asks_a_leader_at_its_new_address_once_metadata_tell_it(broker):
    settings = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    with contextlib.closing(LogClient(settings)) as client:
        assert client.end_offsets(ORDERS) == {ORDERS[0]: 10}
        broker.swap_addresses()
        client.existing(ORDERS)
        asked = time.monotonic()
        assert client.end_offsets(ORDERS) == {ORDERS[0]: 10}
        assert time.monotonic() - asked < AT_ONCE_S


def test_a_member_commits_to_its_coordinator_at_the_new_address(broker, client):
    broker.swap_addresses()
    client.commit({ORDERS[0]: 5}, "", 1)
    assert broker.committed[ORDERS[0]] == (5, "")
