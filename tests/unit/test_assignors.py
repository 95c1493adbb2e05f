"""Range assignment, as Kafka's RangeAssignor does it."""

from spark_kafka_group.driver.assignors import range_assignor
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire import GroupMember


def member(name, *topics, static=None):
    return GroupMember(name, static, topics)


def assigned(members, **partitions):
    result = range_assignor(members, {topic: range(count) for topic, count in partitions.items()})
    return {name: [str(tp) for tp in owned] for name, owned in result.items()}


def test_seven_partitions_over_three_members():
    result = assigned([member("c0", "t"), member("c1", "t"), member("c2", "t")], t=7)
    assert result == {"c0": ["t-0", "t-1", "t-2"], "c1": ["t-3", "t-4"], "c2": ["t-5", "t-6"]}


def test_each_topic_is_divided_by_itself():
    result = assigned([member("c0", "t0", "t1"), member("c1", "t0", "t1")], t0=3, t1=3)
    assert result == {"c0": ["t0-0", "t0-1", "t1-0", "t1-1"], "c1": ["t0-2", "t1-2"]}


def test_more_members_than_partitions_leave_some_with_nothing():
    assert assigned([member("c0", "t"), member("c1", "t"), member("c2", "t")], t=2)["c2"] == []


def test_static_members_come_first_and_nobody_is_forgotten_when_they_are_mixed():
    members = [member("m1", "t"), member("m2", "t", static="a"), member("m3", "t"), member("m4", "t", static="b")]
    assert assigned(members, t=4) == {"m2": ["t-0"], "m4": ["t-1"], "m1": ["t-2"], "m3": ["t-3"]}


def test_a_member_gets_no_topic_it_does_not_subscribe_to():
    result = range_assignor([member("a", "x"), member("b", "x", "y")], {"x": [0, 1], "y": [0]})
    assert result == {"a": [TopicPartition("x", 0)], "b": [TopicPartition("x", 1), TopicPartition("y", 0)]}
