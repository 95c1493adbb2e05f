"""Members' subscriptions: Java reads ours, we read Java's, and unreadable bytes claim nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from spark_kafka_group.assignors import BUILT_IN
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.member_metadata import Claim, decode, encode

TOPICS = ["orders", "t_2"]
CLAIM = Claim(frozenset({TopicPartition("orders", 0), TopicPartition("orders", 11), TopicPartition("t_2", 3)}), 7)
CLAIMS = [CLAIM, Claim(frozenset(), 7), Claim()]
CLAIMING = ["sticky", "cooperative-sticky"]


def understood(strategy, encoded):
    return decode(strategy, ConsumerProtocolSubscription.decode(encoded))


def subscription(user_data, owned=(), generation=-1):
    return ConsumerProtocolSubscription(3, TOPICS, user_data, owned, generation)


@pytest.mark.parametrize("strategy", sorted(BUILT_IN))
@pytest.mark.parametrize("claim", CLAIMS)
def test_java_reads_our_topics(java, strategy, claim):
    read = java.subscription(encode(strategy, set(TOPICS), claim).encode())
    assert list(read.topics()) == TOPICS


@pytest.mark.parametrize("strategy", CLAIMING)
@pytest.mark.parametrize("claim", CLAIMS)
def test_java_reads_our_claims(java, strategy, claim):
    assert java.claim(strategy, java.subscription(encode(strategy, TOPICS, claim).encode())) == claim


@pytest.mark.parametrize("strategy", CLAIMING)
def test_java_finds_our_generation_where_it_compares_contradicting_claims(java, strategy):
    assert java.subscription(encode(strategy, TOPICS, CLAIM).encode()).generationId().get() == CLAIM.generation


@pytest.mark.parametrize("strategy", CLAIMING)
@pytest.mark.parametrize("claim", [*CLAIMS[:2], None])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_we_read_what_java_consumers_send(java, strategy, claim, version):
    encoded = java.member_bytes(strategy, TOPICS, claim, version)
    assert ConsumerProtocolSubscription.decode(encoded).topics == TOPICS
    expected = claim or Claim()
    if strategy == "cooperative-sticky" and version == 0:
        expected = Claim(frozenset(), expected.generation)  # has no field for what was owned
    assert understood(strategy, encoded) == expected


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_other_strategies_claim_nothing(java, strategy):
    assert understood(strategy, java.member_bytes(strategy, TOPICS, CLAIM, 3)) == Claim()
    assert encode(strategy, TOPICS, CLAIM) == encode(strategy, TOPICS, Claim())


def test_we_read_what_kafka_pythons_own_sticky_members_send():
    member = StickyPartitionAssignor()
    assigned = {"orders": [0, 11], "t_2": [3]}
    member.on_assignment(ConsumerProtocolAssignment(0, list(assigned.items()), b""), 7)
    assert understood("sticky", member.metadata(TOPICS).encode()) == CLAIM


def test_generation_of_cooperative_members_that_send_no_field_for_it_is_read_from_user_data():
    owned = [ConsumerProtocolSubscription.TopicPartition("orders", [0, 11])]
    encoded = ConsumerProtocolSubscription(1, TOPICS, b"\0\0\0\7", owned).encode()
    assert understood("cooperative-sticky", encoded) == Claim(frozenset({("orders", 0), ("orders", 11)}), 7)


@pytest.mark.parametrize("user_data", [None, b"", b"\0", b"\xff" * 4, b"\x7f" * 9, b"\0\0\0\1\xff\xff\0\0\0\0\0\0\0\7"])
def test_unreadable_user_data_claims_nothing(user_data):
    assert decode("sticky", subscription(user_data)).owned == frozenset()
    assert decode("cooperative-sticky", subscription(user_data)).owned == frozenset()


@given(st.binary(max_size=60), st.integers(0, 25), st.sampled_from(CLAIMING))
def test_no_user_data_makes_a_leader_fail(noise, cut, strategy):
    good = encode("sticky", TOPICS, CLAIM).user_data
    for user_data in (noise, good[:cut] + noise, noise + good[cut:]):
        claim = decode(strategy, subscription(user_data))
        assert all(isinstance(topic, str) and isinstance(number, int) for topic, number in claim.owned)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "of-my-own"])
def test_a_marked_subscription_is_other_bytes_without_user_data_that_a_leader_could_copy(strategy):
    plain, marked = (encode(strategy, ["t"], Claim(), marked=marked) for marked in (False, True))
    assert plain.encode() != marked.encode()
    for subscription in (plain, marked):
        read = ConsumerProtocolSubscription.decode(subscription.encode())
        assert (list(read.topics), read.user_data or b"") == (["t"], b"")
