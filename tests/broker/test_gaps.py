"""Batches that are read again although the ends of those before them are not in the checkpoint.

With asyncProgressTrackingEnabled Spark writes only some ends down, and says so late: ``commit(end)`` comes when a later
end is written.
"""

import pytest
from support import committed, numbered, produce, topic_with

from spark_kafka_group import OffsetFormatError
from spark_kafka_group.testing import wait_until

QUICK = {"kafka.metadata.max.age.ms": 300}


def ranges(tasks):
    return sorted((r.tp.partition, r.start, r.end) for task in tasks for r in task)


def run(driver, start):
    """One batch: its end and its records."""
    ends = []
    wait_until(lambda: ends.append(driver.latest_offset(start, None)) or ends[-1] != start, within=30)
    return ends[-1], ranges(driver.plan(start, ends[-1]))


def owns(driver, start, count):
    """Whether the driver has so many partitions; it is asked as Spark asks it, and plans nothing new."""

    def reached():
        assert driver.latest_offset(start, None) == start
        return len(driver._session.member.generation.assignment) == count

    return reached


def test_a_partition_that_came_in_a_batch_that_was_not_logged_is_read_again_as_it_was(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(4, 1), partitions=1)
    first = driver_of(kafka, topic, group, **QUICK)
    logged, _ = run(first, first.initial_offset())
    kafka.add_partitions(topic, 2)
    wait_until(owns(first, logged, 2), within=20)
    produce(kafka, topic, numbered(10, 2))
    lost, _ = run(first, logged)
    produce(kafka, topic, numbered(10, 2))
    dying, read = run(first, lost)
    assert read == [(0, 9, 14), (1, 5, 10)]

    again = driver_of(kafka, topic, group, **QUICK)
    assert ranges(again.plan(logged, dying)) == read
    assert again.latest_offset(dying, None) == dying
    assert committed(kafka, group) == {(topic, 0): 14, (topic, 1): 10}


def test_a_partition_that_left_and_came_back_in_batches_that_were_not_logged_is_read_again_as_it_was(
    kafka, group, driver_of
):
    topic = topic_with(kafka, numbered(10, 2), partitions=2)
    first = driver_of(kafka, topic, group)
    logged, _ = run(first, first.initial_offset())
    assert first.latest_offset(logged, None) == logged

    other = driver_of(kafka, topic, group, startingOffsets="group")
    begin = other.initial_offset()
    wait_until(lambda: owns(other, begin, 1)() and owns(first, logged, 1)(), within=20)
    produce(kafka, topic, numbered(20, 2))
    lost, kept = run(first, logged)
    end, taken = run(other, begin)
    assert [(start, stop) for _, start, stop in kept + taken] == [(5, 15)] * 2
    assert other.latest_offset(end, None) == end
    other.stop()

    wait_until(owns(first, lost, 2), within=20)
    produce(kafka, topic, numbered(8, 2))
    dying, read = run(first, lost)
    assert read == [(0, 15, 19), (1, 15, 19)]
    again = driver_of(kafka, topic, group)
    assert ranges(again.plan(logged, dying)) == read


def test_where_spark_logs_every_end_a_batch_keeps_no_starts_of_its_own(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(4, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    start = driver.initial_offset()
    ends = []
    for _ in range(4):
        end, _ = run(driver, start)
        if start["@group"].get("batch", -1) >= 0:
            driver.commit(start)
            assert committed(kafka, group) == {(topic, 0): start[topic]["0"]}  # not the batch that is planned
        driver.plan(start, end)
        ends.append(end)
        produce(kafka, topic, numbered(4, 1))
        start = end
    assert ["from" in end["@group"] for end in ends] == [True, True, False, False]


def test_a_checkpoint_with_a_gap_and_without_starts_is_refused(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(4, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    ends = [run(driver, driver.initial_offset())[0]]
    for _ in range(3):
        produce(kafka, topic, numbered(4, 1))
        ends.append(run(driver, ends[-1])[0])
        driver.commit(ends[-2])
    again = driver_of(kafka, topic, group)
    with pytest.raises(OffsetFormatError, match="lacks the ends of batches 1 to 2, .* with a new checkpoint"):
        again.plan(ends[0], ends[3])
    # Of each batch that follows the one before it the start is known.
    assert ranges(again.plan(ends[2], ends[3])) == [(0, 12, 16)]


@pytest.mark.parametrize(("policy", "begins"), [("group", 8), ("auto", 4)])
def test_batches_after_the_newest_end_that_spark_wrote_are_read_again_unless_the_group_is_right(
    kafka, group, driver_of, policy, begins
):
    topic = topic_with(kafka, numbered(4, 1), partitions=1)
    first = driver_of(kafka, topic, group)
    logged, _ = run(first, first.initial_offset())
    produce(kafka, topic, numbered(4, 1))
    lost, _ = run(first, logged)
    assert first.latest_offset(lost, None) == lost
    produce(kafka, topic, numbered(4, 1))
    again = driver_of(kafka, topic, group, onOffsetConflict=policy)
    assert run(again, logged)[1] == [(0, begins, 12)]
