"""Subscriptions and assignments of Kafka's consumers as values, from bytes that others wrote. Values only, no I/O.

Kafka's ``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.offsets_topic.kafka_bytes import KafkaBytes
from spark_kafka_group.values.offsets import TopicPartition

NEWEST_PROTOCOL = 3


@dataclass(frozen=True)
class MemberSubscription:
    """A member's subscription: topics, and from version 1 on its earlier partitions and their generation."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    generation: int | None
    rack: str | None


def subscription_of(data: bytes) -> MemberSubscription:
    """A member's subscription; later versions only append, so they are read as the newest one known.

    Raises
    ------
    ValueError
        When the bytes are something else.
    """
    if not data:
        return MemberSubscription(0, (), (), None, None)
    fields = KafkaBytes(data)
    version = min(fields.protocol_version(), NEWEST_PROTOCOL)
    topics = tuple(fields.string() for _ in range(fields.count()))
    fields.nullable_bytes()  # user data
    owned = fields.partitions() if version >= 1 else ()
    generation = fields.int32() if version >= 2 else None
    return MemberSubscription(version, topics, owned, generation, fields.nullable_string() if version >= 3 else None)


def assignment_of(data: bytes) -> tuple[TopicPartition, ...]:
    """A member's partitions; no bytes, which the coordinator stores while nothing is assigned, are none.

    Raises
    ------
    ValueError
        When the bytes are something else.
    """
    if not data:
        return ()
    fields = KafkaBytes(data)
    fields.protocol_version()
    return fields.partitions()
