"""How transactions have ended, as their partitions tell, where coordinators do not know it any more.

A coordinator forgets how a transaction ended once the next one of its id begins, and ids after a while. The partition
keeps it as long as it keeps the records: readers of committed records are told which transactions were aborted.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from enum import Enum

import kafka.errors as kafka_errors

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.exactly_once import TaskTransactionWritten
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.wire.transactions.partition_client import Fetched, PartitionClient

PAUSE_S = 0.1


class End(Enum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


def looked_up(
    client: PartitionClient, transactions: Collection[TaskTransactionWritten], within_s: float
) -> dict[str, End]:
    """The end of each transaction, by its transactional id; unknown where records are gone, as with a topic that was
    deleted, or others keep open."""
    deadline = time.monotonic() + within_s
    return {one.transactional_id: _end(client, one, deadline) for one in transactions}


def _end(client: PartitionClient, one: TaskTransactionWritten, deadline: float) -> End:
    for tp, offset in sorted(one.offsets.items()):
        found = (
            End.UNKNOWN
            if offset < 0 or not _exists(client, tp, deadline)
            else _end_at(client, tp, offset, one.producer.producer_id, deadline)
        )
        if found is not End.UNKNOWN:
            return found
    return End.UNKNOWN


def _exists(client: PartitionClient, tp: TopicPartition, deadline: float) -> bool:
    """Whether brokers have a partition. One that has just started may not know it yet."""
    while not client.has(tp):
        if time.monotonic() + PAUSE_S >= deadline:
            return False
        time.sleep(PAUSE_S)
    return True


def _end_at(client: PartitionClient, tp: TopicPartition, offset: int, producer_id: int, deadline: float) -> End:
    while True:
        try:
            fetched = client.fetch(tp, offset, committed=True)
        except BrokerError as error:
            if isinstance(error.__cause__, kafka_errors.OffsetOutOfRangeError):
                return End.UNKNOWN
            raise
        if fetched.stable > offset:
            return end_of(fetched, offset, producer_id)
        if time.monotonic() + PAUSE_S >= deadline:
            return End.UNKNOWN
        time.sleep(PAUSE_S)


def end_of(fetched: Fetched, offset: int, producer_id: int) -> End:
    """How the transaction ended whose record, by this producer, is at an offset below the last stable one.

    The record has to be there: where it was compacted away, the list of aborted transactions may be shorter.
    """
    there = any(
        batch.producer_id == producer_id and batch.base_offset <= offset <= batch.last_offset
        for batch in fetched.batches()
    )
    if not there:
        return End.UNKNOWN
    aborted = any(producer == producer_id and first <= offset for producer, first in fetched.aborted)
    return End.ABORTED if aborted else End.COMMITTED
