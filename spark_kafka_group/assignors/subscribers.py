"""Subscribers of topics, in the order in which Kafka assigns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from spark_kafka_group.assignors.strategy import GroupMember


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Static members by instance id, then dynamic ones by member id (Kafka's ``MemberInfo.compareTo``)."""
    return sorted(members, key=_order)


def _order(member: GroupMember) -> tuple[bool, str]:
    if member.instance_id is not None:
        return (False, member.instance_id)
    return (True, member.member_id)


def by_topic(members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]) -> dict[str, list[GroupMember]]:
    """Members of each topic that exists and has any; topics and members in order."""
    found: dict[str, list[GroupMember]] = {topic: [] for topic in sorted(partitions)}
    for member in in_order(members):
        for topic in set(member.topics) & found.keys():
            found[topic].append(member)
    return {topic: subscribers for topic, subscribers in found.items() if subscribers}
