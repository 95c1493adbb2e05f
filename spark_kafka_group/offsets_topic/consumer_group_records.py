"""Records that groups of Kafka's newer protocol (KIP-848) write to ``__consumer_offsets``, as values. No I/O.

Formats are those of Kafka's group-coordinator module, ``ConsumerGroup…Key`` and ``…Value``. A group has an epoch, which
grows with each change of its members or topics. The broker assigns for an epoch (the target), and each member gets
there on its own: its assignment of now, with its own epoch, is another record. So a new generation, which is one record
of a classic group, is several here. Partitions are by the topic's id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_group.offsets_topic.kafka_bytes import KafkaBytes

NEWEST_VALUE, FIRST_FLEXIBLE = 0, 0
MEMBER_STATES = ("stable", "unrevoked partitions", "unreleased partitions")
"""``MemberState``: in the second a member has to give partitions back, in the third it waits for others to do so."""
OF_CLASSIC_MEMBER = 0  # tag of the field that only members of the classic protocol have

Partitions = tuple[tuple[str, tuple[int, ...]], ...]  # topic ids, and the partitions of each


@dataclass(frozen=True)
class GroupEpoch:
    """The group's epoch: its members, their subscriptions or its topics have changed."""

    group: str
    epoch: int


@dataclass(frozen=True)
class GroupTopics:
    """Topics that members subscribe to, with their numbers of partitions. Kafka 4.1 and later write none of these."""

    group: str
    topics: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class NewerGroupMember:
    """A member of a group of the newer protocol, itself of either. `assignor`: the broker's assignor that the member
    asks for, if it does. `session_timeout_ms`, `strategies`: of a member of the classic protocol only."""

    group: str
    member_id: str
    instance_id: str | None
    rack: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    pattern: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    session_timeout_ms: int | None = None
    strategies: tuple[str, ...] | None = None

    @property
    def protocol(self) -> str:
        """``classic`` or ``consumer``."""
        return "consumer" if self.strategies is None else "classic"


@dataclass(frozen=True)
class TargetEpoch:
    """The broker has assigned for this epoch of the group."""

    group: str
    epoch: int


@dataclass(frozen=True)
class TargetAssignment:
    """Partitions that a member is to get."""

    group: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True)
class CurrentAssignment:
    """Partitions that a member has, under its own epoch."""

    group: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: str  # one of :data:`MEMBER_STATES`, or ``unknown``
    assigned: Partitions
    revoking: Partitions  # partitions that it still has, and is to give back


@dataclass(frozen=True)
class PatternTopics:
    """Topics that a member's regular expression matches."""

    group: str
    pattern: str
    topics: tuple[str, ...]


@dataclass(frozen=True)
class NewerRecordRemoved:
    """A record of such a kind was removed (a tombstone): the member left, or the group went or became classic."""

    group: str
    kind: int
    about: str | None

    @property
    def name(self) -> str:
        return NAMES[self.kind]


NewerEntry = (
    GroupEpoch | GroupTopics | NewerGroupMember | TargetEpoch | TargetAssignment | CurrentAssignment | PatternTopics
    | NewerRecordRemoved
)  # fmt: skip

NAMES = {
    3: "consumer group metadata",
    4: "consumer group partition metadata",
    5: "consumer group member metadata",
    6: "consumer group target assignment metadata",
    7: "consumer group target assignment member",
    8: "consumer group current member assignment",
    16: "consumer group regular expression",
}
"""Kinds of records by Kafka's names (``CoordinatorRecordType``)."""
OF_A_PART = (5, 7, 8, 16)  # kinds with a key that names a member, or a regular expression, besides the group


def about_of(kind: int, keys: KafkaBytes) -> str | None:
    """What follows the group in a key: the record's member or regular expression. Raises ValueError."""
    about = keys.string() if kind in OF_A_PART else None
    keys.end()
    return about


def named(kind: int, about: str | None) -> str:
    """A record of one of :data:`NAMES`, for texts."""
    return NAMES[kind] if about is None else f"{NAMES[kind]} of {about}"


def entry_of(kind: int, group: str, about: str | None, value: bytes | None) -> NewerEntry:
    """A record of one of :data:`NAMES`. Raises ValueError when its bytes are something else."""
    if value is None:
        return NewerRecordRemoved(group, kind, about)
    values = KafkaBytes(value)
    values.value_version(NEWEST_VALUE, FIRST_FLEXIBLE)
    entry = READERS[kind](group, about or "", values)
    values.end()
    return entry


def _epoch(group: str, about: str, values: KafkaBytes) -> GroupEpoch:
    epoch = values.int32()
    values.tags()
    return GroupEpoch(group, epoch)


def _topics(group: str, about: str, values: KafkaBytes) -> GroupTopics:
    topics = tuple(_topic(values) for _ in range(values.count()))
    values.tags()
    return GroupTopics(group, topics)


def _topic(values: KafkaBytes) -> tuple[str, int]:
    values.uuid()
    topic = values.string(), values.int32()
    for _ in range(values.count()):  # racks of each partition
        values.int32()
        values.strings()
        values.tags()
    values.tags()
    return topic


def _member(group: str, member_id: str, values: KafkaBytes) -> NewerGroupMember:
    instance_id, rack = values.nullable_string(), values.nullable_string()
    client_id, host = values.string(), values.string()
    topics, pattern = values.strings(), values.nullable_string()
    rebalance_timeout_ms, assignor = values.int32(), values.nullable_string()
    classic = values.tags().get(OF_CLASSIC_MEMBER)
    session_timeout_ms, strategies = (None, None) if classic is None else _of_classic(classic)
    return NewerGroupMember(group, member_id, instance_id, rack, client_id, host, topics, pattern,
                            rebalance_timeout_ms, assignor, session_timeout_ms, strategies)  # fmt: skip


def _of_classic(values: KafkaBytes) -> tuple[int | None, tuple[str, ...] | None]:
    if not values.present():
        return None, None
    session_timeout_ms = values.int32()
    strategies = []
    for _ in range(values.count()):
        strategies.append(values.string())
        values.nullable_bytes()
        values.tags()
    values.tags()
    values.end()
    return session_timeout_ms, tuple(strategies)


def _target_epoch(group: str, about: str, values: KafkaBytes) -> TargetEpoch:
    epoch = values.int32()
    values.tags()
    return TargetEpoch(group, epoch)


def _target(group: str, member_id: str, values: KafkaBytes) -> TargetAssignment:
    partitions = _partitions(values)
    values.tags()
    return TargetAssignment(group, member_id, partitions)


def _current(group: str, member_id: str, values: KafkaBytes) -> CurrentAssignment:
    epoch, previous_epoch, state = values.int32(), values.int32(), values.int8()
    assigned, revoking = _partitions(values), _partitions(values)
    values.tags()
    named = MEMBER_STATES[state] if 0 <= state < len(MEMBER_STATES) else "unknown"
    return CurrentAssignment(group, member_id, epoch, previous_epoch, named, assigned, revoking)


def _partitions(values: KafkaBytes) -> Partitions:
    found = []
    for _ in range(values.count()):
        topic_id = values.uuid()
        found.append((topic_id, tuple(values.int32() for _ in range(values.count()))))
        values.tags()  # Kafka 4.3 has an epoch of each partition there
    return tuple(found)


def _pattern(group: str, pattern: str, values: KafkaBytes) -> PatternTopics:
    topics = values.strings()
    values.int64()  # the version of the metadata that it was matched with
    values.int64()  # and when
    values.tags()
    return PatternTopics(group, pattern, topics)


READERS: Mapping[int, Callable[[str, str, KafkaBytes], NewerEntry]] = {
    3: _epoch, 4: _topics, 5: _member, 6: _target_epoch, 7: _target, 8: _current, 16: _pattern,
}  # fmt: skip
