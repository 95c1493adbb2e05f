"""Members, generations and committed offsets as values, and strategies of ours inside kafka-python's coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from spark_kafka_group.offsets import TopicPartition


@dataclass(frozen=True)
class GroupMember:
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True)
class Generation:
    """One generation of the group, as this member sees it.

    Attributes
    ----------
    members
        Number of members; known to the leader only, else None.
    assignment
        Partitions this member owns.
    """

    id: int
    member_id: str
    leader: bool
    members: int | None
    assignment: frozenset[TopicPartition]

    @property
    def alone(self) -> bool:
        return self.members == 1


@dataclass(frozen=True)
class Committed:
    """What the group has committed for a partition, and the note its writer left with it."""

    offset: int
    metadata: str


Assign = Callable[[Sequence[GroupMember], Mapping[str, Collection[int]]], dict[str, list[TopicPartition]]]
"""An assignment strategy: members and the partitions of each topic to the partitions of each member id."""


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Lets kafka-python's coordinator call a strategy of ours, and remembers how many members the leader saw."""

    def __init__(self, name: str, assign: Assign) -> None:
        self._name = name
        self._assign = assign
        self.members: int | None = None

    @property
    def name(self) -> str:
        return self._name

    def metadata(self, topics: Collection[str]) -> Any:
        self.members = None  # a follower does not learn it
        return ConsumerProtocolSubscription(0, sorted(topics), b"")

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        self.members = len(members)
        known = [GroupMember(m.member_id, m.group_instance_id, tuple(m.metadata.topics)) for m in members]
        partitions = {t: cluster.partitions_for_topic(t) or set() for m in known for t in m.topics}
        assignments = {}
        for member_id, owned in self._assign(known, partitions).items():
            topics: dict[str, list[int]] = {}
            for tp in sorted(owned):
                topics.setdefault(tp.topic, []).append(tp.partition)
            assignments[member_id] = ConsumerProtocolAssignment(0, sorted(topics.items()), b"")
        return assignments

    def on_assignment(self, assignment: Any, generation: int) -> None:
        pass
