"""The interface of an assignment strategy, and its input."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
