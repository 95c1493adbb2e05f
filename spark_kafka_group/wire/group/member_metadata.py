"""A member's metadata for the group's leader, in the bytes that Java's assignors write and read.

Range and round robin need the topics only. ``sticky`` puts the partitions a member had, and the generation it had them
in, into the user data. ``cooperative-sticky`` puts them into fields of the subscription (KIP-429, KIP-792), and the
generation into the user data as well, where leaders before those fields look.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from spark_kafka_group.assignors import NO_GENERATION, Claims, claims_of
from spark_kafka_group.values.offsets import TopicPartition, partitions_by_topic
from spark_kafka_group.values.retry_topics import is_topic_name

_PLAIN, _WITH_OWNED, _WITH_GENERATION = 0, 1, 3  # versions of ConsumerProtocolSubscription; Java's consumer writes 3
UNREADABLE = (struct.error, ValueError, TypeError, IndexError)


@dataclass(frozen=True)
class Claim:
    """Partitions a member says it owned, and the generation in which it got them."""

    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION


MARK = Claim(generation=0)  # a claim of nothing that differs from none


def encode(strategy: str, topics: Collection[str], claim: Claim, marked: bool = False) -> Any:
    """A subscription to send; only sticky strategies take the claim. A mark makes other bytes of the same meaning."""
    if marked and claim == Claim():
        claim = MARK
    if claims_of(strategy) is Claims.IN_USER_DATA:
        # Java compares generations of conflicting claims with the subscription's own field, so it is filled here too.
        user_data = StickyAssignorUserData(by_topic(claim.owned), claim.generation).encode(version=1, header=False)
        return ConsumerProtocolSubscription(
            _WITH_GENERATION, sorted(topics), user_data if claim != Claim() else b"", generation_id=claim.generation
        )
    if claims_of(strategy) is Claims.IN_FIELDS:
        owned = [ConsumerProtocolSubscription.TopicPartition(*topic) for topic in by_topic(claim.owned)]
        return ConsumerProtocolSubscription(
            _WITH_GENERATION, sorted(topics), struct.pack(">i", claim.generation), owned, claim.generation
        )
    # Not by user data: a librdkafka leader copies it into the assignment, and Kafka refuses a group with that to
    # consumers of its newer protocol.
    return ConsumerProtocolSubscription(_WITH_OWNED if marked else _PLAIN, sorted(topics), b"")


def decode(strategy: str, subscription: Any) -> Claim:
    """A member's claim; empty when it claims nothing, or its bytes cannot be read, as in Java."""
    if claims_of(strategy) is Claims.IN_USER_DATA:
        return _sticky(subscription.user_data or b"")
    if claims_of(strategy) is Claims.IN_FIELDS:
        generation = subscription.generation_id
        if generation < 0:
            generation = _leading_int32(subscription.user_data or b"")
        try:
            return Claim(_flat(subscription.owned_partitions or ()), generation)
        except UNREADABLE:  # nulls, where there is a topic or an array
            return Claim()
    return Claim()


def usable(data: bytes) -> bytes | None:
    """A member's subscription by which kafka-python can assign; None when its bytes are not those of one. A topic that
    no cluster can have would end the assignment. Without it the subscription claims nothing."""
    try:
        subscription = ConsumerProtocolSubscription.decode(data)
    except UNREADABLE:
        return None
    topics = [topic for topic in topics_of(subscription) if is_topic_name(topic)]
    return data if topics == subscription.topics else subscribed_to(topics)


def subscribed_to(topics: Collection[str]) -> bytes:
    """A subscription to `topics` that claims nothing."""
    return bytes(ConsumerProtocolSubscription(_PLAIN, list(topics), b"").encode())


def topics_of(subscription: Any) -> tuple[str, ...]:
    """The topics that a member subscribes to; those that are null are none."""
    return tuple(topic for topic in subscription.topics or () if topic is not None)


def _sticky(user_data: bytes) -> Claim:
    # Version 1, version 0 without generation, and the bytes of kafka-python's own sticky strategy: version 1 behind a
    # version number, which Java's cannot read.
    for version, behind in ((1, 0), (0, 0), (1, 2)):
        try:
            data = StickyAssignorUserData.decode(user_data[behind:], version=version, header=False)
            return Claim(_flat(data.previous_assignment), data.generation)
        except UNREADABLE:
            continue
    return Claim()


def _leading_int32(user_data: bytes) -> int:
    return int.from_bytes(user_data[:4], "big", signed=True) if len(user_data) >= 4 else NO_GENERATION


def by_topic(owned: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Topics and their partition numbers, both in order, as Kafka's messages have them."""
    return [(topic, [tp.partition for tp in tps]) for topic, tps in partitions_by_topic(owned).items()]


def _flat(topics: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(_text(t.topic), number) for t in topics for number in t.partitions)


def _text(topic: object) -> str:
    if not isinstance(topic, str):
        raise ValueError(f"{topic!r} is not a topic")
    return topic
