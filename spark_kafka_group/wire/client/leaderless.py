"""Lookups of log offsets that wait for partitions without a leader, so that they answer for all partitions; an error
that stays ends them.

Two races that kafka-python loses: 1. one of several partitions has no leader, 2. kafka-python leaves it out of the
lookup, 3. its caller reads the gap in the result as "no record is as new". And: 1. a partition gets another leader,
2. kafka-python asks the old one, 3. that answers NOT_LEADER_OR_FOLLOWER, 4. kafka-python asks it again, without a
pause, until its metadata is renewed for another reason.

It also asks again, until its time is over, whatever error a broker answers, and does not name it then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer

from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire.coordinator_responses import Refusal
from spark_kafka_group.wire.reactions import Request, name_of

STAYS = (kafka_errors.InvalidRecordError, kafka_errors.UnsupportedVersionError)
"""Errors of a lookup that are the same each time. Others may pass, UNKNOWN_SERVER_ERROR of a broker that stops, too."""
ANSWERED = (kafka_errors.NoError, kafka_errors.UnsupportedForMessageFormatError)
"""The second one is of records from before Kafka 0.10, which have no times."""
NO_LEADER = -1  # what metadata have in place of a leader's node id


def wait_for_leaders(consumer: KafkaConsumer) -> None:
    """Make lookups of `consumer` ask again, until their time is over, while a partition has no leader."""
    fetcher, cluster = consumer._fetcher, consumer._client._manager.cluster
    send, look_up = fetcher._send_list_offsets_requests, fetcher._fetch_offsets_by_times_async
    handle = fetcher._handle_list_offsets_response
    refused: dict[TopicPartition, str] = {}  # the last answers of a lookup that are errors

    async def send_for_all(timestamps: Mapping[Any, int]) -> Any:
        # Sends nothing, but asks for metadata where a leader is missing.
        by_node = fetcher._group_list_offset_requests(timestamps)
        if sum(map(len, by_node.values())) < len(timestamps):
            raise kafka_errors.StaleMetadata
        offsets, unanswered = await send(timestamps)
        if unanswered:  # these brokers do not lead, or do not know the topic
            cluster.request_update()
            await fetcher._manager._net.sleep(fetcher.config["retry_backoff_ms"] / 1000)
        return offsets, unanswered

    async def look_up_or_say_why(timestamps: Mapping[Any, int], timeout_ms: float | None = None) -> Any:
        refused.clear()
        try:
            return await look_up(timestamps, timeout_ms)
        except kafka_errors.KafkaTimeoutError as error:
            lacking = sorted(tp for tp in timestamps if cluster.leader_for_partition(tp) in (None, NO_LEADER))
            if not lacking:
                if refused:
                    _with_refusal(error, refused)
                raise
            named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in lacking)
            raise kafka_errors.KafkaTimeoutError(f"without a leader: {named}") from error

    def heard(response: Any) -> Any:
        for tp, kind in _answers(response):
            refused.pop(tp, None)
            if kind not in ANSWERED:
                refused[tp] = name_of(kind)
            if kind in STAYS:
                raise _with_refusal(kind(), {tp: name_of(kind)})
        return handle(response)

    fetcher._handle_list_offsets_response = heard
    fetcher._send_list_offsets_requests = send_for_all
    fetcher._fetch_offsets_by_times_async = look_up_or_say_why


def _answers(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in response.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), kafka_errors.for_code(partition.error_code)


def _with_refusal(error: Any, named: Mapping[TopicPartition, str]) -> Any:
    error.refusal = Refusal(next(iter(named.values())), Request.LIST_OFFSETS, failed=dict(named))
    return error
