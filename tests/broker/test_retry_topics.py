"""Retry topics are read with the topics they belong to, and no record of them before it is due."""

import functools
import itertools
import json
import time

import pytest
from running import Counted
from support import Record, committed, name, produce
from support.triggers import fill, send

from spark_kafka_group.driver import stream
from spark_kafka_group.driver.backlog import long_poll
from spark_kafka_group.driver.backlog.retry_delays import RetryDelays, now_ms
from spark_kafka_group.driver.steps import backlog
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import OffsetRange, TopicPartition
from spark_kafka_group.values.retry_topics import dead_letter_topic, retry_topic

DELAY = 60_000
EARLIEST = {"startingOffsets": "earliest", "retryTopics": DELAY}


@pytest.fixture
def clock(monkeypatch):
    """The driver's clock, which stands: appending a number lets so many milliseconds pass."""
    passed = [now_ms()]
    standing = functools.partial(RetryDelays, clock_ms=lambda: sum(passed))
    monkeypatch.setattr(backlog, "RetryDelays", standing)
    monkeypatch.setattr(stream, "RetryDelays", standing)
    return passed


@pytest.fixture
def topics(kafka):
    """A topic and its retry topic, with two partitions each."""
    topic = name("orders")
    return [kafka.create_topic(made, partitions=2) for made in (topic, retry_topic(topic, DELAY))]


def test_a_partition_is_read_up_to_its_first_record_that_is_not_due(kafka, topics, stream_of, clock):
    topic, retry = topics
    due = sum(clock) - DELAY
    fill(kafka, topic, {0: [1], 1: [2]})
    fill(kafka, retry, {(0, due): [10], (0, due + 1): [11], (0, due - DELAY): [12], (1, due + DELAY): [20]})
    query = stream_of(kafka, {"subscribe": topic}, **EARLIEST)
    assert query.trigger() == [1, 2, 10]
    assert query.trigger() is None
    clock.append(1)
    assert query.trigger() == [11, 12]
    clock.append(DELAY - 2)
    assert query.trigger() is None
    send(kafka, topic, 0, [3])
    query.wait_for(3)
    clock.append(1)
    assert query.trigger() == [20]


def test_limits_and_minimum_count_what_is_due(kafka, topics, stream_of, clock):
    topic, retry = topics
    due = sum(clock) - DELAY
    fill(kafka, retry, {(0, due): [10, 11], (0, due + 1): [12, 13], (0, due + 2): range(14, 20)})
    limits = {"minOffsetsPerTrigger": 3, "maxOffsetsPerTrigger": 4, "maxTriggerDelay": "1h"}
    query = stream_of(kafka, {"subscribe": topic}, **EARLIEST, **limits)
    assert query.trigger() == [10, 11]  # the first batch of a run never waits
    clock.append(1)
    assert query.trigger() is None
    clock.append(1)
    assert query.trigger() == [12, 13, 14, 15]
    assert query.trigger() == [16, 17, 18, 19]


def test_a_paused_retry_topic_is_not_asked_about(kafka, topics, stream_of, clock, tmp_path):
    topic, retry = topics
    send(kafka, topic, 0, [1])
    send(kafka, retry, 0, [10], sum(clock) - DELAY + 1)
    control = tmp_path / "pause.json"
    control.write_text(json.dumps({retry: [0]}))
    query = stream_of(kafka, {"subscribe": topic}, pauseFile=control, **EARLIEST)
    assert query.trigger() == [1]
    asked = Counted(query.reader._driver._session.backlog._retry_delays, "_look_up")
    clock.append(1)
    assert query.trigger() is None
    assert asked.calls == 0
    control.unlink()
    assert query.trigger() == [10]


def test_available_now_ends_with_what_was_due_when_it_began(kafka, topics, stream_of, clock):
    topic, retry = topics
    send(kafka, topic, 0, [1, 2, 3, 4])
    fill(kafka, retry, {(0, sum(clock) - DELAY): [10], (0, sum(clock) - DELAY + 1): [11], 0: [12]})
    query = stream_of(kafka, {"subscribe": topic}, maxOffsetsPerTrigger=2, **EARLIEST)
    query.reader.prepareForTriggerAvailableNow()
    first = query.trigger()
    clock.append(1)
    assert sorted(itertools.chain(first, *iter(query.trigger, None))) == [1, 2, 3, 4, 10]
    query.restart()
    assert query.available_now() == [[11, 12]]
    assert query.positions(retry)[0] == 3


def test_a_batch_that_was_planned_is_read_again_as_it_was_whatever_the_clock_says_then(kafka, topics, stream_of, clock):
    topic, retry = topics
    send(kafka, retry, 0, [10], sum(clock) - DELAY)
    query = stream_of(kafka, {"subscribe": topic}, **EARLIEST)
    end, tasks = query.plan()
    query.restart()
    clock.append(-1)
    assert query.reader.partitions(query.reader.initialOffset(), end) == tasks
    assert [str(r) for task in tasks for r in task.ranges] == [f"{retry}-0[0,1)"]


@pytest.mark.parametrize("starting", ["group", "latest", '{"%s": "latest"}'], ids=["group", "latest", "JSON"])
def test_a_retry_topic_starts_at_its_first_record_then_where_the_group_left_off(
    kafka, topics, group, stream_of, starting
):
    topic, retry = topics
    send(kafka, topic, 0, [1])
    fill(kafka, retry, {0: [10], 1: [11]})
    options = {"subscribe": topic, "kafka.group.id": group, "retryTopics": str(DELAY)}
    first = stream_of(kafka, options, startingOffsets=starting.replace("%s", topic))
    assert first.trigger() == [10, 11]
    assert first.trigger() is None  # commits
    assert committed(kafka, group) == {(retry, 0): 1, (retry, 1): 1}
    first.reader.stop()
    send(kafka, retry, 0, [12])
    second = stream_of(kafka, options, startingOffsets="earliest")
    assert second.trigger() == [1, 12]
    second.reader.stop()
    named = {topic: "latest", retry: {"0": 1, "1": -2}}
    assert stream_of(kafka, options, startingOffsets=json.dumps(named)).trigger() == [11, 12]


@pytest.mark.parametrize("ending", ["latest", '{"%s": {"0": 1, "1": 0}}'], ids=["latest", "JSON"])
def test_an_end_is_not_that_of_retry_topics(kafka, topics, stream_of, ending):
    topic, retry = topics
    send(kafka, topic, 0, [1])
    query = stream_of(kafka, {"subscribe": topic}, endingOffsets=ending.replace("%s", topic), **EARLIEST)
    assert query.trigger() == [1]
    send(kafka, topic, 0, [2])
    send(kafka, retry, 1, [10])
    query.wait_for(10)
    assert query.trigger() is None
    query.restart(endingOffsets=json.dumps({topic: {"0": 2, "1": 0}, retry: {"0": 0, "1": 1}}))
    send(kafka, retry, 1, [11])
    assert query.trigger() == [2]
    assert query.trigger() is None


@pytest.mark.parametrize("pattern", [None, "^%s$", "%s.*"], ids=["by name", "pattern", "pattern that finds it"])
def test_a_retry_topic_that_is_made_later_is_read_from_its_first_record(kafka, stream_of, clock, caplog, pattern):
    topic = name("orders")
    retry, other, given_up = retry_topic(topic, DELAY), retry_topic(topic, 5), dead_letter_topic(topic)
    for number, made in enumerate((topic, other, given_up)):
        send(kafka, kafka.create_topic(made), 0, [number], sum(clock))
    chosen = {"subscribe": topic} if pattern is None else {"subscribePattern": pattern.replace("%s", topic)}
    query = stream_of(kafka, chosen, **EARLIEST | {"retryTopics": f"{DELAY},600000"})
    assert query.trigger() == ([0, 1] if pattern == "%s.*" else [0])
    assert query.trigger() is None
    kafka.create_topic(retry)
    fill(kafka, retry, {(0, sum(clock) - DELAY): [10], (0, sum(clock)): [11]})
    query.wait_for(10)
    clock.append(DELAY)
    assert query.trigger() == [11]
    missing = [retry_topic(topic, 600_000), retry]
    assert (f"the query goes on without them until they exist: {', '.join(sorted(missing))}" in caplog.text) == (
        pattern is None
    )


def test_a_retry_topic_that_was_recreated_is_another_log(kafka, topics, stream_of, clock):
    topic, retry = topics
    send(kafka, retry, 0, [10, 11, 12])
    query = stream_of(kafka, {"subscribe": topic}, failOnDataLoss=False, maxOffsetsPerTrigger=1, **EARLIEST)
    assert query.trigger() == [10]
    kafka.delete_topic(retry)
    kafka.create_topic(retry, partitions=2)
    send(kafka, retry, 0, [20, 21, 22], sum(clock))  # it ends where the old one ended, of which all was due
    query.reader._driver._session.member.client.existing([TopicPartition(retry, 0)])  # the topic's id is known now
    assert query.trigger() is None
    clock.append(DELAY)
    query.wait_for(20, 21, 22)


def test_members_of_a_group_share_retry_topics(kafka, topics, group, query_of, clock):
    topic, retry = topics
    fill(kafka, retry, {0: [1], 1: [2], (0, sum(clock)): [3], (1, sum(clock)): [4]})
    queries = [query_of(kafka, topic, group, **EARLIEST)]
    read = {(retry, 0): 1, (retry, 1): 1}
    wait_until(lambda: read.items() <= committed(kafka, group).items(), within=30)
    queries.append(query_of(kafka, topic, group, **EARLIEST))
    wait_until(lambda: all(len(query.owned()) == 2 for query in queries), within=30)
    clock.append(DELAY)
    read = {(retry, 0): 2, (retry, 1): 2}
    wait_until(lambda: read.items() <= committed(kafka, group).items(), within=30)
    ranges = [OffsetRange(TopicPartition(retry, p), n, n + 1) for p in range(2) for n in range(2)]
    assert sorted(r for query in queries for r in query.ranges) == ranges


def test_a_quiet_query_plans_a_record_as_soon_as_it_is_due_and_asks_seldom_until_then(
    kafka, topics, group, driver_of, caplog, monkeypatch
):
    topic, retry = topics
    monkeypatch.setattr(long_poll, "LOOK_AGAIN_S", 60.0)  # so that it is not a look once a second that finds it
    kafka.produce(topic, [b"0"], partition=0)
    driver = driver_of(kafka, topic, group, **EARLIEST | {"retryTopics": f"{DELAY},600000"})  # one is missing
    start = driver.latest_offset(driver.initial_offset())
    driver.plan(driver.initial_offset(), start)
    due_ms = now_ms() + 2000
    produce(kafka, retry, [Record(0, None, b"1", (), due_ms - DELAY), Record(0, None, b"2", (), due_ms)])

    def seen():
        assert driver.latest_offset(start) == start
        return driver.report_latest_offset()["@group"]["lag"] == 2  # what is not due is there, too

    wait_until(seen, within=1, every=0.01)
    ends = Counted(driver._session.member.client, "end_offsets")
    times = Counted(driver._session.backlog._retry_delays, "_look_up")
    metadata = Counted(driver._session.member.client._manager.cluster, "refresh_metadata")
    planning = Counted(driver._session, "_settled_backlog")
    triggers = 0
    while (end := driver.latest_offset(start)) == start:
        triggers += 1
        time.sleep(0.01)  # as Spark does between triggers
    assert 0 <= now_ms() - due_ms < 20_000  # by itself it would look after a minute
    assert triggers > 10
    assert times.calls == 1
    assert ends.calls <= 2
    assert metadata.calls <= 4
    assert planning.calls <= 4
    assert caplog.text.count(retry_topic(topic, 600_000)) == 1
    assert driver.plan(start, end) == [(OffsetRange(TopicPartition(retry, 0), 0, 1),)]
