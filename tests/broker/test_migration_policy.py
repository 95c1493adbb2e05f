"""The broker's group.consumer.migration.policy: which way a group with members of both protocols may go."""

import pytest
from running import QUICK_EPOCHS
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group.driver.membership.member import MEMBERS_ASSIGN
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.wire.admin import GroupAdmin

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 300}
GIVES_BACK = ("bidirectional", "downgrade")
TAKES_OVER = ("bidirectional", "upgrade")


@pytest.fixture(
    scope="module",
    params=["upgrade", *[pytest.param(p, marks=pytest.mark.soak) for p in ("bidirectional", "downgrade", "disabled")]],
)
def policy(request):
    return request.param


@pytest.fixture(scope="module")
def kafka(policy):
    """A broker with that policy, in place of the one of all tests."""
    with KafkaCluster(properties=QUICK_EPOCHS | {"group.consumer.migration.policy": policy}) as one:
        yield one


@pytest.fixture
def seen(kafka, group):
    """Looks at the group's kind, and at the sizes of its members' shares."""
    with GroupAdmin(Options.parse(options(kafka, "t"))) as admin:

        def look():
            found = admin.describe(group)
            return found.kind, sorted(len(member.assigned) for member in found.members)

        yield look


def read_by(*members):
    """Places of all records that these have read."""
    found = []
    for member in members:
        if hasattr(member, "places"):
            found += member.places()
        else:
            found += [(r.tp.partition, offset) for r in member.ranges for offset in range(r.start, r.end)]
    return sorted(found)


@pytest.mark.soak
def test_a_query_has_its_partitions_back_when_a_newer_member_has_gone(
    kafka, policy, group, seen, query_of, librdkafka_of, caplog
):
    topic = topic_with(kafka, numbered(60, 6), partitions=6)
    query = query_of(kafka, topic, group, **QUICK)
    wait_until(lambda: sum(committed(kafka, group).values()) == 60, within=30)
    newer = librdkafka_of(kafka, topic, group)
    if policy not in TAKES_OVER:
        assert "group id does not exist" in wait_until(newer.refused, within=30)
    else:
        wait_until(lambda: seen() == ("consumer", [3, 3]), within=30)
        produce(kafka, topic, numbered(60, 6, 60))
        wait_until(lambda: sum(committed(kafka, group).values()) == 120, within=30)
        newer.close()
        wait_until(lambda: seen() == ("classic" if policy in GIVES_BACK else "consumer", [6]), within=30)
        assert (MEMBERS_ASSIGN in caplog.text) is (policy in GIVES_BACK)
        assert query.driver._session.member.generation.leader is (policy in GIVES_BACK)
    end = sum(committed(kafka, group).values()) + 60
    produce(kafka, topic, numbered(60, 6, end - 60))
    wait_until(lambda: sum(committed(kafka, group).values()) == end, within=30)
    assert read_by(query, newer) == [(p, offset) for p in range(6) for offset in range(end // 6)]


@pytest.mark.soak
def test_a_query_joins_newer_members_unless_the_policy_forbids_it(
    kafka, policy, group, seen, query_of, driver_of, librdkafka_of
):
    topic = topic_with(kafka, numbered(60, 6), partitions=6)
    newer = librdkafka_of(kafka, topic, group)
    wait_until(lambda: sum(committed(kafka, group).values()) == 60, within=30)
    if policy == "disabled":
        driver = driver_of(kafka, topic, group, **QUICK)
        with pytest.raises(Exception, match=r"INCONSISTENT_GROUP_PROTOCOL: .* group.consumer.migration.policy is disa"):
            driver.latest_offset(driver.initial_offset(), None)
        return
    query = query_of(kafka, topic, group, startingOffsets="group", **QUICK)
    wait_until(lambda: seen() == ("consumer", [3, 3]), within=30)
    produce(kafka, topic, numbered(60, 6, 60))
    wait_until(lambda: sum(committed(kafka, group).values()) == 120, within=30)
    newer.close()
    wait_until(lambda: seen() == ("classic" if policy in GIVES_BACK else "consumer", [6]), within=30)
    produce(kafka, topic, numbered(60, 6, 120))
    wait_until(lambda: sum(committed(kafka, group).values()) == 180, within=30)
    assert read_by(query, newer) == [(p, offset) for p in range(6) for offset in range(30)]


@pytest.mark.soak
def test_partitions_of_a_query_that_leaves_classic_members_of_a_newer_group_go_to_another(
    kafka, policy, group, seen, query_of, librdkafka_of
):
    if policy != "upgrade":
        pytest.skip("the group is a classic one again")
    topic = topic_with(kafka, numbered(60, 6), partitions=6)
    first, second = (query_of(kafka, topic, group, **QUICK) for _ in range(2))
    wait_until(lambda: len(first.owned()) == len(second.owned()) == 3, within=30)
    newer = librdkafka_of(kafka, topic, group)
    wait_until(lambda: seen() == ("consumer", [2, 2, 2]), within=30)
    newer.close()
    wait_until(lambda: seen() == ("consumer", [3, 3]), within=30)
    second.end()
    second.driver.stop()
    wait_until(lambda: len(first.owned()) == 6, within=30)
    produce(kafka, topic, numbered(60, 6, 60))
    wait_until(lambda: sum(committed(kafka, group).values()) == 120, within=30)
    assert read_by(first, second, newer) == [(p, offset) for p in range(6) for offset in range(20)]
