"""Where partitions start: by checkpoint, group or options, with other members and Kafka's own tools."""

import json
import threading
import time

import pytest
from kafka import KafkaConsumer
from support import commit_for, committed, numbered, produce, topic_with

from spark_kafka_group import DataLossError, OffsetConflictError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import GroupOffset

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 100}
BOTH = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}


def first_batch(driver):
    """Plan and prove the first batch; returns its end."""
    end = driver.latest_offset(driver.initial_offset(), None)
    driver.latest_offset(end, None)
    return end


def next_end(driver, end):
    """The end of the next batch with records. A trigger soon after the last one may not know the newest records yet."""
    return wait_until(lambda: (following := driver.latest_offset(end, None)) != end and following, within=30)


def begin(start, end):
    """Where the batch from `start` to `end` begins, in its first partition."""
    return GroupOffset.from_json(end).ranges(GroupOffset.from_json(start))[0].start


def moved(end, topic, start):
    """Where the batch from `start` to `end` began, of partitions that did not go on at `start`."""
    before = start.get(topic, {})
    return {p: offset for p, offset in end["@group"].get("from", {}).get(topic, {}).items() if before.get(p) != offset}


class TestRestart:
    """20 records are read and committed, the query stops, something happens to the group, 5 records more, restart."""

    @pytest.fixture
    def restart(self, kafka, group, driver_of):
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        driver = driver_of(kafka, topic, group)
        end = first_batch(driver)
        driver.stop()

        def again(change, **more):
            change(topic)
            produce(kafka, topic, numbered(5, 1))
            restarted = driver_of(kafka, topic, group, **more)
            following = restarted.latest_offset(end, None)
            return begin(end, following), restarted

        return again

    def reset(self, kafka, group, *how):
        return lambda topic: kafka.consumer_groups(
            "--reset-offsets", "--group", group, "--all-topics", "--execute", *how
        )

    @pytest.mark.parametrize(("how", "position"), [(["--to-offset", "7"], 7), (["--to-earliest"], 0)])
    def test_offsets_reset_by_kafkas_tool_are_right(self, kafka, group, restart, how, position):
        assert restart(self.reset(kafka, group, *how))[0] == position

    def test_offsets_set_higher_than_the_checkpoint_are_right(self, kafka, group, restart):
        assert restart(lambda topic: commit_for(kafka, group, {(topic, 0): 22}))[0] == 22

    def test_offsets_removed_are_put_back_from_the_checkpoint(self, kafka, group, restart):
        def remove(topic):
            kafka.consumer_groups("--delete-offsets", "--group", group, "--topic", topic)
            assert committed(kafka, group) == {}

        position, _ = restart(remove)
        assert position == 20
        assert list(committed(kafka, group).values()) == [20]

    @pytest.mark.parametrize(("policy", "position"), [("auto", 7), ("group", 7), ("checkpoint", 20)])
    def test_the_option_says_who_is_right_about_an_offset_that_was_reset(
        self, kafka, group, restart, caplog, policy, position
    ):
        found, driver = restart(self.reset(kafka, group, "--to-offset", "7"), onOffsetConflict=policy)
        assert found == position
        assert (
            "the checkpoint says 20 (this query, generation 1), the group 7 (another program, without a note)"
            in caplog.text
        )
        assert driver._session.metrics.offset_conflicts == 1
        assert driver.report_latest_offset()["@group"]["offsetConflicts"] == 1
        if policy == "checkpoint":
            assert list(committed(kafka, group).values()) == [20]

    def test_a_query_whose_policy_is_fail_does_not_go_on_from_an_offset_that_was_reset(self, kafka, group, restart):
        with pytest.raises(OffsetConflictError, match=r"the checkpoint says 20 .* the group 7"):
            restart(self.reset(kafka, group, "--to-offset", "7"), onOffsetConflict="fail")

    def test_a_topic_deleted_and_made_again_is_an_error_however_long_it_is(self, kafka, group, restart):
        def remake(topic):
            kafka.delete_topic(topic)
            kafka.create_topic(topic)
            produce(kafka, topic, numbered(100, 1))

        with pytest.raises(DataLossError, match="was deleted and made again, so this offset means another record"):
            restart(remake)

    def test_a_topic_deleted_and_made_again_is_read_from_where_somebody_says(self, kafka, group, restart):
        def remake(topic):
            kafka.delete_topic(topic)
            kafka.create_topic(topic)
            produce(kafka, topic, numbered(100, 1))
            commit_for(kafka, group, {(topic, 0): 3})

        assert restart(remake)[0] == 3


class TestRunning:
    def test_a_partition_gained_starts_where_its_owner_committed(self, kafka, group, driver_of, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        first = driver_of(kafka, topic, group, **BOTH)
        end = first_batch(first)
        assert end[topic] == {"0": 10, "1": 10}
        second = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: len(second.owned()) == 1, within=30)
        produce(kafka, topic, numbered(20, 2))
        wait_until(lambda: 20 in committed(kafka, group).values(), within=30)  # the second's partition
        ((gained,),) = [{tp.partition for tp in second.owned()}]
        second.end()
        second.driver.stop()
        wait_until(lambda: len(first._session.member.generation.assignment) == 2, within=30)
        following = next_end(first, end)
        assert moved(following, topic, end) == {str(gained): 20}
        assert following[topic] == {"0": 20, "1": 20}

    def test_a_partition_that_starting_offsets_do_not_name_was_added_later_and_is_read_from_its_first_record(
        self, kafka, group, driver_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(2, 1), partitions=1)
        named = QUICK | {"startingOffsets": json.dumps({topic: {"0": 0}})}
        first = driver_of(kafka, topic, group, **named)
        end = first_batch(first)
        first.stop()
        kafka.add_partitions(topic, 2)
        # A neighbour that never commits owns both when the query comes back.
        neighbour = neighbour_of(kafka, topic, group, heartbeat_interval_ms=300)
        wait_until(lambda: len(neighbour.assignment()) == 2, within=30)
        again = driver_of(kafka, topic, group, **named)
        assert again.latest_offset(end, None) == end
        assert {tp.partition for tp in again._session.member.generation.assignment} == {0}
        neighbour.close()
        produce(kafka, topic, [r._replace(partition=1) for r in numbered(3, 1)])
        following = wait_until(lambda: (o := again.latest_offset(end, None)) != end and o, within=30)
        assert following[topic] == {"0": 2, "1": 3}
        assert moved(following, topic, end) == {"1": 0}

    def test_a_topic_made_again_under_a_running_query_is_an_error(self, kafka, group, driver_of):
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        driver = driver_of(kafka, topic, group, **QUICK, **{"kafka.default.api.timeout.ms": 5000})
        end = first_batch(driver)
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        produce(kafka, topic, numbered(30, 1))

        def noticed():
            try:
                driver.latest_offset(end, None)
            except DataLossError as error:
                return str(error)

        assert "was deleted and made again" in wait_until(noticed, within=30)

    def test_a_replayed_batch_whose_partitions_others_took_over_does_not_set_the_group_back(
        self, kafka, group, driver_of, caplog
    ):
        topic = topic_with(kafka, numbered(40, 2), partitions=2)
        first = driver_of(kafka, topic, group, **BOTH)
        start = first.initial_offset()
        end = first.latest_offset(start, 10)
        first.stop()  # before the batch was done: Spark will ask for it again
        other = driver_of(kafka, topic, group, **BOTH)
        done = first_batch(other)
        assert done[topic] == {"0": 20, "1": 20}
        other.stop()
        again = driver_of(kafka, topic, group, **BOTH)
        tasks = again.plan(again.initial_offset(), end)
        assert sorted((r.start, r.end) for task in tasks for r in task) == [(0, 5), (0, 5)]
        assert again.latest_offset(end, None) == end
        assert committed(kafka, group) == {(topic, 0): 20, (topic, 1): 20}
        assert "other members have read on" in caplog.text


class TestTakenOver:
    """A driver has read a batch, 0 to 20, whose commit is missing, and another member takes the partition over."""

    @pytest.fixture
    def batch(self, kafka, group, driver_of):
        """The topic, the driver, and the end of the batch."""
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        driver = driver_of(kafka, topic, group, **BOTH, **{"kafka.max.poll.interval.ms": 1000})
        start = driver.initial_offset()
        end = driver.latest_offset(start, None)
        driver.plan(start, end)
        return topic, driver, end

    @staticmethod
    def read_5(kafka, topic, group):
        """Read and commit five records as another member, and leave."""
        consumer = KafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap_servers, group_id=group, auto_offset_reset="earliest",
            enable_auto_commit=False, max_poll_records=5, max_poll_interval_ms=1500,
        )  # fmt: skip
        try:
            wait_until(lambda: consumer.poll(timeout_ms=1000), within=30)
            consumer.commit()
        finally:
            consumer.close(autocommit=False)

    def test_a_query_that_lost_its_membership_goes_on_at_the_commit_of_a_member_that_stopped_in_the_middle(
        self, kafka, group, batch
    ):
        topic, driver, end = batch
        self.read_5(kafka, topic, group)
        assert committed(kafka, group) == {(topic, 0): 5}
        assert begin(end, next_end(driver, end)) == 5

    @pytest.mark.parametrize(("policy", "position"), [("auto", 5), ("checkpoint", 20)])
    def test_a_query_that_starts_again_goes_on_at_the_commit_of_another_or_after_the_batch_as_the_policy_says(
        self, kafka, group, driver_of, batch, policy, position
    ):
        topic, driver, end = batch
        driver.stop()
        self.read_5(kafka, topic, group)
        produce(kafka, topic, numbered(5, 1))
        again = driver_of(kafka, topic, group, **BOTH, onOffsetConflict=policy)
        assert begin(end, next_end(again, end)) == position


def test_committed_offsets_of_a_group_that_was_deleted_come_back_from_the_checkpoint(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    driver = driver_of(kafka, topic, group)
    end = first_batch(driver)
    driver.stop()
    kafka.admin.delete_groups([group])
    assert kafka.group_state(group) == ("Dead", [])
    again = driver_of(kafka, topic, group)
    assert again.latest_offset(end, None) == end
    assert committed(kafka, group) == {(topic, 0): 20}


class TestAdopted:
    """Offsets of another client that this query goes on from."""

    @pytest.fixture
    def start_at_7(self, kafka, group, driver_of):
        """A query has read one batch from another client's offset, 7 to 20, and ends before it commits the batch."""
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        commit_for(kafka, group, {(topic, 0): 7})
        driver = driver_of(kafka, topic, group, **BOTH)
        start = driver.initial_offset()
        end = driver.latest_offset(start, None)
        assert moved(end, topic, start) == {"0": 7}
        driver.plan(start, end)
        driver.stop()
        assert committed(kafka, group) == {(topic, 0): 7}
        return topic, end

    @pytest.mark.parametrize("policy", ["auto", "fail"])
    def test_a_batch_from_an_adopted_offset_that_was_not_committed_does_not_come_again(
        self, kafka, group, driver_of, start_at_7, policy
    ):
        topic, end = start_at_7
        again = driver_of(kafka, topic, group, **BOTH, onOffsetConflict=policy)
        assert again.latest_offset(end, None) == end
        assert committed(kafka, group) == {(topic, 0): 20}

    def test_a_batch_from_an_adopted_offset_that_was_cut_short_is_read_again_as_it_was_and_committed(
        self, kafka, group, driver_of, start_at_7
    ):
        topic, end = start_at_7
        again = driver_of(kafka, topic, group, **BOTH)
        ((replayed,),) = again.plan(again.initial_offset(), end)
        assert (replayed.start, replayed.end) == (7, 20)
        assert again.latest_offset(end, None) == end
        assert committed(kafka, group) == {(topic, 0): 20}

    def test_a_reset_to_the_very_same_offset_is_right(self, kafka, group, driver_of, start_at_7):
        topic, end = start_at_7
        again = driver_of(kafka, topic, group, **BOTH)
        assert again.latest_offset(end, None) == end
        again.stop()
        commit_for(kafka, group, {(topic, 0): 7})
        third = driver_of(kafka, topic, group, **BOTH)
        assert moved(third.latest_offset(end, None), topic, end) == {"0": 7}

    def test_a_reset_is_right_until_a_batch_has_begun_at_the_adopted_offset(self, kafka, group, driver_of, start_at_7):
        topic, end = start_at_7
        again = driver_of(kafka, topic, group, **BOTH)
        assert again.latest_offset(end, None) == end
        again.stop()
        commit_for(kafka, group, {(topic, 0): 3})
        paused = driver_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: [0]}))
        assert paused.latest_offset(end, None) == end
        paused.stop()
        third = driver_of(kafka, topic, group, **BOTH)
        following = third.latest_offset(end, None)
        assert moved(following, topic, end) == {"0": 3}
        third.plan(end, following)
        third.stop()
        fourth = driver_of(kafka, topic, group, **BOTH)
        assert fourth.latest_offset(following, None) == following
        assert committed(kafka, group) == {(topic, 0): 20}

    def test_a_partition_without_records_until_a_later_batch_does_not_come_again(self, kafka, group, driver_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 5, (topic, 1): 10})
        first = driver_of(kafka, topic, group, **BOTH)
        end = first_batch(first)
        produce(kafka, topic, [r._replace(partition=1) for r in numbered(7, 1)])
        following = next_end(first, end)
        assert following[topic] == {"0": 10, "1": 17}
        first.stop()
        again = driver_of(kafka, topic, group, **BOTH)
        assert again.latest_offset(following, None) == following
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 17}

    def test_a_partition_that_a_neighbour_has_read_before_does_not_come_again(
        self, kafka, group, driver_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        first = driver_of(kafka, topic, group, **BOTH)
        end = first_batch(first)
        neighbour = neighbour_of(kafka, topic, group, metadata_max_age_ms=300)
        wait_until(lambda: len(neighbour.assignment()) == 1, within=30)
        (gone,) = {tp.partition for tp in neighbour.assignment()}
        produce(kafka, topic, [r._replace(partition=gone) for r in numbered(5, 1)])
        wait_until(lambda: committed(kafka, group)[topic, gone] == 15, within=30)
        neighbour.close()
        wait_until(lambda: len(first._session.member.generation.assignment) == 2, within=30)
        produce(kafka, topic, [r._replace(partition=gone) for r in numbered(5, 1)])
        following = next_end(first, end)
        assert (moved(following, topic, end), following[topic][str(gone)]) == ({str(gone): 15}, 20)
        first.stop()
        again = driver_of(kafka, topic, group, **BOTH)
        assert again.latest_offset(following, None) == following
        assert committed(kafka, group) == {(topic, gone): 20, (topic, 1 - gone): 10}

    @pytest.fixture
    def cut_short(self, kafka, group, driver_of):
        """A query has committed one batch, to 5, and ends before it commits the next, to 10."""
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        driver = driver_of(kafka, topic, group, **BOTH)
        end = driver.latest_offset(driver.initial_offset(), 5)
        following = driver.latest_offset(end, 5)
        driver.plan(end, following)
        driver.stop()
        assert committed(kafka, group) == {(topic, 0): 5}
        return topic, end, following

    def test_what_a_query_delivered_does_not_come_again_after_another_has_adopted_its_offset(
        self, kafka, group, driver_of, cut_short
    ):
        topic, _, following = cut_short
        for _ in range(2):
            other = driver_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: [0]}))
            other.latest_offset(other.initial_offset(), None)
            other.stop()
        assert committed(kafka, group) == {(topic, 0): 5}
        again = driver_of(kafka, topic, group, **BOTH)
        last = again.latest_offset(following, None)
        assert (moved(last, topic, following), last[topic]) == ({}, {"0": 20})
        assert committed(kafka, group) == {(topic, 0): 10}

    def test_a_batch_planned_again_does_not_come_again_after_it_gave_way_and_another_has_adopted_its_start(
        self, kafka, group, driver_of, cut_short
    ):
        topic, end, _ = cut_short
        commit_for(kafka, group, {(topic, 0): 5}, commit_metadata(end["@group"]["reader"], 3, 0, without=1))
        other = driver_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: [0]}))
        other.latest_offset(other.initial_offset(), None)
        other.stop()
        again = driver_of(kafka, topic, group, **BOTH)
        following = again.latest_offset(end, 5)
        again.plan(end, following)
        again.stop()
        third = driver_of(kafka, topic, group, **BOTH)
        last = third.latest_offset(following, None)
        assert (moved(last, topic, following), last[topic]) == ({}, {"0": 20})

    def test_a_batch_does_not_come_again_with_a_checkpoint_rolled_back_to_before_its_offset_was_adopted(
        self, kafka, group, driver_of, cut_short
    ):
        topic, end, following = cut_short
        commit_for(kafka, group, {(topic, 0): 3})
        paused = driver_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: [0]}))
        assert paused.latest_offset(following, None) == following
        paused.stop()
        again = driver_of(kafka, topic, group, **BOTH)
        following = again.latest_offset(end, 4)
        assert (moved(following, topic, end), following[topic]) == ({"0": 3}, {"0": 7})
        again.plan(end, following)
        again.stop()
        third = driver_of(kafka, topic, group, **BOTH)
        last = third.latest_offset(following, None)
        assert (moved(last, topic, following), last[topic]) == ({}, {"0": 20})


class TestLeft:
    """A query that no longer subscribes to a topic whose last batch it has not committed, and later does again."""

    @pytest.fixture
    def topics(self, kafka):
        return [topic_with(kafka, numbered(10, 1), partitions=1) for _ in range(2)]

    @pytest.fixture
    def cut_short(self, kafka, group, driver_of, topics):
        """The start and the end of a batch of both topics, after which the query ended without a commit."""
        driver = driver_of(kafka, ",".join(topics), group, **BOTH)
        start = driver.initial_offset()
        end = driver.latest_offset(start, None)
        driver.plan(start, end)
        driver.stop()
        assert [end[topic] for topic in topics] == [{"0": 10}] * 2
        assert committed(kafka, group) == {}
        return start, end

    def test_a_replay_is_committed_also_for_a_topic_that_was_left(self, kafka, group, driver_of, topics, cut_short):
        kept, left = topics
        start, end = cut_short
        driver = driver_of(kafka, kept, group, **BOTH)
        replayed = [r for task in driver.plan(start, end) for r in task]
        assert [(r.start, r.end) for r in replayed] == [(0, 10)] * 2
        produce(kafka, kept, numbered(5, 1))
        following = driver.latest_offset(end, None)
        assert committed(kafka, group) == {(kept, 0): 10, (left, 0): 10}
        assert following["@group"]["left"] == {left: {"0": 10}}, "brokers may forget offsets of topics without a reader"
        driver.stop()
        again = driver_of(kafka, ",".join(topics), group, **BOTH)
        assert again.latest_offset(following, None) == following

    @pytest.mark.parametrize("replayed", [True, False])
    def test_what_was_delivered_of_a_topic_that_was_left_does_not_come_again(
        self, kafka, group, driver_of, query_of, topics, cut_short, replayed
    ):
        kept, left = topics
        start, end = cut_short
        neighbour = query_of(kafka, kept, group, **BOTH, pausePartitions=json.dumps({kept: [0]}))
        wait_until(lambda: len(neighbour.owned()) == 1, within=30)
        new = topic_with(kafka, numbered(3, 2), partitions=2)
        driver = driver_of(kafka, f"{kept},{new}", group, **BOTH)
        if replayed:
            driver.plan(start, end)
        offsets = [end]

        def new_is_read():
            offsets.append(driver.latest_offset(offsets[-1], None))
            return new in offsets[-1]

        wait_until(new_is_read, within=30)
        following = offsets[-1]
        # Not committed, as another member might own the partition.
        assert (left, 0) not in committed(kafka, group)
        assert following["@group"]["left"][left] == {"0": 10}
        assert driver.latest_offset(following, None) == following
        neighbour.end()
        neighbour.driver.stop()
        driver.stop()
        produce(kafka, left, numbered(4, 1))
        again = driver_of(kafka, left, group, **BOTH)
        last = again.latest_offset(following, None)
        assert (moved(last, left, following), last[left]) == ({"0": 10}, {"0": 14})
        assert again.latest_offset(last, None) == last
        assert committed(kafka, group)[left, 0] == 14

    def test_where_somebody_else_has_gone_on_in_a_topic_that_was_left_is_right(
        self, kafka, group, driver_of, topics, cut_short
    ):
        kept, left = topics
        _, end = cut_short
        driver = driver_of(kafka, kept, group, **BOTH)
        produce(kafka, kept, numbered(5, 1))
        following = driver.latest_offset(end, None)
        assert following["@group"]["left"] == {left: {"0": 10}}
        driver.stop()
        produce(kafka, left, numbered(10, 1))
        commit_for(kafka, group, {(left, 0): 15})
        again = driver_of(kafka, ",".join(topics), group, **BOTH)
        last = again.latest_offset(following, None)
        assert (moved(last, left, following), last[left]) == ({"0": 15}, {"0": 20})

    def test_an_offset_of_others_does_not_move_the_position_while_the_topic_is_left(
        self, kafka, group, driver_of, topics, cut_short
    ):
        kept, left = topics
        _, end = cut_short
        commit_for(kafka, group, {(left, 0): 5})
        driver = driver_of(kafka, kept, group, **BOTH)
        produce(kafka, kept, numbered(5, 1))
        following = driver.latest_offset(end, None)
        assert following["@group"]["left"] == {left: {"0": 10}}
        driver.stop()
        again = driver_of(kafka, ",".join(topics), group, **BOTH)
        assert moved(again.latest_offset(following, None), left, following) == {"0": 5}


class TestContinuedFromSparksSource:
    """The first run of a checkpoint that format("kafka") wrote."""

    def test_a_partition_that_leaves_and_comes_back_goes_on_where_the_neighbour_left_off(
        self, kafka, group, driver_of, query_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 2, (topic, 1): 2})
        first = driver_of(kafka, topic, group, **BOTH)
        start = {topic: {"0": 5, "1": 5}}
        end = first.latest_offset(start, None)
        assert first.latest_offset(end, None) == end
        second = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: len(second.owned()) == 1, within=30)
        ((_, gone),) = second.owned()
        produce(kafka, topic, [r._replace(partition=gone) for r in numbered(10, 1)])
        wait_until(lambda: committed(kafka, group)[topic, gone] == 20, within=30)
        second.end()
        second.driver.stop()
        wait_until(lambda: len(first._session.member.generation.assignment) == 2, within=30)
        assert first.latest_offset(end, None) == end
        assert committed(kafka, group) == {(topic, gone): 20, (topic, 1 - gone): 10}

    @pytest.mark.parametrize(("paused", "position"), [([0, 1], 5), ([], 20)])
    def test_a_partition_that_a_neighbour_owns_at_first_starts_at_the_checkpoint_unless_the_neighbour_reads_on(
        self, kafka, group, driver_of, query_of, paused, position
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 2, (topic, 1): 2})
        second = query_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: paused}))
        wait_until(lambda: len(second.owned()) == 2, within=30)
        first = driver_of(kafka, topic, group, **BOTH)
        end = first.latest_offset({topic: {"0": 5, "1": 5}}, None)
        assert list(end[topic].values()) == [10]
        assert first.latest_offset(end, None) == end
        gained = 1 - int(*end[topic])
        produce(kafka, topic, [r._replace(partition=gained) for r in numbered(10, 1)])
        wait_until(lambda: paused or committed(kafka, group)[topic, gained] == 20, within=30)
        second.end()
        second.driver.stop()
        wait_until(lambda: len(first._session.member.generation.assignment) == 2, within=30)
        produce(kafka, topic, [r._replace(partition=gained) for r in numbered(1, 1)])
        following = next_end(first, end)
        assert moved(following, topic, end) == {str(gained): position}


class TestRolledBack:
    """A checkpoint of an earlier batch, restored on purpose, in a group whose notes are about later ones."""

    @pytest.mark.parametrize(
        ("without", "position"),
        [
            pytest.param(0, 10, id="the batch it ends with"),
            pytest.param(1, 10, id="the batch that is planned next"),
            pytest.param(2, 5, id="a later one"),
        ],
    )
    def test_the_group_is_believed_about_the_batches_that_the_checkpoint_is_at(
        self, kafka, group, driver_of, without, position
    ):
        topic = topic_with(kafka, numbered(30, 1), partitions=1)
        first = driver_of(kafka, topic, group, **BOTH)
        end = first.latest_offset(first.initial_offset(), 5)
        first.stop()
        note = commit_metadata(end["@group"]["reader"], 3, without - 1, without)
        commit_for(kafka, group, {(topic, 0): 10}, note)
        again = driver_of(kafka, topic, group, **BOTH)
        following = again.latest_offset(end, None)
        assert moved(following, topic, end).get("0", 5) == position
        again.plan(end, following)
        assert committed(kafka, group) == {(topic, 0): position}

    def test_a_batch_that_is_read_again_is_read_as_it_was_whatever_later_ones_went_without(
        self, kafka, group, driver_of
    ):
        topic = topic_with(kafka, numbered(30, 1), partitions=1)
        first = driver_of(kafka, topic, group, **BOTH)
        end = first.latest_offset(first.initial_offset(), 5)
        first.stop()
        commit_for(kafka, group, {(topic, 0): 10}, commit_metadata(end["@group"]["reader"], 3, 0, 1))
        again = driver_of(kafka, topic, group, **BOTH)
        ((replayed,),) = again.plan(again.initial_offset(), end)
        assert (replayed.start, replayed.end) == (0, 5)


class TestExplicitStarts:
    """A new query with a start in its options, in a group with other offsets."""

    @pytest.mark.parametrize("starting", ["earliest", "latest"])
    def test_while_others_are_members_the_groups_offset_wins_over_an_explicit_start(
        self, kafka, group, driver_of, query_of, caplog, starting
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 4, (topic, 1): 4})
        behind = query_of(kafka, topic, group, **BOTH, pausePartitions=json.dumps({topic: [0, 1]}))
        wait_until(lambda: len(behind.owned()) == 2, within=30)
        driver = driver_of(kafka, topic, group, **QUICK, startingOffsets=starting)
        end = driver.latest_offset(driver.initial_offset(), None)
        assert (list(moved(end, topic, {}).values()), list(end[topic].values())) == ([4], [10])
        assert set(committed(kafka, group).values()) == {4}
        said = f"startingOffsets says {starting}, the group has committed 4 and has other members (groupkafka-"
        assert said in caplog.text
        assert driver._session.metrics.offset_conflicts == 0

    def test_a_partition_of_which_the_group_alone_has_no_offset_is_a_warning(self, kafka, group, driver_of, caplog):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 4})
        driver = driver_of(kafka, topic, group, **LATEST)
        assert driver.latest_offset(driver.initial_offset(), None)[topic] == {"0": 10, "1": 10}
        assert f"no committed offset for {topic}-1 (none was committed, or it has expired): starting" in caplog.text

    def test_a_partition_not_read_before_a_restart_still_starts_at_its_explicit_start(self, kafka, group, driver_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        commit_for(kafka, group, {(topic, 0): 5, (topic, 1): 5})
        first = driver_of(kafka, topic, group, pausePartitions=json.dumps({topic: [1]}))
        end = first_batch(first)
        assert end[topic] == {"0": 10, "1": 0}
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 0}
        first.stop()
        again = driver_of(kafka, topic, group)
        following = again.latest_offset(end, None)
        assert following[topic] == {"0": 10, "1": 10}
        assert moved(following, topic, end) == {}

    def test_a_partition_starts_at_its_explicit_start_after_a_crash_in_its_first_batch(self, kafka, group, driver_of):
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        commit_for(kafka, group, {(topic, 0): 7})
        first = driver_of(kafka, topic, group)
        end = first.latest_offset(first.initial_offset(), 3)
        first.stop()
        again = driver_of(kafka, topic, group)
        again.plan(again.initial_offset(), end)
        following = again.latest_offset(end, 3)
        assert committed(kafka, group) == {(topic, 0): 3}
        assert following[topic] == {"0": 6}
        assert moved(following, topic, end) == {}


LATEST = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "latest"}


class TestNothingIsMissed:
    def test_whoever_gets_a_new_partition_misses_nothing_however_early_it_has_heard_of_it(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        slow = LATEST | {"kafka.metadata.max.age.ms": 4000}
        queries = [query_of(kafka, topic, group, **slow)]
        wait_until(lambda: len(queries[0].owned()) == 2, within=30)
        queries.append(query_of(kafka, topic, group, **LATEST))
        wait_until(lambda: all(len(query.owned()) == 1 for query in queries), within=30)
        kafka.add_partitions(topic, 6)
        produce(kafka, topic, [r._replace(partition=2 + r.partition) for r in numbered(20, 4)])
        wait_until(lambda: len(committed(kafka, group)) == 6, within=30)
        wait_until(lambda: all(committed(kafka, group)[topic, p] == 5 for p in range(2, 6)), within=30)
        begun = {}
        for r in sorted(r for query in queries for r in query.ranges):
            begun.setdefault(r.tp.partition, r.start)
        assert {p: begun[p] for p in range(2, 6)} == dict.fromkeys(range(2, 6), 0)

    def test_nothing_is_missed_in_a_topic_that_was_deleted_and_made_again_while_the_query_read_others(
        self, kafka, group, driver_of
    ):
        topic = topic_with(kafka, numbered(20, 1), partitions=1)
        other = topic_with(kafka, numbered(4, 1), partitions=1)
        driver = driver_of(kafka, f"{topic},{other}", group, **LATEST)
        start = driver.initial_offset()
        assert driver.latest_offset(start, None) == start
        kafka.delete_topic(other)
        wait_until(
            lambda: (
                driver.latest_offset(start, None) == start
                and {tp.topic for tp in driver._session.member.generation.assignment} == {topic}
            ),
            within=30,
        )
        produce(kafka, topic, numbered(2, 1))
        end = driver.latest_offset(start, None)
        assert set(end) == {topic, "@group"}
        kafka.create_topic(other)
        produce(kafka, other, numbered(5, 1))
        following = wait_until(lambda: (o := driver.latest_offset(end, None)) != end and o, within=30)
        assert moved(following, other, end) == {"0": 0}

    def test_nothing_is_missed_when_a_query_that_has_not_read_yet_leaves_a_partition_to_another(
        self, kafka, group, driver_of, query_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        second = query_of(kafka, topic, group, **LATEST)
        wait_until(lambda: len(second.owned()) == 2, within=30)
        first = driver_of(kafka, topic, group, **LATEST)
        start = first.initial_offset()
        assert first.latest_offset(start, None) == start
        wait_until(lambda: len(second.owned()) == 1, within=30)
        commits = committed(kafka, group)
        produce(kafka, topic, numbered(20, 2))
        first.stop()
        wait_until(lambda: committed(kafka, group) == {(topic, 0): 20, (topic, 1): 20}, within=30)
        assert set(commits.values()) == {10}
        assert {(r.tp.partition, r.start) for r in second.ranges if r.start == 10} == {(0, 10), (1, 10)}


def test_a_batch_is_not_replayed_from_a_topic_made_again(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 1), partitions=1)
    first = driver_of(kafka, topic, group)
    end = first.latest_offset(first.initial_offset(), 10)
    first.stop()
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    produce(kafka, topic, numbered(30, 1))
    again = driver_of(kafka, topic, group)
    with pytest.raises(DataLossError, match="was deleted and made again"):
        again.plan(again.initial_offset(), end)


def test_a_query_stops_at_once_while_the_group_waits_for_another(kafka, group, driver_of, query_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    idle = driver_of(kafka, topic, group, **LATEST)
    idle.latest_offset(idle.initial_offset(), None)
    busy = query_of(kafka, topic, group, **BOTH)
    wait_until(lambda: len(busy.owned()) == 1, within=30)
    busy.may_finish.clear()
    produce(kafka, topic, numbered(20, 2))
    busy.running.wait(30)
    third = driver_of(kafka, topic, group, **BOTH)
    joining = threading.Thread(target=lambda: third.latest_offset(third.initial_offset(), None))
    joining.start()
    wait_until(idle._session.member.client._coordinator.rebalance_in_progress, within=30)
    began = time.monotonic()
    idle.stop()
    assert time.monotonic() - began < 25
    busy.may_finish.set()
    wait_until(lambda: len(busy.owned()) == 1, within=30)
    joining.join()
