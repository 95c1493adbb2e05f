"""Where a query starts: by checkpoint, group or options, for a query alone in its group."""

import json
import shutil

import pytest
from into_parquet import ends
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import StreamingQueryException
from support import commit_for, committed, members, numbered, options, produce, topic_with, wait_for_no_members

from spark_kafka_group.testing import wait_until


def test_a_new_query_continues_the_group(kafka, group, sink):
    topic = topic_with(kafka, numbered(100, 1), partitions=1)
    commit_for(kafka, group, {(topic, 0): 90})
    sink.run(options(kafka, topic, group, startingOffsets="group"))
    assert sink.values() == list(range(90, 100))


@pytest.mark.soak
def test_without_a_committed_offset_a_stream_starts_at_the_end(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    query = sink.start(options(kafka, topic, group, startingOffsets="group"), {"processingTime": "100 milliseconds"})
    wait_until(lambda: members(kafka, group) and kafka.group_state(group)[0] == "Stable", within=30)
    wait_until(lambda: query.lastProgress is not None, within=30)
    produce(kafka, topic, numbered(5, 1, first=50))
    wait_until(lambda: sink.values() == list(range(50, 55)), within=30)
    query.stop()


@pytest.mark.soak
def test_without_a_committed_offset_a_stream_starts_at_the_first_record_if_the_reset_policy_says_so(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = options(kafka, topic, group, startingOffsets="group") | {"kafka.auto.offset.reset": "earliest"}
    sink.run(settings)
    assert sink.values() == list(range(10))


@pytest.mark.soak
def test_without_a_committed_offset_a_stream_fails_naming_the_partitions_if_the_reset_policy_says_so(
    kafka, group, sink
):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    settings = options(kafka, topic, group, startingOffsets="group") | {"kafka.auto.offset.reset": "none"}
    with pytest.raises(StreamingQueryException, match=f"no offset for {topic}-0"):
        sink.run(settings)


@pytest.mark.soak
def test_starting_offsets_per_partition(kafka, group, sink):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    commit_for(kafka, group, {(topic, 0): 1})
    sink.run(options(kafka, topic, group, startingOffsets=json.dumps({topic: {"0": 8, "1": -2}})))
    assert sink.values() == sorted([16, 18, *range(1, 20, 2)])


@pytest.mark.soak
def test_offsets_that_somebody_else_reset_while_the_query_was_stopped_are_right(kafka, group, sink):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    sink.run(options(kafka, topic, group))
    commit_for(kafka, group, {(topic, 0): 15})
    produce(kafka, topic, numbered(5, 1, first=20))
    progress = sink.run(options(kafka, topic, group))
    assert sum(p.numInputRows for p in progress) == 10
    assert ends(progress)[0]["@group"]["from"] == {topic: {"0": 15}}
    assert committed(kafka, group) == {(topic, 0): 25}


@pytest.mark.soak
def test_an_older_checkpoint_restored_on_purpose_is_right(kafka, group, sink, tmp_path):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    sink.run(options(kafka, topic, group))
    shutil.copytree(sink.checkpoint, tmp_path / "kept")
    produce(kafka, topic, numbered(10, 1, first=10))
    sink.run(options(kafka, topic, group))
    shutil.rmtree(sink.checkpoint)
    shutil.copytree(tmp_path / "kept", sink.checkpoint)
    progress = sink.run(options(kafka, topic, group))
    assert sum(p.numInputRows for p in progress) == 10
    assert committed(kafka, group) == {(topic, 0): 20}


def test_offsets_of_a_group_that_was_deleted_come_back_from_the_checkpoint(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    sink.run(options(kafka, topic, group))
    wait_for_no_members(kafka, group)
    kafka.admin.delete_groups([group])
    sink.run(options(kafka, topic, group))
    assert sink.values() == list(range(10))
    assert committed(kafka, group) == {(topic, 0): 10}


def test_a_partition_added_to_the_topic_is_read_from_its_first_record(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    sink.run(options(kafka, topic, group, startingOffsets="group") | {"kafka.auto.offset.reset": "earliest"})
    kafka.add_partitions(topic, 2)
    produce(kafka, topic, [numbered(1, 1, first=99)[0]._replace(partition=1)])
    sink.run(options(kafka, topic, group, startingOffsets="latest"))
    assert sink.values() == [*range(10), 99]


def test_a_checkpoint_of_sparks_own_source_is_continued(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    sink.run(options(kafka, topic, group))
    # What Spark's kafka source would have logged.
    offsets = sorted((sink.directory / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
    lines = offsets.read_text().splitlines()
    lines[-1] = json.dumps({topic: {"0": 4}})
    offsets.write_text("\n".join(lines))
    (offsets.parent / f".{offsets.name}.crc").unlink(missing_ok=True)
    progress = sink.run(options(kafka, topic, group))
    assert sum(p.numInputRows for p in progress) == 6


@pytest.mark.soak
def test_a_checkpoint_of_a_newer_version_is_refused(kafka, group, sink):
    topic = topic_with(kafka, numbered(10, 1), partitions=1)
    sink.run(options(kafka, topic, group))
    offsets = sorted((sink.directory / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
    offsets.write_text(offsets.read_text().replace('"reader"', '"version": 2, "reader"'))
    (offsets.parent / f".{offsets.name}.crc").unlink(missing_ok=True)
    with pytest.raises(StreamingQueryException, match="offset format 2"):
        sink.run(options(kafka, topic, group))


def test_an_end_of_a_partition_that_is_not_there_is_refused_when_the_stream_starts(kafka, group, sink):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    with pytest.raises(
        (PySparkException, StreamingQueryException),
        match=f"{topic}-7, which the cluster does not have",
    ):
        sink.run(options(kafka, topic, group, endingOffsets=json.dumps({topic: {"0": 3, "7": 5}})))
