"""Producer: each record is in the log once and unchanged; a refused record has an error with advice."""

import os
import struct

import pytest
from support import name, options

from spark_kafka_group import BrokerError
from spark_kafka_group.executor.connections import brokers_for
from spark_kafka_group.executor.read import read
from spark_kafka_group.offsets import OffsetRange, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.task import ReadTask
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire import Brokers
from spark_kafka_group.wire.producer import Producer


@pytest.fixture
def producer_of():
    """Makes producers and closes them."""
    made = []

    def make(kafka, **more):
        made.append(Producer(Options.parse(options(kafka, "unused", **more))))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def rows(kafka, topic, partition=0):
    """Key, value and headers of a partition's records."""
    settings = Options.parse(options(kafka, topic, includeHeaders="true"))
    tp = TopicPartition(topic, partition)
    brokers = brokers_for(settings)
    try:
        _, log_end = brokers.log_bounds(tp)
        batches = read(ReadTask((OffsetRange(tp, 0, log_end),)), settings)
        return [(row["key"], row["value"], row["headers"]) for batch in batches for row in batch.to_pylist()]
    finally:
        brokers.close()


def batch_headers(kafka, topic):
    """Producer id and base sequence of the record batches of a topic, as the broker sends them."""
    brokers = Brokers(Options.parse(options(kafka, topic)))
    try:
        tp = TopicPartition(topic, 0)
        connection = brokers.connection(brokers.leaders([tp], refresh=False)[tp])
        connection.send({tp: 0})
        (fetched,) = connection.receive()
        found, at = [], 0
        while at < len(fetched.records):
            (length,) = struct.unpack_from(">i", fetched.records, at + 8)
            found.append(struct.unpack_from(">qhi", fetched.records, at + 43)[::2])
            at += 12 + length
        return found
    finally:
        brokers.close()


def test_records_arrive_as_they_were_in_order_and_settle(kafka, producer_of):
    topic = kafka.create_topic(name("topic"), partitions=2)
    producer = producer_of(kafka)
    assert producer.partitions(topic) == 2
    sent = [
        (None, None, ()),
        (b"", b"", (("empty", b""), ("null", None), ("null", None))),
        (b"key", None, (("Größe", bytes(range(256))),)),
        (None, b"x" * 100_000, (("same", b"1"), ("same", b"2"))),
        *((b"%d" % n, b"v%d" % n, ()) for n in range(2000)),
    ]
    settled = []
    for key, value, headers in sent:
        producer.send(topic, 1, key, value, headers, settled.append)
    producer.flush()
    assert settled == [None] * len(sent)
    result = [(key, value, [{"key": k, "value": v} for k, v in headers] or None) for key, value, headers in sent]
    assert rows(kafka, topic, 1) == result
    assert rows(kafka, topic, 0) == []


def test_each_batch_carries_the_producers_id_and_a_sequence_number(kafka, producer_of):
    topic = kafka.create_topic(name("topic"))
    producer = producer_of(kafka)
    for n in range(3):
        producer.send(topic, 0, None, b"%d" % n, (), lambda error: None)
        producer.flush()
    ids, sequences = zip(*batch_headers(kafka, topic), strict=True)
    assert len(set(ids)) == 1
    assert ids[0] >= 0
    assert sequences == (0, 1, 2)


def test_an_unknown_topic_is_an_error_and_is_not_made(kafka, producer_of):
    producer, topic = producer_of(kafka), name("unknown")
    with pytest.raises(BrokerError, match=f"topic {topic} does not exist: create it"):
        producer.partitions(topic)
    with pytest.raises(BrokerError, match=f"topic {topic} does not exist"):
        producer.send(topic, 0, None, b"v", (), lambda error: pytest.fail("it was not handed over"))
    assert topic not in kafka.admin.list_topics()
    kafka.create_topic(topic)
    assert producer.partitions(topic) == 1


def test_a_record_that_its_topic_does_not_take_settles_with_what_to_change_and_the_next_one_is_taken(
    kafka, producer_of
):
    topic = kafka.create_topic(name("small"), configs={"max.message.bytes": "1000"})
    producer, settled = producer_of(kafka), []
    producer.send(topic, 0, None, b"before", (), settled.append)
    producer.flush()
    producer.send(topic, 0, None, os.urandom(2000), (), settled.append)
    producer.flush()
    producer.send(topic, 0, None, b"after", (), settled.append)
    producer.flush()
    assert settled[0] is settled[2] is None
    assert isinstance(settled[1], BrokerError)
    assert f"sending to {topic}-0" in str(settled[1])
    assert f"raise max.message.bytes of topic {topic}" in str(settled[1])
    assert [value for _, value, _ in rows(kafka, topic)] == [b"before", b"after"]


def test_records_that_are_too_much_for_one_batch_together_are_sent_in_several(kafka, producer_of):
    topic = kafka.create_topic(name("small"), configs={"max.message.bytes": "1000"})
    producer, settled = producer_of(kafka), []
    for n in range(20):
        producer.send(topic, 0, None, b"%04d" % n + os.urandom(200), (("null", None),), settled.append)
    producer.flush()
    assert settled == [None] * 20
    assert [value[:4] for _, value, _ in rows(kafka, topic)] == [b"%04d" % n for n in range(20)]
    assert all(headers == [{"key": "null", "value": None}] for _, _, headers in rows(kafka, topic))


def test_a_leader_that_goes_away_and_comes_back_has_each_record_once(kafka3, producer_of):
    topic = kafka3.create_topic(name("topic"))
    producer, settled = producer_of(kafka3), []
    for n in range(100):
        producer.send(topic, 0, None, b"%d" % n, (), settled.append)
    producer.flush()
    leader = kafka3.leader(topic)
    for n in range(100, 200):
        producer.send(topic, 0, None, b"%d" % n, (), settled.append)
    kafka3.node(leader - 1).kill()
    try:
        for n in range(200, 300):
            producer.send(topic, 0, None, b"%d" % n, (), settled.append)
        producer.flush()
    finally:
        kafka3.node(leader - 1).start()
        kafka3.wait_until_ready()
    for n in range(300, 400):
        producer.send(topic, 0, None, b"%d" % n, (), settled.append)
    producer.flush()
    assert settled == [None] * 400
    assert [int(value) for _, value, _ in rows(kafka3, topic)] == list(range(400))


def test_closing_drops_what_is_not_settled_and_says_so(kafka, producer_of):
    topic = kafka.create_topic(name("topic"))
    producer, settled = producer_of(kafka), []
    producer.partitions(topic)
    kafka.node(0).pause()
    try:
        producer.send(topic, 0, None, b"v", (), settled.append)
        producer.close()
        wait_until(lambda: len(settled) == 1, within=30)
    finally:
        kafka.node(0).resume()
    assert isinstance(settled[0], BrokerError)
