"""Many lookups of offsets by time, in few round trips.

A ListOffsets request may name a partition once only. So each lookup of a partition is a request of its own to its
leader, and some of them are on their way at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.consumer import IsolationLevel, ListOffsetsRequest

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.values.offsets import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition, partitions_by_topic
from spark_kafka_group.wire.lacking import version_of
from spark_kafka_group.wire.leader_epochs import by_leader

NEWEST = -3  # stands in the place of a time for the record with the greatest timestamp (KIP-734)
NEWEST_FROM = 7  # the version that first has it (Kafka 3.0)
VERSIONS = range(1, 10)
"""Versions of ListOffsets that are sent: later ones wait for tiered storage, with a timeout of their own."""
UNDER_WAY = 4  # requests to a node at a time: kafka-python takes no more than five

Lookup = Mapping[TopicPartition, int]
"""Partitions, and the time of each in milliseconds since the epoch; or EARLIEST, LATEST, NEWEST."""
Found = dict[TopicPartition, OffsetAndTimestamp | None]
"""The first record of each log that is as new, or newer; None where there is none. The timestamps at EARLIEST and
LATEST are -1. Logs whose records the broker does not unpack are not there."""

__all__ = ["EARLIEST", "LATEST", "NEWEST", "Found", "Lookup", "can_find_newest", "looked_up"]


def can_find_newest(manager: Any) -> bool:
    """Whether brokers know NEWEST."""
    return version_of(manager, ListOffsetsRequest) >= NEWEST_FROM


def believed(tp: TopicPartition, time_ms: int, record: OffsetAndTimestamp) -> OffsetAndTimestamp:
    """The answer to a look-up by time. Raises BrokerError for a record that is older, or has no timestamp."""
    if time_ms >= 0 and record.timestamp_ms < time_ms:
        older = "no timestamp" if record.timestamp_ms < 0 else f"the older timestamp {record.timestamp_ms}"
        raise BrokerError(
            f"{tp}: these brokers answer that offset {record.offset} is the first one from time {time_ms} on, with "
            f"{older}: their look-ups by time are not those of Kafka, so name offsets instead"
        )
    return record


async def looked_up(manager: Any, lookups: Sequence[Lookup]) -> list[Found]:
    """The answer to each lookup, of the whole log up to its end, also with transactions that are open. Raises
    KafkaError: a retriable one where a leader is not known, or has moved."""
    waiting: dict[int, list[tuple[int, Lookup]]] = {}
    for number, lookup in enumerate(lookups):
        for node_id, part in by_leader(manager, lookup).items():
            waiting.setdefault(node_id, []).append((number, part))
    found: list[Found] = [{} for _ in lookups]
    while waiting:
        sent = []
        for node_id, of_node in waiting.items():
            sent += [(n, manager.send(_request(lookup), node_id=node_id)) for n, lookup in of_node[:UNDER_WAY]]
        waiting = {node_id: of_node[UNDER_WAY:] for node_id, of_node in waiting.items() if of_node[UNDER_WAY:]}
        for number, answer in sent:
            found[number].update(_answered(await answer, lookups[number]))
    return found


def _request(lookup: Lookup) -> Any:
    topic_type = ListOffsetsRequest.ListOffsetsTopic

    def partition(tp: TopicPartition) -> Any:
        return topic_type.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=-1, timestamp=lookup[tp]
        )

    topics = partitions_by_topic(lookup).items()
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        topics=[topic_type(name=topic, partitions=[partition(tp) for tp in tps]) for topic, tps in topics],
        min_version=NEWEST_FROM if NEWEST in lookup.values() else VERSIONS[0],
        max_version=VERSIONS[-1],
    )


def _answered(response: Any, asked: Lookup) -> Iterator[tuple[TopicPartition, OffsetAndTimestamp | None]]:
    for topic in response.topics:
        for partition in topic.partitions:
            error = kafka_errors.for_code(partition.error_code)
            if error is kafka_errors.UnsupportedForMessageFormatError:  # from before Kafka 0.10, without times
                yield TopicPartition(topic.name, partition.partition_index), None
            elif error is kafka_errors.InvalidRecordError:  # above max.decompressed.message.bytes, from Kafka 4.4 on
                continue
            elif error is not kafka_errors.NoError:
                raise error({topic.name})
            else:
                tp = TopicPartition(topic.name, partition.partition_index)
                found = OffsetAndTimestamp(partition.offset, partition.timestamp)
                yield tp, believed(tp, asked[tp], found) if partition.offset >= 0 else None
