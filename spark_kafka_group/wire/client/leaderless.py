"""Lookups of log offsets that answer for all partitions they were asked for: those without a leader are waited for.

kafka-python leaves such partitions out where others have leaders, and its callers take that for "no such record". Of a
partition that has another leader by now it asks the old one, again and again, without a pause, until its metadata
is renewed for another reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer


def wait_for_leaders(consumer: KafkaConsumer) -> None:
    """Make lookups of `consumer` ask again, until their time is over, while a partition has no leader."""
    fetcher, cluster = consumer._fetcher, consumer._client._manager.cluster
    send, look_up = fetcher._send_list_offsets_requests, fetcher._fetch_offsets_by_times_async

    async def send_for_all(timestamps: Mapping[Any, int]) -> Any:
        # Sends nothing, but asks for metadata where a leader is missing.
        by_node = fetcher._group_list_offset_requests(timestamps)
        if sum(map(len, by_node.values())) < len(timestamps):
            raise kafka_errors.StaleMetadata
        found, again = await send(timestamps)
        if again:  # these brokers do not lead, or do not know the topic
            cluster.request_update()
            await fetcher._manager._net.sleep(fetcher.config["retry_backoff_ms"] / 1000)
        return found, again

    async def look_up_or_say_why(timestamps: Mapping[Any, int], timeout_ms: float | None = None) -> Any:
        try:
            return await look_up(timestamps, timeout_ms)
        except kafka_errors.KafkaTimeoutError as error:
            lacking = sorted(tp for tp in timestamps if cluster.leader_for_partition(tp) in (None, -1))
            if not lacking:
                raise
            named = ", ".join(f"{tp.topic}-{tp.partition}" for tp in lacking)
            raise kafka_errors.KafkaTimeoutError(f"without a leader: {named}") from error

    fetcher._send_list_offsets_requests = send_for_all
    fetcher._fetch_offsets_by_times_async = look_up_or_say_why
