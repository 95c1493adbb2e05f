"""Records of ``__consumer_offsets`` as values, and where a group's are. Values only, no I/O.

Formats are those of Kafka's group-coordinator module: ``OffsetCommitKey``/``Value``, ``GroupMetadataKey``/``Value``.
A key begins with the kind of the record, a value with the version of its layout. Values from version 4 on are flexible:
strings and arrays have compact lengths, and every structure ends in tagged fields, which are skipped. Kafka 4.3 writes
commits as version 4 and generations as version 3. A generation's record has the members' subscriptions and assignments
(``ConsumerProtocolSubscription``, ``ConsumerProtocolAssignment``), in bytes that the members wrote. A group of the
newer protocol has no generations, but the records of ``consumer_group_records``.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.offsets_topic import consumer_group_records
from spark_kafka_group.offsets_topic.consumer_group_records import NewerEntry
from spark_kafka_group.offsets_topic.kafka_bytes import KafkaBytes
from spark_kafka_group.values.offsets import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_KINDS = (0, 1)
GROUP_KIND = 2
NEWEST_VALUE, FIRST_FLEXIBLE = 4, 4

OTHER_KINDS = {
    9: "share group partition metadata",
    10: "share group member metadata",
    11: "share group metadata",
    12: "share group target assignment metadata",
    13: "share group target assignment member",
    14: "share group current member assignment",
    15: "share group state partition metadata",
    17: "streams group metadata",
    18: "streams group partition metadata",
    19: "streams group member metadata",
    20: "streams group target assignment metadata",
    21: "streams group target assignment member",
    22: "streams group current member assignment",
    23: "streams group topology",
}
"""Kinds that are of no group of consumers (``CoordinatorRecordType``); all their keys begin with the group."""


@dataclass(frozen=True)
class CommitEntry:
    """A committed offset; a field that its version does not have is None."""

    group: str
    tp: TopicPartition
    offset: int
    metadata: str
    commit_timestamp_ms: int
    leader_epoch: int | None = None
    expire_timestamp_ms: int | None = None


@dataclass(frozen=True)
class OffsetRemoved:
    """A committed offset expired or was deleted (a tombstone)."""

    group: str
    tp: TopicPartition


@dataclass(frozen=True)
class StoredMember:
    """A member of a generation; subscription and assignment are bytes of the group's protocol type."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rebalance_timeout_ms: int | None
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True)
class GenerationEntry:
    """A generation as the coordinator stored it; without members when the last one left."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int | None
    members: tuple[StoredMember, ...]


@dataclass(frozen=True)
class GroupRemoved:
    """The group was deleted (a tombstone)."""

    group: str


@dataclass(frozen=True)
class OtherRecord:
    """A record of another kind, which is not decoded; the group is None where even that could not be read."""

    group: str | None
    kind: int
    removed: bool

    @property
    def name(self) -> str:
        return OTHER_KINDS.get(self.kind, "unknown")


@dataclass(frozen=True)
class Undecodable:
    """Bytes that do not fit their kind and version; the group is None when the key is damaged."""

    group: str | None
    problem: str


Entry = CommitEntry | OffsetRemoved | GenerationEntry | GroupRemoved | NewerEntry | OtherRecord | Undecodable


def coordinator_partition(group: str, partitions: int) -> int:
    """The partition of the offsets topic with everything about `group`; its leader is the group's coordinator. Java's
    ``String.hashCode`` over UTF-16 units, as a 32-bit number, without its sign (Kafka's ``Utils.abs``)."""
    units = group.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def decode(key: bytes | None, value: bytes | None) -> Entry:
    """One record of the offsets topic. Never fails: bytes that cannot be read become an :class:`Undecodable`."""
    kind, group, where = None, None, "key"
    try:
        if key is None:
            raise ValueError("there is none")
        keys = KafkaBytes(key)
        kind = keys.int16()
        if kind < 0:
            raise ValueError(f"kind {kind} cannot be")
        group = keys.string()
        if kind in OFFSET_KINDS:
            tp = TopicPartition(keys.string(), keys.int32())
            keys.end()
            where = f"value of the offset of {tp}"
            return OffsetRemoved(group, tp) if value is None else _offset(group, tp, KafkaBytes(value))
        if kind == GROUP_KIND:
            keys.end()
            where = "value of the generation"
            return GroupRemoved(group) if value is None else _generation(group, KafkaBytes(value))
        if kind in consumer_group_records.NAMES:
            about = consumer_group_records.about_of(kind, keys)
            where = f"value of {consumer_group_records.named(kind, about)}"
            return consumer_group_records.entry_of(kind, group, about, value)
        return OtherRecord(group, kind, value is None)
    except ValueError as error:
        if kind is not None and kind > GROUP_KIND and kind not in consumer_group_records.NAMES:
            return OtherRecord(None, kind, value is None)  # a newer layout of keys
        return Undecodable(group, f"{where}: {error}")


def _offset(group: str, tp: TopicPartition, values: KafkaBytes) -> CommitEntry:
    version = values.value_version(NEWEST_VALUE, FIRST_FLEXIBLE)
    offset = values.int64()
    leader_epoch = values.int32() if version >= 3 else None
    metadata, timestamp_ms = values.string(), values.int64()
    expire_timestamp_ms = values.int64() if version == 1 else None
    values.tags()
    values.end()
    return CommitEntry(group, tp, offset, metadata, timestamp_ms, leader_epoch, expire_timestamp_ms)


def _generation(group: str, values: KafkaBytes) -> GenerationEntry:
    version = values.value_version(NEWEST_VALUE, FIRST_FLEXIBLE)
    protocol_type, generation = values.string(), values.int32()
    protocol, leader = values.nullable_string(), values.nullable_string()
    state_timestamp_ms = values.int64() if version >= 2 else None
    members = tuple(_member(version, values) for _ in range(values.count()))
    values.tags()
    values.end()
    return GenerationEntry(group, protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _member(version: int, values: KafkaBytes) -> StoredMember:
    member = StoredMember(
        member_id=values.string(),
        instance_id=values.nullable_string() if version >= 3 else None,
        client_id=values.string(),
        host=values.string(),
        rebalance_timeout_ms=values.int32() if version >= 1 else None,
        session_timeout_ms=values.int32(),
        subscription=values.nullable_bytes() or b"",
        assignment=values.nullable_bytes() or b"",
    )
    values.tags()
    return member


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
    """A member's subscription, read as the newest known version: later ones only append. Raises ValueError."""
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
    """A member's partitions; the coordinator stores no bytes while nothing is assigned. Raises ValueError."""
    if not data:
        return ()
    fields = KafkaBytes(data)
    fields.protocol_version()
    return fields.partitions()
