"""Clusters of other brokers, and queries of them."""

import pytest
from other_brokers import Kfake
from support.go_programs import NO_GO, go
from support.triggers import Stream


@pytest.fixture
def kfake_with():
    """Makes clusters of kfake's that lack something, and stops them."""
    if go() is None:
        pytest.skip(NO_GO.format("kfake"))
    made = []

    def make(**how):
        made.append(Kfake(**how).start())
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture
def stream_of():
    """Makes streams, as Spark runs them, and stops them."""
    made = []

    def make(cluster, topic, group="billing", **more):
        given = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "subscribe": topic,
            "kafka.group.id": group,
            "startingOffsets": "earliest",
            "kafka.request.timeout.ms": "10000",
            "kafka.default.api.timeout.ms": "10000",
        }
        given |= {name: str(value) for name, value in more.items()}
        if "assign" in given:
            del given["subscribe"]
        made.append(Stream(given))
        return made[-1]

    yield make
    for stream in made:
        stream.reader.stop()
