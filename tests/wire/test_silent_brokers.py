"""Brokers that keep connections open and say nothing, as behind a cut network: they are asked elsewhere, and soon."""

import time

import pytest
from test_cells import COMMIT, FIND, HEARTBEAT, JOIN, ORDERS

from spark_kafka_group.errors import BrokerTimeoutError, CommitTimeoutError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.wire.group import joining

BRIEF = {
    "kafka.request.timeout.ms": "1000",
    "kafka.default.api.timeout.ms": "20000",
    "kafka.socket.connection.setup.timeout.ms": "1000",
}


def fail_over(broker):
    """The first node goes silent, and the second one coordinates and leads from now on."""
    broker.silence(1)
    broker.move_coordinator()


def test_a_commit_that_a_silent_coordinator_took_is_made_where_the_group_has_moved(broker, client_of):
    client = client_of(**BRIEF)
    before = client.join()
    fail_over(broker)
    began = time.monotonic()
    client.commit({ORDERS: 3}, "note", before.id)
    assert time.monotonic() - began < 20  # the commit, and at most two look-ups at the silent broker
    assert broker.committed[ORDERS] == (3, "note")
    assert client.current() == before


def test_committed_offsets_and_ends_of_logs_are_asked_of_the_brokers_that_took_over(broker, client_of):
    client = client_of(**BRIEF)
    before = client.join()
    client.commit({ORDERS: 3}, "note", before.id)
    assert client.end_offsets([ORDERS]) == {ORDERS: 10}
    fail_over(broker)
    began = time.monotonic()
    assert client.committed([ORDERS])[ORDERS].offset == 3
    assert client.end_offsets([ORDERS]) == {ORDERS: 10}
    assert time.monotonic() - began < 20


def test_a_heartbeat_without_an_answer_is_sent_again_within_a_third_of_the_session(broker, client_of):
    client = client_of(**{"kafka.session.timeout.ms": "6000", "kafka.heartbeat.interval.ms": "100"})
    before = client.join()
    wait_until(lambda: broker.received(HEARTBEAT), within=30)
    broker.forget_received()
    fail_over(broker)
    # 2 s for the heartbeat; the look-up goes to the other broker, or to the silent one first, for 5 s.
    wait_until(lambda: broker.received(HEARTBEAT), within=2 + 5 + 1.5)
    assert client.current() == before
    assert not client.rejoin_needed()


def test_a_coordinator_that_hangs_and_is_replaced_late_does_not_cost_a_short_session(broker, client_of):
    client = client_of(**{"kafka.session.timeout.ms": "3000", "kafka.heartbeat.interval.ms": "100"})
    before = client.join()
    wait_until(lambda: broker.received(HEARTBEAT), within=30)
    broker.forget_received()
    broker.silence(1)
    # 1. The heartbeat is given up. 2. The other broker still names the silent one. 3. That takes a connection.
    wait_until(lambda: broker.received(FIND), within=30)
    broker.move_coordinator()
    broker.forget_received()
    # An attempt of 1 s and one of 2 s, instead of kafka.socket.connection.setup.timeout.ms.
    wait_until(lambda: broker.received(HEARTBEAT), within=3 + 2)
    assert client.current() == before
    assert not client.rejoin_needed()


def test_a_join_that_waits_at_a_broker_that_is_gone_is_made_where_the_group_has_moved(broker, client_of, monkeypatch):
    monkeypatch.setattr(joining, "LOOK_AGAIN_MS", 500)
    client = client_of(**BRIEF, **{"kafka.max.poll.interval.ms": "300000"})
    client.join()
    broker.silence(1)
    client.request_rejoin()
    assert client.join_within(300) is None  # at the silent broker
    broker.move_coordinator()
    broker.forget_received()
    assert client.join_within(15_000).id == 2
    assert len(broker.received(JOIN)) == 1


def test_a_join_for_which_little_time_is_left_each_time_is_made_where_the_group_has_moved(
    broker, client_of, monkeypatch
):
    monkeypatch.setattr(joining, "LOOK_AGAIN_MS", 500)
    client = client_of(**BRIEF, **{"kafka.max.poll.interval.ms": "300000"})
    client.join()
    broker.silence(1)
    client.request_rejoin()
    assert client.join_within(300) is None  # at the silent broker
    broker.move_coordinator()
    assert wait_until(lambda: client.join_within(300), within=20).id == 2


def test_a_commit_to_brokers_that_are_all_silent_ends_with_the_limit_and_the_last_attempt(broker, client_of):
    client = client_of(**BRIEF | {"kafka.default.api.timeout.ms": "2500"})
    before = client.join()
    broker.silence(1, 2)
    attempt = r"(node \d advertises )?127\.0\.0\.1:\d+: .*timed out"
    with pytest.raises(CommitTimeoutError, match=rf"within kafka\.default\.api\.timeout\.ms: {attempt}"):
        client.commit({ORDERS: 3}, "note", before.id)
    broker.silence()
    client.commit({ORDERS: 4}, "note", before.id, timeout_ms=20_000)
    assert broker.committed[ORDERS] == (4, "note")


def test_a_look_up_ends_with_its_limit(broker, client_of):
    client = client_of(**BRIEF | {"kafka.default.api.timeout.ms": "1500"})
    broker.silence(1, 2)
    began = time.monotonic()
    with pytest.raises(BrokerTimeoutError, match="committed offsets of group billing: no answer within kafka.default"):
        client.committed([ORDERS])
    assert time.monotonic() - began < 20
    assert broker.received(FIND) == []
    assert broker.received(COMMIT) == []


def test_brokers_that_go_away_during_a_join_are_not_taken_for_slow_members(broker, client_of, monkeypatch):
    monkeypatch.setattr(joining, "LOOK_AGAIN_MS", 500)
    client = client_of(**BRIEF | {"kafka.default.api.timeout.ms": "3000", "kafka.max.poll.interval.ms": "300000"})
    client.join()
    client.request_rejoin()
    broker.silence(1, 2)
    with pytest.raises(BrokerTimeoutError, match="looking up the coordinator of group billing: no answer within"):
        client.join()
