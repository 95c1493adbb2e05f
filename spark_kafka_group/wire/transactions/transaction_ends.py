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
from spark_kafka_group.values.exactly_once import TaskTransactionWritten
from spark_kafka_group.values.offsets import TopicPartition
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
    """The end of each transaction, by its id; unknown where records are gone, as with a deleted topic."""
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
    position = offset
    while True:
        try:
            fetched = client.fetch(tp, offset, committed=True)
        except BrokerError as error:
            if isinstance(error.__cause__, kafka_errors.OffsetOutOfRangeError):
                return End.UNKNOWN
            raise
        if fetched.stable > offset:
            return end_of(fetched, offset, producer_id)
        found, position = _marker(client, tp, offset, position, producer_id, deadline)
        if found is not None:
            return found
        if time.monotonic() + PAUSE_S >= deadline:
            return End.UNKNOWN
        time.sleep(PAUSE_S)


def _marker(
    client: PartitionClient, tp: TopicPartition, offset: int, position: int, producer_id: int, deadline: float
) -> tuple[End | None, int]:
    """How the transaction ended, by the producer's next marker, if there is one from `position` on; and where to look
    for it the next time.

    1. Two tasks write to one partition at the same time. 2. The transaction of one is aborted, that of the other is
    open, and began before. 3. The last stable offset stays where it began, and readers of committed records are not
    told of the first one.
    """
    while time.monotonic() < deadline:
        fetched, before = client.fetch(tp, position, committed=False), position
        if position == offset and not _is_there(fetched, offset, producer_id):
            return None, position
        for batch in fetched.batches():
            position = max(position, batch.next_offset)
            marker = next(iter(batch), None) if batch.is_control_batch and batch.producer_id == producer_id else None
            if marker is not None:
                return (End.ABORTED if marker.abort else End.COMMITTED), position
        if position == before:
            break
    return None, position


def end_of(fetched: Fetched, offset: int, producer_id: int) -> End:
    """How the transaction ended whose record, by this producer, is at an offset below the last stable one. The record
    has to be there: where it was compacted away, the list of aborted transactions may be shorter."""
    if not _is_there(fetched, offset, producer_id):
        return End.UNKNOWN
    aborted = any(producer == producer_id and first <= offset for producer, first in fetched.aborted)
    return End.ABORTED if aborted else End.COMMITTED


def _is_there(fetched: Fetched, offset: int, producer_id: int) -> bool:
    return any(
        batch.producer_id == producer_id and batch.base_offset <= offset <= batch.last_offset
        for batch in fetched.batches()
    )
