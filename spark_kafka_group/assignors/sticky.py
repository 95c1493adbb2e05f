"""Strategy ``sticky``: as even as possible, and of all even assignments one that moves the fewest partitions
(KIP-54)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_kafka_group.assignors.balance import balanced
from spark_kafka_group.assignors.claims import holders
from spark_kafka_group.assignors.strategy import GroupMember
from spark_kafka_group.assignors.subscribers import by_topic
from spark_kafka_group.values.offsets import TopicPartition


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
    """Partitions of one topic, as many as wanted to each: first its own, then free ones and those that others give
    up."""
    kept = {member: numbers[: wanted[member]] for member, numbers in owned.items()}
    given_up = [number for member, numbers in owned.items() for number in numbers[wanted[member] :]]
    rest = iter(sorted(free + given_up))
    return {m: sorted(kept[m] + [next(rest) for _ in range(wanted[m] - len(kept[m]))]) for m in owned}
