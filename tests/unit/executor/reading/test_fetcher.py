"""A task whose brokers answer, but not with a leader: it reads its other partitions, and does not wait without end."""

import itertools

import kafka.errors as kafka_errors
import pytest

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.executor.reading.fetcher import Fetcher
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.wire import FetchedPartition
from spark_kafka_group.wire.outage import TaskOutage

READ, LOST = TopicPartition("orders", 0), TopicPartition("bills", 0)
COUNT = 50


class Cluster:
    """Node 1 sends a record a response. Node 2 is away, and who leads its partition may not be known any more."""

    retry_backoff_s = 0.01
    nearest = last_failure = None

    def __init__(self):
        self.lookups = 0
        self.asked = []

    def known(self):
        return ["127.0.0.1:1"]

    def leaders(self, tps, refresh, topic_ids):
        self.lookups += 1
        if self.lookups > 1:
            raise BrokerError("not authorized") from kafka_errors.TopicAuthorizationFailedError()
        return {READ: 1, LOST: 2}

    def connection(self, node_id):
        if node_id == 2:
            raise ConnectionRefusedError
        return self

    def send(self, positions, epochs, rack, topic_ids, sizes):
        self.asked.append(positions)

    def receive(self):
        (positions,) = self.asked
        self.asked.clear()
        return [FetchedPartition(tp, None, COUNT, None, (), memoryview(b"record")) for tp in positions]

    def give_up(self, node_id, error):
        pass

    def drop_busy(self):
        pass


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def outage(cluster):
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "kafka.retry.backoff.ms": 1}
    return TaskOutage(Options.parse({name: str(value) for name, value in options.items()}), cluster)


@pytest.fixture
def fetcher(cluster, outage):
    offsets = itertools.count(1)
    ranges = [OffsetRange(READ, 0, COUNT), OffsetRange(LOST, 0, COUNT)]
    return Fetcher(cluster, ranges, lambda topic, partition, records: (6, next(offsets)), 0.3, outage=outage)


def test_a_lookup_that_is_refused_during_an_outage_does_not_hold_up_other_partitions(cluster, outage, fetcher):
    chunks = fetcher.chunks()
    read = [next(chunks) for _ in range(COUNT)]
    assert {chunk.tp for chunk in read} == {READ}
    assert cluster.lookups < COUNT / 2
    with pytest.raises(BrokerTimeoutError, match=r"bills-0@0 .*not authorized"):
        next(chunks)
    assert not outage.away


def test_a_partition_that_is_read_to_its_end_is_not_away_any_more(outage, fetcher):
    outage.missed([LOST], "refused")
    fetcher.go_on(LOST, COUNT, COUNT)
    assert not outage.away
