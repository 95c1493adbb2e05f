"""Generations and committed offsets as values, and strategies of ours inside kafka-python's coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from spark_kafka_group.assignors import Claims, GroupMember, Strategy, claims_of, is_cooperative
from spark_kafka_group.errors import MembershipError
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.user_classes import PASSED_ON
from spark_kafka_group.wire.group.member_metadata import (
    Claim,
    by_topic,
    decode,
    encode,
    topics_of,
)
from spark_kafka_group.wire.leader_epochs import NO_EPOCH


@dataclass(frozen=True)
class Generation:
    """One generation of the group, as this member sees it."""

    id: int
    member_id: str
    leader: bool
    members: int | None  # number of members; known to the leader only, else None
    assignment: frozenset[TopicPartition]  # partitions this member owns
    strategy: str = ""  # the strategy the group took, by its name in the group protocol; empty without membership
    # Partitions of the assignment that this member has owned without a break since the generation reported before
    unbroken: frozenset[TopicPartition] = field(default=frozenset(), compare=False)
    # Whether the broker assigns, as in a group with a member of Kafka's newer protocol (KIP-848). No member leads, and
    # the number of the generation is this member's epoch.
    by_broker: bool = False

    @property
    def alone(self) -> bool:
        return self.members == 1


@dataclass(frozen=True)
class Committed:
    """The committed offset of a partition, and the metadata of its writer."""

    offset: int
    metadata: str
    leader_epoch: int = NO_EPOCH  # under which the offset was in the partition's log; -1 where its writer did not say


@dataclass(frozen=True)
class LeaderView:
    """The leader's view of its group when it assigned."""

    members: int  # number of members
    # Topics with a subscriber, without partitions in this client's metadata: kafka-python does not wait for topics that
    # only others read
    unknown_topics: frozenset[str] = frozenset()
    # Topics with a subscriber, and at least one partition without an owner. Partitions that only wait for the member
    # that gives them up (KIP-429) do not count.
    unassigned_topics: frozenset[str] = frozenset()


class Assignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Lets kafka-python's coordinator call a strategy of ours.

    To kafka-python every strategy is an eager one: it replaces the whole assignment. Under a cooperative strategy the
    caller has to rejoin when partitions of :attr:`claimed` were taken away.

    `leading`: called on kafka-python's I/O thread when this member leads and is about to assign.
    """

    def __init__(self, strategy: Strategy, leading: Callable[[], None] = lambda: None) -> None:
        self._strategy = strategy
        self._leading = leading
        self._last = Claim()
        self.claimed: frozenset[TopicPartition] = frozenset()  # partitions that this member claimed in its last join
        self.view: LeaderView | None = None  # this member's view as leader when it last assigned; None for a follower
        self.varying = False  # whether each join differs from the one before, so that the broker takes it for a change
        self._marked = False

    @property
    def name(self) -> str:
        return self._strategy.name

    @property
    def cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance (KIP-429)."""
        return is_cooperative(self.name)

    def metadata(self, topics: Collection[str]) -> Any:
        self.view = None
        self.claimed = self._last.owned if claims_of(self.name) is not Claims.NONE else frozenset()
        self._marked ^= self.varying
        return encode(self.name, topics, self._last, self._marked)

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        self._leading()
        known = [_member(self.name, member) for member in members]
        topics = {topic for member in known for topic in member.topics}
        partitions = {t: frozenset(numbers) for t in topics if (numbers := cluster.partitions_for_topic(t))}
        assignment = _checked(self._strategy, known, partitions)
        waiting = {tp for member in known for tp in member.owned} if self.cooperative else set()
        self.view = LeaderView(
            members=len(known),
            unknown_topics=frozenset(topics - partitions.keys()),
            unassigned_topics=_unassigned(partitions, waiting.union(*assignment.values())),
        )
        return {
            member_id: ConsumerProtocolAssignment(0, by_topic(owned), b"") for member_id, owned in assignment.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        self._last = Claim(frozenset(TopicPartition(*tp) for tp in assignment.partitions()), generation)

    def forget(self) -> None:
        """Claim nothing at the next join: membership was lost, or the group has taken another strategy since."""
        self._last = Claim()


def _unassigned(partitions: Mapping[str, Collection[int]], given: Collection[TopicPartition]) -> frozenset[str]:
    """Topics with a partition that is not given to a member."""
    return frozenset(topic for topic in partitions if any((topic, n) not in given for n in partitions[topic]))


def _member(strategy: str, member: Any) -> GroupMember:
    claim = decode(strategy, member.metadata)
    topics = topics_of(member.metadata)
    return GroupMember(member.member_id, member.group_instance_id, topics, claim.owned, claim.generation)


def _checked(
    strategy: Strategy, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
) -> dict[str, list[TopicPartition]]:
    """The assignment of `strategy`, for members left out without partitions. Raises MembershipError when it fails, or
    gives what members cannot use, for which kafka-python would join without end."""
    name = f"assignment strategy {strategy.name} ({type(strategy).__module__}:{type(strategy).__qualname__})"
    try:
        given = strategy.assign(members, partitions)
        result = {member_id: [TopicPartition(*tp) for tp in owned] for member_id, owned in given.items()}
    except PASSED_ON:
        raise
    except BaseException as error:
        raise MembershipError(
            f"{name} did not return TopicPartitions for each member id: {type(error).__name__}: {error}"
        ) from error
    _check_can_be_given(name, result, members, partitions)
    return {member.member_id: result.get(member.member_id, []) for member in members}


def _check_can_be_given(
    name: str,
    assignment: Mapping[str, Sequence[TopicPartition]],
    members: Sequence[GroupMember],
    partitions: Mapping[str, Collection[int]],
) -> None:
    """Each partition exists, goes to one member, and that member subscribes to its topic. Raises MembershipError."""
    subscribed = {member.member_id: member.topics for member in members}
    taken: dict[TopicPartition, str] = {}
    for member_id, owned in assignment.items():
        if member_id not in subscribed:
            raise MembershipError(f"{name} assigned partitions to {member_id!r}, which is not a member of the group")
        for tp in owned:
            if not isinstance(tp.topic, str) or tp.partition not in partitions.get(tp.topic, ()):
                raise MembershipError(f"{name} assigned {tp} to {member_id}: that partition does not exist")
            if tp.topic not in subscribed[member_id]:
                raise MembershipError(f"{name} assigned {tp} to {member_id}, which does not subscribe to {tp.topic}")
            if tp in taken:
                raise MembershipError(f"{name} assigned {tp} twice: to {taken[tp]} and to {member_id}")
            taken[tp] = member_id
