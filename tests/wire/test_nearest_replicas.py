"""Which requests go to followers, and for how long."""

import pytest

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import NearestReplicas
from spark_kafka_group.wire.fetch.brokers import LEADER_ONLY_S

A, B, C = (TopicPartition("t", partition) for partition in range(3))
NODE, FOLLOWER = 1, 2


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def nearest(clock):
    return NearestReplicas("r", 300.0, clock)


def test_a_follower_that_a_leader_named_is_read_until_its_lease_ends(nearest, clock):
    assert nearest.follower(A) is None
    nearest.named(A, FOLLOWER)
    assert nearest.follower(A) == FOLLOWER
    assert nearest.follower(B) is None
    clock.now += 300
    assert nearest.follower(A) is None


def test_a_follower_that_is_left_is_not_read_and_its_leader_is_asked_without_a_rack(nearest, clock):
    nearest.named(A, FOLLOWER)
    nearest.leave(A)
    assert nearest.follower(A) is None
    assert nearest.request_to(NODE, {A: 7}) == ("", {A: 7})
    clock.now += LEADER_ONLY_S
    assert nearest.request_to(NODE, {A: 7}) == ("r", {A: 7})


def test_requests_with_and_without_the_rack_take_turns_on_a_node(nearest):
    nearest.leave(B)
    turns = [nearest.request_to(NODE, {A: 1, B: 2, C: 3}) for _ in range(4)]
    assert turns == [("r", {A: 1, C: 3}), ("", {B: 2})] * 2
    assert nearest.request_to(FOLLOWER, {A: 1}) == ("r", {A: 1})
    assert nearest.request_to(FOLLOWER, {A: 1}) == ("r", {A: 1})
    assert nearest.request_to(FOLLOWER, {B: 1}) == ("", {B: 1})
