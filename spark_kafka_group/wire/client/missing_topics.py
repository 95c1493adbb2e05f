"""Subscribed topics that do not exist yet are looked up once a second, without a log line for each.

kafka-python asks again after retry.backoff.ms, for as long as a topic is missing, and logs an error each time.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer

AGAIN_MS = 1_000.0
NOT_FOUND = "Topic %s not found in cluster metadata"


def ask_seldom(consumer: KafkaConsumer) -> None:
    """Make the metadata of `consumer` wait a second for missing topics, unless a caller asks for them."""
    cluster = consumer._client._manager.cluster
    update_metadata, ttl = cluster.update_metadata, cluster.ttl
    missing = False

    def update(metadata: Any) -> None:
        nonlocal missing
        update_metadata(metadata)
        errors = {topic.error_code for topic in metadata.topics} - {kafka_errors.NoError.errno}
        missing = errors == {kafka_errors.UnknownTopicOrPartitionError.errno}
        if missing and cluster._future is None:  # no caller has asked meanwhile
            cluster._need_update = False

    def ttl_if_missing() -> float:
        left_ms = AGAIN_MS - (time.monotonic() * 1000 - cluster._last_refresh_ms)
        usual_ms: float = ttl()
        return max(0.0, min(usual_ms, left_ms)) if missing else usual_ms

    cluster.update_metadata, cluster.ttl = update, ttl_if_missing


def logged_already(record: logging.LogRecord) -> bool:
    """A filter of kafka-python's logger: the driver logs missing topics once itself."""
    return record.msg != NOT_FOUND


logging.getLogger("kafka.cluster").addFilter(logged_already)
