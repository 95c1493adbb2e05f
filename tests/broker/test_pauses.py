"""Spark's Python workers are idle between tasks, and kafka-python's event loop stands still: that is no outage."""

import contextlib
import logging
import time

from support import options

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.produce.receiving_brokers import ReceivingBrokers

SETUP_MS = 500
IMPATIENT = {
    "kafka.socket.connection.setup.timeout.ms": str(SETUP_MS),
    "kafka.socket.connection.setup.timeout.max.ms": str(SETUP_MS),
}


def connection(brokers):
    """The connection to node 1, if it is there by now."""
    with contextlib.suppress(BrokerError):  # that of an attempt whose time was over
        brokers.work()
        return brokers.connected(1)


def test_a_connection_that_is_made_and_not_used_keeps_nobody_awake(kafka, group):
    brokers = ReceivingBrokers(Options.parse(options(kafka, "any", group)).client)
    with contextlib.closing(brokers):
        brokers.reach()
        assert brokers.connected(1) is None
        assert brokers.busy

        def made():
            brokers.work()
            return not brokers.busy

        wait_until(made, within=30)
        assert brokers.connected(1) is not None


def test_a_connection_that_was_under_way_in_a_pause_is_made_anew_without_a_warning(kafka, group, caplog):
    brokers = ReceivingBrokers(Options.parse(options(kafka, "any", group) | IMPATIENT).client)
    with contextlib.closing(brokers), caplog.at_level(logging.WARNING):
        brokers.reach()
        for _ in range(3):
            wait_until(lambda: connection(brokers), within=30)
            brokers.drop(1)
            assert brokers.connected(1) is None
            brokers._bootstrapped()._net.poll(timeout_ms=0)  # begins it, and the task has ended
            time.sleep(3 * SETUP_MS / 1000)
        wait_until(lambda: connection(brokers), within=30)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("spark_kafka_group")] == []
