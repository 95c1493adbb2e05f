"""Assignment strategies that this driver runs when it leads the group. Values in, values out.

kafka-python's own range strategy forgets members when static and dynamic ones are mixed, and a driver is static.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire import Assign, GroupMember


def _order(member: GroupMember) -> tuple[bool, str]:
    """Static members by instance id, then dynamic ones by member id (Kafka's ``MemberInfo.compareTo``)."""
    if member.instance_id is not None:
        return (False, member.instance_id)
    return (True, member.member_id)


def range_assignor(
    members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
) -> dict[str, list[TopicPartition]]:
    """Each topic's partitions in consecutive runs over the members that subscribe to it (Kafka's ``RangeAssignor``)."""
    assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    for topic in sorted(partitions):
        subscribers = sorted((m for m in members if topic in m.topics), key=_order)
        numbers = sorted(partitions[topic])
        span, extra = divmod(len(numbers), len(subscribers))
        taken = 0
        for index, member in enumerate(subscribers):
            size = span + (index < extra)
            assignment[member.member_id] += [TopicPartition(topic, n) for n in numbers[taken : taken + size]]
            taken += size
    return assignment


STRATEGIES: Mapping[str, Assign] = {"range": range_assignor}
"""By the name the group protocol knows them; the first of Java's default list is ``range`` too."""
