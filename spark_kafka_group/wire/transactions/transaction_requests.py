"""The requests about transactions, in versions that go together, and what their responses say.

Brokers from Kafka 4.0 on have another way to end transactions (KIP-890, transaction.version 2), which begins with
EndTxn 5: it raises the producer's epoch, so that a repeated request is told from the first one by its epoch. Here one
process writes and others end, and repeat. So requests stay below the versions that mean that way, on all brokers.

Attempts until a limit, with longer and longer pauses between them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from spark_kafka_group.values.exactly_once import ProducerIdAndEpoch
from spark_kafka_group.values.offsets import TopicPartition, partitions_by_topic
from spark_kafka_group.wire.client.connect import ms_until
from spark_kafka_group.wire.reactions import Facts, Request, advice

FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS, END = 4, 4, 3, 3  # the latest versions that are sent
BATCHED_FROM = 4  # the version of FindCoordinator that first looks several ids up (Kafka 3.0)
RESUMED_FROM = 3  # the version of InitProducerId that first names the producer that is expected (KIP-360, Kafka 2.5)
NO_PRODUCER = ProducerIdAndEpoch(-1, -1)

OPEN, ABORTED = "Ongoing", "CompleteAbort"
ABORTING = frozenset({"PrepareAbort", "PrepareEpochFence"})
COMMITTED = frozenset({"PrepareCommit", "CompleteCommit"})
"""States of a transaction that is committed, or certain to be."""


@dataclass(frozen=True)
class Described:
    """A transactional id as its coordinator describes it."""

    transactional_id: str
    state: str  # in Kafka's word, ``Ongoing`` for one that is open
    producer: ProducerIdAndEpoch
    timeout_ms: int
    started_ms: int  # when the transaction began, by the coordinator's clock; -1 where none is open
    partitions: tuple[TopicPartition, ...]

    @property
    def open(self) -> bool:
        """Whether records can be added, and it can end in either way."""
        return self.state == OPEN

    @property
    def is_under_way(self) -> bool:
        """Whether it is open, or its end is not written to all partitions."""
        return self.open or self.is_being_aborted or self.state == "PrepareCommit"

    @property
    def aborted(self) -> bool:
        """Whether the last transaction was aborted, and no producer has taken the id since."""
        return self.state == ABORTED

    @property
    def is_being_aborted(self) -> bool:
        """Whether its end is certain, and not written to all partitions."""
        return self.state in ABORTING

    def begun_after(self, time_ms: int) -> Described:
        """It, known to have begun after a time by this process's clock, which may be ahead of the coordinator's."""
        return replace(self, started_ms=max(self.started_ms, time_ms)) if self.open else self


@dataclass(frozen=True)
class About:
    """What a call asks for, and of what: for advice, where brokers refuse it."""

    request: Request | None = None  # None for lookups of topics
    topics: tuple[str, ...] = ()
    group_id: str | None = None
    transactional_id: str | None = None

    def advice(self, name: str) -> str | None:
        """Advice about an error, by Kafka's name; None where there is none."""
        facts = Facts(group_id=self.group_id, transactional_id=self.transactional_id)
        return advice(name, self.request, facts, self.topics)


def find_coordinators(transactional_ids: Collection[str]) -> Any:
    """A lookup; of the first one only, where the broker's version takes no more."""
    ids = list(transactional_ids)
    return FindCoordinatorRequest(
        key=ids[0], key_type=int(CoordinatorType.TRANSACTION), coordinator_keys=ids, max_version=FIND_COORDINATOR
    )


def init_producer_id(transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> Any:
    """Take an id: a transaction that is open is aborted, and its producer fenced. `expected`: only if this producer has
    the id now. Needs version 3."""
    producer = expected or NO_PRODUCER
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        min_version=0 if expected is None else RESUMED_FROM,
        max_version=INIT_PRODUCER_ID,
    )


def add_partitions(transactional_id: str, producer: ProducerIdAndEpoch, tps: Collection[TopicPartition]) -> Any:
    """Add partitions to a transaction, which begins with the first ones."""
    topic_type = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = {topic: [tp.partition for tp in of_topic] for topic, of_topic in partitions_by_topic(tps).items()}
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[topic_type(name=name, partitions=numbers) for name, numbers in topics.items()],
        max_version=ADD_PARTITIONS,
    )


def add_group(transactional_id: str, producer: ProducerIdAndEpoch, group_id: str) -> Any:
    """Have a transaction cover offsets of a group."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id=group_id,
        max_version=ADD_PARTITIONS,
    )


def added(response: Any) -> Iterator[tuple[TopicPartition, int]]:
    """The error code of each partition that was to be added."""
    for topic in response.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield TopicPartition(topic.name, partition.partition_index), partition.partition_error_code


def end(transactional_id: str, producer: ProducerIdAndEpoch, commit: bool) -> Any:
    """Commit or abort. The same request may be sent again and again."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
        max_version=END,
    )


def describe(transactional_ids: Collection[str]) -> Any:
    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def described(found: Any) -> Described:
    """An id in a response."""
    tps = tuple(TopicPartition(topic.topic, number) for topic in found.topics for number in topic.partitions)
    return Described(
        found.transactional_id,
        found.transaction_state,
        ProducerIdAndEpoch(found.producer_id, found.producer_epoch),
        found.transaction_timeout_ms,
        found.transaction_start_time_ms,
        tuple(sorted(tps)),
    )


def leaders_of(topics: Collection[str]) -> Any:
    """Who leads the partitions of topics."""
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(topics=named, allow_auto_topic_creation=False)


def leaderless(response: Any) -> frozenset[TopicPartition]:
    """The partitions that nobody leads, of the topics that there are."""
    return frozenset(
        TopicPartition(topic.name, found.partition_index)
        for topic in response.topics
        for found in topic.partitions
        if found.leader_id < 0
    )


def list_in(states: Collection[str], pattern: str) -> Any:
    """The transactions of one broker in some states. Versions before 2 ignore the pattern."""
    return ListTransactionsRequest(state_filters=list(states), producer_id_filters=[], transactional_id_pattern=pattern)


def check(error_code: int, about: str) -> None:
    """Raise kafka-python's error for an error code."""
    if error_code:
        raise kafka_errors.for_code(error_code)(about)


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2  # markers are written within milliseconds, coordinators move within seconds


class Attempts:
    """The attempts of one call; the limit counts from here on."""

    def __init__(self, limit_s: float) -> None:
        self.deadline = time.monotonic() + limit_s
        self._pause_s = FIRST_PAUSE_S

    @property
    def left_ms(self) -> float:
        """How long this attempt may take."""
        return ms_until(self.deadline)

    def pause(self) -> bool:
        """Wait, if there may be another attempt; whether there may."""
        if time.monotonic() + self._pause_s >= self.deadline:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True
