"""Assignment strategies on worked examples; tests/assignors holds them against Kafka's own on random groups."""

import dataclasses

import pytest

from spark_kafka_group.assignors import BUILT_IN, GroupMember
from spark_kafka_group.assignors.built_in import holders
from spark_kafka_group.values.offsets import TopicPartition


def member(name, *topics, static=None, owned="", generation=7):
    return GroupMember(name, static, topics, partitions(owned), generation)


def partitions(text):
    """``"t-0 u-1"`` as partitions."""
    split = (tp.rsplit("-", 1) for tp in text.split())
    return frozenset(TopicPartition(topic, int(number)) for topic, number in split)


def assigned(strategy, members, **sizes):
    """Partitions of each member as text, in order; `sizes` are numbers of partitions by topic."""
    result = BUILT_IN[strategy].assign(members, {topic: range(size) for topic, size in sizes.items()})
    return {name: " ".join(map(str, sorted(owned))) for name, owned in result.items()}


def rejoined(members, assignment, generation=8):
    """The members when they join again after `assignment`."""
    return [dataclasses.replace(m, owned=partitions(assignment[m.member_id]), generation=generation) for m in members]


class TestRange:
    def test_seven_partitions_over_three_members(self):
        result = assigned("range", [member("c0", "t"), member("c1", "t"), member("c2", "t")], t=7)
        assert result == {"c0": "t-0 t-1 t-2", "c1": "t-3 t-4", "c2": "t-5 t-6"}

    def test_each_topic_is_divided_by_itself(self):
        result = assigned("range", [member("c0", "t0", "t1"), member("c1", "t0", "t1")], t0=3, t1=3)
        assert result == {"c0": "t0-0 t0-1 t1-0 t1-1", "c1": "t0-2 t1-2"}

    def test_with_many_topics_the_first_members_get_most(self):
        topics = {f"t{index}": 3 for index in range(10)}
        result = assigned("range", [member("c0", *topics), member("c1", *topics)], **topics)
        assert [len(owned.split()) for owned in result.values()] == [20, 10]

    def test_more_members_than_partitions_leave_some_with_nothing(self):
        assert assigned("range", [member("c0", "t"), member("c1", "t"), member("c2", "t")], t=2)["c2"] == ""

    def test_static_members_come_first_and_no_member_is_left_out_when_they_are_mixed(self):
        members = [member("m1", "t"), member("m2", "t", static="b"), member("m3", "t"), member("m4", "t", static="a")]
        assert assigned("range", members, t=4) == {"m4": "t-0", "m2": "t-1", "m1": "t-2", "m3": "t-3"}

    def test_a_member_gets_no_topic_it_does_not_subscribe_to(self):
        result = assigned("range", [member("a", "x"), member("b", "x", "y")], x=2, y=1)
        assert result == {"a": "x-0", "b": "x-1 y-0"}


class TestRoundRobin:
    def test_partitions_are_dealt_one_by_one_across_topics(self):
        result = assigned("roundrobin", [member("c0", "t0", "t1"), member("c1", "t0", "t1")], t0=3, t1=3)
        assert result == {"c0": "t0-0 t0-2 t1-1", "c1": "t0-1 t1-0 t1-2"}

    def test_different_subscriptions_can_come_out_uneven(self):
        members = [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")]
        result = assigned("roundrobin", members, t0=1, t1=2, t2=3)
        assert result == {"c0": "t0-0", "c1": "t1-0", "c2": "t1-1 t2-0 t2-1 t2-2"}

    def test_no_member_is_left_out_when_static_and_dynamic_members_are_mixed(self):
        members = [member("m1", "t"), member("m2", "t", static="b"), member("m3", "t"), member("m4", "t", static="a")]
        assert assigned("roundrobin", members, t=4) == {"m4": "t-0", "m2": "t-1", "m1": "t-2", "m3": "t-3"}


class TestSticky:
    FOUR_TOPICS = ("t0", "t1", "t2", "t3")

    def test_different_subscriptions_come_out_as_even_as_they_can(self):
        members = [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")]
        result = assigned("sticky", members, t0=1, t1=2, t2=3)
        assert result == {"c0": "t0-0", "c1": "t1-0 t1-1", "c2": "t2-0 t2-1 t2-2"}

    def test_only_partitions_of_a_member_that_left_move(self):
        members = [member(name, *self.FOUR_TOPICS) for name in ("c0", "c1", "c2")]
        sizes = dict.fromkeys(self.FOUR_TOPICS, 2)
        before = assigned("sticky", members, **sizes)
        assert sorted(len(owned.split()) for owned in before.values()) == [2, 3, 3]
        after = assigned("sticky", rejoined(members, before)[1:], **sizes)
        assert {name: partitions(before[name]) <= partitions(owned) for name, owned in after.items()} == {
            "c1": True,
            "c2": True,
        }
        assert [len(owned.split()) for owned in after.values()] == [4, 4]

    def test_a_member_that_joins_gets_its_share_and_nothing_moves_between_the_others(self):
        members = [member("c0", "t", owned="t-0 t-1 t-2"), member("c1", "t", owned="t-3 t-4 t-5"), member("c2", "t")]
        result = assigned("sticky", members, t=6)
        assert result == {"c0": "t-0 t-1", "c1": "t-3 t-4", "c2": "t-2 t-5"}

    def test_evenness_wins_over_staying(self):
        members = [member("c0", "t", owned="t-0 t-1 t-2 t-3"), member("c1", "t")]
        assert assigned("sticky", members, t=4) == {"c0": "t-0 t-1", "c1": "t-2 t-3"}

    def test_a_chain_of_exchanges_is_found_where_no_single_move_helps(self):
        # a has one too many, but shares topics with b only; c has room, but shares topics with b only.
        members = [
            member("a", "x", owned="x-0 x-1 x-2"),
            member("b", "x", "y", owned="y-0 y-1"),
            member("c", "y", owned="y-2"),
        ]
        result = assigned("sticky", members, x=3, y=3)
        assert result == {"a": "x-0 x-1", "b": "x-2 y-0", "c": "y-1 y-2"}

    def test_a_topic_that_a_member_no_longer_subscribes_to_goes_to_who_does(self):
        members = [member("a", "x", owned="x-0 y-0"), member("b", "y")]
        assert assigned("sticky", members, x=1, y=1) == {"a": "x-0", "b": "y-0"}


class TestClaims:
    def test_the_highest_generation_is_believed(self):
        members = [member("late", "t", owned="t-0", generation=5), member("up-to-date", "t", owned="t-0")]
        assert holders(members) == holders(members[::-1]) == {TopicPartition("t", 0): "up-to-date"}

    def test_a_member_that_missed_a_rebalance_keeps_partitions_that_no_other_claims(self):
        members = [member("late", "t", owned="t-0", generation=5), member("up-to-date", "t", owned="t-1")]
        assert assigned("sticky", members, t=2) == {"late": "t-0", "up-to-date": "t-1"}

    def test_of_two_claims_in_one_generation_neither_is_believed(self):
        members = [
            member("a", "t", owned="t-0"),
            member("b", "t", owned="t-0"),
            member("c", "t", owned="t-0", generation=3),
        ]
        assert holders(members) == {TopicPartition("t", 0): None}


class TestCooperativeSticky:
    def test_a_partition_moves_in_two_rounds(self):
        members = [member("old", "t", owned="t-0 t-1 t-2 t-3"), member("new", "t", generation=-1)]
        first = assigned("cooperative-sticky", members, t=4)
        assert first == {"old": "t-0 t-1", "new": ""}
        second = assigned("cooperative-sticky", rejoined(members, first), t=4)
        assert second == {"old": "t-0 t-1", "new": "t-2 t-3"}

    def test_partitions_without_a_claim_are_given_at_once(self):
        members = [member("old", "t", owned="t-0 t-1"), member("new", "t", generation=-1)]
        assert assigned("cooperative-sticky", members, t=4) == {"old": "t-0 t-1", "new": "t-2 t-3"}

    def test_a_partition_that_two_members_claim_is_given_to_neither_before_both_have_given_it_up(self):
        members = [member("a", "t", owned="t-0"), member("b", "t", owned="t-0 t-1")]
        first = assigned("cooperative-sticky", members, t=2)
        assert first == {"a": "", "b": "t-1"}
        assert assigned("cooperative-sticky", rejoined(members, first), t=2) == {"a": "t-0", "b": "t-1"}

    def test_a_partition_of_a_member_that_no_longer_subscribes_is_given_up_first(self):
        members = [member("a", "x", owned="y-0"), member("b", "y", generation=-1)]
        assert assigned("cooperative-sticky", members, x=1, y=1) == {"a": "x-0", "b": ""}


@pytest.mark.parametrize("strategy", sorted(BUILT_IN))
class TestEvery:
    def test_topics_that_do_not_exist_or_are_empty_or_have_no_subscriber_are_left_out(self, strategy):
        members = [member("a", "t", "missing", "empty")]
        assert assigned(strategy, members, t=1, empty=0, nobodys=2) == {"a": "t-0"}

    def test_numbers_need_not_begin_with_zero(self, strategy):
        result = BUILT_IN[strategy].assign([member("a", "t"), member("b", "t")], {"t": {3, 5}})
        assert sorted(len(owned) for owned in result.values()) == [1, 1]

    def test_a_topic_and_a_member_may_have_one_name(self, strategy):
        assert assigned(strategy, [member("a", "a", "b"), member("b", "a", "b")], a=1, b=1).keys() == {"a", "b"}
