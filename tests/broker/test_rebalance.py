"""Every reason for a rebalance, one by one, and a driver's reaction to each."""

import itertools
import subprocess
import sys
import time

import pytest
import recorders
from kafka import TopicPartition as KafkaTopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from running import Query, settled
from support import committed, members, new_client, numbered, produce, throw_out, topic_with

from spark_kafka_group import MembershipError
from spark_kafka_group.offsets_topic.decoding import coordinator_partition
from spark_kafka_group.testing import wait_until

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 100}
BOTH = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest"}
DYING_CONSUMER = """
import sys
from kafka import KafkaConsumer
servers, topic, group = sys.argv[1:]
consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, enable_auto_commit=False,
                         session_timeout_ms=2000, heartbeat_interval_ms=300)
while True:
    consumer.poll(timeout_ms=1000)
"""


class Sending(RangePartitionAssignor):
    """Joins with these bytes in place of a subscription."""

    def __init__(self, metadata):
        self._metadata = metadata

    def metadata(self, topics):
        return self._metadata


@pytest.fixture(autouse=True)
def no_calls():
    recorders.calls.clear()


def all_committed(kafka, group, topic, partitions, offset):
    return lambda: committed(kafka, group) == {(topic, p): offset for p in range(partitions)}


def partitions_of(query):
    return {tp.partition for tp in query.owned()}


def spread(queries, count):
    """Whether the queries own all partitions, none of them twice."""
    owned = [tp for query in queries for tp in query.owned()]
    return len(owned) == len(set(owned)) == count


def contiguous(ranges, partitions, end):
    for p in range(partitions):
        mine = sorted((r.start, r.end) for r in ranges if r.tp.partition == p)
        assert mine[0][0] == 0
        assert mine[-1][1] == end
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine))


class TestGenerationsOfBatches:
    def generations(self, kafka, topic, group, query):
        """Of three batches, each of which is committed before the next one is planned."""
        found = []
        for n in range(3):
            at = dict(committed(kafka, group))
            produce(kafka, topic, numbered(4, 4, first=4 * n))
            wait_until(
                lambda at=at: all(committed(kafka, group).get((topic, p), 0) > at.get((topic, p), 0) for p in range(4)),
                within=30,
            )
            found.append(query.driver._session.member.generation.id)
        return found

    @pytest.mark.parametrize(("policy", "begins"), [("auto", False), ("batch", True), ("stable", False)])
    def test_in_company_a_leader_begins_a_generation_with_a_batch_only_if_it_is_told_to(
        self, kafka, group, query_of, neighbour_of, policy, begins
    ):
        topic = topic_with(kafka, [], partitions=4)
        query = query_of(kafka, topic, group, **BOTH, generation=policy)
        wait_until(lambda: len(query.owned()) == 4, within=30)
        neighbour = neighbour_of(kafka, topic, group, heartbeat_interval_ms=100)
        wait_until(lambda: spread([query], 2) and len(neighbour.assignment()) == 2, within=30)
        assert query.driver._session.member.generation.leader
        first, _, last = self.generations(kafka, topic, group, query)
        assert last - first >= 2 if begins else last == first

    def test_a_follower_begins_no_generation_with_a_batch_whatever_it_is_told(
        self, kafka, group, query_of, neighbour_of
    ):
        topic = topic_with(kafka, [], partitions=4)
        neighbour = neighbour_of(kafka, topic, group, heartbeat_interval_ms=100)
        wait_until(lambda: len(neighbour.assignment()) == 4, within=30)
        query = query_of(kafka, topic, group, **BOTH, generation="batch")
        wait_until(lambda: spread([query], 2) and len(neighbour.assignment()) == 2, within=30)
        assert not query.driver._session.member.generation.leader
        first, _, last = self.generations(kafka, topic, group, query)
        assert last == first


class TestTriggers:
    def test_partitions_are_shared_with_a_member_that_joins_and_taken_back_when_it_leaves(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(40, 4), partitions=4)
        one = query_of(kafka, topic, group, **BOTH)
        wait_until(all_committed(kafka, group, topic, 4, 10), within=30)
        other = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: spread([one, other], 4) and len(other.owned()) == 2, within=30)
        produce(kafka, topic, numbered(40, 4))
        wait_until(all_committed(kafka, group, topic, 4, 20), within=30)
        other.end()
        other.driver.stop()
        wait_until(lambda: len(one.owned()) == 4, within=30)
        produce(kafka, topic, numbered(40, 4))
        wait_until(all_committed(kafka, group, topic, 4, 30), within=30)
        one.end()
        contiguous(one.ranges + other.ranges, 4, 30)
        assert {r.tp.partition for r in other.ranges} == {2, 3} or {r.tp.partition for r in other.ranges} == {0, 1}

    def test_a_member_that_crashes_is_missed_after_its_session(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        dying = subprocess.Popen([sys.executable, "-c", DYING_CONSUMER, kafka.bootstrap_servers, topic, group])
        try:
            settled(kafka, group, 1)
            query = query_of(kafka, topic, group, **BOTH)
            wait_until(lambda: len(query.owned()) == 1, within=30)
            settled(kafka, group, 2)
        finally:
            dying.kill()
            dying.wait()
        wait_until(lambda: len(query.owned()) == 2, within=30)
        wait_until(all_committed(kafka, group, topic, 2, 10), within=30)

    def test_a_consumer_that_does_not_poll_in_time_loses_its_partitions(self, kafka, group, query_of, neighbour_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        neighbour = neighbour_of(kafka, topic, group, max_poll_interval_ms=1500, heartbeat_interval_ms=300)
        query = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: len(query.owned()) == 1 and len(neighbour.assignment()) == 1, within=30)
        neighbour.freeze()
        wait_until(lambda: len(query.owned()) == 2, within=30)

    @pytest.mark.parametrize(
        ("metadata", "named"),
        [(b"\x00", True), (b"\0\0\0\0\0\1\0\3a b\0\0\0\0", False)],
        ids=["cut off", "of a topic that cannot be"],
    )
    def test_a_member_whose_subscription_cannot_be_assigned_gets_nothing(
        self, kafka, group, query_of, neighbour_of, caplog, metadata, named
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        query = query_of(kafka, topic, group, **BOTH)
        wait_until(all_committed(kafka, group, topic, 2, 10), within=30)
        neighbour_of(kafka, topic, group, partition_assignment_strategy=[Sending(metadata)])
        hostile = {member["member_id"]: member["client_host"] for member in settled(kafka, group, 2)}
        produce(kafka, topic, numbered(20, 2))
        wait_until(all_committed(kafka, group, topic, 2, 20), within=30)
        assert len(query.owned()) == 2
        said = [record.getMessage() for record in caplog.records if "subscription of member" in record.message]
        assert len(said) == named
        assert all(
            any(f"member {name} on {host} cannot be read" in text for name, host in hostile.items()) for text in said
        )

    def test_a_consumer_that_unsubscribes_from_a_topic_gives_its_partitions_up(
        self, kafka, group, query_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        other = topic_with(kafka, numbered(2, 1), partitions=1)
        query = query_of(kafka, topic, group, **BOTH)  # leads: kafka-python as leader would give our topic to no member
        wait_until(lambda: len(query.owned()) == 2, within=30)
        neighbour = neighbour_of(kafka, [topic, other], group)
        wait_until(lambda: len(query.owned()) == 1 and len(neighbour.assignment()) == 2, within=30)
        neighbour.subscribe([other])
        wait_until(lambda: len(query.owned()) == 2, within=30)
        wait_until(lambda: {tp.topic for tp in neighbour.assignment()} == {other}, within=30)

    def test_partitions_added_to_a_topic_are_dealt_and_read_from_their_first_record(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        one, other = query_of(kafka, topic, group, **BOTH), query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: spread([one, other], 2) and len(other.owned()) == 1, within=30)
        wait_until(all_committed(kafka, group, topic, 2, 10), within=30)
        kafka.add_partitions(topic, 4)
        produce(kafka, topic, [r._replace(partition=2 + r.partition) for r in numbered(20, 2)])
        wait_until(lambda: spread([one, other], 4) and len(one.owned()) == len(other.owned()) == 2, within=30)
        wait_until(all_committed(kafka, group, topic, 4, 10), within=30)

    @pytest.mark.soak
    def test_a_topic_that_is_deleted_is_given_up_and_the_others_go_on(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        doomed = topic_with(kafka, numbered(10, 1), partitions=1)
        query = query_of(kafka, f"{topic},{doomed}", group, **BOTH, failOnDataLoss=False)
        wait_until(lambda: len(query.owned()) == 3 and len(committed(kafka, group)) == 3, within=30)
        kafka.delete_topic(doomed)
        wait_until(lambda: len(query.owned()) == 2 or query.failure, within=60)
        produce(kafka, topic, numbered(20, 2))
        wait_until(lambda: committed(kafka, group).get((topic, 1)) == 20 or query.failure, within=30)
        assert query.failure is None

    def test_a_topic_that_is_deleted_while_its_records_are_in_the_running_batch_holds_no_other_up(
        self, kafka, group, driver_of, caplog
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        doomed = topic_with(kafka, numbered(10, 1), partitions=1)
        brief = {"kafka.default.api.timeout.ms": 3000, "failOnDataLoss": False}
        driver = driver_of(kafka, f"{topic},{doomed}", group, **BOTH | brief)
        end = driver.latest_offset(driver.initial_offset(), None)
        kafka.delete_topic(doomed)
        driver.latest_offset(end, None)
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
        assert f"not committed, as the partitions were deleted: {doomed}-0" in caplog.text
        produce(kafka, topic, numbered(20, 2))
        following = wait_until(lambda: (o := driver.latest_offset(end, None)) != end and o, within=30)
        assert following[topic] == {"0": 20, "1": 20}

    @pytest.fixture
    def led(self, kafka3, group, driver_of):
        """Plans a batch; gives the number of the node that coordinates, and functions that tell when the member knows
        another one, and that check the next batch."""

        def make(heartbeat_ms):
            topic = topic_with(kafka3, numbered(30, 3))
            beating = {"kafka.heartbeat.interval.ms": heartbeat_ms}
            driver = driver_of(kafka3, topic, group, generation="stable", **QUICK | beating)
            end = driver.latest_offset(driver.initial_offset(), 9)
            member = driver._session.member
            before, coordinator = member.generation, member.client._coordinator.coordinator_id

            def knows():
                return member.client._coordinator.coordinator_id not in (coordinator, None)

            def goes_on():
                following = driver.latest_offset(end, 9)
                assert committed(kafka3, group) == {(topic, p): 3 for p in range(3)}
                assert following["@group"]["generation"] == end["@group"]["generation"]
                assert member.generation == before
                assert knows()
                told = driver.report_latest_offset()["@group"]
                assert (told["membershipsLost"], told["rebalances"]) == (0, 0)

            return int(str(coordinator).removeprefix("coordinator-")), knows, goes_on

        return make

    @pytest.mark.parametrize("heartbeat_ms", [100, 10_000], ids=["heard by a heartbeat", "heard by the commit"])
    def test_a_coordinator_that_moves_is_no_rebalance(self, kafka3, group, led, heartbeat_ms):
        coordinator, knows, goes_on = led(heartbeat_ms)
        tp = KafkaTopicPartition("__consumer_offsets", coordinator_partition(group, 5))
        assert kafka3.leader(*tp) == coordinator
        others = [node.number for node in kafka3.nodes if node.number != coordinator]
        kafka3.admin.alter_partition_reassignments({tp: [*others, coordinator]})
        wait_until(lambda: not kafka3.admin.list_partition_reassignments(), within=30)
        kafka3.admin.elect_leaders(0, {tp.topic: [tp.partition]}, raise_errors=False)  # the preferred one
        wait_until(lambda: kafka3.leader(*tp) == others[0], within=30)
        if heartbeat_ms == 100:
            wait_until(knows, within=30)
        goes_on()

    @pytest.mark.soak
    def test_a_coordinator_that_dies_is_no_rebalance(self, kafka3, led):
        coordinator, _, goes_on = led(100)
        node = kafka3.node(coordinator - 1)
        node.kill()
        try:
            goes_on()
        finally:
            node.start()
            kafka3.wait_until_ready()


class TestDuringABatch:
    def test_a_rebalance_waits_for_the_commit_then_partitions_are_revoked_then_it_rejoins(
        self, kafka, group, query_of, neighbour_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        hooks = {"rebalanceListener": "recorders:Listener", "interceptors": "recorders:Commits"}
        query = query_of(kafka, topic, group, **BOTH | hooks)
        query.may_finish.clear()
        query.running.wait(30)
        neighbour = neighbour_of(kafka, topic, group)
        wait_until(lambda: kafka.group_state(group)[0] == "PreparingRebalance", within=30)
        wait_until(query.driver._session.member.client.rejoin_needed, within=30)
        assert recorders.calls == [("assigned", {0, 1})]
        assert partitions_of(query) == {0, 1}
        query.may_finish.set()
        wait_until(lambda: len(neighbour.assignment()) == 1, within=30)
        result = [call for call in recorders.calls if call[0] != "assigned"]
        assert result[:2] == [("committed", {0: 10, 1: 10}, "NoneType"), ("revoked", {0, 1})]
        wait_until(lambda: recorders.calls[-1][0] == "assigned" and len(query.owned()) == 1, within=30)
        assert recorders.calls.count(("revoked", {0, 1})) == 1
        assert neighbour.records == []

    def test_past_the_rebalance_timeout_the_member_is_lost_says_so_and_takes_positions_again(
        self, kafka, group, query_of, neighbour_of, caplog
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        hooks = {"rebalanceListener": "recorders:Listener", "kafka.max.poll.interval.ms": 1000}
        query = query_of(kafka, topic, group, **BOTH | hooks)
        query.may_finish.clear()
        query.running.wait(30)
        # The group waits as long as the most patient of its members.
        neighbour = neighbour_of(kafka, topic, group, max_poll_interval_ms=1500)
        wait_until(lambda: len(neighbour.assignment()) == 2, within=30)  # the driver was thrown out
        wait_until(all_committed(kafka, group, topic, 2, 10), within=30)
        query.may_finish.set()
        wait_until(lambda: len(query.owned()) == 1 and spread([query], 1), within=30)
        assert "not committed" in caplog.text
        assert "membership was lost; joining as a new member" in caplog.text
        assert ("lost", {0, 1}) in recorders.calls
        produce(kafka, topic, numbered(20, 2))
        wait_until(all_committed(kafka, group, topic, 2, 20), within=30)
        query.end()
        assert [(r.start, r.end) for r in query.ranges[:2]] == [(0, 10), (0, 10)]
        assert [r.start for r in query.ranges[2:]] == [10, *[r.end for r in query.ranges[2:-1]]]


class TestBetweenTriggers:
    def test_an_idle_driver_takes_part_although_spark_does_not_call(self, kafka, group, driver_of, query_of):
        topic = topic_with(kafka, [], partitions=2)
        idle = driver_of(kafka, topic, group, **BOTH)
        start = idle.initial_offset()
        assert idle.latest_offset(start, None) == start
        busy = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: len(busy.owned()) == 1, within=30)
        produce(kafka, topic, numbered(4, 2))
        wait_until(lambda: 2 in committed(kafka, group).values(), within=30)
        busy.end()
        busy.driver.stop()
        wait_until(lambda: len(idle._session.member.generation.assignment) == 2, within=30)
        end = idle.latest_offset(start, None)
        assert sum(end[topic].values()) == 4

    def test_a_member_that_is_removed_as_it_joins_outlives_a_late_request_of_its_own(
        self, kafka, group, driver_of, query_of
    ):
        topic = topic_with(kafka, [], partitions=4)
        settings = BOTH | {"kafka.session.timeout.ms": 6000}
        idle = driver_of(kafka, topic, group, **settings)
        idle.latest_offset(idle.initial_offset(), None)
        both = [Query(idle), query_of(kafka, topic, group, **settings)]
        wait_until(lambda: [len(query.owned()) for query in both] == [2, 2], within=30)
        busy = both[1]
        busy.may_finish.clear()
        produce(kafka, topic, numbered(40, 4))
        busy.running.wait(30)
        member = idle._session.member
        static_id = member.client._coordinator.group_instance_id

        def member_id():
            return next((m["member_id"] for m in members(kafka, group) if m["group_instance_id"] == static_id), None)

        member.client.request_rejoin()
        wait_until(member.client._rounds.under_way, within=30)
        throw_out(kafka, group, static_id)
        wait_until(lambda: member_id() not in (None, member.generation.member_id), within=30)  # it joins as a new one
        joined = member_id()
        late = new_client(kafka, topic, group, static_id, **settings)
        wait_until(lambda: late.join_within(100) or member_id() != joined, within=30)
        late.close()  # without LeaveGroup
        busy.may_finish.set()
        wait_until(lambda: spread(both, 4) and not member.client.rejoin_needed(), within=60)
        # The driver enters the generation a moment after its client.
        wait_until(lambda: member.generation.member_id == member_id(), within=60)

    def test_a_batch_whose_offsets_the_group_has_already_keeps_no_member_waiting(
        self, kafka, group, driver_of, query_of
    ):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        driver = driver_of(kafka, topic, group, **BOTH)
        end = driver.latest_offset(driver.initial_offset(), None)
        other = query_of(kafka, topic, group, **BOTH)
        wait_until(driver._session.member.client.rejoin_needed, within=30)
        session = driver._session
        assert session.committer.planned is not None
        # As GroupKafkaListener does in the user's process.
        batch = session.committer.planned
        from spark_kafka_group.values.commit_metadata import commit_metadata

        with driver._lock:
            session.member.client.commit(
                batch.ends, commit_metadata(session.query_id, batch.generation, 0), batch.generation
            )
        wait_until(lambda: len(other.owned()) == 1, within=30)
        produce(kafka, topic, numbered(20, 2))
        following = wait_until(lambda: (o := driver.latest_offset(end, None)) != end and o, within=30)
        driver.latest_offset(following, None)
        wait_until(all_committed(kafka, group, topic, 2, 20), within=30)

    def test_a_rebalance_that_takes_long_is_one_generation(self, kafka, group, driver_of, query_of):
        topic = topic_with(kafka, [], partitions=3)
        idle = driver_of(kafka, topic, group, **BOTH)  # leads, and waits for the busy one
        start = idle.initial_offset()
        idle.latest_offset(start, None)
        busy = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: len(busy.owned()) in (1, 2), within=30)
        busy.may_finish.clear()
        produce(kafka, topic, numbered(30, 3))
        busy.running.wait(30)
        settled(kafka, group, 2)
        generation = idle._session.member.generation.id
        third = query_of(kafka, topic, group, **BOTH)
        wait_until(idle._session.member.client.rejoin_needed, within=30)
        held = time.monotonic() + 2.2  # longer than the patience of the idle one, several times
        wait_until(lambda: time.monotonic() > held, within=30)
        busy.may_finish.set()
        wait_until(lambda: len(third.owned()) == len(busy.owned()) == 1, within=30)
        assert settled(kafka, group, 3)
        assert third.driver._session.member.generation.id == generation + 1

    def test_a_position_of_which_the_group_has_nothing_is_handed_over(self, kafka, group, driver_of, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        latest = QUICK | {"startingOffsets": "group", "kafka.auto.offset.reset": "latest"}
        first = driver_of(kafka, topic, group, **latest)
        start = first.initial_offset()
        assert first.latest_offset(start, None) == start  # at 10 in both partitions, and no batch yet
        produce(kafka, topic, numbered(20, 2))
        second = query_of(kafka, topic, group, **latest)
        wait_until(lambda: len(committed(kafka, group)) == 2 and 20 in committed(kafka, group).values(), within=30)
        wait_until(lambda: second.ranges, within=30)
        assert [(r.start, r.end) for r in second.ranges] == [(10, 20)]
        end = first.latest_offset(start, None)
        assert sum(end[topic].values()) == 20


class TestRoles:
    @pytest.mark.parametrize("strategy", ["range", "roundrobin"])
    def test_a_driver_follows_where_another_consumer_leads(self, kafka, group, query_of, neighbour_of, strategy):
        topic = topic_with(kafka, numbered(40, 4), partitions=4)
        neighbour = neighbour_of(kafka, topic, group)
        wait_until(lambda: len(neighbour.assignment()) == 4, within=30)
        query = query_of(kafka, topic, group, **BOTH | {"kafka.partition.assignment.strategy": strategy})
        wait_until(lambda: len(query.owned()) == 2, within=30)
        assert not query.driver._session.member.generation.leader
        assert query.driver._session.member.generation.strategy == strategy
        produce(kafka, topic, numbered(40, 4))
        wait_until(all_committed(kafka, group, topic, 4, 20), within=30)
        neighbour.close()
        wait_until(lambda: len(query.owned()) == 4 and query.driver._session.member.generation.leader, within=30)

    def test_more_drivers_than_partitions_one_idles_stays_a_member_and_takes_over(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        queries = [query_of(kafka, topic, group, **BOTH) for _ in range(3)]
        settled(kafka, group, 3)

        def only_idle():
            idle = [query for query in queries if not query.owned()]
            return spread(queries, 2) and len(idle) == 1 and idle[0]

        idle = wait_until(only_idle, within=30)
        wait_until(lambda: idle.driver._session.member._generation, within=30)
        generation = idle.driver._session.member.generation.id
        wait_until(all_committed(kafka, group, topic, 2, 10), within=30)
        assert idle.driver._session.member.generation.id == generation  # with others there, batches start none
        working = next(query for query in queries if query.owned())
        working.end()
        working.driver.stop()
        wait_until(lambda: len(idle.owned()) == 1, within=30)
        produce(kafka, topic, numbered(20, 2))
        wait_until(all_committed(kafka, group, topic, 2, 20), within=30)

    def test_a_static_member_that_restarts_within_its_session_is_no_rebalance(self, kafka, group, driver_of, query_of):
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        leader = query_of(kafka, topic, group, **BOTH)
        wait_until(lambda: len(leader.owned()) == 2, within=30)
        static = BOTH | {"kafka.group.instance.id": "mine"}
        first = driver_of(kafka, topic, group, **static)
        first.latest_offset(first.initial_offset(), None)
        settled(kafka, group, 2)
        before, rebalances = first._session.member.generation, leader.driver._session.metrics.rebalances
        first.stop()
        again = driver_of(kafka, topic, group, **static)
        again.latest_offset(again.initial_offset(), None)
        after = again._session.member.generation
        assert (after.id, after.assignment) == (before.id, before.assignment)
        assert after.member_id != before.member_id
        assert leader.driver._session.metrics.rebalances == rebalances

    def test_a_static_leader_that_restarts_within_its_session_still_notices_new_partitions(
        self, kafka, group, driver_of
    ):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        static = BOTH | {"kafka.group.instance.id": "mine"}
        first = driver_of(kafka, topic, group, **static)
        end = first.latest_offset(first.initial_offset(), None)
        assert first.latest_offset(end, None) == end
        first.stop()
        assert len(members(kafka, group)) == 1
        again = driver_of(kafka, topic, group, **static)
        assert again.latest_offset(end, None) == end
        assert again._session.member.generation.leader
        kafka.add_partitions(topic, 2)
        produce(kafka, topic, [r._replace(partition=1) for r in numbered(4, 1)])
        following = wait_until(lambda: (o := again.latest_offset(end, None)) != end and o, within=30)
        assert following[topic]["1"] == 4

    @pytest.mark.parametrize("strategy", ["range", "sticky"])
    def test_a_static_follower_that_comes_back_with_other_topics_reads_these(
        self, kafka, group, driver_of, query_of, strategy
    ):
        topics = [topic_with(kafka, [], partitions=2) for _ in range(2)]
        settings = BOTH | {"kafka.partition.assignment.strategy": strategy}
        leader = query_of(kafka, topics[0], group, **settings)
        wait_until(lambda: len(leader.owned()) == 2, within=30)

        for subscribed in (topics[0], ",".join(topics), topics[1]):
            driver = driver_of(kafka, subscribed, group, **settings | {"kafka.group.instance.id": "mine"})
            driver.latest_offset(driver.initial_offset(), None)
            member, wanted = driver._session.member, subscribed.split(",")

            def has_its_share(m=member, w=wanted):
                dealt = {tp.topic for tp in m.generation.assignment}
                return w[-1] in dealt and dealt <= set(w)

            wait_until(has_its_share, within=30)
            assert not member.generation.leader
            driver.stop()


class TestStrategies:
    @pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
    def test_each_strategy_deals_all_partitions_and_hands_over_without_gap_or_repeat(
        self, kafka, group, query_of, strategy
    ):
        topic = topic_with(kafka, numbered(60, 6), partitions=6)
        settings = BOTH | {"kafka.partition.assignment.strategy": strategy}
        queries = [query_of(kafka, topic, group, **settings) for _ in range(2)]
        wait_until(lambda: spread(queries, 6) and all(len(q.owned()) == 3 for q in queries), within=30)
        wait_until(all_committed(kafka, group, topic, 6, 10), within=30)
        third = query_of(kafka, topic, group, **settings)
        everybody = [*queries, third]
        wait_until(lambda: spread(everybody, 6) and all(len(q.owned()) == 2 for q in everybody), within=30)
        produce(kafka, topic, numbered(60, 6))
        wait_until(all_committed(kafka, group, topic, 6, 20), within=30)
        assert third.driver._session.member.generation.strategy == strategy
        for query in everybody:
            query.end()
        contiguous([r for query in everybody for r in query.ranges], 6, 20)

    def test_the_members_vote_for_the_strategy(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(6, 6), partitions=6)
        lists = ["range,roundrobin", "roundrobin,range", "roundrobin,range"]
        queries = [
            query_of(kafka, topic, group, **BOTH | {"kafka.partition.assignment.strategy": names}) for names in lists
        ]
        settled(kafka, group, 3)
        wait_until(
            lambda: {q.driver._session.member.generation.strategy for q in queries if q.owned()} == {"roundrobin"},
            within=30,
        )

    def test_without_a_strategy_in_common_the_newcomer_is_refused(self, kafka, group, driver_of):
        topic = topic_with(kafka, numbered(6, 6), partitions=6)
        first = driver_of(kafka, topic, group, **{"kafka.partition.assignment.strategy": "range"})
        first.latest_offset(first.initial_offset(), None)
        other = driver_of(kafka, topic, group, **{"kafka.partition.assignment.strategy": "sticky"})
        with pytest.raises(MembershipError, match="sticky"):
            other.latest_offset(other.initial_offset(), None)

    def test_a_strategy_of_the_users_own_assigns(self, kafka, group, query_of):
        topic = topic_with(kafka, numbered(6, 2), partitions=2)
        settings = BOTH | {"kafka.partition.assignment.strategy": "recorders:Reverse"}
        queries = [query_of(kafka, topic, group, **settings) for _ in range(2)]
        settled(kafka, group, 2)
        wait_until(lambda: sorted(len(query.owned()) for query in queries) == [0, 2], within=30)

    def test_partitions_that_a_strategy_gives_to_no_member_are_a_warning(self, kafka, group, driver_of, caplog):
        topic = topic_with(kafka, numbered(6, 2), partitions=2)
        driver = driver_of(kafka, topic, group, **{"kafka.partition.assignment.strategy": "recorders:First"})
        assert driver.latest_offset(driver.initial_offset(), None)[topic] == {"0": 3}
        assert f"no member reads all partitions of {topic}" in caplog.text

    def test_topics_that_only_others_read_are_dealt_at_once(self, kafka, group, query_of, neighbour_of):
        mine = topic_with(kafka, numbered(2, 2), partitions=2)
        theirs = topic_with(kafka, numbered(2, 2), partitions=2)
        query = query_of(kafka, mine, group, **BOTH | {"kafka.metadata.max.age.ms": 300_000})
        wait_until(lambda: len(query.owned()) == 2, within=30)
        began = time.monotonic()
        neighbour = neighbour_of(kafka, theirs, group)
        wait_until(lambda: len(neighbour.assignment()) == 2, within=30)
        assert query.driver._session.member.generation.leader
        assert time.monotonic() - began < 20
        wait_until(lambda: len(neighbour.records) == 2, within=30)


def test_a_group_in_use_can_neither_be_reset_nor_deleted(kafka, group, query_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    query_of(kafka, topic, group, **BOTH)
    wait_until(all_committed(kafka, group, topic, 2, 10), within=30)
    reset = ["--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute"]
    assert "inactive" in kafka.consumer_groups(*reset).lower()
    kafka_says = kafka.consumer_groups("--delete-offsets", "--group", group, "--topic", topic)
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in kafka_says or "subscribed" in kafka_says.lower()
    assert "GroupNotEmptyException" in kafka.consumer_groups("--delete", "--group", group)
    assert committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}
    assert len(members(kafka, group)) == 1
