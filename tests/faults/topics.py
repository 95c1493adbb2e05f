"""What is in topics, and where their logs end; and the group's own records, which are the coordinator's view."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from faults.evidence import TP, Place, Stored
from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.offsets_topic.consumer_group_records import CurrentAssignment, NewerGroupMember
from spark_kafka_group.testing import KafkaCluster
from spark_kafka_group.text.foreign_text import parsed

READ_WITHIN_S = 180.0


def ends_of(kafka: KafkaCluster, topics: Mapping[str, int], isolation: str = "read_uncommitted") -> dict[TP, int]:
    """Where the logs of topics with so many partitions end; what is behind an open transaction may be left out."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level=isolation)
    try:
        tps = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
        return {(tp.topic, tp.partition): end for tp, end in consumer.end_offsets(tps).items()}
    finally:
        consumer.close()


def open_transactions(kafka: KafkaCluster, topics: Mapping[str, int]) -> list[str]:
    """Partitions in which a transaction holds up readers with ``read_committed``."""
    everything, committed = (ends_of(kafka, topics, isolation) for isolation in ("read_uncommitted", "read_committed"))
    return [f"an open transaction in {t}-{p}" for (t, p), end in everything.items() if end != committed[t, p]]


def records(kafka: KafkaCluster, topics: Mapping[str, int], isolation: str = "read_uncommitted") -> dict[Place, str]:
    """All records that the topics have, by Kafka's own word: also those of transactions that were aborted."""
    found = whole(kafka, topics, isolation_level=isolation)
    return {(r.topic, r.partition, r.offset): r.value.decode() for r in found}


def whole(kafka: KafkaCluster, topics: Mapping[str, int], **settings: Any) -> Iterator[Any]:
    """Each record of topics, as kafka-python's consumer reads it.

    Raises
    ------
    TimeoutError
        Where the topics' ends are not reached.
    """
    tps = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
    return _each(kafka, tps, **settings)


def _each(kafka: KafkaCluster, tps: Iterable[TopicPartition], **settings: Any) -> Iterator[Any]:
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False, **settings)
    try:
        ends = consumer.end_offsets(tps)
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        deadline = time.monotonic() + READ_WITHIN_S
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the topics were not read within {READ_WITHIN_S:.0f} s")
            for polled in consumer.poll(timeout_ms=500, max_records=10_000).values():
                yield from polled
    finally:
        consumer.close(autocommit=False)


def group_records(kafka: KafkaCluster, group: str, topic: str | None = None) -> list[Stored]:
    """The group's generations and commits, in the order in which the coordinator stored them.

    While the group has members of the newer protocol, each member has assignments of its own under its own epochs. With
    a `topic`, which they name by an id, each is a generation of one member.
    """
    found: list[Stored] = []
    newer: dict[str, NewerGroupMember] = {}
    for time_ms, entry in _entries(kafka, group):
        match entry:
            case decoding.CommitEntry():
                note = parsed(entry.metadata) if entry.metadata.startswith("{") else None
                found.append(Stored(entry.commit_timestamp_ms, tp=tuple(entry.tp), offset=entry.offset, note=note))
            case decoding.OffsetRemoved():
                found.append(Stored(time_ms, tp=tuple(entry.tp)))
            case decoding.GenerationEntry():
                members = {
                    member.member_id: sorted(map(tuple, decoding.assignment_of(member.assignment)))
                    for member in entry.members
                }
                names = {member.member_id: _names(member) for member in entry.members}
                found.append(Stored(time_ms, generation=entry.generation, members=members, names=names))
            case NewerGroupMember():
                newer[entry.member_id] = entry
            case CurrentAssignment() if topic is not None and entry.member_id in newer:
                tps = sorted((topic, number) for _, numbers in entry.assigned for number in numbers)
                names = {entry.member_id: _names(newer[entry.member_id])}
                found.append(Stored(time_ms, generation=entry.epoch, members={entry.member_id: tps}, names=names))
    return found


def _names(member: decoding.StoredMember | NewerGroupMember) -> list[str]:
    return [name for name in (member.client_id, member.instance_id) if name is not None]


def _entries(kafka: KafkaCluster, group: str) -> Iterator[tuple[int, Any]]:
    """All records of a group, and when each was stored."""
    count = len(kafka.admin.describe_topics([decoding.OFFSETS_TOPIC])[0]["partitions"])
    tp = TopicPartition(decoding.OFFSETS_TOPIC, decoding.coordinator_partition(group, count))
    for record in _each(kafka, [tp], exclude_internal_topics=False):
        entry = decoding.decode(record.key, record.value)
        if entry is not None and getattr(entry, "group", None) == group:
            yield record.timestamp, entry
