"""The group's own records in ``__consumer_offsets``: the coordinator's view, without the members' word."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from spark_kafka_group.offsets_topic import decoding
from spark_kafka_group.offsets_topic.consumer_group_records import CurrentAssignment, NewerGroupMember
from spark_kafka_group.testing import KafkaCluster, OffsetCommitted, read_group_log


def commits(kafka: KafkaCluster, group: str) -> list[dict[str, Any]]:
    """All commits, in order."""
    return [
        {"topic": c.topic, "partition": c.partition, "offset": c.offset, "metadata": c.metadata}
        for c in read_group_log(kafka, group)
        if isinstance(c, OffsetCommitted)
    ]


def generations(kafka: KafkaCluster, group: str, topic: str) -> list[dict[str, Any]]:
    """All generations with each member's assignment, in order, and the time when they were stored.

    While the group has members of the newer protocol, each member has assignments of its own under its own epochs: each
    is a generation of one member here. They name the one `topic` by an id.
    """
    found: list[dict[str, Any]] = []
    newer: dict[str, NewerGroupMember] = {}
    for time_ms, entry in entries(kafka, group):
        match entry:
            case decoding.GenerationEntry() if entry.group == group:
                members = [_member(m, _numbers(m.assignment)) for m in entry.members]
                found.append(_generation(entry.generation, entry.protocol, time_ms, members))
            case NewerGroupMember() if entry.group == group:
                newer[entry.member_id] = entry
            case CurrentAssignment() if entry.group == group and entry.member_id in newer:
                numbers = sorted(n for _, some in entry.assigned for n in some)
                members = [_member(newer[entry.member_id], {topic: numbers} if numbers else {})]
                found.append(_generation(entry.epoch, "consumer", time_ms, members))
    return found


def _generation(number: int, protocol: str | None, time_ms: int, members: list[dict[str, Any]]) -> dict[str, Any]:
    return {"generation": number, "protocol": protocol, "time_ms": time_ms, "members": members}


def _member(member: decoding.StoredMember | NewerGroupMember, numbers: dict[str, list[int]]) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "partitions": numbers,
    }


def entries(kafka: KafkaCluster, group: str) -> Iterator[tuple[int, decoding.Entry]]:
    """All records of the group's partition, in order, and when each was stored."""
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False, exclude_internal_topics=False
    )
    try:
        count = len(consumer.partitions_for_topic(decoding.OFFSETS_TOPIC) or ())
        tp = TopicPartition(decoding.OFFSETS_TOPIC, decoding.coordinator_partition(group, count))
        end = consumer.end_offsets([tp])[tp]
        consumer.assign([tp])
        consumer.seek_to_beginning(tp)
        while consumer.position(tp) < end:
            for records in consumer.poll(timeout_ms=200, max_records=10_000).values():
                for record in records:
                    yield record.timestamp, decoding.decode(record.key, record.value)
    finally:
        consumer.close(autocommit=False)


def _numbers(assignment: bytes) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for tp in sorted(decoding.assignment_of(assignment)):
        numbers.setdefault(tp.topic, []).append(tp.partition)
    return numbers


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
