"""Sends records: acknowledged by all in-sync replicas, and each written once however often a request is repeated.

kafka-python's producer with idempotence (KIP-98). What it refuses though Kafka allows it, a record with neither key nor
value and a header without a value, is handed to its accumulator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.options import Options
from spark_kafka_group.wire.connect import LARGEST_BATCH, connected, ms_until, socket_options, translated
from spark_kafka_group.wire.liveness import noticing

Headers = Sequence[tuple[str, bytes | None]]
ATTEMPTS_WITHIN = 4
"""A record is given up after so many request timeouts: 120 s by default, as Java's delivery.timeout.ms."""
UNKNOWN_AFTER_MS = 3_000
"""A topic that brokers have not known for so long does not exist; one just made is not known to all of them at once."""
TOO_LARGE = (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)
NO_PRODUCER_ID = kafka_errors.ClusterAuthorizationFailedError.__name__
"""In the text of the error for a user that may write to no topic at all."""
REFUSED = (*TOO_LARGE, kafka_errors.InvalidRecordError, kafka_errors.TopicAuthorizationFailedError)
"""Answers by which nothing was written, of one record batch and no other."""


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
        self._request_timeout_ms = options.request_timeout_ms
        self._timeout_ms = options.request_timeout_ms * ATTEMPTS_WITHIN
        self._unsettled = 0
        self._settling = threading.Condition()
        self._producer = connected(
            KafkaProducer, options, "producer",
            acks="all", enable_idempotence=True, delivery_timeout_ms=self._timeout_ms,
            max_block_ms=options.request_timeout_ms, max_request_size=LARGEST_BATCH, linger_ms=5,
            # While a broker waits for its followers it takes no more bytes, and that is no sign of death.
            socket_options=socket_options(options, noticing(options.request_timeout_ms)),
        )  # fmt: skip
        _go_on_after_refusals(self._producer._transaction_manager)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises
        ------
        BrokerError
            Also when there is no such topic: none is made.
        """
        cluster = self._producer._metadata
        deadline = time.monotonic() + self._request_timeout_ms / 1000
        while True:
            asked_ms = time.monotonic() * 1000
            try:
                with translated(f"looking up topic {topic}"):
                    return len(self._producer._wait_on_metadata(topic, min(UNKNOWN_AFTER_MS, ms_until(deadline))))
            except BrokerTimeoutError:
                if cluster._last_successful_refresh_ms > asked_ms:
                    raise BrokerError(f"topic {topic} does not exist: create it") from None
                if time.monotonic() >= deadline:
                    raise

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

        Parameters
        ----------
        partition
            Where the record was elsewhere: it goes to the one of that number, modulo how many `topic` has.

        Raises
        ------
        BrokerError
            When it could not be handed over; `settled` is not called then.
        """
        partition %= self.partitions(topic)
        doing = f"sending to {topic}-{partition}"
        with self._settling:
            self._unsettled += 1
        try:
            with translated(doing):
                future, full, new, _ = self._producer._accumulator.append(
                    KafkaTopicPartition(topic, partition), None, key, value, _Headers(headers)
                )
        except BaseException:
            self._settle()
            raise

        def done(error: Exception | None) -> None:
            try:
                settled(None if error is None else _ours(doing, topic, error))
            finally:
                self._settle()

        future.add_callback(lambda _: done(None))
        future.add_errback(done)
        if full or new:
            self._producer._sender.wakeup()

    def flush(self) -> None:
        """Wait until every record sent so far is settled, and its `settled` has returned.

        Raises
        ------
        BrokerTimeoutError
            When that takes longer than a record may take.
        """
        # kafka-python's own flush takes a batch that it splits, as it was too large, for one that is lost.
        accumulator = self._producer._accumulator
        accumulator.begin_flush()
        try:
            self._producer._sender.wakeup()
            with self._settling:
                if not self._settling.wait_for(lambda: not self._unsettled, self._timeout_ms / 1000):
                    raise BrokerTimeoutError(f"records sent are not acknowledged within {self._timeout_ms} ms")
        finally:
            accumulator._flushes_in_progress.decrement()

    def close(self) -> None:
        """Drop what is not settled, and close connections. Harmless when repeated."""
        if self._producer._closed:
            return
        # What its own close() does, which gives up closing where something is not settled.
        sender = self._producer._sender
        sender.force_close()
        if threading.current_thread() is not sender:
            sender.join(self._request_timeout_ms / 1000)
        self._producer._unregister_cleanup()
        self._producer._closed = True

    def _settle(self) -> None:
        with self._settling:
            self._unsettled -= 1
            self._settling.notify_all()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _go_on_after_refusals(manager: Any) -> None:
    """Fail a record batch that was refused, and no other: to kafka-python's idempotent producer any refusal is fatal.

    Nothing was written, and a partition has one batch under way at a time, so the next one takes its sequence numbers.
    """
    classify = manager.classify_batch_error

    def classified(error: Any, batch: Any, log_start_offset: int = -1) -> Any:
        kind = classify(error, batch, log_start_offset=log_start_offset)
        if kind != manager.ERROR_CLASS_FATAL or not isinstance(error, REFUSED) or not batch.has_sequence:
            return kind
        manager.set_sequence_number(batch.topic_partition, batch.base_sequence)
        return manager.ERROR_CLASS_RETRIABLE  # which fails a batch that is not tried again, and does nothing else

    manager.classify_batch_error = classified


def _ours(doing: str, topic: str, error: Exception) -> BrokerError:
    """kafka-python's error as one of this package, with what to change."""
    if isinstance(error, TOO_LARGE):
        return BrokerError(f"{doing}: {error.message}: raise max.message.bytes of topic {topic}")
    if isinstance(error, kafka_errors.TopicAuthorizationFailedError) or NO_PRODUCER_ID in str(error):
        told = getattr(error, "message", kafka_errors.ClusterAuthorizationFailedError.message)
        return BrokerError(f"{doing}: {told}: this user needs the ACL operation Write on Topic {topic}")
    try:
        with translated(doing):
            raise error
    except BrokerError as ours:
        return ours
    except Exception as other:  # noqa: BLE001 - of whatever kind, the record is not known to be written
        return BrokerError(f"{doing}: {type(other).__name__}: {other}")
