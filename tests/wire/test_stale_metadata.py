"""A broker that is cut off from the controllers: clients reach it, and it does not know what has changed."""

import contextlib

import pytest

from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers

ORDERS = [TopicPartition("orders", 0)]


@pytest.mark.parametrize("refresh", [True, False])
def test_an_executor_that_misses_a_partition_asks_other_brokers_too(broker, refresh):
    """Otherwise it would take the partition for deleted, and with failOnDataLoss=false leave out its records."""
    broker.cut_off.add(2)
    settings = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    for _ in range(8):  # which broker is asked first is a matter of chance
        with contextlib.closing(Brokers(settings)) as brokers:
            answers = [brokers.leaders(ORDERS, refresh) for _ in range(50)]
            assert ORDERS[0] in set().union(*answers)


def test_an_executor_asks_brokers_too_that_were_silent_before_it_takes_a_partition_for_deleted(broker):
    """1. A broker was slow once. 2. All others are cut off, and answer."""
    broker.cut_off.add(2)
    settings = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"})
    with contextlib.closing(Brokers(settings)) as brokers:
        brokers.leaders(ORDERS, refresh=True)
        brokers._client._manager.note_silent(1)
        answers = [brokers.leaders(ORDERS, refresh=True) for _ in range(20)]
        assert ORDERS[0] in set().union(*answers)
