"""The group's own records in ``__consumer_offsets``: generations and commits, in the order in which they happened.

Formats: ``OffsetCommitKey/Value`` and ``GroupMetadataKey/Value`` in Kafka's group-coordinator module. Values are
flexible, with compact strings and tagged fields, from version 4 on; Kafka 4.3 writes commits as version 4 and
generations as version 3.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_kafka_group.testing.cluster import KafkaCluster

OFFSETS_TOPIC = "__consumer_offsets"
FIRST_FLEXIBLE = 4
READ_WITHIN_S = 60.0


@dataclass(frozen=True)
class OffsetCommitted:
    """A committed offset; None when it was removed (a tombstone)."""

    group: str
    topic: str
    partition: int
    offset: int | None
    metadata: str
    timestamp_ms: int


@dataclass(frozen=True)
class GroupGeneration:
    """A generation as the coordinator stored it; without members when the last one left."""

    group: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[str, ...]


class _Bytes:
    """Reads Kafka's primitive types one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False

    def _number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._position)
        self._position += struct.calcsize(form)
        return int(value)

    def int16(self) -> int:
        return self._number(">h")

    def int32(self) -> int:
        return self._number(">i")

    def int64(self) -> int:
        return self._number(">q")

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._number(">B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def _sized(self, size: int) -> bytes | None:
        if size < 0:
            return None
        if self._position + size > len(self._data):
            raise ValueError(f"{size} bytes announced at {self._position} of {len(self._data)}")
        self._position += size
        return self._data[self._position - size : self._position]

    def string(self) -> str | None:
        text = self._sized(self._varint() - 1 if self.flexible else self.int16())
        return None if text is None else text.decode()

    def bytes(self) -> bytes | None:
        return self._sized(self._varint() - 1 if self.flexible else self.int32())

    def count(self) -> int:
        return self._varint() - 1 if self.flexible else self.int32()

    def tags(self) -> None:
        """Skip tagged fields."""
        if self.flexible:
            for _ in range(self._varint()):
                self._varint()
                self._sized(self._varint())


def decode(key: bytes, value: bytes | None) -> OffsetCommitted | GroupGeneration | None:
    """One record of the offsets topic; None for kinds of other group protocols, and for a group's tombstone."""
    keys = _Bytes(key)
    kind = keys.int16()
    group = keys.string() or ""
    if kind in (0, 1):
        topic, partition = keys.string() or "", keys.int32()
        if value is None:
            return OffsetCommitted(group, topic, partition, None, "", -1)
        return _commit(group, topic, partition, _Bytes(value))
    if kind == 2 and value is not None:
        return _generation(group, _Bytes(value))
    return None


def _commit(group: str, topic: str, partition: int, values: _Bytes) -> OffsetCommitted:
    version = values.int16()
    values.flexible = version >= FIRST_FLEXIBLE
    offset = values.int64()
    if version >= 3:
        values.int32()  # leader epoch
    metadata = values.string() or ""
    return OffsetCommitted(group, topic, partition, offset, metadata, values.int64())


def _generation(group: str, values: _Bytes) -> GroupGeneration:
    version = values.int16()
    values.flexible = version >= FIRST_FLEXIBLE
    values.string()  # protocol type
    generation, protocol, leader = values.int32(), values.string(), values.string()
    if version >= 2:
        values.int64()  # when the state was entered
    members = []
    for _ in range(values.count()):
        members.append(values.string() or "")
        if version >= 3:
            values.string()  # instance id
        values.string()  # client id
        values.string()  # client host
        if version >= 1:
            values.int32()  # rebalance timeout
        values.int32()  # session timeout
        values.bytes()  # subscription
        values.bytes()  # assignment
        values.tags()
    return GroupGeneration(group, generation, protocol, leader, tuple(members))


def read_group_log(kafka: KafkaCluster, group: str) -> list[OffsetCommitted | GroupGeneration]:
    """Everything the coordinator has written about a group up to now, in order.

    Raises
    ------
    TimeoutError
        When the brokers do not hand out what they say they have.
    """
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False, exclude_internal_topics=False
    )
    try:
        tps = [TopicPartition(OFFSETS_TOPIC, p) for p in consumer.partitions_for_topic(OFFSETS_TOPIC) or ()]
        if not tps:  # no group has ever been used
            return []
        ends = {tp: end for tp, end in consumer.end_offsets(tps).items() if end}
        consumer.assign(list(ends) or tps)
        consumer.seek_to_beginning()
        found = []
        deadline = time.monotonic() + READ_WITHIN_S
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{OFFSETS_TOPIC} not read in {READ_WITHIN_S:.0f} s")
            for records in consumer.poll(timeout_ms=200, max_records=10_000).values():
                found += [decode(record.key, record.value) for record in records]
    finally:
        consumer.close(autocommit=False)
    return [event for event in found if event is not None and event.group == group]
