"""Sends records: acknowledged by all in-sync replicas, and each written once however often a request is repeated.

kafka-python's producer with idempotence (KIP-98). What it refuses though Kafka allows it, a record with neither key nor
value and a header without a value, is handed to its accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerError
from spark_kafka_group.options import Options
from spark_kafka_group.wire.connect import LARGEST_BATCH, connected, translated

Headers = Sequence[tuple[str, bytes | None]]
ATTEMPTS_WITHIN = 4
"""A record is given up after so many request timeouts: 120 s by default, as Java's delivery.timeout.ms."""


class _Headers(list[tuple[str, bytes | None]]):
    """kafka-python adds up the lengths of values, for which none has none, unless headers count as false."""

    def __bool__(self) -> bool:
        return False


class Producer:
    """An idempotent producer with acks=all. Thread-safe.

    Raises
    ------
    BrokerError
        When no broker can be reached.
    """

    def __init__(self, options: Options) -> None:
        self._timeout_ms = options.request_timeout_ms * ATTEMPTS_WITHIN
        self._producer = connected(
            KafkaProducer, options, "producer",
            acks="all", enable_idempotence=True, delivery_timeout_ms=self._timeout_ms,
            max_block_ms=options.request_timeout_ms, max_request_size=LARGEST_BATCH, linger_ms=5,
        )  # fmt: skip

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises
        ------
        BrokerError
            Also when there is no such topic: none is made.
        """
        with translated(f"looking up topic {topic}, which has to exist"):
            return len(self._producer.partitions_for(topic))

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        settled: Callable[[BrokerError | None], None],
    ) -> None:
        """Send a record; `settled` is called from a thread of the producer's once it is acknowledged or given up.

        The record's timestamp is the time of sending, unless the topic has the broker's.

        Raises
        ------
        BrokerError
            When it could not be handed over; `settled` is not called then.
        """
        doing = f"sending to {topic}-{partition}"
        with translated(doing):
            future, full, new, _ = self._producer._accumulator.append(
                KafkaTopicPartition(topic, partition), None, key, value, _Headers(headers)
            )
        if full or new:
            self._producer._sender.wakeup()

        def failed(error: Exception) -> None:
            try:
                with translated(doing):
                    raise error
            except BrokerError as ours:
                settled(ours)
            except Exception as other:
                settled(BrokerError(f"{doing}: {type(other).__name__}: {other}"))

        future.add_callback(lambda _: settled(None))
        future.add_errback(failed)

    def flush(self) -> None:
        """Wait until every record sent so far is settled."""
        with translated("waiting for what was sent"):
            self._producer.flush(self._timeout_ms / 1000)

    def close(self) -> None:
        """Drop what is not settled, and close connections."""
        self._producer.close(timeout=0)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
