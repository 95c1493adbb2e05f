"""Strategy ``roundrobin``: all partitions dealt one by one."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence

from spark_kafka_group.assignors.strategy import GroupMember
from spark_kafka_group.assignors.subscribers import by_topic, in_order
from spark_kafka_group.values.offsets import TopicPartition


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
