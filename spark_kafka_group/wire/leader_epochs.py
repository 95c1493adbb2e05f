"""Where the records of a leader epoch end in a log (KIP-320), as the log's leader says.

An epoch ends where the next one begins. So a log that lost its end, and has grown again under another leader, still
tells where it differs from the one before: there the epochs of that one end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import kafka.errors as kafka_errors
from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.structs import TopicPartition as KafkaTopicPartition

from spark_kafka_group.values.offsets import TopicPartition, partitions_by_topic
from spark_kafka_group.wire.lacking import version_of
from spark_kafka_group.wire.reactions import Reaction, Request, reaction_to

T = TypeVar("T")

NO_EPOCH = -1  # stands for an unknown epoch

VERSIONS_FROM = 3
"""The first version of OffsetForLeaderEpoch that is sent (Kafka 2.3): earlier ones need rights that consumers do not
have."""


class EpochAsked(NamedTuple):
    """A leader epoch whose end is looked up, on the leader that was elected as `current`."""

    epoch: int
    current: int


def can_be_asked(manager: Any) -> bool:
    """Whether brokers answer consumers."""
    return version_of(manager, OffsetForLeaderEpochRequest) >= VERSIONS_FROM


def by_leader(manager: Any, asked: Mapping[TopicPartition, T]) -> dict[int, dict[TopicPartition, T]]:
    """The part of `asked` that each leader is asked for. Raises LeaderNotAvailableError, which may pass."""
    by_node: dict[int, dict[TopicPartition, T]] = {}
    for tp, wanted in asked.items():
        node_id = manager.cluster.leader_for_partition(KafkaTopicPartition(*tp))
        if node_id in (None, -1):
            raise kafka_errors.LeaderNotAvailableError(f"{tp}")
        by_node.setdefault(node_id, {})[tp] = wanted
    return by_node


async def ends_of_epochs(manager: Any, asked: Mapping[TopicPartition, EpochAsked]) -> dict[TopicPartition, int | None]:
    """The end of each epoch, None where the leader knows of none; not there when a later leader than `current` was
    elected. Raises KafkaError: a retriable one where the leader is not known, or not yet `current`."""
    ends: dict[TopicPartition, int | None] = {}
    for node_id, of_node in by_leader(manager, asked).items():
        response = await manager.send(_request(of_node), node_id=node_id)
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.topic, partition.partition)
                error = kafka_errors.for_code(partition.error_code)
                if error is kafka_errors.NoError:
                    ends[tp] = partition.end_offset if partition.end_offset >= 0 else None
                elif reaction_to(error, Request.EPOCH_END) is not Reaction.LEADS_LATER:
                    raise error({tp.topic})
    return ends


def _request(asked: Mapping[TopicPartition, EpochAsked]) -> Any:
    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic

    def partition(tp: TopicPartition) -> Any:
        epoch, current = asked[tp]
        return topic_type.OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=current, leader_epoch=epoch
        )

    topics = partitions_by_topic(asked).items()
    return OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[topic_type(topic=topic, partitions=[partition(tp) for tp in tps]) for topic, tps in topics],
        min_version=VERSIONS_FROM,
    )
