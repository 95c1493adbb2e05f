"""Kafka's own assignors and codecs, in a JVM that lives as long as the tests that ask it.

Members cross as the bytes that they are on the wire, and assignments as text, so that each takes few calls.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from py4j.java_gateway import get_field
from support.java_gateway import JavaError, JavaProcess

from spark_kafka_group.assignors import NO_GENERATION, GroupMember
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.member_metadata import Claim, encode

__all__ = ["Java", "JavaError"]

CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
TOPIC_PARTITION = re.compile(r"(\w+)-(\d+)")


class Java(JavaProcess):
    """Kafka's classes of consumers."""

    def __init__(self) -> None:
        super().__init__()
        self._consumer = self.kafka.clients.consumer
        self._protocol = self._consumer.internals.ConsumerProtocol
        self._topic_partition = self.kafka.common.TopicPartition

    def assign(
        self, strategy: str, members: Sequence[GroupMember], partitions: Mapping[str, Collection[int]]
    ) -> dict[str, list[TopicPartition]]:
        """The assignment of Java's strategy of that name for the same members."""
        sizes, subscriptions = self.java.util.HashMap(), self.java.util.HashMap()
        for topic in {topic for member in members for topic in member.topics}:
            if partitions.get(topic):
                sizes.put(topic, len(partitions[topic]))
        for member in members:
            claim = Claim(member.owned, member.generation)
            subscription = self.subscription(encode(strategy, member.topics, claim).encode())
            if member.instance_id is not None:
                subscription.setGroupInstanceId(self.java.util.Optional.of(member.instance_id))
            subscriptions.put(member.member_id, subscription)
        return _assignment(self.assignor(strategy).assign(sizes, subscriptions).toString())

    def assignor(self, strategy: str) -> Any:
        """A new object of Java's class."""
        return getattr(self._consumer, CLASSES[strategy])()

    def subscription(self, encoded: bytes) -> Any:
        """A member's bytes, as Java reads them."""
        return self._protocol.deserializeSubscription(self.java.nio.ByteBuffer.wrap(encoded))

    def member_bytes(self, strategy: str, topics: Sequence[str], claim: Claim | None, version: int) -> bytes:
        """The subscription of a Java consumer with `claim` as its last assignment."""
        assignor = self.assignor(strategy)
        owned = self.java.util.ArrayList()
        if claim is not None:
            for tp in sorted(claim.owned):
                owned.add(self._topic_partition(tp.topic, tp.partition))
            metadata = self._consumer.ConsumerGroupMetadata("g", claim.generation, "m", self.java.util.Optional.empty())
            assignor.onAssignment(self._consumer.ConsumerPartitionAssignor.Assignment(owned), metadata)
        user_data = assignor.subscriptionUserData(self.java.util.HashSet(list(topics)))
        # An eager consumer has given back what it owned before it joins; a cooperative one still has it.
        still_owned = owned if strategy == "cooperative-sticky" else self.java.util.ArrayList()
        subscription = self._consumer.ConsumerPartitionAssignor.Subscription(
            list(topics), user_data, still_owned, -1 if claim is None else claim.generation,
            self.java.util.Optional.of("rack"),
        )  # fmt: skip
        short = self.java.lang.Short.parseShort(str(version))
        return bytes(self._protocol.serializeSubscription(subscription, short).array())

    def claim(self, strategy: str, subscription: Any) -> Claim:
        """The claim that Java's sticky strategies read from a subscription; protected, hence reflection."""
        assignor = self.assignor(strategy)
        parameters = self.gateway.new_array(self.java.lang.Class, 1)
        parameters[0] = subscription.getClass()
        arguments = self.gateway.new_array(self.java.lang.Object, 1)
        arguments[0] = subscription
        method = assignor.getClass().getDeclaredMethod("memberData", parameters)
        method.setAccessible(True)
        data = method.invoke(assignor, arguments)
        owned = re.findall(TOPIC_PARTITION, get_field(data, "partitions").toString())
        generation = get_field(data, "generation").orElse(NO_GENERATION)
        return Claim(frozenset(TopicPartition(topic, int(number)) for topic, number in owned), generation)


def _assignment(text: str) -> dict[str, list[TopicPartition]]:
    """``{a=[t-0, u-1], b=[]}`` as a value."""
    return {
        member: [TopicPartition(topic, int(number)) for topic, number in re.findall(TOPIC_PARTITION, listed)]
        for member, listed in re.findall(r"(\w+)=\[([^]]*)\]", text)
    }
