"""Streams that end where the options say, and starts and ends by timestamp, for each way to subscribe."""

import itertools
import json

import pytest
from support import Record, name, options, produce

from spark_kafka_group.testing import wait_until

FIRST = 1_700_000_000_000
SECOND = FIRST + 1000
OFTEN = {"processingTime": "50 milliseconds"}
pytestmark = pytest.mark.usefixtures("progress_often")


@pytest.fixture
def load(spark, kafka):
    """A stream, or a batch read, of values as numbers, with their partitions."""

    def make(reader, settings):
        base = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.metadata.max.age.ms": "300"}
        df = reader.format("groupkafka").options(**base | settings).load()
        return df.selectExpr("cast(cast(value as string) as int)")

    return make


def send(kafka, topic, *values):
    """Values with their partition and timestamp; the broker has all of a partition at once."""
    records = [Record(partition, None, b"%d" % value, (), ms) for partition, ms, value in values]
    produce(kafka, topic, records, linger_ms=60_000)


def values(batches):
    return sorted(value for (value,) in itertools.chain(*batches))


def wait_for_look(query, topic, ends):
    """Until a trigger has seen these ends of the logs."""

    def seen():
        result = query.lastProgress and query.lastProgress.sources[0].latestOffset
        return query.exception() or (result and json.loads(result)[topic] == ends)

    assert wait_until(seen, within=60) is True


@pytest.fixture
def topic(kafka):
    topic = name("ends")
    kafka.create_topic(topic, partitions=2)
    send(kafka, topic, (0, FIRST, 0), (0, FIRST, 1), (0, SECOND, 2), (1, FIRST, 10))
    return topic


@pytest.mark.soak
def test_a_stream_stops_exactly_at_its_last_offsets_and_so_it_does_after_a_restart(spark, kafka, topic, load, run):
    settings = options(kafka, topic, maxOffsetsPerTrigger=2, endingOffsets=json.dumps({topic: {"0": 2, "1": 2}}))
    query, batches = run(load(spark.readStream, settings), place="offsets")
    query.awaitTermination()
    assert values(batches) == [0, 1, 10]
    send(kafka, topic, (0, FIRST, 3), (1, FIRST, 11), (1, FIRST, 12))
    query, after = run(load(spark.readStream, settings), OFTEN, place="offsets")
    wait_until(lambda: values(after) == [11], within=60)
    send(kafka, topic, (0, FIRST, 4), (1, FIRST, 13))
    wait_for_look(query, topic, {"0": 5, "1": 4})
    query.stop()
    assert values(after) == [11]


def test_a_stream_stops_exactly_at_a_timestamp_and_so_it_does_after_a_restart(spark, kafka, topic, load, run):
    settings = options(kafka, topic, maxOffsetsPerTrigger=2, endingTimestamp=SECOND)
    query, batches = run(load(spark.readStream, settings), OFTEN, place="timestamp")
    wait_until(lambda: values(batches) == [0, 1, 10], within=60)
    send(kafka, topic, (0, FIRST, 3), (1, FIRST, 11), (1, SECOND, 12), (1, FIRST, 13))
    wait_until(lambda: values(batches) == [0, 1, 10, 11], within=60)
    wait_for_look(query, topic, {"0": 4, "1": 4})
    query.stop()
    send(kafka, topic, (0, FIRST, 4), (1, FIRST, 14))
    query, after = run(load(spark.readStream, settings), place="timestamp")
    query.awaitTermination()
    assert (values(batches), after) == ([0, 1, 10, 11], [])


@pytest.mark.soak
def test_latest_as_the_end_of_a_stream_is_what_there_is_when_it_starts(spark, kafka, topic, load, run):
    settings = options(kafka, topic, maxOffsetsPerTrigger=2, endingOffsets="latest")
    query, batches = run(load(spark.readStream, settings), OFTEN, place="latest")
    wait_until(lambda: values(batches) == [0, 1, 2, 10], within=60)
    send(kafka, topic, (0, FIRST, 3), (1, FIRST, 11))
    wait_for_look(query, topic, {"0": 4, "1": 2})
    query.stop()
    assert values(batches) == [0, 1, 2, 10]
    query, batches = run(load(spark.readStream, settings), OFTEN, place="latest")
    wait_until(lambda: values(batches) == [3, 11], within=60)
    send(kafka, topic, (0, FIRST, 4))
    wait_for_look(query, topic, {"0": 5, "1": 2})
    query.stop()
    assert values(batches) == [3, 11]


@pytest.mark.soak
def test_starts_and_ends_by_timestamp_of_a_pattern_and_of_partitions_named(spark, kafka, load, run):
    prefix = name("times")
    one, other = f"{prefix}-one", f"{prefix}-other"
    for number, topic in enumerate((one, other)):
        kafka.create_topic(topic, partitions=2)
        times = itertools.product((0, 1), (FIRST, SECOND, SECOND + 1000))
        send(kafka, topic, *((p, ms, 100 * number + 10 * p + (ms - FIRST) // 1000) for p, ms in times))
    pattern, named = {"subscribePattern": f"{prefix}-.*"}, {"assign": json.dumps({one: [0, 1], other: [1]})}

    def each(*timestamps):
        return json.dumps({one: dict(zip("01", timestamps, strict=False)), other: {"1": timestamps[2]}})

    at_one_time = {"startingTimestamp": SECOND, "endingTimestamp": SECOND + 1000}
    at_times = {
        "startingOffsetsByTimestamp": each(FIRST, SECOND, SECOND),
        "endingOffsetsByTimestamp": each(SECOND, SECOND + 1000, SECOND + 1000),
    }
    cases = [(pattern | at_one_time, [1, 11, 101, 111]), (named | at_times, [0, 11, 111])]
    for settings, expected in cases:
        message = {option: str(value) for option, value in settings.items()}
        query, batches = run(load(spark.readStream, message))
        query.awaitTermination()
        assert values(batches) == expected
        assert values([load(spark.read, message).collect()]) == expected
