"""Strategy ``range``: each topic's partitions in consecutive runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from spark_kafka_group.assignors.strategy import GroupMember
from spark_kafka_group.assignors.subscribers import by_topic
from spark_kafka_group.values.offsets import TopicPartition


class Range:
    """Kafka's ``RangeAssignor`` for members without racks.

    Topics are looked at one by one, so with many topics the first members get more; in return
    partitions with one number, of topics with as many, go to one member.
    """

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
