"""Brokers that come back at each other's addresses, of which metadata tell later."""

import contextlib

from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.wire import Brokers

ORDERS = [TopicPartition("orders", 0)]


def test_a_connection_by_an_old_address_is_made_again_once_metadata_tell_the_new_one(broker):
    broker.fetch = (4, 11)
    settings = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    with contextlib.closing(Brokers(settings)) as brokers:
        brokers.leaders(ORDERS, refresh=True)
        before = brokers.connection(1)
        assert brokers.connection(1) is before
        first, second = broker._nodes
        first.number, second.number = 2, 1  # steps 1 and 2: the address was already that of another broker
        brokers.leaders(ORDERS, refresh=True)  # step 3: that broker has answered that it does not lead
        assert brokers.connection(1)._sock.getpeername()[1] == second.port
        assert brokers.connection(2)._sock.getpeername()[1] == first.port
