"""Requests about a group's offsets that are sent without kafka-python's coordinator, and their responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from spark_kafka_group.offsets import TopicPartition, positions_to_json
from spark_kafka_group.wire.leader_epochs import NO_EPOCH

NO_GENERATION, NO_MEMBER = -1, ""

COMMIT_BYTES = 400_000
"""The most bytes of the records in the offsets topic that one request makes; message.max.bytes is 1 MiB by default."""
COMMIT_RECORD_BYTES = 50
"""The most bytes of a record of the offsets topic, without group, topic and metadata."""


def commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str,
    generation: int = NO_GENERATION,
    member_id: str = NO_MEMBER,
    instance_id: str | None = None,
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Any:
    """An OffsetCommit, in the name of a member or without one; up to version 8, the last that names topics."""
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    partition_type = topic_type.OffsetCommitRequestPartition
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_time_ms=-1,
        topics=[
            topic_type(
                name=topic,
                partitions=[
                    partition_type(
                        partition_index=int(partition),
                        committed_offset=offset,
                        committed_leader_epoch=epochs.get(TopicPartition(topic, int(partition)), NO_EPOCH),
                        committed_metadata=metadata,
                    )
                    for partition, offset in partitions.items()
                ],
            )
            for topic, partitions in positions_to_json(offsets).items()
        ],
        max_version=8,
    )


def fetch_all_request(group_id: str) -> Any:
    """An OffsetFetch of everything that a group has committed; up to version 7, the last for one group."""
    return OffsetFetchRequest(group_id=group_id, topics=None, require_stable=False, min_version=2, max_version=7)


def partitions_of(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of a response, each with its part."""
    for topic in answer.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition


def in_parts(offsets: Mapping[TopicPartition, int], common_bytes: int) -> Iterator[list[tuple[TopicPartition, int]]]:
    """`offsets` in parts that a broker takes at once.

    A coordinator writes the offsets of one request as one record batch, which must not outgrow message.max.bytes, and
    repeats group and metadata for each partition.
    """
    part: list[tuple[TopicPartition, int]] = []
    room = COMMIT_BYTES
    for tp, offset in offsets.items():
        size = common_bytes + len(tp.topic) + COMMIT_RECORD_BYTES
        if part and size > room:
            yield part
            part, room = [], COMMIT_BYTES
        part.append((tp, offset))
        room -= size
    yield part
