"""The group's own records in ``__consumer_offsets``: generations and commits, in the order in which they happened."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.offsets_topic.decoding import OFFSETS_TOPIC

if TYPE_CHECKING:
    from spark_kafka_group.testing.cluster import KafkaCluster

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


def decode(key: bytes, value: bytes | None) -> OffsetCommitted | GroupGeneration | None:
    """One record of the offsets topic; None for kinds of other group protocols, and for a group's tombstone. Raises
    ValueError when the bytes are of another kind."""
    entry = decoding.decode(key, value)
    match entry:
        case decoding.CommitEntry():
            return OffsetCommitted(entry.group, *entry.tp, entry.offset, entry.metadata, entry.commit_timestamp_ms)
        case decoding.OffsetRemoved():
            return OffsetCommitted(entry.group, *entry.tp, None, "", -1)
        case decoding.GenerationEntry():
            members = tuple(member.member_id for member in entry.members)
            return GroupGeneration(entry.group, entry.generation, entry.protocol, entry.leader, members)
        case decoding.Undecodable():
            raise ValueError(entry.problem)
        case _:
            return None


def read_group_log(kafka: KafkaCluster, group: str) -> list[OffsetCommitted | GroupGeneration]:
    """Everything the coordinator has written about a group up to now, in order.

    Raises
    ------
    TimeoutError
        When brokers do not send records that they report.
    """
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False, exclude_internal_topics=False
    )
    try:
        partitions = consumer.partitions_for_topic(OFFSETS_TOPIC)
        if not partitions:  # no group has ever been used
            return []
        tp = TopicPartition(OFFSETS_TOPIC, decoding.coordinator_partition(group, len(partitions)))
        end = consumer.end_offsets([tp])[tp]
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        written = []
        deadline = time.monotonic() + READ_WITHIN_S
        while consumer.position(tp) < end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{OFFSETS_TOPIC} was not read to its end within {READ_WITHIN_S:.0f} s")
            for records in consumer.poll(timeout_ms=200, max_records=10_000).values():
                written += [decode(record.key, record.value) for record in records]
    finally:
        consumer.close(autocommit=False)
    return [event for event in written if event is not None and event.group == group]
