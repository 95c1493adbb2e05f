"""Ranges of a real broker's logs under filters of the timestamp."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaTopicPartition
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThanOrEqual
from support import Record, name, options, produce

from spark_kafka_group.driver import batch_read
from spark_kafka_group.driver.filters import understood
from spark_kafka_group.options import Options
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START_MS = 1_700_000_000_000


def read_back(kafka, topic, partitions):
    """Offset and timestamp of every record, as another client sees them."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=None)
    try:
        tps = [KafkaTopicPartition(topic, p) for p in range(partitions)]
        consumer.assign(tps)
        ends = consumer.end_offsets(tps)
        consumer.seek_to_beginning()
        records = {p: [] for p in range(partitions)}
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for tp, polled in consumer.poll(timeout_ms=1000).items():
                records[tp.partition] += [(record.offset, record.timestamp) for record in polled]
        return records
    finally:
        consumer.close()


@pytest.mark.parametrize("time_type", ["CreateTime", "LogAppendTime"])
def test_a_lower_bound_reads_from_the_first_record_that_is_as_new_in_batches_and_segments_of_any_order(
    kafka, time_type
):
    rng = random.Random(7)
    topic = name("times")
    # Several segments, an index entry for each batch, so that the lookup goes through all of the broker's indexes.
    small = {"segment.bytes": str(1024 * 1024), "index.interval.bytes": "64", "message.timestamp.type": time_type}
    kafka.create_topic(topic, partitions=2, configs=small)
    records = [
        Record(rng.randrange(2), None, rng.randbytes(2_500), timestamp_ms=START_MS + rng.randrange(10_000) + n)
        for n in range(1_500)
    ]
    for n, compression in enumerate([None, "gzip", "lz4"]):
        produce(kafka, topic, records[n * 500 :][:500], compression, linger_ms=5)
    logs = read_back(kafka, topic, 2)
    settings = Options.parse(options(kafka, topic))
    seen = sorted({timestamp for log in logs.values() for _, timestamp in log})
    bounds = [*rng.sample(seen, min(8, len(seen))), seen[0], seen[-1], seen[-1] + 1, seen[0] - 1]
    for ms in bounds:
        for one, first_ms in (
            (GreaterThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=ms)), ms),
            (GreaterThan(("timestamp",), EPOCH + timedelta(milliseconds=ms)), ms + 1),
        ):
            upper = LessThanOrEqual(("timestamp",), EPOCH + timedelta(milliseconds=seen[-1] + 5))
            planned = {r for task in batch_read.plan(settings, understood([one, upper])[0]) for r in task}
            expected = set()
            for p, log in logs.items():
                first = min((offset for offset, timestamp in log if timestamp >= first_ms), default=None)
                if first is not None:
                    expected.add(OffsetRange(TopicPartition(topic, p), first, log[-1][0] + 1))
            assert planned == expected, (one, first_ms)


def test_a_group_s_committed_offsets_are_narrowed_too_and_what_is_missing_is_still_said(kafka, group):
    topic = name("t")
    kafka.create_topic(topic, partitions=2)
    produce(kafka, topic, [Record(n % 2, None, b"x") for n in range(20)])
    settings = Options.parse(options(kafka, topic, group, startingOffsets="group"))
    constraints, _ = understood([EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 4)])
    assert batch_read.plan(settings, constraints) == [(OffsetRange(TopicPartition(topic, 1), 4, 10),)]
    assert kafka.committed(group) == {}
