"""Records handed on to retry topics and dead-letter topics, by the workers of a task without Spark."""

import contextlib
import threading
import time

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from support import name, options

from spark_kafka_group.errors import OptionError
from spark_kafka_group.executor.writing.sink_columns import arrow_batch, sink_columns
from spark_kafka_group.executor.writing.write import write
from spark_kafka_group.options import Options
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.processing.handler_task import HandOff, check_topics
from spark_kafka_group.processing.processor_settings import Backoff, Settings
from spark_kafka_group.processing.record import Record
from spark_kafka_group.processing.work_queue import WorkQueue
from spark_kafka_group.processing.workers import workers_for
from spark_kafka_group.values.error_headers import DIALECTS, Origin, attempts_made, origin_of


def settings_of(**more):
    values = {
        "ordering": "key", "threads": 8, "cell_records": 10, "window_cells": 8, "stall_timeout_ms": 60_000,
        "max_local_retries": 0, "backoff": Backoff(1, 2), "retry_topics": (), "dead_letter_topic": "{topic}-dlt",
        "error_headers": "connect", "fatal": (KeyError,), "group": "billing", "topic": None,
        "handler_name": "shop:charge",
    }  # fmt: skip
    return Settings(**values | more)


def process(kafka, handler, records, settings):
    queue = WorkQueue(settings, HandOff(settings, 7))
    to_brokers = sink_options(Options.parse(options(kafka, "unused")), outlives=True)
    with workers_for(queue, handler, settings.threads, settings.stall_timeout_ms).running():
        write(map(arrow_batch, queue.process(records)), to_brokers, sink_columns())
    return queue.counts


@contextlib.contextmanager
def reading(kafka, topic):
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", group_id=None)
    try:
        consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic)])
        yield consumer
    finally:
        consumer.close()


def everything_in(kafka, topic):
    with reading(kafka, topic) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        found = []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            for records in consumer.poll(timeout_ms=500).values():
                found += records
        return found


def fails(record):
    raise ValueError(f"cannot do {record.offset}")


def test_key_value_and_own_headers_arrive_as_they_were_whatever_is_null(kafka):
    topic = name("orders")
    kafka.create_topic(f"{topic}-dlt", partitions=2)
    odd = [
        Record(None, None, topic, 0, 0, 5, 0),
        Record(b"", b"", topic, 1, 1, 5, 0, (("a", None), ("a", b""), ("b", b"\xff"))),
        Record(b"\x00\xff", b"v" * 100_000, topic, 5, 2, 5, 1),
    ]
    counts = process(kafka, fails, odd, settings_of(error_headers="kip1191"))
    assert (counts.records, counts.dead, counts.done) == (3, 3, 0)
    found = sorted(everything_in(kafka, f"{topic}-dlt"), key=lambda r: dict(r.headers)["__dlq.errors.offset"])
    assert [(r.key, r.value, r.partition) for r in found] == [(r.key, r.value, r.partition % 2) for r in odd]
    assert [[h for h in r.headers if h[0] in ("a", "b")] for r in found] == [list(r.headers) for r in odd]


def test_a_record_goes_through_its_retry_topics_to_the_dead_letters_and_its_headers_do_not_grow(kafka):
    topic = name("orders")
    settings = settings_of(retry_topics=(100, 200), error_headers="spring")
    brokers = Options.parse(options(kafka, topic))
    wanted = [f"{topic}-retry-100", f"{topic}-retry-200", f"{topic}-dlt"]
    with pytest.raises(OptionError, match=f"does not have: {wanted[0]}, {wanted[1]}, {wanted[2]}. Create them"):
        check_topics(settings, frozenset({topic}), brokers)
    for wished in wanted:
        kafka.create_topic(wished, partitions=3)
    check_topics(settings, frozenset({topic}), brokers)
    record, headers = Record(b"k", b"v", topic, 4, 99, 1_700_000_000_000, 0, (("own", b"1"),)), []
    for hop, destination in enumerate(wanted, start=1):
        before_ms = time.time() * 1000
        counts = process(kafka, fails, [record], settings)
        assert (counts.retried, counts.dead) == ((1, 0) if hop < 3 else (0, 1))
        [found] = everything_in(kafka, destination)
        assert found.partition == 1
        assert found.timestamp >= before_ms - 1
        result = dict(found.headers)
        assert result["kafka_dlt-original-topic"] == topic.encode()
        assert result["kafka_dlt-original-partition"] == b"\0\0\0\4"
        assert result["kafka_dlt-original-offset"] == (99).to_bytes(8)
        assert result["kafka_dlt-original-consumer-group"] == b"billing"
        assert attempts_made(found.headers) == hop
        headers.append([key for key, _ in found.headers if key != "retry_topic-backoff-timestamp"])
        record = Record(
            found.key, found.value, destination, found.partition, found.offset, found.timestamp, 0, tuple(found.headers)
        )
    assert headers[0] == headers[1] == headers[2]


def naming(topic, partition, offset, prefix="__connect.errors."):
    """Headers by which a producer says where its record was first read."""
    return [(f"{prefix}topic", topic), (f"{prefix}partition", partition), (f"{prefix}offset", offset)]


IMPOSSIBLE = [
    naming(b"payments", b"0", b"9" * 5_000),
    naming(b"payments", b"99999999999", b"9" * 20),
    naming(b"payments", b"\xff" * 4, b"\xff" * 8, "kafka_dlt-original-"),
]
COUNTED = [("retry_topic-attempts", b"\0\0\0\x63"), ("retry_topic-original-timestamp", b"\1")]


def said(record):
    """Topic, partition and offset of a record's origin, and its attempts, by its headers."""
    origin = origin_of(record.headers, Origin("nowhere", -1, -1, -1, -1))
    return origin.topic, origin.partition, origin.offset, attempts_made(record.headers)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_headers_of_a_producer_do_not_say_where_its_record_was_first_read(kafka, dialect):
    topic = name("orders")
    for made in (f"{topic}-retry-100", f"{topic}-dlt"):
        kafka.create_topic(made, partitions=1)
    settings = settings_of(retry_topics=(100,), error_headers=dialect)
    sent = [*IMPOSSIBLE, naming(b"payments", b"0", b"1") + COUNTED]
    records = [Record(b"k", b"v", topic, 0, n, 5, 0, tuple(headers)) for n, headers in enumerate(sent)]
    assert process(kafka, fails, records, settings).retried == len(sent)
    found = everything_in(kafka, f"{topic}-retry-100")
    assert sorted(map(said, found)) == [(topic, 0, n, 1) for n in range(len(sent))]


def test_headers_in_a_retry_topic_count_if_they_name_the_topic_that_it_belongs_to(kafka):
    topic = name("orders")
    retry = f"{topic}-retry-100"
    kafka.create_topic(f"{topic}-dlt", partitions=1)
    named = [naming(main, b"0", b"1") + COUNTED for main in (topic.encode(), b"payments")]
    records = [Record(b"k", b"v", retry, 0, n, 5, 0, tuple(headers)) for n, headers in enumerate(named)]
    assert process(kafka, fails, records, settings_of(retry_topics=(100,))).dead == 2
    assert sorted(map(said, everything_in(kafka, f"{topic}-dlt"))) == [(topic, 0, 1, 99), (retry, 0, 1, 1)]


def test_a_fatal_exception_goes_past_the_retry_topics(kafka):
    topic = name("orders")
    kafka.create_topic(f"{topic}-dlt", partitions=1)

    def handler(record):
        raise KeyError(record.offset)

    counts = process(kafka, handler, [Record(None, b"v", topic, 0, 0, 0, 0)], settings_of(retry_topics=(100,)))
    assert counts.dead == 1
    assert len(everything_in(kafka, f"{topic}-dlt")) == 1


def test_a_compressed_record_that_unpacks_beyond_the_limit_of_the_dead_letters_goes_there(kafka):
    topic = name("orders")
    kafka.create_topic(f"{topic}-dlt", partitions=1)
    value = b"0123456789" * 300_000  # 3 MB, where a topic takes 1 MB
    process(kafka, fails, [Record(None, value, topic, 0, 0, 0, 0)], settings_of())
    assert [record.value for record in everything_in(kafka, f"{topic}-dlt")] == [value]


@pytest.mark.soak
def test_each_letter_is_there_once_when_the_leader_of_the_dead_letters_is_killed_meanwhile(kafka3):
    topic = name("orders")
    dead = f"{topic}-dlt"
    kafka3.create_topic(dead, partitions=1, configs={"min.insync.replicas": "2"})
    leader = kafka3.leader(dead)
    some_sent, killed = threading.Event(), threading.Event()

    def handler(record):
        if record.offset >= 300:
            some_sent.set()
            assert killed.wait(60)
        raise ValueError(record.offset)

    def kill():
        assert some_sent.wait(60)
        kafka3.node(leader - 1).kill()
        killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        records = [Record(b"%d" % n, b"v", topic, 0, n, 0, 0) for n in range(1000)]
        counts = process(kafka3, handler, records, settings_of())
        assert counts.dead == 1000
        assert sorted(int(r.key) for r in everything_in(kafka3, dead)) == list(range(1000))
    finally:
        killer.join()
        kafka3.node(leader - 1).start()
        kafka3.wait_until_ready()
