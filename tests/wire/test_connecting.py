"""A server that takes connections and says nothing is given up after the time for setting up a connection."""

import socketserver

import pytest
from support import serving

from spark_kafka_group.errors import BrokerTimeoutError
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import LogClient
from spark_kafka_group.wire.fetch.brokers import Brokers


class Silent(socketserver.ThreadingTCPServer):
    """Takes connections, notes them, and says nothing until the other end closes."""

    daemon_threads = True

    def __init__(self):
        self.taken = 0
        super().__init__(("127.0.0.1", 0), None)

    def finish_request(self, request, client_address):
        self.taken += 1
        while request.recv(1024):
            pass


@pytest.fixture
def silent():
    server = Silent()
    with serving(server):
        yield server


@pytest.mark.parametrize("half", ["driver", "executor"])
def test_a_silent_server_is_tried_again_after_the_setup_timeout(silent, half):
    parsed = Options.parse(
        {
            "kafka.bootstrap.servers": f"127.0.0.1:{silent.server_address[1]}",
            "subscribe": "orders",
            "kafka.request.timeout.ms": "1000",
            "kafka.socket.connection.setup.timeout.ms": "100",
            "kafka.socket.connection.setup.timeout.max.ms": "150",
        }
    )
    brokers = Brokers(parsed)
    calls = {
        "driver": lambda: LogClient(parsed),
        "executor": lambda: brokers.leaders({TopicPartition("orders", 0)}, refresh=False),
    }
    try:
        with pytest.raises(BrokerTimeoutError, match="kafka.request.timeout.ms"):
            calls[half]()
        assert silent.taken >= 3
    finally:
        brokers.close()
