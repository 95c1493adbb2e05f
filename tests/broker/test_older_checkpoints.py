"""Processes that go on from an older checkpoint than the group's offsets: restored on purpose, or read too early."""

import json
from dataclasses import dataclass

import pytest
from kafka.admin import NewPartitions
from support import commit_for, committed, members, numbered, options, produce, throw_out, topic_with

from spark_kafka_group import FencedError
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.commit_metadata import adopting_metadata, commit_metadata, correcting_metadata
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 200}


def records(tasks):
    """(partition, offset) of the records of a batch."""
    return {(r.tp.partition, offset) for task in tasks for r in task for offset in range(r.start, r.end)}


@dataclass
class Run:
    """A query, and how far Spark's log is."""

    driver: StreamDriver
    end: dict

    def batch(self, max_offsets=None):
        """Run a batch; returns (partition, offset) of its records."""
        start, self.end = self.end, self.driver.latest_offset(self.end, max_offsets)
        return records(self.driver.plan(start, self.end)) if self.end != start else set()


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


def test_an_older_checkpoint_sets_the_group_right_where_a_neighbour_has_had_the_partition_meanwhile(
    kafka, group, driver_of, neighbour_of
):
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
    commit_for(kafka, group, {(topic, 1): 0}, commit_metadata(last.query_id, last.generation, 1, without=2))
    restored = Run(driver_of(kafka, topic, group, **QUICK), log[1])
    read = restored.batch(1) | restored.batch(1)
    restored.driver.stop()
    following = Run(driver_of(kafka, topic, group, **QUICK), restored.end)
    for _ in range(3):
        assert not following.batch(1) & read


def before_its_second_batch(topic, kafka, group, driver_of):
    """The checkpoint of a query before its second batch, which is restored. Its third one, batch 2, has gone without
    partition 1, at offset 4."""
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 2, 4)
    last = GroupOffset.from_json(log[2])
    commit_for(kafka, group, {(topic, 1): 4}, commit_metadata(last.query_id, last.generation, 1, without=2))
    return log[1]


def test_a_note_about_another_batch_of_the_same_number_is_not_believed_after_a_kill(kafka, group, driver_of):
    """1. Spark logs the restored query's batch, which has not read the partition. 2. The process is killed before it
    sets the group back."""
    topic = topic_with(kafka, numbered(40, 2), partitions=2)
    first = before_its_second_batch(topic, kafka, group, driver_of)
    paused = driver_of(kafka, topic, group, **QUICK, pausePartitions=json.dumps({topic: [1]}))
    planned = paused.latest_offset(first, 4)
    killed(paused)
    following = Run(driver_of(kafka, topic, group, **QUICK), planned)
    read = records(following.driver.plan(first, planned))
    for _ in range(4):
        read |= following.batch()
    assert read == {(p, at) for p in (0, 1) for at in range(2, 20)}


def test_a_note_about_another_batch_is_not_believed_where_the_membership_is_lost_as_the_first_batch_begins(
    kafka, group, driver_of
):
    topic = topic_with(kafka, numbered(40, 2), partitions=2)
    first = before_its_second_batch(topic, kafka, group, driver_of)
    restored = driver_of(kafka, topic, group, **QUICK)
    run = Run(restored, restored.latest_offset(first, 1))
    throw_out(kafka, group)
    read = records(restored.plan(first, run.end))
    for _ in range(6):
        read |= run.batch()
    assert read == {(p, at) for p in (0, 1) for at in range(2, 20)}


def test_what_a_process_adopts_whose_batch_another_one_has_logged_is_not_its_successors(kafka, group, driver_of):
    """1. A batch ends at offset 4. 2. A neighbour reads on to 8. 3. A process with the checkpoint of before the batch
    goes on from 8, and Spark stops it. 4. The next one has the checkpoint of the batch: 8 is a neighbour's."""
    topic = topic_with(kafka, numbered(40, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 2, 4)
    commit_for(kafka, group, {(topic, 0): 8})
    stopped = driver_of(kafka, topic, group, **QUICK)
    stopped.latest_offset(log[1], 4)
    stopped.stop()
    following = Run(driver_of(kafka, topic, group, **QUICK), log[2])
    read = set()
    for _ in range(4):
        read |= following.batch()
    assert read == {(0, at) for at in range(8, 20)} | {(1, at) for at in range(4, 20)}


@pytest.mark.parametrize("policy", ["auto", "checkpoint"])
def test_before_its_first_batch_is_logged_a_process_sets_back_no_offset_of_others(kafka, group, driver_of, policy):
    topic = topic_with(kafka, numbered(40, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 2, 4)
    commit_for(kafka, group, {(topic, 0): 8})
    restored = driver_of(kafka, topic, group, **QUICK, onOffsetConflict=policy)
    planned = restored.latest_offset(log[1], 4)
    assert committed(kafka, group) == {(topic, 0): 8, (topic, 1): 4}
    restored.plan(log[1], planned)
    assert committed(kafka, group) == {(topic, 0): 8 if policy == "auto" else 2, (topic, 1): 2}


def test_an_older_checkpoint_reads_a_partition_that_was_added_later_from_its_first_record(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    run = Run(driver_of(kafka, topic, group, **QUICK), None)
    run.end = run.driver.initial_offset()
    run.batch(4)
    first = run.end
    kafka.admin.create_partitions({topic: NewPartitions(2)})
    produce(kafka, topic, numbered(20, 2))

    def reads_it():
        run.batch()
        return (topic, 1) in committed(kafka, group)

    wait_until(reads_it, within=30)
    run.driver.stop()
    restored = Run(driver_of(kafka, topic, group, **QUICK), first)
    assert {(1, at) for at in range(10)} <= restored.batch() | restored.batch()


def test_an_offset_that_another_query_had_for_a_while_stays_this_querys(kafka, group, driver_of):
    """A batch is in the sink, and its commit is missing. Another query goes on from the offset of before, lets a batch
    yield there, and ends."""
    topic = topic_with(kafka, numbered(40, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 2, 4)
    last = GroupOffset.from_json(log[2])
    note = adopting_metadata("another", 6, 3, commit_metadata(last.query_id, last.generation, 0))
    yielded = correcting_metadata("another", 7, 3, None, correcting_metadata("another", 6, 3, 4, note))
    commit_for(kafka, group, {(topic, p): 2 for p in (0, 1)}, yielded)
    assert Run(driver_of(kafka, topic, group, **QUICK), log[2]).batch() == {
        (p, at) for p in (0, 1) for at in range(4, 20)
    }


def test_an_adopted_offset_whose_note_was_written_anew_while_a_batch_yielded_stays_this_querys(kafka, group, driver_of):
    """The batch is in the sink, and its commit is missing."""
    topic = topic_with(kafka, numbered(40, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 2, 4)
    last = GroupOffset.from_json(log[2])
    note = adopting_metadata(last.query_id, last.generation, last.batch - 1, "")
    resumed = correcting_metadata(last.query_id, last.generation + 1, last.batch - 1, None, note)
    commit_for(kafka, group, {(topic, p): 2 for p in (0, 1)}, resumed)
    assert Run(driver_of(kafka, topic, group, **QUICK), log[2]).batch() == {
        (p, at) for p in (0, 1) for at in range(4, 20)
    }


@pytest.mark.parametrize("begun", [pytest.param(False, marks=pytest.mark.soak), True])
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


@pytest.mark.soak
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


def killed(driver):
    """End a driver as SIGKILL does, but for its connections: it hands nothing over, and does not leave."""
    idler, driver._idler = driver._idler, None
    idler.stop()
    driver._stopped = True
    driver._session.member.client.close()
    driver._session = None


def thrown_out(kafka, group, run, *committed_meanwhile):
    """Have a query lose its membership, and commit before it joins again, if there is anything to commit.

    Returns a function that waits until the query has taken its positions once more.
    """
    before = run.driver._session.member.generation.member_id
    with run.driver._lock:  # its thread between triggers would join
        throw_out(kafka, group)
        assert members(kafka, group) == []
        if committed_meanwhile:
            commit_for(kafka, group, *committed_meanwhile)

    def is_back():
        run.driver.latest_offset(run.end, None)
        session = run.driver._session
        return session.member.generation.member_id != before and len(session.standing.positioned) == 2

    return lambda: wait_until(is_back, within=30)


def counting_anew(kafka, group, driver_of, batches=1):
    """A query that goes on after its first batch, with all partitions paused; its last process has run so many
    `batches`, and committed the last one in generation 70."""
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), batches, 4)
    last = GroupOffset.from_json(log[batches])
    commit_for(kafka, group, dict.fromkeys([(topic, 0), (topic, 1)], 2 * batches), metadata_of_70(last))
    run = Run(driver_of(kafka, topic, group, **QUICK, pausePartitions=json.dumps({topic: [0, 1]})), log[1])
    run.driver.latest_offset(run.end, None)
    return topic, run


def metadata_of_70(end):
    return commit_metadata(end.query_id, 70, end.batch)


@pytest.mark.parametrize("batches", [1, 3], ids=["newest checkpoint", "older checkpoint"])
def test_generations_that_count_from_one_again_are_no_sign_of_a_successor(kafka, group, driver_of, batches):
    """As where a group of the newer protocol becomes empty, and one of the classic protocol begins."""
    _, run = counting_anew(kafka, group, driver_of, batches)
    thrown_out(kafka, group, run)()


def test_generations_that_counted_on_while_this_process_was_a_member_are_no_sign_of_a_successor(
    kafka, group, driver_of
):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    run = Run(driver_of(kafka, topic, group, **QUICK), None)
    run.end = run.driver.initial_offset()
    run.batch()
    assert run.driver.latest_offset(run.end, None) == run.end
    last = GroupOffset.from_json(run.end)
    note = commit_metadata(last.query_id, 70, last.batch)
    is_back = thrown_out(kafka, group, run, {(topic, p): 10 for p in range(2)}, note)
    is_back()
    assert run.driver.latest_offset(run.end, None) == run.end


def test_generations_are_no_sign_of_a_successor_where_another_query_has_written_over_the_note(kafka, group, driver_of):
    topic, run = counting_anew(kafka, group, driver_of)
    note = adopting_metadata("another", 3, 3, metadata_of_70(GroupOffset.from_json(run.end)))
    is_back = thrown_out(kafka, group, run, {(topic, 1): 2}, note)
    is_back()


def test_a_successor_is_known_by_its_later_batch_whatever_notes_of_before_say(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    log = run_to_its_end(driver_of(kafka, topic, group, **QUICK), 1, 4)
    last = GroupOffset.from_json(log[1])
    commit_for(kafka, group, {(topic, p): 2 for p in range(2)}, commit_metadata(last.query_id, 70, 0))
    woken = Run(driver_of(kafka, topic, group, **QUICK), log[1])
    woken.batch()
    assert woken.driver.latest_offset(woken.end, None) == woken.end
    last = GroupOffset.from_json(woken.end)
    later = commit_metadata(last.query_id, last.generation + 3, last.batch + 1)
    is_back = thrown_out(kafka, group, woken, {(topic, p): 10 for p in range(2)}, later)
    with pytest.raises(FencedError, match=f"up to generation {last.generation + 3}"):
        is_back()


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
    note = commit_metadata(last.query_id, 1, last.batch + 1)
    is_back = thrown_out(kafka, group, woken, {(topic, p): 9 for p in range(2)}, note)
    is_back()
    assert committed(kafka, group) == {(topic, p): 9 for p in range(2)}
