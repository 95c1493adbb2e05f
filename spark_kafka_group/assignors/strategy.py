"""The interface of an assignment strategy and its input, and subscribers in the order in which Kafka assigns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_group.values.offsets import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True)
class GroupMember:
    """A member as the leader sees it.

    Attributes
    ----------
    owned, generation
        Partitions it claims to own, and the generation in which it got them; members send them under sticky strategies
        only.
    """

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


class Strategy(Protocol):
    """How a leader deals the partitions of subscribed topics to the members of its group."""

    name: str
    """Its name in the group protocol: members can only agree on a name they all know."""

    def assign(
        self, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> Mapping[str, Collection[TopicPartition]]:
        """The partitions of each member id.

        Parameters
        ----------
        partitions
            Partition numbers of the topics that exist; a member may subscribe to others too.
        """


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
