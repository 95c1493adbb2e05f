"""Topics that are deleted, made again, or not subscribed to any more, under a query that runs or is started again."""

import json

import pytest
from support import name
from support.triggers import FIRST, batch, fill, read, send

from spark_kafka_group.errors import DataLossError, OffsetOutOfRangeError
from spark_kafka_group.testing import wait_until

pytestmark = pytest.mark.usefixtures("patience")

EARLIEST = {"startingOffsets": "earliest"}
GOES_ON = {"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": 2000}
BRIEF = {"kafka.request.timeout.ms": 3000, "kafka.default.api.timeout.ms": 3000}


@pytest.fixture
def topic(kafka):
    topic = name("goes")
    kafka.create_topic(topic)
    send(kafka, topic, 0, range(5))
    return topic


@pytest.fixture
def other(kafka):
    other = name("stays")
    kafka.create_topic(other)
    send(kafka, other, 0, range(5, 8))
    return other


@pytest.mark.parametrize("alone", [True, False], ids=["all", "one of two"])
@pytest.mark.soak
def test_assigned_partitions_that_are_deleted_under_a_query(kafka, topic, other, stream_of, alone):
    assigned = {"assign": json.dumps({topic: [0]} if alone else {topic: [0], other: [0]})}
    fails, goes_on = (stream_of(kafka, assigned, **EARLIEST, **BRIEF, **more) for more in ({}, GOES_ON))
    for stream in (fails, goes_on):
        assert stream.trigger() == list(range(5 if alone else 8))
    kafka.delete_topic(topic)
    with pytest.raises(DataLossError, match=f"PARTITIONS_DELETED.*{topic}-0"):
        wait_until(fails.trigger, within=30)
    assert goes_on.trigger() is None
    if not alone:
        send(kafka, other, 0, [8])
        assert goes_on.trigger() == [8]
    kafka.create_topic(topic)
    send(kafka, topic, 0, [100])
    assert wait_until(goes_on.trigger, within=30) == [100]


def test_a_batch_cut_short_is_read_again_with_a_topic_that_is_not_subscribed_to_any_more(
    kafka, topic, other, stream_of
):
    stream = stream_of(kafka, {"subscribe": f"{topic},{other}"}, **EARLIEST)
    end, _ = stream.plan()
    stream.restart(subscribe=other)
    assert read(stream.reader, stream.reader.partitions(stream.offset, end)) == list(range(8))
    stream.offset = end
    send(kafka, topic, 0, [100])
    send(kafka, other, 0, [8])
    assert stream.trigger() == [8]


def test_a_batch_cut_short_over_a_topic_made_again_goes_on_where_the_group_was_set_to(kafka, topic, group, stream_of):
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **{"kafka.group.id": group})
    end, _ = stream.plan()
    stream.reader.stop()
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    send(kafka, topic, 0, range(100, 110))
    stream.restart()
    with pytest.raises(DataLossError, match=f"PARTITION_OFFSET_CHANGED.*{topic}-0.*--reset-offsets"):
        stream.reader.partitions(stream.offset, end)
    stream.reader.stop()
    kafka.consumer_groups("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "3", "--execute")
    stream.restart()
    assert stream.reader.partitions(stream.offset, end) == []
    stream.offset = end
    assert stream.trigger() == list(range(103, 110))


def test_an_end_found_in_a_topic_does_not_hold_for_the_one_made_after_it(kafka, topic, stream_of):
    fill(kafka, topic, {(0, FIRST + 10): [10]})
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **GOES_ON, endingTimestamp=FIRST + 10)
    assert stream.trigger() == list(range(5))
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    fill(kafka, topic, {(0, FIRST): [100, 101], (0, FIRST + 20): [102, 103, 104, 105]})
    assert wait_until(stream.trigger, within=30) == [100, 101]
    assert stream.trigger() is None


def make_again(kafka, topic, values):
    """Delete a topic, and make it again with other records at the same offsets, and more."""
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    send(kafka, topic, 0, values)


def test_a_batch_that_runs_takes_no_records_of_the_topic_made_again(kafka, topic, stream_of):
    fails, goes_on = (stream_of(kafka, {"subscribe": topic}, **EARLIEST, **more) for more in ({}, GOES_ON))
    planned = [stream.plan() for stream in (fails, goes_on)]
    make_again(kafka, topic, range(100, 110))
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0.*COULD_NOT_READ_OFFSET_RANGE.*made again"):
        read(fails.reader, planned[0][1])
    goes_on.offset, tasks = planned[1]
    assert read(goes_on.reader, tasks) == []
    assert wait_until(goes_on.trigger, within=30) == list(range(100, 110))


def test_a_task_on_connections_of_the_earlier_topic_takes_no_records_of_the_topic_made_again(kafka, topic, stream_of):
    stream = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **GOES_ON)
    assert stream.trigger() == list(range(5))  # from now on this process knows the topic and its leader
    send(kafka, topic, 0, [5, 6])
    stream.offset, tasks = wait_until(stream.plan, within=30)
    make_again(kafka, topic, range(100, 110))
    assert read(stream.reader, tasks) == []
    assert wait_until(stream.trigger, within=30) == list(range(100, 110))


def test_a_batch_read_takes_no_records_of_the_topic_made_again(kafka, topic):
    settings = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic} | GOES_ON
    reader, tasks = batch(settings)
    make_again(kafka, topic, range(100, 110))
    assert read(reader, tasks) == []
