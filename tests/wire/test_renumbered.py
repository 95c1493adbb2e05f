"""A group becomes a classic one again, and numbers its generation anew under a member: on a scripted coordinator."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.coordinator.base import Generation as KafkaGeneration

from spark_kafka_group.errors import MembershipLostError
from spark_kafka_group.testing import wait_until
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.renumbered import TRIES
from spark_kafka_group.wire.reactions import Request

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def member(broker, client_of):
    """A member of a group in which the broker assigns. It sends no heartbeat for ten seconds."""
    broker.assigns = True
    client = client_of()
    assert client.join().by_broker
    broker.forget_received()
    return client


@pytest.fixture
def beating(broker, client_of):
    """As `member`, with ten heartbeats a second."""
    broker.assigns = True
    client = client_of(**{"kafka.heartbeat.interval.ms": "100"})
    assert client.join().by_broker
    return client


def test_a_member_commits_under_the_new_number_and_joins_as_the_same_member(broker, member):
    before = member.current()
    broker.become_classic(before.id + 3)
    member.commit({ORDERS: 5}, "note", before.id)
    assert broker.committed == {ORDERS: (5, "note")}
    assert member.rejoin_needed()
    assert not member.lost()
    member.commit({ORDERS: 6}, "note", before.id)
    sent = [m.generation_id_or_member_epoch for m in broker.received(Request.COMMIT)]
    assert sent == [before.id, before.id + 3, before.id + 3]  # the first one was refused
    joined = member.join()
    assert (joined.id, joined.member_id, joined.by_broker) == (before.id + 4, before.member_id, False)
    assert joined.unbroken == joined.assignment == before.assignment
    with pytest.raises(MembershipLostError):
        member.commit({ORDERS: 7}, "note", before.id)


def test_a_heartbeat_in_the_background_finds_the_new_number_and_heartbeats_go_on(broker, beating):
    before = beating.current()
    broker.become_classic(before.id + 2)
    wait_until(beating.rejoin_needed, within=10)
    assert not beating.lost()
    broker.forget_received()
    wait_until(lambda: broker.received(Request.HEARTBEAT), within=10)
    assert {m.generation_id for m in broker.received(Request.HEARTBEAT)} == {before.id + 2}
    beating.commit({ORDERS: 5}, "note", before.id)
    assert broker.committed == {ORDERS: (5, "note")}


def test_a_group_that_becomes_classic_twice_renumbers_the_same_generation_twice(broker, member):
    before = member.current()
    for number in (before.id + 1, before.id + 7):
        broker.become_classic(number)
        member.commit({ORDERS: number}, "note", before.id)
    sent = [m.generation_id_or_member_epoch for m in broker.received(Request.COMMIT)]
    assert sent == [before.id, before.id + 1, before.id + 1, before.id + 7]


def not_rebalancing(broker, epoch):
    broker.become_classic(epoch)
    broker.rebalances = False


def thrown_out(broker, epoch):
    broker.become_classic(epoch)
    broker.member_id = "another"


def too_far_ahead(broker, epoch):
    broker.become_classic(epoch + TRIES)


def still_of_the_newer_protocol(broker, epoch):
    broker.generation = epoch


@pytest.mark.parametrize("change", [not_rebalancing, thrown_out, too_far_ahead, still_of_the_newer_protocol])
def test_a_group_that_was_not_renumbered_has_gone_on_without_the_member(broker, member, change):
    before = member.current()
    change(broker, before.id + 1)
    with pytest.raises(MembershipLostError):
        member.commit({ORDERS: 5}, "note", before.id)
    assert member.lost()
    assert broker.committed == {}


def test_a_member_of_a_classic_group_looks_for_no_number(broker, client):
    before = client.current()
    broker.become_classic(before.id + 1)
    with pytest.raises(MembershipLostError):
        client.commit({ORDERS: 5}, "note", before.id)
    assert len(broker.received(Request.HEARTBEAT)) == 0


def test_a_group_that_becomes_classic_again_and_again_while_commits_are_under_way_loses_none(broker, beating):
    before = beating.current()
    changed = threading.Event()

    def change():
        for number in range(before.id + 1, before.id + TRIES, 2):
            broker.become_classic(number)
            changed.wait(0.01)
        changed.set()

    with ThreadPoolExecutor() as at_once:
        changes, count = at_once.submit(change), 0
        while not changed.is_set():
            count += 1
            beating.commit({ORDERS: count}, "note", before.id)
            assert broker.committed == {ORDERS: (count, "note")}
        changes.result()
    assert not beating.lost()


def test_a_commit_is_not_sent_again_in_a_generation_that_was_joined_meanwhile(broker, member):
    before = member.current()
    broker.become_classic(before.id + 3)
    coordinator, sent = member._coordinator, []
    handle = coordinator._handle_offset_commit_response

    def joined_meanwhile(*arguments):
        sent.append(arguments)
        if len(sent) == 1:
            coordinator._generation = KafkaGeneration(before.id + 4, before.member_id, "range")
            broker.generation, broker.rebalances = before.id + 4, False
        return handle(*arguments)

    coordinator._handle_offset_commit_response = joined_meanwhile
    with pytest.raises(MembershipLostError):
        member.commit({ORDERS: 5}, "note", before.id)
    assert broker.committed == {}
    assert len(broker.received(Request.COMMIT)) == 1
