"""Processes that go on from an older checkpoint than the group's offsets: restored on purpose, or read too early."""

import json
from dataclasses import dataclass

import pytest
from support import commit_for, committed, members, numbered, options, produce, throw_out, topic_with

from spark_kafka_group import FencedError
from spark_kafka_group.commit_metadata import commit_note
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.offsets import GroupOffset, OffsetRange, TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 200}


@dataclass
class Run:
    """A query, and how far Spark's log is."""

    driver: StreamDriver
    end: dict

    def batch(self, max_offsets=None):
        """Run a batch; returns (partition, offset) of its records."""
        start, self.end = self.end, self.driver.latest_offset(self.end, max_offsets)
        ranges = [r for task in self.driver.plan(start, self.end) for r in task] if self.end != start else []
        return {(r.tp.partition, offset) for r in ranges for offset in range(r.start, r.end)}


def run_to_its_end(driver, batches, max_offsets=9):
    """Run some batches, commit all and stop; returns the offsets of Spark's log."""
    run = Run(driver, driver.initial_offset())
    log = [run.end]
    for _ in range(batches):
        assert run.batch(max_offsets)
        log.append(run.end)
    driver.latest_offset(run.end, None)
    driver.stop()
    return log


def two_on_one_checkpoint(kafka, group, driver_of, older_leaves=False):
    """A driver that has committed two batches, and another one that has read the checkpoint before the second."""
    topic = topic_with(kafka, numbered(30, 3))
    older, newer = (driver_of(kafka, topic, group) for _ in range(2))
    start = older.initial_offset()
    first = older.latest_offset(start, 9)
    older.plan(start, first)
    second = older.latest_offset(first, 9)
    older.plan(first, second)
    third = older.latest_offset(second, 9)
    older.plan(second, third)
    assert committed(kafka, group) == {(topic, p): 6 for p in range(3)}
    if older_leaves:
        older.stop()
    planned = newer.latest_offset(first, 3)
    assert planned[topic] == {"0": 4, "1": 4, "2": 4}
    assert newer._session.member.generation.id > GroupOffset.from_json(third).generation
    if not older_leaves:
        with pytest.raises(FencedError):
            older.latest_offset(third, 9)
    return topic, newer, first, planned


@pytest.mark.parametrize("older_leaves", [False, True])
def test_a_process_whose_batch_another_one_has_logged_does_not_set_the_group_back(
    kafka, group, driver_of, older_leaves
):
    topic, newer, _, _ = two_on_one_checkpoint(kafka, group, driver_of, older_leaves)
    newer.stop()  # as Spark says CONCURRENT_STREAM_LOG_UPDATE
    assert committed(kafka, group) == {(topic, p): 6 for p in range(3)}


def test_a_process_whose_batch_spark_has_logged_sets_the_group_right(kafka, group, driver_of):
    topic, newer, first, planned = two_on_one_checkpoint(kafka, group, driver_of)
    assert [r for task in newer.plan(first, planned) for r in task] == [
        OffsetRange(TopicPartition(topic, p), 3, 4) for p in range(3)
    ]
    newer.latest_offset(planned, 3)
    assert committed(kafka, group) == {(topic, p): 4 for p in range(3)}


def test_an_older_checkpoint_sets_the_group_right_in_partitions_that_its_first_batch_does_not_read(
    kafka, group, driver_of
):
    topic, _, first, _ = two_on_one_checkpoint(kafka, group, driver_of)  # whose process is in the group still
    restored = driver_of(kafka, topic, group, pausePartitions=f'{{"{topic}": [2]}}')
    planned = restored.latest_offset(first, None)
    restored.plan(first, planned)
    assert committed(kafka, group)[topic, 2] == 3
    assert restored.latest_offset(planned, None) == planned
    assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10, (topic, 2): 3}


def test_nor_where_a_neighbour_has_had_the_partition_meanwhile(kafka, group, driver_of, neighbour_of):
    topic = topic_with(kafka, numbered(18, 3))
    newer = driver_of(kafka, topic, group, pausePartitions=json.dumps({topic: [0, 1, 2]}))  # so it holds nothing up
    first = run_to_its_end(driver_of(kafka, topic, group), 2)[1]
    ends = {(topic, p): 6 for p in range(3)}

    def waits():
        assert newer.latest_offset(first, None) == first

    waits()
    neighbour = neighbour_of(kafka, topic, group, enable_auto_commit=True, auto_commit_interval_ms=100)

    def has_committed():
        waits()
        return any(metadata == "" for _, metadata in kafka.committed(group).values())

    wait_until(has_committed, within=30)
    neighbour.close()

    def has_them_again():
        waits()
        return len(newer._session.standing.positioned) == 3

    wait_until(has_them_again, within=30)
    assert committed(kafka, group) == ends
    newer.stop()
    assert committed(kafka, group) == ends


def test_a_later_note_on_the_position_itself_is_removed_at_once(kafka, group, driver_of):
    """Else: 1. a later batch gave way in that partition, 2. the restored query comes to a batch of that number, and
    reads the partition, 3. it is stopped before the commit, 4. the next process believes the note of before."""
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK, pausePartitions=json.dumps({topic: [1]})), 2, 2)
    last = GroupOffset.from_json(log[2])
    commit_for(kafka, group, {(topic, 1): 0}, commit_note(last.reader, last.generation, 1, without=2))
    restored = Run(driver_of(kafka, topic, group, **QUICK), log[1])
    read = restored.batch(1) | restored.batch(1)
    restored.driver.stop()
    following = Run(driver_of(kafka, topic, group, **QUICK), restored.end)
    for _ in range(3):
        assert not following.batch(1) & read


@pytest.mark.parametrize("begun", [False, True])
def test_a_checkpoint_from_before_the_transactional_id_may_be_an_older_one(group, driver_of, tmp_path, begun):
    with KafkaCluster() as kafka:  # it gets the topic of decisions
        topic = topic_with(kafka, numbered(30, 3))
        log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 3)
        more = QUICK | {"kafka.transactional.id": f"{group}-t"}
        restored = driver_of(kafka, topic, group, tmp_path, **more)
        end = restored.latest_offset(log[1], 3)
        if begun:
            restored.plan(log[1], end)
        restored.stop()
        again = driver_of(kafka, topic, group, tmp_path, **more)
        ranges = [r for task in again.plan(log[1], end) for r in task]
        again.stop()
        assert {(r.tp.partition, r.start, r.end) for r in ranges} == {(p, 3, 4) for p in range(3)}


def test_offsets_are_set_back_also_where_brokers_are_away_as_the_first_batch_begins(group):
    """With `assign`, where no new generation hands positions over."""
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(30, 3))

        def assigned(**more):
            given = options(kafka, topic, group) | {"assign": json.dumps({topic: [0, 1, 2]})} | more
            del given["subscribe"]
            return StreamDriver(Options.parse(given), None)

        log = run_to_its_end(assigned(), 2)
        timeout = {"kafka.default.api.timeout.ms": "2000"}
        restored = Run(assigned(pausePartitions=json.dumps({topic: [2]}), **timeout), log[1])
        planned = restored.driver.latest_offset(log[1], None)
        kafka.node(0).kill()
        restored.driver.plan(log[1], planned)
        kafka.node(0).start()
        kafka.wait_until_ready()
        restored.end = planned
        produce(kafka, topic, numbered(2, 2))
        wait_until(restored.batch, within=30)
        assert committed(kafka, group)[topic, 2] == 3
        restored.driver.stop()


def thrown_out(kafka, group, run):
    """Have a query lose its membership; returns a function that waits until it has taken its positions once more."""
    before = run.driver._session.member.generation.member_id
    throw_out(kafka, group)
    assert members(kafka, group) == []

    def is_back():
        run.driver.latest_offset(run.end, None)
        session = run.driver._session
        return session.member.generation.member_id != before and len(session.standing.positioned) == 2

    return lambda: wait_until(is_back, within=30)


def test_generations_that_count_from_one_again_are_no_sign_of_a_successor(kafka, group, driver_of):
    """As where a group of the newer protocol becomes empty, and one of the classic protocol begins."""
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 1, 4)
    last = GroupOffset.from_json(log[1])
    commit_for(kafka, group, {(topic, p): 2 for p in range(2)}, commit_note(last.reader, 70, 0))
    run = Run(driver_of(kafka, topic, group, **QUICK, pausePartitions=json.dumps({topic: [0, 1]})), log[1])
    run.driver.latest_offset(run.end, None)
    thrown_out(kafka, group, run)()


def test_a_process_that_was_out_of_the_group_does_not_set_back_its_successor(kafka, group, driver_of):
    """Where the group was empty meanwhile, and the successor's generations are no later ones."""
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    woken = Run(driver_of(kafka, topic, group, **QUICK), None)
    woken.end = woken.driver.initial_offset()
    for _ in range(3):
        woken.batch(4)
    woken.driver.latest_offset(woken.end, None)
    last = GroupOffset.from_json(woken.end)
    assert committed(kafka, group) == {(topic, p): 6 for p in range(2)}
    is_back = thrown_out(kafka, group, woken)
    commit_for(kafka, group, {(topic, p): 9 for p in range(2)}, commit_note(last.reader, 1, last.batch + 1))
    is_back()
    assert committed(kafka, group) == {(topic, p): 9 for p in range(2)}
