"""Calls to kafka-python's consumer: bounded in time, retried where that helps, with its errors as ours.

kafka-python asks for a missing topic after retry.backoff.ms, again and again, and logs an error each time. Here that is
once a second, without a line.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer

from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.client.connect import (
    API_TIMEOUT,
    connected_consumer,
    ms_until,
    retried,
    run_within,
    translated,
)
from spark_kafka_group.wire.coordinator_responses import Answers

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


class Calls:
    """The driver's consumer, connected to a broker, and calls to it. `of_a_member`: more settings of kafka-python's,
    for a consumer that may join a group. `answers`: answers to its coordinator, if :meth:`Answers.listen_to` was
    called. Raises BrokerError when no broker can be reached."""

    def __init__(self, options: ClientOptions, **of_a_member: Any) -> None:
        self.options = options
        self.answers = Answers()
        self.consumer: KafkaConsumer = connected_consumer(
            options,
            "driver",
            fetch_max_wait_ms=options.fetching.max_wait_ms,
            metadata_max_age_ms=options.connection.partition_metadata_ttl_ms or options.connection.metadata_max_age_ms,
            isolation_level=options.fetching.isolation_level,
            **of_a_member,
        )
        ask_seldom(self.consumer)
        self.manager: Any = self.consumer._client._manager
        self._ends_at = float("inf")  # when all calls have to be over, by time.monotonic()

    def end_within(self, timeout_ms: float) -> None:
        """Let no call take longer than until then."""
        self._ends_at = time.monotonic() + timeout_ms / 1000

    @property
    def left_ms(self) -> float:
        """Milliseconds until all calls have to be over."""
        return ms_until(self._ends_at)

    def run(self, call: Callable[[], Any], timeout_ms: float = math.inf) -> Any:
        """Run `call` on kafka-python's loop, within this time and kafka.request.timeout.ms; raises kafka-python's
        errors."""
        limit_ms = min(timeout_ms, self.options.connection.request_timeout_ms, self.left_ms)
        return run_within(self.manager, limit_ms, call)

    def refresh(self, timeout_ms: float) -> None:
        """Ask any broker for metadata."""
        run_within(self.manager, timeout_ms, self.manager.cluster.refresh_metadata)

    def retried(
        self, doing: str, call: Callable[[float], Any], timeout_ms: float | None = None, limit: str = API_TIMEOUT
    ) -> Any:
        """Call with the milliseconds left until it works, at most `timeout_ms` (kafka.default.api.timeout.ms):
        kafka-python lets retriable errors of a lost connection through. Raises GroupKafkaError."""
        limit_s = (timeout_ms or self.options.connection.default_api_timeout_ms) / 1000
        deadline = min(self._ends_at, time.monotonic() + limit_s)
        with translated(doing, self.answers, limit, lambda: self.manager.last_failure):
            return retried(deadline, call, pause_s=self.options.connection.retry_backoff_ms / 1000)

    def close(self) -> None:
        """Stop the I/O thread and close connections. Harmless when repeated."""
        self.consumer.close(autocommit=False, timeout_ms=self.options.connection.request_timeout_ms)
