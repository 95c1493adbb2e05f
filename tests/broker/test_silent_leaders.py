"""Leaders that fall silent while a task reads from them: nothing closes their connections, as when a network is cut."""

import contextlib
import threading
import time

import pytest
from support import Record, options, topic_with

from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.fetch import fetch_connection

COUNT = 20_000
SMALL = {"kafka.max.partition.fetch.bytes": 100_000}
FAILED_OVER_AFTER_S = 4.0
"""broker.session.timeout.ms of the cluster."""


@pytest.fixture
def reading(kafka3):
    """A task that has begun to read a partition: its settings, its batches, and the node that leads."""
    made = []

    def begin():
        topic = topic_with(kafka3, [Record(0, None, b"x" * 1000) for _ in range(COUNT)], partitions=1)
        settings = Options.parse(options(kafka3, topic, **SMALL))
        made.append(settings)
        leader = kafka3.leader(topic)
        return settings, read(of(topic), settings), kafka3.node(leader - 1)

    yield begin
    for settings in made:
        brokers_for(settings).close()


def of(topic):
    return ReadTask((OffsetRange(TopicPartition(topic, 0), 0, COUNT),))


def offsets(batches):
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@contextlib.contextmanager
def silent(kafka, node):
    """The node lives and does nothing; the system goes on to take connections for it."""
    node.pause()
    try:
        yield time.monotonic()
    finally:
        node.resume()
        kafka.wait_until_ready()


@pytest.mark.parametrize("overdue_s", [fetch_connection.OVERDUE_S, 0.3], ids=["noticed after it", "noticed before it"])
@pytest.mark.soak
def test_rows_come_soon_after_kafka_has_failed_over(kafka3, reading, monkeypatch, overdue_s):
    monkeypatch.setattr(fetch_connection, "OVERDUE_S", overdue_s)
    settings, batches, leader = reading()
    found = [next(batches)]
    with silent(kafka3, leader) as since:
        found += batches
        assert time.monotonic() - since < FAILED_OVER_AFTER_S + 15
        assert offsets(found) == list(range(COUNT))
        # A worker that is new does not ask the silent one again and again either.
        since = time.monotonic()
        with contextlib.closing(Brokers(settings)) as brokers:
            tp = TopicPartition(settings.reading.subscription.topics[0], 0)
            assert brokers.connection(brokers.leaders([tp], refresh=False)[tp]).idle
        assert time.monotonic() - since < 15


@pytest.mark.soak
def test_a_leader_that_was_slow_for_a_while_is_read_on_and_each_row_comes_once(kafka3, reading, monkeypatch):
    monkeypatch.setattr(fetch_connection, "OVERDUE_S", 0.1)
    settings, batches, leader = reading()
    found = [next(batches)]
    resumed = threading.Timer(FAILED_OVER_AFTER_S / 2, leader.resume)
    with silent(kafka3, leader) as since:
        resumed.start()
        found += batches
        assert time.monotonic() - since > FAILED_OVER_AFTER_S / 2
        resumed.join()
    assert offsets(found) == list(range(COUNT))
    assert brokers_for(settings).connection(leader.number).idle
