"""Assignments that kafka-python's coordinator gets from our strategies, and the leader's view of its group."""

from types import SimpleNamespace

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from spark_kafka_group.assignors import BUILT_IN, GroupMember
from spark_kafka_group.errors import MembershipError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.member_metadata import Claim, decode, encode
from spark_kafka_group.wire.group.membership import Assignor, LeaderView

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Given:
    """A user's strategy that returns a given assignment."""

    name = "given"

    def __init__(self, result):
        self.result = result

    def assign(self, members, partitions):
        self.members, self.partitions = members, partitions
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def cluster(**sizes):
    """Metadata: numbers of partitions by topic."""
    return SimpleNamespace(partitions_for_topic=lambda topic: set(range(sizes[topic])) if topic in sizes else None)


def joined(name, *topics, strategy="range", static=None, owned=(), generation=-1):
    """A member as kafka-python gives it to a leader."""
    encoded = encode(strategy, topics, Claim(frozenset(owned), generation)).encode()
    return SimpleNamespace(
        member_id=name, group_instance_id=static, metadata=ConsumerProtocolSubscription.decode(encoded)
    )


def claim_sent(assignor):
    """The metadata that the member of `assignor` sends when it joins."""
    return decode(assignor.name, ConsumerProtocolSubscription.decode(assignor.metadata({"t"}).encode()))


def after_assignment(strategy, *owned, generation=7):
    assignor = Assignor(BUILT_IN[strategy])
    assigned = [("t", [tp.partition for tp in owned])]
    assignor.on_assignment(ConsumerProtocolAssignment(0, assigned, b""), generation)
    return assignor


class TestJoining:
    @pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
    def test_sticky_members_claim_what_they_were_assigned_last(self, strategy):
        assignor = after_assignment(strategy, T0, T1)
        assert claim_sent(assignor) == Claim(frozenset({T0, T1}), 7)
        assert assignor.claimed == {T0, T1}

    @pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
    def test_sticky_members_that_have_forgotten_claim_nothing(self, strategy):
        assignor = after_assignment(strategy, T0)
        assignor.forget()
        assert claim_sent(assignor) == Claim()
        assert assignor.claimed == frozenset()

    @pytest.mark.parametrize("strategy", ["range", "roundrobin"])
    def test_members_of_other_strategies_send_the_same_bytes_so_that_a_follower_can_rejoin_without_a_rebalance(
        self, strategy
    ):
        assignor = after_assignment(strategy, T0)
        assert assignor.metadata({"t"}).encode() == Assignor(BUILT_IN[strategy]).metadata({"t"}).encode()
        assert assignor.claimed == frozenset()

    def test_one_strategy_is_cooperative_and_all_are_eager_to_kafka_python(self):
        assignors = [Assignor(strategy) for strategy in BUILT_IN.values()]
        assert [assignor.name for assignor in assignors if assignor.cooperative] == ["cooperative-sticky"]
        assert {tuple(map(int, assignor.supported_protocols())) for assignor in assignors} == {(0,)}


class TestLeading:
    def test_a_strategy_gets_members_and_existing_partitions(self):
        strategy = Given({})
        Assignor(strategy).assign(cluster(t=2, empty=0), [joined("a", "t", "x", "empty", static="s")])
        assert strategy.members == [GroupMember("a", "s", ("empty", "t", "x"))]
        assert strategy.partitions == {"t": {0, 1}}

    def test_claims_of_members_reach_the_strategy(self):
        members = [
            joined("a", "t", strategy="sticky", owned=[T0, T1], generation=7),
            joined("b", "t", strategy="sticky"),
        ]
        result = Assignor(BUILT_IN["sticky"]).assign(cluster(t=4), members)
        assert result["a"].assigned_partitions == [("t", [0, 1])]
        assert result["b"].assigned_partitions == [("t", [2, 3])]

    def test_the_leader_sees_its_group(self):
        assignor = Assignor(Given({"a": [T0], "b": []}))
        assignor.assign(cluster(t=2, u=1), [joined("a", "t", "x"), joined("b", "u", "y")])
        assert assignor.view == LeaderView(
            members=2, unknown_topics=frozenset({"x", "y"}), unassigned_topics=frozenset({"t", "u"})
        )

    def test_who_joins_again_may_be_a_follower(self):
        assignor = Assignor(Given({}))
        assignor.assign(cluster(t=2), [joined("a", "t")])
        assignor.metadata({"t"})
        assert assignor.view is None

    def test_partitions_that_wait_for_their_owner_to_give_them_up_are_not_unassigned(self):
        members = [
            joined("a", "t", strategy="cooperative-sticky", owned=[T0, T1], generation=7),
            joined("b", "t", strategy="cooperative-sticky"),
        ]
        assignor = Assignor(BUILT_IN["cooperative-sticky"])
        result = assignor.assign(cluster(t=2), members)
        assert result["b"].assigned_partitions == []
        assert assignor.view == LeaderView(members=2)

    def test_members_that_a_strategy_leaves_out_get_an_empty_assignment(self):
        result = Assignor(Given({"a": [("t", 0), ("t", 1)]})).assign(cluster(t=2), [joined("a", "t"), joined("b", "t")])
        assert {name: assigned.assigned_partitions for name, assigned in result.items()} == {
            "a": [("t", [0, 1])],
            "b": [],
        }


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ({"nobody": []}, "assigned partitions to 'nobody', which is not a member of the group"),
        ({"a": [T0], "b": [T0]}, "assigned t-0 twice: to a and to b"),
        ({"a": [T0, T0]}, "assigned t-0 twice: to a and to a"),
        ({"b": [TopicPartition("u", 0)]}, "assigned u-0 to b, which does not subscribe to u"),
        ({"a": [TopicPartition("t", 2)]}, "assigned t-2 to a: that partition does not exist"),
        ({"a": [TopicPartition("x", 0)]}, "assigned x-0 to a: that partition does not exist"),
        ({"a": [TopicPartition(["t"], 0)]}, "that partition does not exist"),
        ({"a": ["t-0"]}, "did not return TopicPartitions for each member id: TypeError"),
        ({"a": None}, "did not return TopicPartitions for each member id: TypeError"),
        (None, "did not return TopicPartitions for each member id: AttributeError"),
        (KeyError("t"), "did not return TopicPartitions for each member id: KeyError: 't'"),
    ],
)
def test_a_strategy_with_an_impossible_assignment_stops_the_query(result, what):
    assignor = Assignor(Given(result))
    with pytest.raises(MembershipError) as raised:
        assignor.assign(cluster(t=2, u=1), [joined("a", "t", "u", "x"), joined("b", "t")])
    assert str(raised.value).startswith(f"assignment strategy given ({__name__}:Given) ")
    assert what in str(raised.value)
