"""Groups with members of Kafka's newer protocol (KIP-848) besides a query, which speaks the classic one."""

import json

import pytest
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group.driver.membership.member import BROKER_ASSIGNS, MEMBERS_ASSIGN
from spark_kafka_group.driver.stream import StreamDriver
from spark_kafka_group.errors import MembershipError
from spark_kafka_group.options import Options
from spark_kafka_group.testing import wait_until
from spark_kafka_group.tools import describe, reset
from spark_kafka_group.tools.arguments import ToolError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.admin import GroupAdmin
from spark_kafka_group.wire.group.non_member import NonMemberCommitter

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 300}


def admin_of(kafka, topic):
    return GroupAdmin(Options.parse(options(kafka, topic)))


def commit_outside(kafka, topic, group, batch, reader):
    """Commit a planned batch as GroupKafkaListener does; returns the committed offsets."""
    with NonMemberCommitter(Options.parse(options(kafka, topic, group)), group) as outside:
        ends = batch.ends
        note = json.dumps({"reader": reader, "generation": batch.generation, "batch": batch.end.batch})
        return outside.commit(list(ends), lambda found: ends, note, batch.generation, f"groupkafka-{reader}").offsets


def test_members_of_both_protocols_are_seen_by_everybody_who_asks(kafka, group, query_of, newer_neighbour_of, caplog):
    topic = topic_with(kafka, numbered(40, 4), partitions=4)
    query = query_of(kafka, topic, group, **QUICK)
    wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(4)}, within=30)
    assert query.driver.report_latest_offset()["@group"]["protocol"] == "classic"
    neighbour = newer_neighbour_of(kafka, topic, group)
    with admin_of(kafka, topic) as admin:
        wait_until(lambda: [len(m.assigned) for m in admin.describe(group).members] == [2, 2], within=60)
        wait_until(lambda: len(query.owned()) == 2, within=30)
        assert caplog.text.count(f"group {group}: {BROKER_ASSIGNS}") == 1
        wait_until(lambda: query.driver.report_latest_offset()["@group"]["protocol"] == "consumer", within=30)
        assert MEMBERS_ASSIGN not in caplog.text

        wait_until(lambda: query.driver.report_latest_offset()["@group"]["strategy"] == "uniform", within=30)

        report = describe.look(admin, group, lambda: 0.0)
        assert (report.state, report.problem) == ("Stable", None)
        assert report.generation == query.driver._session.member.generation.id
        line = f"group {group}: Stable, type consumer, epoch {report.generation}, assignor uniform, coordinator "
        assert describe.as_text(report).startswith(line)
        (own,) = [member for member in report.members if member.instance_id]
        assert set(own.assigned) == query.owned()
        assert sorted((m.protocol, m.epoch) for m in report.members) == [
            ("classic", report.generation),
            ("consumer", report.generation),
        ]
        headers = "CONSUMER-ID  INSTANCE-ID  CLIENT-ID  HOST  PROTOCOL  EPOCH  PARTITIONS"
        assert describe.as_text(report).splitlines()[2].split() == headers.split()
        assert {tp for member in report.members for tp in member.assigned} == {
            TopicPartition(topic, p) for p in range(4)
        }
        kafkas = {(row.partition, row.current_offset, row.consumer_id) for row in kafka.describe_group(group)}
        assert {(row.tp.partition, row.current_offset, row.owner.member_id) for row in report.partitions} == kafkas

        with pytest.raises(ToolError, match=f"group {group} is Stable with .*{own.member_id}"):
            reset.check_idle(admin, group)

        assigned = options(kafka, topic, group, assign=json.dumps({topic: [0]}))
        del assigned["subscribe"]
        assigning = StreamDriver(Options.parse(assigned))
        with pytest.raises(MembershipError, match=f"group {group} has members .*{own.instance_id}"):
            assigning.latest_offset(assigning.initial_offset(), 2)
        assigning.stop()
        assert committed(kafka, group)[topic, 0] == 10

        neighbour.close()
        wait_until(lambda: len(query.owned()) == 4, within=60)
        (left,) = wait_until(lambda: admin.describe(group).members, within=30)
        assert (left.instance_id, left.assigned) == (own.instance_id, query.owned())
    assert caplog.text.count(f"group {group}: {BROKER_ASSIGNS}") == 1
    assert caplog.text.count(f"group {group}: {MEMBERS_ASSIGN}") == 1
    assert query.driver.report_latest_offset()["@group"]["protocol"] == "classic"
    assert query.driver.report_latest_offset()["@group"]["strategy"] == "range"
    assert query.driver._session.member.generation.leader


class ToTheFirst:
    """Gives everything to one member, and counts how often it is asked."""

    name = "to-the-first"
    asked = 0

    def assign(self, members, partitions):
        type(self).asked += 1
        first = min(member.instance_id or member.member_id for member in members)
        given = [(topic, p) for topic, numbers in partitions.items() for p in numbers]
        return {m.member_id: given if first in (m.instance_id, m.member_id) else [] for m in members}


def test_a_strategy_of_the_users_own_lets_newer_members_in_and_assigns_again_when_they_have_left(
    kafka, group, query_of, librdkafka_of
):
    topic = topic_with(kafka, numbered(40, 4), partitions=4)
    own = {"kafka.partition.assignment.strategy": f"{__name__}:{ToTheFirst.__name__}"}
    query = query_of(kafka, topic, group, **QUICK, **own)
    wait_until(lambda: committed(kafka, group) == {(topic, p): 10 for p in range(4)}, within=30)
    neighbour = librdkafka_of(kafka, topic, group)
    wait_until(lambda: len(query.owned()) == 2, within=60)
    asked = ToTheFirst.asked
    assert asked > 0
    produce(kafka, topic, numbered(40, 4, 40))
    wait_until(lambda: sum(committed(kafka, group).values()) == 80, within=30)
    assert ToTheFirst.asked == asked
    neighbour.close()
    wait_until(lambda: len(query.owned()) == 4, within=60)
    assert ToTheFirst.asked > asked
    assert query.driver._session.member.generation.strategy == "to-the-first"


@pytest.mark.soak
def test_a_rebalance_in_a_group_of_the_newer_protocol_is_not_held_up_by_a_batch_that_was_committed_from_outside(
    kafka, group, driver_of, newer_neighbour_of
):
    topic = topic_with(kafka, numbered(6, 6), partitions=6)
    newer_neighbour_of(kafka, topic, group)
    wait_until(lambda: committed(kafka, group) == {(topic, p): 1 for p in range(6)}, within=60)
    driver = driver_of(kafka, topic, group, startingOffsets="group", **QUICK)
    offset = driver.initial_offset()
    wait_until(lambda: driver.latest_offset(offset, None) and len(owned(driver)) == 3, within=60)
    produce(kafka, topic, numbered(60, 6))
    end = wait_until(lambda: planned(driver, offset), within=30)
    driver.plan(offset, end)

    newer_neighbour_of(kafka, topic, group)
    with admin_of(kafka, topic) as admin:
        wait_until(lambda: len(admin.describe(group).members) == 3, within=60)
        wait_until(lambda: driver._session.member.client.rejoin_needed(), within=30)
        batch = driver._session.committer.planned
        assert committed(kafka, group).items() >= {tuple(tp): r for tp, r in batch.reads_from.items()}.items()
        assert commit_outside(kafka, topic, group, batch, driver._session.query_id) == batch.ends
        wait_until(lambda: [len(m.assigned) for m in admin.describe(group).members] == [2, 2, 2], within=30)
    assert len(owned(driver)) == 2
    assert {committed(kafka, group)[tuple(tp)] for tp in batch.ends} == {11}


def owned(driver):
    return set(driver._session.member.generation.assignment)


def planned(driver, offset):
    """The end of a batch, if one could be planned."""
    end = driver.latest_offset(offset, None)
    return end if end != offset else None
