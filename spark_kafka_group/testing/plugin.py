"""pytest -p spark_kafka_group.testing.plugin: real brokers as fixtures.

``kafka`` (one node) and ``kafka3`` (three, replication 3) live as long as the test run; ``group`` is a name that no
other test has, and ``topic`` the name of a new topic with three partitions on ``kafka``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from spark_kafka_group.testing.cluster import KafkaCluster


def _started(nodes: int) -> Iterator[KafkaCluster]:
    from spark_kafka_group.testing.cluster import KafkaCluster

    try:
        cluster = KafkaCluster(nodes).start()
    except (RuntimeError, OSError) as error:
        # Once, and not once a test.
        pytest.exit(f"no Kafka to test with: {error}", returncode=3)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """A broker."""
    yield from _started(1)


@pytest.fixture(scope="session")
def kafka3() -> Iterator[KafkaCluster]:
    """Three brokers; a test that stops one starts it again."""
    yield from _started(3)


@pytest.fixture
def group() -> str:
    """The name of a consumer group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def topic(kafka: KafkaCluster) -> str:
    """A new topic with three partitions."""
    return kafka.create_topic(f"topic-{uuid.uuid4().hex[:10]}", partitions=3)
