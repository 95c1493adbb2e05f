"""Batch reads between transactions, timestamps, and a planned batch that more transactions follow.

The value of each record is its offset.
"""

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition
from support import name
from support.triggers import batch_values, read, send

from spark_kafka_group.testing import wait_until


class Transactions:
    """A transactional producer to a topic of one partition."""

    def __init__(self, kafka):
        self.topic = name("transactions")
        kafka.create_topic(self.topic)
        self._producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=self.topic)
        self._producer.init_transactions()
        levels = ("read_uncommitted", "read_committed")
        self._ends = {
            level: KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=level) for level in levels
        }

    def begin(self, *values):
        """Send records; they are in the log and not committed."""
        self._producer.begin_transaction()
        self.send(*values)

    def send(self, *values):
        for value in values:
            self._producer.send(self.topic, b"%d" % value, partition=0).get(timeout=30)
        self._wait_for("read_uncommitted", values[-1] + 1)

    def commit(self, end):
        """Commit; the log ends at `end` when the marker is there."""
        self._producer.commit_transaction()
        self._wait_for("read_committed", end)

    def abort(self, end):
        self._producer.abort_transaction()
        self._wait_for("read_committed", end)

    def whole(self, end, *values):
        """A transaction that is committed."""
        self.begin(*values)
        self.commit(end)

    def _wait_for(self, level, end):
        # The marker follows after commit_transaction() has returned.
        tp = TopicPartition(self.topic, 0)
        wait_until(lambda: self._ends[level].end_offsets([tp])[tp] == end, within=30)

    def close(self):
        self._producer.close()
        for consumer in self._ends.values():
            consumer.close(autocommit=False)


@pytest.fixture
def log(kafka):
    """A topic and its transactional producer."""
    transactions = Transactions(kafka)
    yield transactions
    transactions.close()


def test_a_batch_read_between_transactions(kafka, log):
    settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": log.topic}
    committed = settings | {"kafka.isolation.level": "read_committed"}
    uncommitted = settings | {"kafka.isolation.level": "read_uncommitted"}
    log.begin(0, 1, 2, 3, 4)
    assert batch_values(committed) == []
    assert batch_values(uncommitted) == [0, 1, 2, 3, 4]
    log.commit(end=6)
    assert batch_values(committed) == batch_values(uncommitted) == [0, 1, 2, 3, 4]
    log.begin(6, 7, 8, 9, 10)
    log.abort(end=12)
    assert batch_values(committed) == [0, 1, 2, 3, 4]
    assert batch_values(uncommitted) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    log.whole(18, 12, 13, 14, 15, 16)
    assert batch_values(committed) == [0, 1, 2, 3, 4, 12, 13, 14, 15, 16]
    assert batch_values(uncommitted) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16]


def test_records_that_come_before_a_planned_batch_is_read_are_for_the_next_one(kafka, log, stream_of):
    more = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    stream = stream_of(kafka, {"subscribe": log.topic}, **more)
    log.whole(5, 0, 1, 2, 3)
    end, tasks = stream.plan()
    log.whole(10, 5, 6, 7, 8)
    assert read(stream.reader, tasks) == [0, 1, 2, 3]
    stream.offset = end
    assert stream.trigger() == [5, 6, 7, 8]


def test_offsets_for_timestamps_and_ends_are_those_of_committed_records(kafka, log):
    send(kafka, log.topic, 0, [0])
    log.begin(1, 2)
    settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": log.topic}
    committed = settings | {"kafka.isolation.level": "read_committed"}
    assert batch_values(committed) == [0]
    assert batch_values(committed | {"startingTimestamp": "0"}) == [0]
    log.commit(end=4)
    assert batch_values(committed) == [0, 1, 2]
