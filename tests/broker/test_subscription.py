"""Subscriptions of a driver: topics, topics by pattern, assigned partitions."""

import contextlib
import functools
import json

import pytest
from kafka import KafkaConsumer
from running import settled
from support import commit_for, committed, members, name, numbered, options, produce, topic_with

from spark_kafka_group import MembershipError
from spark_kafka_group.driver.backlog.absent import AwaitedTopics
from spark_kafka_group.driver.committer import Committer
from spark_kafka_group.driver.membership.manual_assignment import ManualAssignment
from spark_kafka_group.driver.membership.member_protocol import Joined
from spark_kafka_group.driver.positions import lookup
from spark_kafka_group.driver.query import Query
from spark_kafka_group.driver.steps import backlog
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import DataLossError, OptionError
from spark_kafka_group.options import Options
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.commit_metadata import commit_metadata
from spark_kafka_group.values.offsets import GroupOffset, OffsetRange, TopicPartition
from spark_kafka_group.wire import GroupClient

QUICK = {"kafka.metadata.max.age.ms": 300}


def driver_for(made, kafka, group, subscription, **more):
    """A driver with another subscription than to one topic."""
    settings = options(kafka, "unused", group, **more)
    del settings["subscribe"]
    driver = StreamDriver(Options.parse(settings | subscription))
    made.append(driver)
    return driver


@pytest.fixture
def made():
    drivers = []
    yield drivers
    for driver in drivers:
        driver.stop()


def make(kafka, topic, count=3):
    kafka.create_topic(topic)
    produce(kafka, topic, numbered(count, 1))
    return topic


def test_several_unrelated_topics_are_read_together(kafka, group, made):
    one, other = topic_with(kafka, numbered(6, 2), partitions=2), topic_with(kafka, numbered(3, 1), partitions=1)
    driver = driver_for(made, kafka, group, {"subscribe": f"{one},{other}"})
    end = driver.latest_offset(driver.initial_offset(), None)
    assert (end[one], end[other]) == ({"0": 3, "1": 3}, {"0": 3})


@pytest.mark.parametrize("there", [False, True], ids=["missing", "empty"])
def test_a_topic_that_stays_missing_or_empty_is_named_again(kafka, group, made, monkeypatch, caplog, there):
    now = [0.0]
    monkeypatch.setattr(backlog, "AwaitedTopics", functools.partial(AwaitedTopics, clock=lambda: now[0]))
    one, typo = topic_with(kafka, numbered(2, 1), partitions=1), name("typo")
    if there:
        kafka.create_topic(typo)
    driver = driver_for(made, kafka, group, {"subscribe": f"{one},{typo}"})
    end = driver.latest_offset(driver.initial_offset(), None)
    for minutes in (0, 9, 10):
        now[0] = 60.0 * minutes
        assert "still no" not in caplog.text
        produce(kafka, one, numbered(1, 1))
        end = driver.latest_offset(end, None)
    named = f"record in topic {typo}: is its name right?" if there else f"topic {typo}: create it, or correct its name"
    assert f"group {group}: still no {named}" in caplog.text
    assert caplog.text.count("still no") == 1


@pytest.mark.parametrize("subscription", ["subscribe", "subscribePattern"])
def test_a_missing_topic_is_named_once_however_long_another_member_delays_the_join(kafka, group, caplog, subscription):
    other, typo = kafka.create_topic(name("other")), name("typo")
    consumer = KafkaConsumer(other, bootstrap_servers=kafka.bootstrap_servers, group_id=group)
    wait_until(lambda: consumer.partitions_for_topic(other), within=30)  # a leader without it assigns nothing
    wait_until(lambda: consumer.poll(timeout_ms=100) or consumer.assignment(), within=30)  # and polls no more
    settings = options(kafka, "unused", group)
    del settings["subscribe"]
    member = Query.started(Options.parse(settings | {subscription: typo}), "reader", GroupOffset({})).member
    for _ in range(3):
        assert member.ensure(300.0) is Joined.NOT_YET
    member.stop()
    assert caplog.text.count("the cluster lacks topics" if subscription == "subscribe" else "no topic matches") == 1
    consumer.close(autocommit=False)


class TestAvailableNow:
    @pytest.fixture(autouse=True)
    def _looked_up_quickly(self, monkeypatch):
        monkeypatch.setattr(lookup, "PAUSE_S", 0.01)

    def test_a_topic_that_does_not_exist_is_an_error_before_the_query_joins(self, kafka, group, made):
        one, typo = topic_with(kafka, numbered(3, 1), partitions=1), name("typo")
        driver = driver_for(made, kafka, group, {"subscribe": f"{one},{typo}"})
        driver.prepare_available_now()
        with pytest.raises(OptionError, match=f"^subscribe names {typo}, which the cluster does not have: create it"):
            driver.latest_offset(driver.initial_offset())
        assert kafka.group_state(group)[0] == "Dead"

    def test_retry_topics_may_be_missing(self, kafka, group, made):
        topic = topic_with(kafka, numbered(3, 1), partitions=1)
        driver = driver_for(made, kafka, group, {"subscribe": topic, "retryTopics": "5000"})
        driver.prepare_available_now()
        assert driver.latest_offset(driver.initial_offset())[topic] == {"0": 3}

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_topic_that_was_read_and_deleted_is_a_matter_of_fail_on_data_loss(self, kafka, group, made, fails):
        one, gone = (topic_with(kafka, numbered(3, 1), partitions=1) for _ in range(2))
        subscription = {"subscribe": f"{one},{gone}"}
        before = driver_for(made, kafka, group, subscription)
        end = before.latest_offset(before.initial_offset())
        before.latest_offset(end)
        before.stop()
        kafka.delete_topic(gone)
        driver = driver_for(made, kafka, group, subscription, failOnDataLoss=fails)
        driver.prepare_available_now()
        with pytest.raises(DataLossError, match=gone) if fails else contextlib.nullcontext():
            assert driver.latest_offset(end)[one] == {"0": 3}


class TestPattern:
    @pytest.mark.parametrize("whole", [False, True], ids=["anywhere", "whole names"])
    def test_a_pattern_has_the_topics_in_whose_name_it_is_found_also_one_made_just_before(
        self, kafka, group, made, whole
    ):
        prefix = name("p")
        mine, others = make(kafka, f"{prefix}.eu"), {make(kafka, f"{prefix}.eu.old"), make(kafka, f"x{prefix}.eu")}
        pattern = rf"{prefix.upper()}\.[a-z]+"
        driver = driver_for(made, kafka, group, {"subscribePattern": f"(?i)^{pattern}$" if whole else f"(?i){pattern}"})
        end = driver.latest_offset(driver.initial_offset(), None)
        assert set(end) == {mine, "@group"} | (set() if whole else others)

    @pytest.mark.parametrize("quick", [QUICK, {"partition.metadata.cache.ttl.ms": 300}], ids=["kafka's", "spark's"])
    def test_a_topic_made_later_joins_without_a_restart_from_its_first_record(self, kafka, group, made, quick):
        prefix = name("p")
        make(kafka, f"{prefix}-a")
        driver = driver_for(
            made, kafka, group, {"subscribePattern": f"{prefix}-."}, **quick | {"startingOffsets": "latest"}
        )
        start = driver.initial_offset()
        assert driver.latest_offset(start, None) == start
        make(kafka, f"{prefix}-b")
        end = wait_until(lambda: (o := driver.latest_offset(start, None)) != start and o, within=20)
        assert end["@group"]["from"][f"{prefix}-b"] == {"0": 0}
        assert end[f"{prefix}-b"] == {"0": 3}

    def test_internal_topics_never_match(self, group, made):
        with KafkaCluster() as kafka:
            topic = make(kafka, name("t"))
            make(kafka, DECISION_TOPIC)
            commit_for(kafka, group, {(topic, 0): 1})  # so that there is an offsets topic
            driver = driver_for(made, kafka, group, {"subscribePattern": f"{topic}|__.*"})
            end = driver.latest_offset(driver.initial_offset(), None)
            assert {tp.topic for tp in driver._session.member.generation.assignment} == {topic}
            assert set(end) == {topic, "@group"}
            driver.stop()


class TestAssign:
    def test_assign_reads_its_partitions_commits_and_is_no_member(self, kafka, group, made):
        topic = topic_with(kafka, numbered(30, 3))
        driver = driver_for(made, kafka, group, {"assign": json.dumps({topic: [0, 2]})})
        end = driver.latest_offset(driver.initial_offset(), None)
        assert end[topic] == {"0": 10, "2": 10}
        assert driver.latest_offset(end, None) == end
        assert committed(kafka, group) == {(topic, 0): 10, (topic, 2): 10}
        assert kafka.group_state(group) == ("Empty", [])
        assert json.loads(kafka.committed(group)[topic, 0][1])["generation"] == -1

    def test_assign_goes_on_after_a_restart(self, kafka, group, made):
        topic = topic_with(kafka, numbered(30, 3))
        subscription = {"assign": json.dumps({topic: [1]})}
        first = driver_for(made, kafka, group, subscription)
        end = first.latest_offset(first.initial_offset(), 4)
        assert first.latest_offset(end, 4) != end
        first.stop()
        again = driver_for(made, kafka, group, subscription)
        assert again.latest_offset(end, None)[topic] == {"1": 10}

    def test_assign_makes_no_group_before_its_first_commit(self, kafka, group, made):
        topic = topic_with(kafka, numbered(3, 1), partitions=1)
        driver = driver_for(made, kafka, group, {"assign": json.dumps({topic: [0]})})
        driver.latest_offset(driver.initial_offset(), None)
        assert kafka.group_state(group) == ("Dead", [])

    @pytest.mark.parametrize("at", [2, 7])
    def test_assign_goes_on_after_its_first_batch_has_failed_whatever_the_group_had(self, kafka, group, made, at):
        topic = topic_with(kafka, numbered(10, 1), partitions=1)
        commit_for(kafka, group, {(topic, 0): at})
        subscription = {"assign": json.dumps({topic: [0]})}
        first = driver_for(made, kafka, group, subscription)
        start = first.initial_offset()
        end = first.latest_offset(start, 4)
        assert committed(kafka, group) == {(topic, 0): 0}
        first.plan(start, end)
        first.stop()
        again = driver_for(made, kafka, group, subscription)
        assert again.plan(start, end) == [(OffsetRange(TopicPartition(topic, 0), 0, 4),)]
        after = again.latest_offset(end, None)
        assert again.plan(end, after) == [(OffsetRange(TopicPartition(topic, 0), 4, 10),)]

    def test_a_group_with_live_members_is_refused_before_the_first_commit(self, kafka, group, made, neighbour_of):
        topic, other = (topic_with(kafka, numbered(3, 1), partitions=1) for _ in range(2))
        neighbour_of(kafka, topic, group)
        wait_until(lambda: committed(kafka, group) == {(topic, 0): 3}, within=30)
        (member,) = members(kafka, group)
        refused = f"has members .{member['member_id']}., so Kafka refuses the commits"
        driver = driver_for(made, kafka, group, {"assign": json.dumps({topic: [0]})})
        with pytest.raises(MembershipError, match=refused):
            driver.latest_offset(driver.initial_offset(), 2)
        driver = driver_for(made, kafka, group, {"assign": json.dumps({other: [0]})})
        end = driver.latest_offset(driver.initial_offset(), 2)
        assert end[other] == {"0": 2}, "the group has no offset of it that would have to be set"
        with pytest.raises(MembershipError, match=refused):
            driver.latest_offset(end, None)
        assert committed(kafka, group) == {(topic, 0): 3}

    def test_offsets_of_another_writer_are_a_warning(self, kafka, group, made, caplog):
        topic = topic_with(kafka, numbered(3, 1), partitions=1)
        commit_for(kafka, group, {(topic, 0): 1})
        driver = driver_for(made, kafka, group, {"assign": json.dumps({topic: [0]})})
        end = driver.latest_offset(driver.initial_offset(), None)
        assert driver.latest_offset(end, None) == end
        assert f"{topic}-0: another program committed offset 1" in caplog.text
        assert committed(kafka, group) == {(topic, 0): 3}

    def test_an_offset_that_somebody_commits_while_positions_are_taken_is_where_assign_starts(
        self, kafka, group, made, monkeypatch
    ):
        topic = topic_with(kafka, numbered(5, 1), partitions=1)
        commit_for(kafka, group, {(topic, 0): 1})
        check = ManualAssignment.check_may_commit

        def somebody_commits_meanwhile(member):  # nothing outside can hit the moment
            check(member)
            if committed(kafka, group) == {(topic, 0): 1}:
                commit_for(kafka, group, {(topic, 0): 3})

        monkeypatch.setattr(ManualAssignment, "check_may_commit", somebody_commits_meanwhile)
        driver = driver_for(made, kafka, group, {"assign": json.dumps({topic: [0]})}, startingOffsets="group")
        start = driver.initial_offset()
        end = wait_until(lambda: (planned := driver.latest_offset(start, None)) != start and planned, within=30)
        assert GroupOffset.from_json(end).ranges(GroupOffset.from_json(start)) == [
            OffsetRange(TopicPartition(topic, 0), 3, 5)
        ]
        assert committed(kafka, group) == {(topic, 0): 3}
        driver.latest_offset(end, None)
        assert committed(kafka, group) == {(topic, 0): 5}

    def test_partitions_that_do_not_exist_are_named(self, kafka, group, made):
        topic = topic_with(kafka, numbered(3, 1), partitions=1)
        driver = driver_for(made, kafka, group, {"assign": json.dumps({topic: [0, 7]})})
        with pytest.raises(MembershipError, match=f"assign names {topic}-7, which the cluster does not have"):
            driver.latest_offset(driver.initial_offset(), None)

    @pytest.mark.parametrize("step", [(GroupClient, "commit"), (Committer, "try_metadata")], ids=lambda s: s[1])
    def test_an_offset_that_somebody_commits_while_notes_are_looked_for_is_where_assign_starts(
        self, kafka, group, made, monkeypatch, caplog, step
    ):
        topic = topic_with(kafka, numbered(5, 1), partitions=1)
        assigned = {"assign": json.dumps({topic: [0]})}
        driver = driver_for(made, kafka, group, assigned)
        start = driver.latest_offset(driver.initial_offset(), None)
        assert driver.latest_offset(start, None) == start
        driver.stop()
        commit_for(kafka, group, {(topic, 0): 1})
        taken = getattr(*step)

        def somebody_commits_then(*arguments, **more):  # nothing outside can hit the moment
            taken(*arguments, **more)
            if committed(kafka, group) == {(topic, 0): 1}:
                commit_for(kafka, group, {(topic, 0): 3})

        monkeypatch.setattr(*step, somebody_commits_then)
        again = driver_for(made, kafka, group, assigned)
        end = wait_until(lambda: (planned := again.latest_offset(start, None)) != start and planned, within=30)
        assert again.plan(start, end) == [(OffsetRange(TopicPartition(topic, 0), 3, 5),)]
        assert "do not keep the metadata" not in caplog.text


def test_the_note_of_a_commit_is_read_by_every_tool(kafka, group, query_of):
    topic = topic_with(kafka, numbered(3, 1), partitions=1)
    query = query_of(kafka, topic, group)
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 3}, within=30)
    settled(kafka, group, 1)
    session = query.driver._session
    assert kafka.committed(group)[topic, 0][1] == commit_metadata(session.query_id, session.member.generation.id, 0)
