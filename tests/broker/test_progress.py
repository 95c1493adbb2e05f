"""A driver's progress, compared with Kafka's own numbers at the same moment."""

import json
import time

import pytest
from support import numbered, options, produce, throw_out, topic_with

from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools import describe
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin


def shown_by(driver):
    """The progress as it crosses to the user's process, and its part about the group."""
    shown = json.loads(json.dumps(driver.report_latest_offset()))
    return shown, shown["@group"]


def test_the_lag_in_seconds_is_what_the_records_timestamps_say(kafka, group, driver_of):
    topic = topic_with(kafka, [], partitions=1)
    driver = driver_of(kafka, topic, group, **{"kafka.heartbeat.interval.ms": 100})
    start = driver.initial_offset()
    assert driver.latest_offset(start, None) == start  # a look at the empty log
    shown, at_rest = shown_by(driver)
    assert (shown[topic], at_rest["positions"], at_rest["behindSinceMs"]) == ({"0": 0}, {topic: {"0": 0}}, {})
    assert (at_rest["lag"], at_rest["lagSeconds"], at_rest["failedRebalances"]) == (0, 0.0, 0)
    wait_until(lambda: shown_by(driver)[1]["heartbeats"] >= 2, within=30)
    sent_ms = time.time() * 1000
    produce(kafka, topic, [record._replace(timestamp_ms=int(sent_ms)) for record in numbered(4, 1)])
    # A busy broker may tell those who watch later than the producer.
    first = wait_until(lambda: (end := driver.latest_offset(start, 2)) != start and end, within=30)
    end = driver.latest_offset(first, 1)  # two are committed, one is planned
    shown, group_part = shown_by(driver)
    assert (shown[topic], group_part["positions"], end[topic]) == ({"0": 4}, {topic: {"0": 3}}, {"0": 3})
    assert group_part["maxOffsetsBehindLatest"] == 1
    assert abs(group_part["behindSinceMs"][topic]["0"] - sent_ms) < group_part["timestampMs"] - at_rest["timestampMs"]
    with GroupAdmin(Options.parse(options(kafka, topic))) as admin:
        report = describe.look(admin, group, lambda: group_part["timestampMs"] / 1000)
    (row,) = report.partitions
    assert (
        (row.lag, report.generation) == (group_part["lag"], group_part["generation"]) == (2, group_part["generation"])
    )
    assert abs(row.lag_s - group_part["lagSeconds"]) < (group_part["timestampMs"] - at_rest["timestampMs"]) / 1000


@pytest.mark.parametrize("set_by_s", [3600, -3600])
def test_a_clock_that_is_set_makes_the_lag_neither_older_nor_younger(kafka, group, driver_of, monkeypatch, set_by_s):
    topic = topic_with(kafka, numbered(4, 1), partitions=1)
    driver, real = driver_of(kafka, topic, group), time.time
    began = time.monotonic()
    first = driver.latest_offset(driver.initial_offset(), 1)
    monkeypatch.setattr(time, "time", lambda: real() + set_by_s)
    driver.latest_offset(first, 1)
    group_part = shown_by(driver)[1]
    assert group_part["lag"] == 3
    assert 0 <= group_part["lagSeconds"] <= time.monotonic() - began
    age_ms = group_part["timestampMs"] - group_part["behindSinceMs"][topic]["0"]
    assert age_ms == pytest.approx(group_part["lagSeconds"] * 1000, abs=1)


def test_a_member_shows_its_own_partitions_and_one_without_any_shows_itself(kafka, group, driver_of, query_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    often = {"kafka.heartbeat.interval.ms": 100}
    query = query_of(kafka, topic, group, **often)
    wait_until(lambda: kafka.committed(group), within=30)
    assert len(shown_by(query.driver)[0][topic]) == 2
    others = [query_of(kafka, topic, group, **often) for _ in range(2)]
    wait_until(lambda: sorted(len(q.owned()) for q in (query, *others)) == [0, 1, 1], within=60)
    wait_until(
        lambda: all(shown_by(q.driver)[1]["assignedPartitions"] == len(q.owned()) for q in (query, *others)), within=30
    )
    shown = [shown_by(q.driver)[0] for q in (query, *others)]
    assert sorted(partition for s in shown for partition in s.get(topic, {})) == ["0", "1"]
    assert len({s["@group"]["member"] for s in shown}) == 3
    idle = next(s for s in shown if topic not in s)
    assert (idle["@group"]["lag"], idle["@group"]["committed"], idle["@group"]["positions"]) == (0, {}, {})
    first = shown_by(query.driver)[1]
    assert first["rebalances"] >= 1
    assert 0 < first["rebalanceLatencyAvgMs"] <= first["rebalanceLatencyMaxMs"] <= first["rebalanceLatencyTotalMs"]
    assert first["joins"] >= 2
    assert first["syncs"] >= 2
    assert first["joinTimeMaxMs"] >= first["joinTimeAvgMs"] > 0
    assert first["lastRebalanceMs"] <= first["timestampMs"]


def test_the_backlog_is_shown_also_past_where_an_available_now_query_will_stop(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    driver.prepare_available_now()
    produce(kafka, topic, numbered(5, 1))
    end = driver.latest_offset(driver.initial_offset(), None)
    assert driver.latest_offset(end, None) == end
    shown, group_part = shown_by(driver)
    assert (end[topic], shown[topic], group_part["lag"]) == ({"0": 10}, {"0": 15}, 5)
    assert group_part["minOffsetsBehindLatest"] == 5
    assert [row.lag for row in kafka.describe_group(group)] == [5]


def test_nothing_is_shown_before_the_first_look_and_of_a_replayed_batch_only_the_place_after_it(
    kafka, group, driver_of
):
    topic = topic_with(kafka, numbered(30, 1), partitions=1)
    first = driver_of(kafka, topic, group)
    start = first.initial_offset()
    end = first.latest_offset(start, 10)
    again = driver_of(kafka, topic, group)
    assert again.report_latest_offset() is None
    again.plan(start, end)
    assert again.report_latest_offset() is None
    again.latest_offset(end, 10)
    shown, group_part = shown_by(again)
    assert (shown[topic], group_part["positions"]) == ({"0": 30}, {topic: {"0": 20}})
    assert (group_part["committed"], group_part["commits"], group_part["lag"]) == ({topic: {"0": 10}}, 1, 20)


def test_a_commit_that_is_refused_and_a_membership_that_is_lost_are_counted(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(30, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    end = driver.latest_offset(driver.initial_offset(), 10)
    throw_out(kafka, group)
    driver.latest_offset(end, 10)
    counted = shown_by(driver)[1]
    # The batch's own commit was refused; as new it committed its position, which the checkpoint proves.
    assert (counted["failedCommits"], counted["membershipsLost"], counted["commits"]) == (1, 1, 1)
    assert counted["commitLatencyMs"] == counted["commitLatencyMaxMs"] > 0
    assert counted["lastCommitMs"] <= counted["timestampMs"]


def test_partitions_taken_by_hand_are_shown_without_a_membership(kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    settings = options(kafka, topic, group) | {"assign": json.dumps({topic: [1]})}
    del settings["subscribe"]
    driver = StreamDriver(Options.parse(settings))
    try:
        driver.latest_offset(driver.initial_offset(), None)
        shown, group_part = shown_by(driver)
    finally:
        driver.stop()
    assert shown[topic] == {"1": 10}
    assert (group_part["generation"], group_part["joins"], group_part["lastHeartbeatMs"]) == (-1, 0, None)
    assert TopicPartition(topic, 1) not in kafka.committed(group)
