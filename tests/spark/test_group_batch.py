"""group_batch: a bounded read that commits when its block ends well."""

import pytest
from support import committed, members, numbered, options, produce, topic_with

from spark_kafka_group import OptionError, group_batch


def test_what_was_read_is_committed_and_the_next_batch_goes_on_there(spark, kafka, group):
    topic = topic_with(kafka, numbered(300, 3))
    settings = options(kafka, topic, group, startingOffsets="group")
    with group_batch(spark, settings) as batch:
        assert batch.df.count() == batch.records == 300
        assert [m["client_id"] for m in members(kafka, group)] == ["groupkafka-driver"]
        assert committed(kafka, group) == {}
    assert committed(kafka, group) == {(topic, p): 100 for p in range(3)}
    assert members(kafka, group) == []
    produce(kafka, topic, numbered(30, 3))
    with group_batch(spark, settings) as batch:
        assert sorted(row.offset for row in batch.df.select("offset").collect()) == sorted([*range(100, 110)] * 3)


def test_every_action_reads_the_same_records(spark, kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    with group_batch(spark, options(kafka, topic, group, startingOffsets="group")) as batch:
        assert batch.df.count() == 30
        produce(kafka, topic, numbered(30, 3))
        assert batch.df.count() == 30


def test_a_block_that_raises_commits_nothing_and_leaves_the_group(spark, kafka, group):
    topic = topic_with(kafka, numbered(30, 3))
    settings = options(kafka, topic, group, startingOffsets="group")
    with pytest.raises(RuntimeError, match="no disk"), group_batch(spark, settings):
        raise RuntimeError("no disk")
    assert committed(kafka, group) == {}
    assert members(kafka, group) == []
    with group_batch(spark, settings) as batch:
        assert batch.df.count() == 30


def test_an_empty_batch_commits_nothing(spark, kafka, group):
    with group_batch(spark, options(kafka, topic_with(kafka, []), group, startingOffsets="group")) as batch:
        assert batch.records == 0
        assert batch.df.count() == 0
    assert committed(kafka, group) == {}


def test_it_needs_a_group(spark, kafka):
    with pytest.raises(OptionError, match=r"needs kafka.group.id"), group_batch(spark, options(kafka, "t")):
        pass
