"""A scripted coordinator, and members of its group."""

import pytest
from support.scripted import ScriptedBroker

from spark_kafka_group.assignors import resolve
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.wire import GroupClient

GROUP, TOPICS = "billing", {"orders": 2, "bills": 1}
QUICK = {
    "kafka.group.id": GROUP,
    "subscribe": ",".join(TOPICS),
    "kafka.heartbeat.interval.ms": "10000",
    "kafka.request.timeout.ms": "5000",
    "kafka.default.api.timeout.ms": "5000",
}


@pytest.fixture
def broker():
    """Two nodes; the first one coordinates."""
    with ScriptedBroker(TOPICS, nodes=2) as broker:
        yield broker


@pytest.fixture
def client_of(broker):
    """Makes clients that have not joined yet, and closes them."""
    made = []

    def make(instance_id="billing-1", **more):
        options = Options.parse({"kafka.bootstrap.servers": broker.bootstrap_servers} | QUICK | more)
        client = GroupClient(options, GROUP, instance_id, resolve(("range", "sticky")))
        made.append(client)
        client._coordinator.config["retry_backoff_ms"] = 10  # of kafka-python's own retries; 100 otherwise
        client.subscribe(options.reading.subscription)
        client.partitions(options.reading.subscription)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(broker, client_of):
    """A member of generation 1, without its requests until then. It sends no heartbeat for ten seconds."""
    client = client_of()
    client.join()
    broker.forget_received()
    return client


@pytest.fixture
def beating(broker, client_of):
    """As `client`, with ten heartbeats a second."""
    client = client_of(**{"kafka.heartbeat.interval.ms": "100"})
    client.join()
    broker.forget_received()
    return client


@pytest.fixture
def driver_of(broker):
    """Makes drivers that have not joined yet, and stops them."""
    made = []

    def make(shared=None, **more):
        where = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        options = where | QUICK | {"kafka.heartbeat.interval.ms": "100", "startingOffsets": "earliest"} | more
        made.append(StreamDriver(Options.parse(options), shared))
        return made[-1]

    yield make
    for driver in made:
        driver.stop()
