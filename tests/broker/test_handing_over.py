"""Positions of which the group has nothing, handed to others in time, and never over a newer commit."""

import threading

import pytest
from support import committed, numbered, produce, topic_with

from spark_kafka_group.listener.commits import Succeeded
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import GroupOffset, TopicPartition
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 100}
EARLIEST = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}
LATEST = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "latest"}

NEIGHBOUR = {"auto_offset_reset": "latest"}


def planned(driver, start):
    """The end of the next batch, once there is one."""
    end = wait_until(lambda: (o := driver.latest_offset(start, None)) != start and o, within=30)
    driver.plan(start, end)
    return end


def commit_as_the_listener(driver, group, start, end):
    """The commit of GroupKafkaListener in the user's process after the batch's success."""
    before, after = GroupOffset.from_json(start), GroupOffset.from_json(end)
    batch = Succeeded(driver._options, after, tuple(after.ranges(before)))
    with NonMemberCommitter(driver._options, group) as outside:
        tps = [r.tp for r in batch.ranges]
        assert outside.commit(tps, batch.lacking, batch.metadata, after.generation, batch.instance_id)


def owned(driver):
    return driver._session.member.generation.assignment


class TestAtStop:
    @pytest.fixture
    def batch_of_a_new_partition(self, kafka, group, driver_of):
        """Two drivers share a group; one of them has planned a batch of partitions that the group knows nothing of."""
        topic = topic_with(kafka, [], partitions=2)
        drivers = [driver_of(kafka, topic, group, **EARLIEST) for _ in range(2)]
        starts = [driver.initial_offset() for driver in drivers]

        def each_has(count):
            for driver, start in zip(drivers, starts, strict=True):
                driver.latest_offset(start, None)
            return all(len(owned(driver)) == count for driver in drivers)

        assert drivers[0].latest_offset(starts[0], None) == starts[0]
        joining = threading.Thread(target=drivers[1].latest_offset, args=(starts[1], None))
        joining.start()
        joining.join(30)
        wait_until(lambda: each_has(1), within=30)
        kafka.add_partitions(topic, 4)
        wait_until(lambda: each_has(2), within=30)
        number = next(n for n, driver in enumerate(drivers) if TopicPartition(topic, 2) in owned(driver))
        produce(kafka, topic, numbered(40, 4))
        return topic, drivers[number], starts[number], planned(drivers[number], starts[number])

    def test_what_the_listener_has_committed_is_left_as_it_is(self, kafka, group, batch_of_a_new_partition):
        topic, driver, start, end = batch_of_a_new_partition
        commit_as_the_listener(driver, group, start, end)
        before = committed(kafka, group)
        assert before[topic, 2] == 10
        driver.stop()
        assert committed(kafka, group) == before

    def test_what_the_listener_has_committed_is_left_where_nothing_was_handed_over_before_the_batch(
        self, kafka, group, driver_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        driver = driver_of(kafka, topic, group, **EARLIEST, generation="stable")
        start = driver.initial_offset()
        end = planned(driver, start)
        assert committed(kafka, group) == {}
        neighbour = neighbour_of(kafka, topic, group)
        wait_until(lambda: kafka.group_state(group)[0] == "PreparingRebalance", within=30)
        commit_as_the_listener(driver, group, start, end)
        driver.stop()
        wait_until(lambda: len(neighbour.assignment()) == 2, within=30)
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
        assert neighbour.records == []

    def test_a_member_that_has_just_asked_to_join_starts_where_the_query_stands(
        self, kafka, group, driver_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        driver = driver_of(kafka, topic, group, **LATEST)
        start = driver.initial_offset()
        assert driver.latest_offset(start, None) == start  # at 10 in both partitions
        produce(kafka, topic, numbered(4, 2))
        planned(driver, start)
        neighbour = neighbour_of(kafka, topic, group, **NEIGHBOUR)
        wait_until(lambda: kafka.group_state(group)[0] == "PreparingRebalance", within=30)
        driver.stop()
        wait_until(lambda: len(neighbour.records) == 4, within=30)


class TestBeforeABatch:
    def test_a_member_that_joins_together_with_its_generation_starts_where_the_query_stands(
        self, kafka, group, driver_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        driver = driver_of(kafka, topic, group, **LATEST)
        start = driver.initial_offset()
        assert driver.latest_offset(start, None) == start  # at 10 in both partitions
        produce(kafka, topic, numbered(2, 1))
        end = planned(driver, start)
        produce(kafka, topic, numbered(2, 1))
        member, begin = driver._session.member, driver._session.member.next_generation
        neighbours = []

        def begin_when_a_neighbour_has_asked_to_join():
            if not neighbours:
                produce(kafka, topic, [r._replace(partition=1) for r in numbered(5, 1)])
                neighbours.append(neighbour_of(kafka, topic, group, **NEIGHBOUR))
                wait_until(lambda: kafka.group_state(group)[0] == "PreparingRebalance", within=30)
            return begin()

        member.next_generation = begin_when_a_neighbour_has_asked_to_join
        driver.latest_offset(end, None)
        (neighbour,) = neighbours
        wait_until(lambda: len(neighbour.assignment()) == 1, within=30)
        assert driver.report_latest_offset()["@group"]["rebalances"] == 1
        if TopicPartition(topic, 1) in owned(driver):
            end = planned(driver, end)
            assert end[topic]["1"] == 15
        else:
            wait_until(lambda: len(neighbour.records) == 5, within=30)
