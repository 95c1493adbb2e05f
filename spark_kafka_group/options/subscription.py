"""The subscription of a query: topics, topics by pattern, or partitions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from spark_kafka_group.options.java_pattern import in_python
from spark_kafka_group.options.transacting import DECISION_TOPIC
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.retry_topics import dead_letter_topic, delay_of, main_topic


@dataclass(frozen=True)
class Subscription:
    """One of three kinds of subscription; the first two take part in group management.

    Attributes
    ----------
    topics
        Topics by name (`subscribe`).
    pattern
        A regular expression of Java to find in topics' names (`subscribePattern`). Internal topics never match, nor
        does that of the sink's decisions: with an exactly-once sink each micro-batch would write a record for the next
        one.
    partitions
        Partitions by name (`assign`): without membership, so no other member gets or takes them.
    delays_ms
        Delays of retry topics (`retryTopics`) that are read too: those of `topics` are among these, and those of topics
        that the pattern finds need not be found by it. Dead-letter topics of its matches are not read then.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()
    delays_ms: tuple[int, ...] = ()

    @property
    def manual(self) -> bool:
        """Whether the caller, and not the group, says which partitions are read."""
        return bool(self.partitions)

    def includes(self, topic: str) -> bool:
        """Whether `topic` is, or would be, read."""
        if self.pattern is not None:
            return self._is_found_with_retries(topic) if self.delays_ms else self._is_found(topic)
        return topic in self.topics or any(tp.topic == topic for tp in self.partitions)

    def _is_found(self, topic: str) -> bool:
        return self.pattern is not None and topic != DECISION_TOPIC and bool(in_python(self.pattern).search(topic))

    def _is_found_with_retries(self, topic: str) -> bool:
        given_up = topic.removesuffix(dead_letter_topic(""))
        if given_up != topic and self._is_found(given_up):
            return False
        retried = main_topic(topic, self.delays_ms)
        has_retries = retried != topic and delay_of(retried, self.delays_ms) is None
        return self._is_found(topic) or (has_retries and self._is_found(retried))

    def has(self, tp: TopicPartition) -> bool:
        """Whether `tp` is, or would be, read."""
        return tp in self.partitions if self.manual else self.includes(tp.topic)

    def named(self) -> set[str]:
        """Topics that were named one by one, so that each is expected to exist."""
        return set(self.topics) | {tp.topic for tp in self.partitions}

    def missing(self, existing: Collection[TopicPartition]) -> list[str]:
        """Named topics, or named partitions, that do not exist."""
        if self.manual:
            return sorted(map(str, self.partitions - set(existing)))
        return sorted(set(self.topics) - {tp.topic for tp in existing})

    def missing_topics(self, existing: Collection[TopicPartition]) -> list[str]:
        """Topics of `subscribe` that do not exist. Retry topics are made for the first record that fails."""
        if self.manual:
            return []
        return [topic for topic in self.missing(existing) if main_topic(topic, self.delays_ms) == topic]


def no_topics(topics: Collection[str]) -> str:
    """An error's text about topics of `subscribe` that a read of all records up to now would miss."""
    return f"subscribe names {', '.join(topics)}, which the cluster does not have: create it, or correct its name"
