"""What a query reads: topics, topics by pattern, or partitions."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from spark_kafka_group.offsets import TopicPartition


@dataclass(frozen=True)
class Subscription:
    """One of three ways to say what is read; the first two take part in group management.

    Attributes
    ----------
    topics
        Topics by name (`subscribe`).
    pattern
        A regular expression to find in topics' names (`subscribePattern`); internal topics never match.
    partitions
        Partitions by name (`assign`): no membership, nobody else gets or takes them.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @property
    def manual(self) -> bool:
        """Whether the caller, and not the group, says which partitions are read."""
        return bool(self.partitions)

    def includes(self, topic: str) -> bool:
        """Whether `topic` is, or would be, read."""
        if self.pattern is not None:
            return re.search(self.pattern, topic) is not None
        return topic in self.topics or any(tp.topic == topic for tp in self.partitions)

    def has(self, tp: TopicPartition) -> bool:
        """Whether `tp` is, or would be, read."""
        return tp in self.partitions if self.manual else self.includes(tp.topic)

    def named(self) -> set[str]:
        """Topics that were named one by one, so that each is expected to exist."""
        return set(self.topics) | {tp.topic for tp in self.partitions}

    def missing(self, existing: Collection[TopicPartition]) -> list[str]:
        """What was named and does not exist: topics, or partitions where those were named."""
        if self.manual:
            return sorted(map(str, self.partitions - set(existing)))
        return sorted(set(self.topics) - {tp.topic for tp in existing})
