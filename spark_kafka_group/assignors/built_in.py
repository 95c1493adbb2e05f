"""The strategies of Kafka's own that members may name, each once, and the partitions that members claim to own."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from spark_kafka_group.assignors.balance import balanced
from spark_kafka_group.assignors.strategy import GroupMember, Strategy, by_topic, in_order
from spark_kafka_group.values.offsets import TopicPartition


class Range:
    """Kafka's ``RangeAssignor`` for members without racks. Topics are looked at one by one, so with many topics the
    first members get more; in return partitions with one number, of topics with as many, go to one member."""

    name = "range"

    def assign(
        self, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> dict[str, list[TopicPartition]]:
        """The first members of a topic get one partition more than the last when it does not come out even."""
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic, subscribers in by_topic(members, partitions).items():
            numbers = sorted(partitions[topic])
            span, extra = divmod(len(numbers), len(subscribers))
            taken = 0
            for index, member in enumerate(subscribers):
                size = span + (index < extra)
                assignment[member.member_id] += [TopicPartition(topic, n) for n in numbers[taken : taken + size]]
                taken += size
        return assignment


class RoundRobin:
    """Kafka's ``RoundRobinAssignor``."""

    name = "roundrobin"

    def assign(
        self, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> dict[str, list[TopicPartition]]:
        """Members that do not subscribe to a topic are skipped, and so it can come out uneven."""
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        turns = itertools.cycle(in_order(members))
        for topic in by_topic(members, partitions):
            for number in sorted(partitions[topic]):
                member = next(member for member in turns if topic in member.topics)
                assignment[member.member_id].append(TopicPartition(topic, number))
        return assignment


def holders(members: Iterable[GroupMember]) -> dict[TopicPartition, str | None]:
    """The member that holds each claimed partition, by the highest generation, as a member that missed a rebalance
    claims what others have got since; None where two claim it in one generation: at most one is right."""
    latest: dict[TopicPartition, int] = {}
    held: dict[TopicPartition, str | None] = {}
    for member in members:
        for tp in member.owned:
            before = latest.get(tp)
            if before is None or before < member.generation:
                latest[tp] = member.generation
                held[tp] = member.member_id
            elif before == member.generation:
                held[tp] = None
    return held


class Sticky:
    """Kafka's ``StickyAssignor``, but with the best assignment where that one stops at a good one."""

    name = "sticky"

    def assign(
        self, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> dict[str, list[TopicPartition]]:
        """Members keep their valid claims, as far as evenness permits."""
        subscribers = {t: [m.member_id for m in found] for t, found in by_topic(members, partitions).items()}
        owned, free = _owned(subscribers, partitions, holders(members))
        counts = balanced(
            {topic: len(partitions[topic]) for topic in subscribers},
            subscribers,
            {topic: {m: len(numbers) for m, numbers in of_members.items()} for topic, of_members in owned.items()},
        )
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for topic, wanted in counts.items():
            for member_id, numbers in _dealt(owned[topic], free[topic], wanted).items():
                assignment[member_id] += [TopicPartition(topic, number) for number in numbers]
        return assignment


def _owned(
    subscribers: Mapping[str, Sequence[str]],
    partitions: Mapping[str, Collection[int]],
    held: Mapping[TopicPartition, str | None],
) -> tuple[dict[str, dict[str, list[int]]], dict[str, list[int]]]:
    """Partition numbers of each topic that each subscriber may keep, and those without an owner."""
    owned: dict[str, dict[str, list[int]]] = {topic: {m: [] for m in subscribers[topic]} for topic in subscribers}
    free: dict[str, list[int]] = {topic: [] for topic in subscribers}
    for topic, of_members in owned.items():
        for number in sorted(partitions[topic]):
            holder = held.get(TopicPartition(topic, number))
            numbers = free[topic] if holder is None else of_members.get(holder, free[topic])
            numbers.append(number)
    return owned, free


def _dealt(owned: Mapping[str, list[int]], free: list[int], wanted: Mapping[str, int]) -> dict[str, list[int]]:
    """Partitions of one topic, as many as wanted to each: its own, then free ones and those that others give up."""
    kept = {member: numbers[: wanted[member]] for member, numbers in owned.items()}
    given_up = [number for member, numbers in owned.items() for number in numbers[wanted[member] :]]
    rest = iter(sorted(free + given_up))
    return {m: sorted(kept[m] + [next(rest) for _ in range(wanted[m] - len(kept[m]))]) for m in owned}


class CooperativeSticky:
    """Kafka's ``CooperativeStickyAssignor``: partitions move in two rounds."""

    name = "cooperative-sticky"

    def assign(
        self, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> dict[str, list[TopicPartition]]:
        """The sticky assignment without the partitions that are to move from a member that claims them. That member
        sees that they are gone, gives them up and rejoins; in that round no member claims them."""
        held = holders(members)
        return {
            member_id: [tp for tp in owned if held.get(tp, member_id) == member_id]
            for member_id, owned in Sticky().assign(members, partitions).items()
        }


class Claims(Enum):
    """Where a member names the partitions that it owns, when it joins."""

    NONE = "nowhere"
    IN_USER_DATA = "in the strategy's user data (KIP-54)"
    IN_FIELDS = "in fields of the subscription (KIP-429)"


@dataclass(frozen=True)
class BuiltIn:
    """One strategy."""

    strategy: Strategy
    java: str  # its class in Java, as configurations of consumers have it, without the package
    claims: Claims = Claims.NONE
    cooperative: bool = False  # whether members keep their partitions during a rebalance (KIP-429)

    @property
    def name(self) -> str:
        """In the group protocol."""
        return self.strategy.name

    @property
    def java_class(self) -> str:
        return f"org.apache.kafka.clients.consumer.{self.java}"


TABLE = (
    BuiltIn(Range(), "RangeAssignor"),
    BuiltIn(RoundRobin(), "RoundRobinAssignor"),
    BuiltIn(Sticky(), "StickyAssignor", Claims.IN_USER_DATA),
    BuiltIn(CooperativeSticky(), "CooperativeStickyAssignor", Claims.IN_FIELDS, cooperative=True),
)
BY_NAME = {row.name: row for row in TABLE}
BY_JAVA_CLASS = {row.java_class: row for row in TABLE}


def built_in(named: str) -> BuiltIn | None:
    """The row of this name, or of this class of Java's; None for a strategy of the user's own."""
    return BY_NAME.get(named) or BY_JAVA_CLASS.get(named)


def claims_of(strategy: str) -> Claims:
    """Where members name their partitions under a strategy, by its name in the group protocol."""
    return BY_NAME[strategy].claims if strategy in BY_NAME else Claims.NONE


def is_cooperative(strategy: str) -> bool:
    """Whether members keep their partitions during a rebalance under a strategy, by its name in the group protocol."""
    return strategy in BY_NAME and BY_NAME[strategy].cooperative
