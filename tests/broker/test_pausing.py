"""Partitions that are not read for now."""

import json

from support import committed, numbered, produce, topic_with

from spark_kafka_group.testing import wait_until

BOTH = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest", "kafka.heartbeat.interval.ms": 100}


def test_a_paused_partition_gives_no_rows_and_keeps_its_position(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    driver = driver_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: [0]}))
    end = driver.latest_offset(driver.initial_offset(), None)
    assert end[topic] == {"0": 0, "1": 10}
    assert driver.latest_offset(end, None) == end
    assert committed(kafka, group) == {(topic, 1): 10}
    driver.stop()
    resumed = driver_of(kafka, topic, group, **BOTH)
    assert resumed.latest_offset(end, None)[topic] == {"0": 10, "1": 10}


def test_a_file_pauses_and_resumes_while_the_query_runs(kafka, group, driver_of, tmp_path, caplog):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    control = tmp_path / "pause.json"
    driver = driver_of(kafka, topic, group, **BOTH, pauseFile=control)
    first = driver.latest_offset(driver.initial_offset(), None)
    assert first[topic] == {"0": 10, "1": 10}
    produce(kafka, topic, numbered(20, 2))
    control.write_text(json.dumps({topic: [1]}))
    # A trigger soon after the last one may not know the newest records yet.
    second = wait_until(lambda: (end := driver.latest_offset(first, None)) != first and end, within=30)
    assert second[topic] == {"0": 20, "1": 10}
    control.write_text("{not json")
    assert driver.latest_offset(second, None) == second
    assert 'must be JSON like {"topicA": [0, 1], "topicB": [2, 4]}' in caplog.text
    assert f"these partitions stay paused: {topic}-1" in caplog.text
    control.unlink()
    wait_until(lambda: driver.latest_offset(second, None)[topic] == {"0": 20, "1": 20}, within=30)


def test_a_paused_partition_keeps_its_position_over_rebalances(kafka, group, driver_of, query_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    latest = BOTH | {"kafka.auto.offset.reset": "latest"}
    paused = {"pausePartitions": json.dumps({topic: [0, 1]})}
    first = driver_of(kafka, topic, group, **latest, **paused)
    start = first.initial_offset()
    assert first.latest_offset(start, None) == start  # at 10, and never a batch
    produce(kafka, topic, numbered(20, 2))
    second = query_of(kafka, topic, group, **latest, **paused)
    wait_until(lambda: len(second.owned()) == 1, within=30)
    second.end()
    second.driver.stop()
    wait_until(lambda: len(first._session.member.generation.assignment) == 2, within=30)
    assert first.latest_offset(start, None) == start
    first.stop()
    resumed = driver_of(kafka, topic, group, **latest)
    end = resumed.latest_offset(resumed.initial_offset(), None)
    assert end["@group"]["from"] == {topic: {"0": 10, "1": 10}}
    assert end[topic] == {"0": 20, "1": 20}
