"""Random consumer groups, and checks that an assignment is valid, even and sticky."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from spark_kafka_group.assignors import GroupMember
from spark_kafka_group.values.offsets import TopicPartition

Assignment = Mapping[str, Collection[TopicPartition]]

MISSING = ("x0", "x1")
"""Topics that members subscribe to and that do not exist."""


@dataclasses.dataclass(frozen=True)
class Group:
    """A leader's input."""

    members: Sequence[GroupMember]
    partitions: Mapping[str, range]

    def rejoined(self, assignment: Assignment, generation: int) -> Group:
        """The group when it joins again after `assignment`."""
        members = [
            dataclasses.replace(m, owned=frozenset(assignment[m.member_id]), generation=generation)
            for m in self.members
        ]
        return dataclasses.replace(self, members=members)


@st.composite
def groups(draw: Any, max_members: int = 8, max_topics: int = 5, max_partitions: int = 12) -> Group:
    """Groups that are new, or rebalance, or remember different generations and claim what others claim."""
    sizes = draw(st.lists(st.integers(0, max_partitions), min_size=1, max_size=max_topics))
    partitions = {f"t{index}": range(size) for index, size in enumerate(sizes)}
    count = draw(st.integers(1, max_members))
    names = draw(st.permutations([f"m{index}" for index in range(count)]))
    static = draw(st.lists(st.none() | st.integers(0, 99), min_size=count, max_size=count))
    some_topics = st.lists(st.sampled_from([*partitions, *MISSING]), min_size=1, unique=True)
    common = draw(st.none() | some_topics)
    owned, generations = draw(_claims([TopicPartition(t, n) for t in partitions for n in partitions[t]], count))
    members = [
        GroupMember(
            member_id=name,
            instance_id=None if static[index] is None else f"s{static[index]}x{index}",
            topics=tuple(draw(some_topics) if common is None else common),
            owned=frozenset(owned[index]),
            generation=generations[index],
        )
        for index, name in enumerate(names)
    ]
    return Group(members, partitions)


@st.composite
def _claims(draw: Any, tps: list[TopicPartition], count: int) -> tuple[list[set[TopicPartition]], list[int]]:
    kind = draw(st.sampled_from(["none", "true", "contradicting"]))
    owned: list[set[TopicPartition]] = [set() for _ in range(count)]
    if kind == "none":
        return owned, [-1] * count
    claimants = st.integers(-1, count - 1)  # -1: no member
    for tp, claimant in zip(tps, draw(st.lists(claimants, min_size=len(tps), max_size=len(tps))), strict=True):
        if claimant >= 0:
            owned[claimant].add(tp)
    if kind == "true":
        return owned, [7] * count
    for tp, claimant in draw(st.lists(st.tuples(st.sampled_from(tps), claimants), max_size=20)) if tps else ():
        if claimant >= 0:
            owned[claimant].add(tp)
    return owned, draw(st.lists(st.sampled_from([-1, 5, 6, 7, 7]), min_size=count, max_size=count))


def partitions_of(assignment: Assignment) -> list[TopicPartition]:
    """All that was given, as often as it was given."""
    return list(itertools.chain.from_iterable(assignment.values()))


def subscribed_partitions(group: Group) -> set[TopicPartition]:
    """All that exists and has a subscriber."""
    topics = {topic for member in group.members for topic in member.topics}
    return {TopicPartition(t, n) for t, numbers in group.partitions.items() if t in topics for n in numbers}


def is_allowed(group: Group, assignment: Assignment) -> bool:
    """Whether each member has an entry, of its own topics, and no partition has two owners."""
    topics = {member.member_id: member.topics for member in group.members}
    given = partitions_of(assignment)
    return (
        assignment.keys() == topics.keys()
        and len(given) == len(set(given))
        and all(tp.topic in topics[member] for member, owned in assignment.items() for tp in owned)
    )


def is_complete(group: Group, assignment: Assignment) -> bool:
    """Whether it is valid, and each partition has an owner."""
    return is_allowed(group, assignment) and set(partitions_of(assignment)) == subscribed_partitions(group)


def unevenness(assignment: Assignment) -> int:
    """Kafka's balance score: differences of loads, over all pairs of members."""
    loads = [len(owned) for owned in assignment.values()]
    return sum(abs(one - other) for one, other in itertools.combinations(loads, 2))


def holders(group: Group) -> dict[TopicPartition, str | None]:
    """The member with the best claim to each claimed partition; None where several are equal."""
    found: dict[TopicPartition, str | None] = {}
    for tp in set(itertools.chain.from_iterable(member.owned for member in group.members)):
        claims = [(member.generation, member.member_id) for member in group.members if tp in member.owned]
        best = [member for generation, member in claims if generation == max(claims)[0]]
        found[tp] = best[0] if len(best) == 1 else None
    return found


def moves(group: Group, assignment: Assignment) -> int:
    """Partitions that a member holds and could keep, and that another one gets."""
    topics = {member.member_id: member.topics for member in group.members}
    held = {tp: m for tp, m in holders(group).items() if m is not None and tp.topic in topics[m]}
    return sum(held.get(tp, member) != member for member, owned in assignment.items() for tp in owned)


def as_sets(assignment: Assignment) -> dict[str, set[TopicPartition]]:
    """For comparison, in any order."""
    return {member: set(owned) for member, owned in assignment.items()}
