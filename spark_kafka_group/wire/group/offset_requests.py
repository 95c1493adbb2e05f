"""Requests about a group's offsets that are sent without kafka-python's coordinator, and their responses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from spark_kafka_group.values.offsets import TopicPartition, partitions_by_topic
from spark_kafka_group.wire.leader_epochs import NO_EPOCH

NO_GENERATION, NO_MEMBER = -1, ""

COMMIT_BYTES = 400_000
"""The most bytes of the records in the offsets topic that one request makes; message.max.bytes is 1 MiB by default."""
COMMIT_RECORD_BYTES = 50  # the most bytes of a record of the offsets topic, without group, topic and metadata


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
        topics=topics_to_commit(topic_type, partition_type, offsets, epochs, metadata),
        max_version=8,
    )


def topics_to_commit(
    topic_type: Any,
    partition_type: Any,
    offsets: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int],
    metadata: str,
) -> list[Any]:
    """The part of an OffsetCommit, or TxnOffsetCommit, that says what is committed."""

    def partition(tp: TopicPartition) -> Any:
        return partition_type(
            partition_index=tp.partition, committed_offset=offsets[tp],
            committed_leader_epoch=epochs.get(tp, NO_EPOCH), committed_metadata=metadata,
        )  # fmt: skip

    topics = partitions_by_topic(offsets).items()
    return [topic_type(name=topic, partitions=[partition(tp) for tp in tps]) for topic, tps in topics]


def fetch_request(group_id: str, tps: Collection[TopicPartition] | None, stable: bool) -> Any:
    """An OffsetFetch of partitions of a group; of everything that it has committed where they are None. Up to version 7
    a request is about one group, from version 8 on about several; the broker's version decides."""
    group_type = OffsetFetchRequest.OffsetFetchRequestGroup
    in_group, topics = None, None
    if tps is not None:
        wanted = {topic: [tp.partition for tp in of] for topic, of in partitions_by_topic(tps).items()}
        in_group = [group_type.OffsetFetchRequestTopics(name=t, partition_indexes=p) for t, p in wanted.items()]
        topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=t, partition_indexes=p) for t, p in wanted.items()]
    return OffsetFetchRequest(
        group_id=group_id,
        topics=topics,
        groups=[group_type(group_id=group_id, topics=in_group)],
        require_stable=stable,
        min_version=2 if tps is None else 0,
        max_version=8,
    )


def of_no_group(response: Any) -> Any:
    """A response without offsets where the group does not exist, as Kafka answers, and other brokers do not."""
    answer = _answer(response)
    if getattr(answer, "error_code", 0) == kafka_errors.GroupIdNotFoundError.errno:
        answer.error_code, answer.topics = 0, []
    return response


def fetched(response: Any) -> Any:
    """The answer about the one group that was asked for; raises kafka-python's error if it is one as a whole."""
    answer = _answer(of_no_group(response))
    code = answer.error_code if response.API_VERSION >= 2 else 0
    if code:
        raise kafka_errors.for_code(code)(f"group {getattr(answer, 'group_id', '')}")
    return answer


def _answer(response: Any) -> Any:
    return response.groups[0] if response.API_VERSION >= 8 else response


def partitions_of(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """The partitions of a response, each with its part."""
    for topic in answer.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition


def in_parts(offsets: Mapping[TopicPartition, int], common_bytes: int) -> Iterator[list[tuple[TopicPartition, int]]]:
    """`offsets` in parts that a broker takes at once. A coordinator writes the offsets of one request as one record
    batch, which must not outgrow message.max.bytes, and repeats group and metadata for each partition."""
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
