"""Who is in a group: one way to ask, which works for each of Kafka's protocols and each broker.

A group is classic, or of the newer protocol (KIP-848), and becomes the other kind when members of the other kind join
and leave: its classic members stay members all the time. DescribeGroups knows classic groups only, and says of others,
depending on its version, that they are dead or not found; ConsumerGroupDescribe knows the others only, and brokers
before Kafka 3.7 do not know it.

kafka-python has no schema of ConsumerGroupDescribe: Kafka's own is in the files of this name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from spark_kafka_group.offsets_topic.decoding import assignment_of
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.group.member_metadata import UNREADABLE, topics_of
from spark_kafka_group.wire.reactions import Reaction, Request, reaction_to


class ConsumerGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """For groups of the newer protocol, and for those with members of both."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[call-arg, misc]
    """Its members say their partitions by name; to a client that may not see one of their topics, nothing."""


CLASSIC, CONSUMER = "classic", "consumer"
DEAD = "Dead"
PROTOCOLS = {0: CLASSIC, 1: CONSUMER}
"""A member's protocol by its type in ConsumerGroupDescribe (KIP-1099); brokers before Kafka 4.0 do not say it."""


@dataclass(frozen=True)
class DescribedMember:
    """A member as the coordinator knows it; partitions are None where the bytes are not those of Kafka's consumers. Its
    topics are None where the coordinator does not show them, for example while a group rebalances."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: frozenset[TopicPartition] | None
    topics: frozenset[str] | None = None
    protocol: str | None = CLASSIC  # ``classic`` or ``consumer``; None where the broker does not say
    # In a ``consumer`` group: below the group's while the member has not taken part in the rebalance
    epoch: int | None = None

    @property
    def name(self) -> str:
        """Its group.instance.id; a dynamic member has none, and goes by the id that the coordinator gave it."""
        return self.instance_id or self.member_id


@dataclass(frozen=True)
class DescribedGroup:
    """A group as the coordinator knows it."""

    state: str  # Kafka's word, such as ``Stable`` or ``Empty``; ``Dead`` when the group does not exist
    kind: str  # ``classic`` or ``consumer``; or another one, such as ``share``: then members are not known here
    protocol_type: str  # ``consumer``, or another user of groups, for example ``connect``; empty without members
    strategy: str  # the assignment strategy its members agreed on, or the broker's; empty without members
    members: tuple[DescribedMember, ...] = ()
    epoch: int | None = None  # of a ``consumer`` group, its epoch in place of a generation; else None
    assigned_epoch: int | None = None  # the epoch for which the broker has assigned; else None

    @property
    def use(self) -> str:
        """What uses the group: ``consumer``, or another word, such as ``share``, ``streams`` or ``connect``."""
        return use_of(self.kind, self.protocol_type)

    @property
    def waits_for_a_join(self) -> bool:
        """Whether the broker assigns only once a member joins again, as all members are classic ones.

        1. The last member of the newer protocol leaves, or a classic one. The group stays one of the newer protocol, as
        the broker's group.consumer.migration.policy has no way back. 2. The coordinator has a new epoch, and would
        assign for it with the next heartbeat of a member of the newer protocol, or the next JoinGroup. 3. Classic
        members hear of a rebalance once it has assigned (Kafka 4.3), so they send heartbeats on and on, and no member
        gets the partitions.
        """
        behind = self.epoch is not None and self.assigned_epoch is not None and self.assigned_epoch < self.epoch
        return behind and all(member.protocol == CLASSIC for member in self.members)

    def static_member(self, instance_id: str) -> DescribedMember | None:
        """The member under this instance id (KIP-345)."""
        return next((member for member in self.members if member.instance_id == instance_id), None)


def use_of(kind: str, protocol_type: str) -> str:
    """What uses a group of that kind and protocol type, as :attr:`DescribedGroup.use`."""
    return (protocol_type or CONSUMER) if kind in (CLASSIC, CONSUMER) else kind


NO_GROUP = DescribedGroup(DEAD, CLASSIC, "", "")


def described(send: Callable[[Any], Any], group_id: str) -> DescribedGroup:
    """State and members of a group; of one that is neither classic nor ``consumer`` that there is none. `send`: sends a
    request to the group's coordinator and returns its response. Raises kafka.errors.KafkaError: the coordinator's
    answer instead."""
    # Asked for once more: a group that has gone back to the classic protocol in between was neither.
    for kind in (_classic, assigned_by_broker, _classic):
        group = kind(send, group_id)
        if group is not None:
            return group
    return NO_GROUP


def _classic(send: Callable[[Any], Any], group_id: str) -> DescribedGroup | None:
    (group,) = send(DescribeGroupsRequest(groups=[group_id])).groups
    if not _there(group, group_id):
        return None
    members = (
        DescribedMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            _decoded(m.member_assignment),
            _subscribed(m.member_metadata),
        )
        for m in group.members
    )
    return DescribedGroup(group.group_state, CLASSIC, group.protocol_type, group.protocol_data, tuple(members))


def assigned_by_broker(send: Callable[[Any], Any], group_id: str) -> DescribedGroup | None:
    """A group of the newer protocol, as :func:`described`; None for any other. Raises kafka.errors.KafkaError."""
    try:
        (group,) = send(ConsumerGroupDescribeRequest(group_ids=[group_id])).groups
    except kafka_errors.IncompatibleBrokerVersion:
        return None
    if not _there(group, group_id):
        return None
    members = (
        DescribedMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            _named(m.assignment),
            frozenset(m.subscribed_topic_names),
            PROTOCOLS.get(m.member_type),
            m.member_epoch,
        )
        for m in group.members
    )
    return DescribedGroup(
        group.group_state,
        CONSUMER,
        CONSUMER,
        group.assignor_name,
        tuple(members),
        group.group_epoch,
        group.assignment_epoch,
    )


def _there(group: Any, group_id: str) -> bool:
    if not group.error_code:
        return group.group_state not in ("", DEAD)
    error = kafka_errors.for_code(group.error_code)
    if reaction_to(error, Request.DESCRIBE) is Reaction.NO_SUCH_GROUP:
        return False
    raise error(f"group {group_id}")


def _decoded(assignment: Any) -> frozenset[TopicPartition] | None:
    try:
        return frozenset(assignment_of(bytes(assignment)))
    except ValueError:
        return None


def _subscribed(metadata: Any) -> frozenset[str] | None:
    try:
        return frozenset(topics_of(ConsumerProtocolSubscription.decode(bytes(metadata)))) if metadata else None
    except UNREADABLE:
        return None


def _named(assignment: Any) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions)
