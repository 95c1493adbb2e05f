"""The user's own code: rebalance listeners and interceptors."""

import pyarrow as pa
import pytest
import recorders
from support import committed, numbered, options, produce, throw_out, topic_with

from spark_kafka_group import InterceptorError
from spark_kafka_group.driver.membership.member_protocol import Joined
from spark_kafka_group.executor.reading.read import brokers_for, read
from spark_kafka_group.options import Options
from spark_kafka_group.testing import KafkaCluster, wait_until
from spark_kafka_group.values.offsets import OffsetRange, ReadTask, TopicPartition

BOTH = {"startingOffsets": "group", "kafka.auto.offset.reset": "earliest", "kafka.heartbeat.interval.ms": 100}


@pytest.fixture(autouse=True)
def no_calls():
    recorders.calls.clear()


def test_a_query_alone_hears_of_its_first_assignment_and_not_of_its_own_generations(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    driver = driver_of(kafka, topic, group, rebalanceListener="recorders:Listener")
    offset = driver.initial_offset()
    for _ in range(3):
        offset = driver.latest_offset(offset, 4)
    assert driver._session.member.generation.id >= 3
    assert recorders.calls == [("assigned", {0, 1})]


def test_a_listener_that_raises_is_seen_and_stops_nothing(kafka, group, query_of, caplog):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    first = query_of(kafka, topic, group, **BOTH, rebalanceListener="recorders:Failing")
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 10, (topic, 1): 10}, within=30)
    second = query_of(kafka, topic, group, **BOTH)
    wait_until(lambda: len(first.owned()) == len(second.owned()) == 1, within=30)
    produce(kafka, topic, numbered(20, 2))
    wait_until(lambda: committed(kafka, group) == {(topic, 0): 20, (topic, 1): 20}, within=30)
    assert ("revoked", {0, 1}) in recorders.calls
    assert "Failing.on_partitions_revoked of your own code raised an error; the query goes on" in caplog.text
    assert "RuntimeError: no thanks" in caplog.text
    assert first.driver.report_latest_offset()["@group"]["hookErrors"] >= 1


def test_under_cooperative_sticky_only_what_moves_is_revoked(kafka, group, query_of):
    topic = topic_with(kafka, numbered(40, 4), partitions=4)
    settings = BOTH | {"kafka.partition.assignment.strategy": "cooperative-sticky"}
    first = query_of(kafka, topic, group, **settings, rebalanceListener="recorders:Listener")
    wait_until(lambda: len(first.owned()) == 4, within=30)
    second = query_of(kafka, topic, group, **settings)
    wait_until(lambda: len(second.owned()) == 2, within=30)
    wait_until(lambda: any(kind == "revoked" for kind, _ in recorders.calls), within=30)
    moved = {tp.partition for tp in second.owned()}
    assert [call for call in recorders.calls if call[0] == "revoked"] == [("revoked", moved)]


def test_a_member_that_is_removed_while_it_waits_for_others_has_lost_what_it_kept(kafka, group, driver_of, query_of):
    topic = topic_with(kafka, [], partitions=4)
    settings = BOTH | {"kafka.partition.assignment.strategy": "cooperative-sticky"}
    idle = driver_of(kafka, topic, group, **settings, rebalanceListener="recorders:Listener")
    start = idle.initial_offset()
    idle.latest_offset(start, None)
    busy = query_of(kafka, topic, group, **settings)
    wait_until(lambda: len(idle._session.member.owned) == len(busy.owned()) == 2, within=30)
    busy.may_finish.clear()
    produce(kafka, topic, numbered(40, 4))
    busy.running.wait(30)
    kept = {tp.partition for tp in idle._session.member.owned}
    recorders.calls.clear()
    idle._session.member.client.request_rejoin()
    wait_until(idle._session.member.client._rounds.under_way, within=30)
    throw_out(kafka, group, "groupkafka-" + start["@group"]["reader"])
    wait_until(idle._session.member.client.lost, within=30)
    busy.may_finish.set()
    wait_until(lambda: recorders.calls and recorders.calls[-1][0] == "assigned", within=30)
    assert recorders.calls[0] == ("lost", kept)
    assert idle.report_latest_offset()["@group"]["membershipsLost"] == 1


def test_a_member_that_the_answer_to_its_own_generation_finds_removed_has_lost_its_partitions(kafka, group, driver_of):
    topic = topic_with(kafka, numbered(20, 2), partitions=2)
    driver = driver_of(kafka, topic, group, rebalanceListener="recorders:Listener")
    first = driver.latest_offset(driver.initial_offset(), None)
    before = driver._session.member.generation
    throw_out(kafka, group)  # no heartbeat is due yet
    assert driver._session.member.next_generation() is Joined.AS_NEW
    assert driver._session.member.generation.member_id != before.member_id
    assert recorders.calls == [("assigned", {0, 1}), ("lost", {0, 1}), ("assigned", {0, 1})]
    driver._session._settling.enter(Joined.AS_NEW)
    assert driver.latest_offset(first, None) == first
    assert driver.report_latest_offset()["@group"]["membershipsLost"] == 1


def test_an_interceptor_hears_of_each_commit_in_order_and_of_those_that_a_restart_of_the_coordinator_fails(
    group, driver_of
):
    with KafkaCluster() as kafka:
        topic = topic_with(kafka, numbered(20, 2), partitions=2)
        assert "__consumer_offsets" not in kafka.admin.list_topics()  # the query is the first that needs it
        settings = {"interceptors": "recorders:Commits", "kafka.default.api.timeout.ms": 2000}
        driver = driver_of(kafka, topic, group, **settings)
        end = driver.latest_offset(driver.initial_offset(), 4)
        following = driver.latest_offset(end, 4)
        assert recorders.calls == [("committed", {0: 2, 1: 2}, "NoneType")]
        kafka.node(0).kill()
        assert driver.latest_offset(following, 4) == following  # the next batch waits for this one's commit
        assert recorders.calls[1:] == [("committed", {0: 4, 1: 4}, "CommitTimeoutError")]
        kafka.node(0).start()
        kafka.wait_until_ready()
        last = wait_until(lambda: (planned := driver.latest_offset(following, 4)) != following and planned, within=60)
        driver.latest_offset(last, 4)
        heard = [(offsets, error) for _, offsets, error in recorders.calls]
        assert [offsets[0] for offsets, _ in heard] == sorted(offsets[0] for offsets, _ in heard)
        assert [offsets for offsets, error in heard if error == "NoneType"] == [
            dict.fromkeys((0, 1), n) for n in (2, 4, 6)
        ]
        assert committed(kafka, group) == {(topic, p): 6 for p in range(2)}
        driver.stop()


class TestOnConsume:
    def rows(self, kafka, interceptors):
        topic = topic_with(kafka, numbered(3, 1), partitions=1)
        settings = Options.parse(options(kafka, topic, interceptors=interceptors))
        try:
            return pa.Table.from_batches(read(ReadTask((OffsetRange(TopicPartition(topic, 0), 0, 3),)), settings))
        finally:
            brokers_for(settings).close()

    def test_what_an_interceptor_gives_back_goes_on_to_spark(self, kafka):
        found = self.rows(kafka, "recorders:Masking")
        assert found["key"].to_pylist() == [None] * 3
        assert found["value"].to_pylist() == [b"v0", b"v1", b"v2"]

    @pytest.mark.parametrize(
        ("named", "message"),
        [("Raising", "Raising.on_consume raised RuntimeError: cannot decrypt"), ("Renaming", "of schema key: binary")],
    )
    def test_an_interceptor_that_fails_fails_the_task_so_that_no_row_gets_by(self, kafka, named, message):
        with pytest.raises(InterceptorError, match=message):
            self.rows(kafka, f"recorders:{named}")
