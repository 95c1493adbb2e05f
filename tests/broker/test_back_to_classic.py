"""A group becomes a classic one again while a query has not taken part in the last rebalances: a micro-batch runs."""

import pytest
from running import QUICK_EPOCHS
from support import committed, numbered, options, produce, topic_with

from spark_kafka_group.driver.membership.member import MEMBERS_ASSIGN
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.wire.admin import GroupAdmin

QUICK = {"kafka.metadata.max.age.ms": 300, "kafka.heartbeat.interval.ms": 300}


@pytest.fixture(scope="module")
def kafka():
    """A broker with quick epochs, in place of the one of all tests."""
    with KafkaCluster(properties=QUICK_EPOCHS) as one:
        yield one


def read_by(queries, newer):
    """Places of all records that these have read."""
    ranges = [r for query in queries for r in query.ranges]
    places = [(r.tp.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    return sorted(places + [place for one in newer for place in one.places()])


@pytest.mark.parametrize(
    ("count", "strategy", "heard"),
    [
        (2, "roundrobin", True),
        *[
            pytest.param(*one, marks=pytest.mark.soak)
            for one in [
                (1, "range", True),
                (1, "range", False),
                (2, "roundrobin", False),
                (2, "cooperative-sticky", True),
                (2, "sticky", False),
                (3, "roundrobin", True),
            ]
        ],
    ],
)
def test_the_batch_is_committed_and_its_partitions_are_given_back_as_before_any_rebalance(
    kafka, group, query_of, librdkafka_of, caplog, count, strategy, heard
):
    topic = topic_with(kafka, numbered(60, 6), partitions=6)
    settings = QUICK | {"kafka.partition.assignment.strategy": strategy}
    if not heard:
        settings["kafka.heartbeat.interval.ms"] = 14_000  # the commit comes before a heartbeat
    queries = [query_of(kafka, topic, group, **settings) for _ in range(count)]
    wait_until(lambda: all(len(query.owned()) == 6 // count for query in queries), within=60)
    wait_until(lambda: sum(committed(kafka, group).values()) == 60, within=30)
    newer = [librdkafka_of(kafka, topic, group)]
    with GroupAdmin(Options.parse(options(kafka, topic))) as admin:

        def settled():
            found = admin.describe(group)
            return found.state == "Stable" and len(found.members) == count + 1 and found.epoch

        epoch = wait_until(settled, within=60)
        for query in queries:
            query.may_finish.clear()
        produce(kafka, topic, numbered(60, 6, 60))
        for query in queries:
            assert query.running.wait(30)
        newer.append(librdkafka_of(kafka, topic, group))
        wait_until(lambda: admin.describe(group).epoch > epoch, within=30)
        for one in newer:
            one.close()
        wait_until(lambda: admin.describe(group).kind == "classic", within=30)
        assert admin.describe(group).state == "PreparingRebalance"
        if heard:
            wait_until(lambda: all(q.driver._session.member.client.rejoin_needed() for q in queries), within=30)
        for query in queries:
            query.may_finish.set()
        wait_until(lambda: sum(committed(kafka, group).values()) == 120, within=60)
        wait_until(lambda: all(len(query.owned()) == 6 // count for query in queries), within=60)
    produce(kafka, topic, numbered(60, 6, 120))
    wait_until(lambda: sum(committed(kafka, group).values()) == 180, within=60)
    assert read_by(queries, newer) == [(p, offset) for p in range(6) for offset in range(30)]
    assert [query.driver._session.metrics.lost for query in queries] == [0] * count
    assert caplog.text.count(f"group {group}: {MEMBERS_ASSIGN}") == count
