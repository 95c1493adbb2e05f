"""Records of ``__consumer_offsets`` as values, and where a group's are. Values only, no I/O.

Formats are those of Kafka's group-coordinator module: ``OffsetCommitKey``/``Value``, ``GroupMetadataKey``/``Value``.
A key begins with the kind of the record, a value with the version of its layout. Values from version 4 on are flexible:
strings and arrays have compact lengths, and every structure ends in tagged fields, which are skipped. Kafka 4.3 writes
commits as version 4 and generations as version 3. Members' subscriptions and assignments are
``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``, inside a generation's record.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_kafka_group.offsets import TopicPartition

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_KINDS = (0, 1)
GROUP_KIND = 2
NEWEST_VALUE, FIRST_FLEXIBLE = 4, 4
NEWEST_PROTOCOL = 3

OTHER_KINDS = {
    3: "consumer group metadata",
    4: "consumer group partition metadata",
    5: "consumer group member metadata",
    6: "consumer group target assignment metadata",
    7: "consumer group target assignment member",
    8: "consumer group current member assignment",
    9: "share group partition metadata",
    10: "share group member metadata",
    11: "share group metadata",
    12: "share group target assignment metadata",
    13: "share group target assignment member",
    14: "share group current member assignment",
    15: "share group state partition metadata",
    16: "consumer group regular expression",
    17: "streams group metadata",
    18: "streams group partition metadata",
    19: "streams group member metadata",
    20: "streams group target assignment metadata",
    21: "streams group target assignment member",
    22: "streams group current member assignment",
    23: "streams group topology",
}
"""Kinds that groups of the newer protocols write (``CoordinatorRecordType``); all their keys begin with the group."""


@dataclass(frozen=True)
class OffsetCommitted:
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
class Member:
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
class GroupGeneration:
    """A generation as the coordinator stored it; without members when the last one left."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int | None
    members: tuple[Member, ...]


@dataclass(frozen=True)
class GroupRemoved:
    """The group was deleted (a tombstone)."""

    group: str


@dataclass(frozen=True)
class OtherRecord:
    """A record of a newer kind, which is not decoded; the group is None where even that could not be read."""

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


Entry = OffsetCommitted | OffsetRemoved | GroupGeneration | GroupRemoved | OtherRecord | Undecodable


@dataclass(frozen=True)
class Subscription:
    """A member's subscription: topics, and from version 1 on its earlier partitions and their generation."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...]
    generation: int | None
    rack: str | None


def coordinator_partition(group: str, partitions: int) -> int:
    """The partition of the offsets topic with everything about `group`; its leader is the group's coordinator.

    Java's ``String.hashCode`` over UTF-16 units, as a 32-bit number, without its sign (Kafka's ``Utils.abs``).
    """
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
        keys = _Bytes(key)
        kind = keys.int16()
        if kind < 0:
            raise ValueError(f"kind {kind} cannot be")
        group = keys.string()
        if kind in OFFSET_KINDS:
            tp = TopicPartition(keys.string(), keys.int32())
            keys.end()
            where = f"value of the offset of {tp}"
            return OffsetRemoved(group, tp) if value is None else _offset(group, tp, _Bytes(value))
        if kind == GROUP_KIND:
            keys.end()
            where = "value of the generation"
            return GroupRemoved(group) if value is None else _generation(group, _Bytes(value))
        return OtherRecord(group, kind, value is None)
    except ValueError as error:
        if kind is not None and kind > GROUP_KIND:
            return OtherRecord(None, kind, value is None)  # a newer layout of keys
        return Undecodable(group, f"{where}: {error}")


def subscription_of(data: bytes) -> Subscription:
    """A member's subscription; later versions only append, so they are read as the newest one known.

    Raises
    ------
    ValueError
        When the bytes are something else.
    """
    if not data:
        return Subscription(0, (), (), None, None)
    fields = _Bytes(data)
    version = fields.protocol_version()
    topics = tuple(fields.string() for _ in range(fields.count()))
    fields.nullable_bytes()  # user data
    owned = fields.partitions() if version >= 1 else ()
    generation = fields.int32() if version >= 2 else None
    return Subscription(version, topics, owned, generation, fields.nullable_string() if version >= 3 else None)


def assignment_of(data: bytes) -> tuple[TopicPartition, ...]:
    """A member's partitions; no bytes, which the coordinator stores while nothing is assigned, are none.

    Raises
    ------
    ValueError
        When the bytes are something else.
    """
    if not data:
        return ()
    fields = _Bytes(data)
    fields.protocol_version()
    return fields.partitions()


def _offset(group: str, tp: TopicPartition, values: _Bytes) -> OffsetCommitted:
    version = values.value_version()
    offset = values.int64()
    leader_epoch = values.int32() if version >= 3 else None
    metadata, timestamp_ms = values.string(), values.int64()
    expire_timestamp_ms = values.int64() if version == 1 else None
    values.tags()
    values.end()
    return OffsetCommitted(group, tp, offset, metadata, timestamp_ms, leader_epoch, expire_timestamp_ms)


def _generation(group: str, values: _Bytes) -> GroupGeneration:
    version = values.value_version()
    protocol_type, generation = values.string(), values.int32()
    protocol, leader = values.nullable_string(), values.nullable_string()
    state_timestamp_ms = values.int64() if version >= 2 else None
    members = tuple(_member(version, values) for _ in range(values.count()))
    values.tags()
    values.end()
    return GroupGeneration(group, protocol_type, generation, protocol, leader, state_timestamp_ms, members)


def _member(version: int, values: _Bytes) -> Member:
    member = Member(
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


class _Bytes:
    """Kafka's primitive types, read one after the other; ValueError for impossible bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self._flexible = False

    def value_version(self) -> int:
        """The version that begins a value; it decides how lengths are read."""
        version = self.int16()
        if not 0 <= version <= NEWEST_VALUE:
            raise ValueError(f"version {version} is not known, only 0 to {NEWEST_VALUE} are")
        self._flexible = version >= FIRST_FLEXIBLE
        return version

    def protocol_version(self) -> int:
        """The version that begins a subscription or assignment."""
        version = self.int16()
        if version < 0:
            raise ValueError(f"version {version} cannot be")
        return min(version, NEWEST_PROTOCOL)

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError(f"null at {self._position}, where a string must be")
        return text

    def nullable_string(self) -> str | None:
        size = self._varint() - 1 if self._flexible else self.int16()
        return None if size == -1 else self._take(size).decode()

    def nullable_bytes(self) -> bytes | None:
        size = self._varint() - 1 if self._flexible else self.int32()
        return None if size == -1 else self._take(size)

    def count(self) -> int:
        """Elements of an array; each takes at least one byte."""
        count = self._varint() - 1 if self._flexible else self.int32()
        if not 0 <= count <= len(self._data) - self._position:
            raise ValueError(f"{count} elements announced at {self._position} of {len(self._data)} bytes")
        return count

    def partitions(self) -> tuple[TopicPartition, ...]:
        owned = []
        for _ in range(self.count()):
            topic = self.string()
            owned += [TopicPartition(topic, self.int32()) for _ in range(self.count())]
        return tuple(owned)

    def tags(self) -> None:
        """Skip tagged fields; there are none before the first flexible version."""
        if self._flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def end(self) -> None:
        """Be at the end."""
        left = len(self._data) - self._position
        if left:
            raise ValueError(f"{left} bytes are left over after {self._position}")

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
        raise ValueError(f"the number that ends at {self._position} has more than 32 bits")

    def _take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._position:
            raise ValueError(f"{size} bytes announced at {self._position} of {len(self._data)}")
        self._position += size
        return self._data[self._position - size : self._position]
