"""Drivers, as Spark drives them, without Spark."""

import pytest
from running import LibrdkafkaNeighbour, Neighbour, NewerNeighbour, Query
from support import name, options
from support.exactly_once_runs import Run, transaction_options
from support.triggers import QUICK, Stream

from spark_kafka_group.driver.backlog import long_poll
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.executor.reading.read import brokers_for
from spark_kafka_group.options import Options
from spark_kafka_group.wire.transactions.kept_clients import close_all


@pytest.fixture
def output(kafka):
    """A topic that exactly-once batches are written to."""
    return kafka.create_topic(name("output"), partitions=2)


@pytest.fixture
def run_of(kafka, output):
    """Makes exactly-once writes to `output`."""

    def make(prefix=None, query="q", shared=None, **more):
        prefixed = name("w") if prefix is None else f"{output}-{prefix}"
        return Run(transaction_options(kafka.bootstrap_servers, prefixed, **more), output, query, shared)

    yield make
    close_all()


@pytest.fixture
def patience(monkeypatch):
    """The trigger after a write sees the write, even if a busy broker answers long polls late."""
    monkeypatch.setattr(long_poll, "PATIENCE_S", 0.25)
    monkeypatch.setattr(long_poll, "LEAST_PATIENCE_S", 0.25)


@pytest.fixture
def disconnected():
    """Connections made by a test are closed when it ends."""
    made = []
    yield made.append
    for settings in made:
        brokers_for(settings).close()


@pytest.fixture
def driver_of():
    """Makes drivers and stops them."""
    made = []

    def make(kafka, topic, group, shared=None, **more):
        parsed = Options.parse(options(kafka, topic, group) | {k: str(v) for k, v in more.items()})
        made.append(StreamDriver(parsed, shared))
        return made[-1]

    yield make
    for driver in made:
        driver.stop()


@pytest.fixture
def query_of(driver_of):
    """Makes running queries and ends them."""
    made = []

    def make(kafka, topic, group, **more):
        made.append(Query(driver_of(kafka, topic, group, **more)).start())
        return made[-1]

    yield make
    for query in made:
        query.end()
        if query.failure is not None:
            raise query.failure


@pytest.fixture
def neighbour_of():
    """Makes kafka-python consumers and closes them."""
    made = []

    def make(kafka, topics, group, **configs):
        made.append(Neighbour(kafka, [topics] if isinstance(topics, str) else topics, group, **configs))
        return made[-1]

    yield make
    for neighbour in made:
        neighbour.close()


@pytest.fixture
def newer_neighbour_of():
    """Makes consumers of the newer group protocol and closes them."""
    made = []

    def make(kafka, topic, group):
        made.append(NewerNeighbour(kafka, topic, group))
        return made[-1]

    yield make
    for neighbour in made:
        neighbour.close()


@pytest.fixture
def librdkafka_of():
    """Makes consumers of the newer group protocol that are librdkafka's, in threads, and closes them."""
    made = []

    def make(kafka, topic, group, **configs):
        made.append(LibrdkafkaNeighbour(kafka, topic, group, **configs))
        return made[-1]

    yield make
    for neighbour in made:
        neighbour.close()


@pytest.fixture
def stream_of():
    """Makes streams, as Spark has them without a group of the user's own, and stops them; `more` wins."""
    made = []

    def make(kafka, subscription, **more):
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        made.append(Stream(servers | QUICK | subscription | {name: str(value) for name, value in more.items()}))
        return made[-1]

    yield make
    for stream in made:
        stream.reader.stop()
