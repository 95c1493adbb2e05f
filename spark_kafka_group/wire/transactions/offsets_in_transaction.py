"""Commits offsets of a consumer group in a transaction, as the member that has read up to them (KIP-447)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer import TxnOffsetCommitRequest

from spark_kafka_group.errors import BrokerError, MembershipError, TransactionError
from spark_kafka_group.text.foreign_text import listed
from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.values.source_offsets import SourceOffsets
from spark_kafka_group.wire.group.offset_requests import in_parts, topics_to_commit
from spark_kafka_group.wire.reactions import Request, name_of
from spark_kafka_group.wire.transactions.partition_client import PartitionClient
from spark_kafka_group.wire.transactions.transaction_client import TransactionClient
from spark_kafka_group.wire.transactions.transaction_requests import About

log = logging.getLogger(__name__)

COMMIT_FROM, COMMIT = 3, 3  # the version that first names the member, and the last one that goes with EndTxn 3
UNKNOWN_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno
GONE_AFTER_S = 5.0  # a coordinator hears of a new topic much sooner
FIND_COORDINATOR = 3  # the last version that looks up one group


def commit_offsets(
    client: TransactionClient, transactional_id: str, producer: ProducerIdAndEpoch, source: SourceOffsets
) -> None:
    """Have the transaction commit the offsets of a source, if its member is still in that generation of the group.
    Raises ProducerFencedError when the transaction is another producer's by now. Raises TransactionError when the group
    refuses the member: it was fenced, expelled, or has lost its partitions. Raises BrokerError."""
    if not source.offsets:
        return
    client.add_group(transactional_id, producer, source.group_id)
    doing = f"committing offsets of group {source.group_id} in the transaction of {transactional_id}"
    of_group = _GroupOffsets(client, source.group_id)
    for part in in_parts(source.offsets, len(source.group_id) + len(source.metadata.encode())):
        topics = tuple(sorted({tp.topic for tp, _ in part}))
        about = About(Request.COMMIT_IN_TRANSACTION, topics, source.group_id, transactional_id)
        try:
            _until_taken(client, doing, about, partial(of_group.commit, transactional_id, producer, source, part))
        except (BrokerError, MembershipError) as error:
            if error.__cause__ is not None and name_of(type(error.__cause__)) in NO_MEMBER:
                raise TransactionError(
                    f"{doing}: {name_of(type(error.__cause__))}: the source's member is not in generation "
                    f"{source.generation} any more: another process has taken its place, or its partitions are others'"
                ) from error
            raise


def _until_taken(
    client: TransactionClient,
    doing: str,
    about: About,
    commit: Callable[[float], set[TopicPartition]],
) -> None:
    """Commit until the coordinator, which may hear of new topics late, knows all partitions but deleted ones: rows that
    were read of those are published, and their offsets are of no use."""
    partitions = PartitionClient(client)
    since_s = time.monotonic()

    def attempt(left_ms: float) -> None:
        unknown = commit(left_ms)
        if not unknown:
            return
        if time.monotonic() - since_s < GONE_AFTER_S or any(partitions.has(tp) for tp in unknown):
            raise kafka_errors.UnknownTopicOrPartitionError(listed([str(tp) for tp in sorted(unknown)]))
        log.warning(
            "%s: %s were deleted since the batch was read, and are left out",
            doing, listed([str(tp) for tp in sorted(unknown)]),
        )  # fmt: skip

    client.retried(doing, attempt, about.request, about)


NO_MEMBER = frozenset(
    {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"}
)
"""Errors by which a group refuses a member."""


class _GroupOffsets:
    """The coordinator of a group."""

    def __init__(self, client: TransactionClient, group_id: str) -> None:
        self._client = client
        self._group_id = group_id
        self._node: int | None = None

    def commit(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        source: SourceOffsets,
        offsets: Sequence[tuple[TopicPartition, int]],
        left_ms: float,
    ) -> set[TopicPartition]:
        """Send one request; the partitions that the coordinator does not know. Raises kafka-python's errors."""
        try:
            if self._node is None:
                self._node = self._found(left_ms)
            node, request = self._node, _request(transactional_id, producer, source, offsets)
            response = self._client.send(request, node, left_ms)
            codes = {
                TopicPartition(topic.name, partition.partition_index): partition.error_code
                for topic in response.topics
                for partition in topic.partitions
            }
            unknown = {tp for tp, code in codes.items() if code == UNKNOWN_TOPIC}
            for tp in codes.keys() - unknown:
                _check(codes[tp], str(tp))
            return unknown
        except kafka_errors.KafkaError:
            self._node = None  # the next attempt looks it up
            raise

    def _found(self, left_ms: float) -> int:
        request = FindCoordinatorRequest(
            key=self._group_id, key_type=int(CoordinatorType.GROUP), max_version=FIND_COORDINATOR
        )
        found = self._client.run(left_ms, lambda: self._client.manager.send(request))
        _check(found.error_code, self._group_id)
        return int(found.node_id)


def _request(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    source: SourceOffsets,
    offsets: Sequence[tuple[TopicPartition, int]],
) -> Any:
    topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    partition_type = topic_type.TxnOffsetCommitRequestPartition
    topics = topics_to_commit(topic_type, partition_type, dict(offsets), source.leader_epochs, source.metadata)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id, group_id=source.group_id, producer_id=producer.producer_id,
        producer_epoch=producer.epoch, generation_id=source.generation, member_id=source.member_id,
        group_instance_id=source.instance_id, topics=topics, min_version=COMMIT_FROM, max_version=COMMIT,
    )  # fmt: skip


def _check(error_code: int, about: str) -> None:
    if error_code:
        raise kafka_errors.for_code(error_code)(about)
