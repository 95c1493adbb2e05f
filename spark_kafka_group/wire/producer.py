"""Sends records: acknowledged by all in-sync replicas, and each written once however often a request is repeated.

kafka-python's producer with idempotence (KIP-98). It refuses a record with neither key nor
value, and a header without a value, which Kafka allows: these go to its accumulator directly.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.producer.transaction_manager import TransactionState

from spark_kafka_group.errors import BrokerError, BrokerTimeoutError
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.wire.client.address import address
from spark_kafka_group.wire.client.connect import LARGEST_BATCH, connected, ms_until, socket_options, translated
from spark_kafka_group.wire.client.keepalive import noticing
from spark_kafka_group.wire.reactions import Facts, Reaction, Request, advice, name_of, reaction_to

Headers = Sequence[tuple[str, bytes | None]]
ATTEMPTS_WITHIN = 4
"""The number of request timeouts after which a record is given up: 120 s by default, as Java's delivery.timeout.ms."""
UNKNOWN_AFTER_MS = 3_000
"""A topic that brokers have not known for this long does not exist. Not all of them know a new topic at once."""
UNANSWERED = (kafka_errors.RequestTimedOutError, kafka_errors.NodeNotReadyError, kafka_errors.Cancelled)
"""The error of a request for a producer id that no broker has answered."""
NO_PRODUCER_ID = kafka_errors.ClusterAuthorizationFailedError.__name__
"""A part of the error's text for a user that may not write to any topic."""
MAY_NOT_WRITE = "TOPIC_AUTHORIZATION_FAILED"
REFUSED = {Reaction.BATCH_REFUSED, Reaction.TOO_LARGE}
"""Reactions to errors after which nothing of a record batch is written. kafka-python has split it as far as it can."""
CLOSED_WITHIN_S = 5.0
"""How long closing waits for the producer's thread, which may be connecting. Then the thread ends by itself."""
WHILE_CONNECTING_MS = 20.0


class _Headers(list[tuple[str, bytes | None]]):
    """kafka-python adds up the lengths of values, for which none has none, unless headers count as false."""

    def __bool__(self) -> bool:
        return False


Attempt = Callable[[TopicPartition, BrokerError, bool], None]
"""Reports an attempt to send records of a partition that failed and is repeated: the error, and whether a broker
answered."""


class Producer:
    """An idempotent producer with acks=all. Thread-safe.

    Parameters
    ----------
    attempt
        Called from a thread of the producer's after attempts that are made again. With it, that has no end, and the
        caller decides, by closing, which records are given up.
    speaks
        Whether it logs that no broker can be reached.

    Raises
    ------
    BrokerError
        When no broker can be reached.
    """

    def __init__(self, options: ClientOptions, attempt: Attempt | None = None, speaks: bool = True) -> None:
        self._request_timeout_ms = options.connection.request_timeout_ms
        self._timeout_ms = options.connection.request_timeout_ms * ATTEMPTS_WITHIN if attempt is None else math.inf
        self._unsettled = 0
        self._settling = threading.Condition()
        self._producer = connected(
            KafkaProducer, options, "producer", speaks=speaks, reached_before=True,
            acks="all", enable_idempotence=True, delivery_timeout_ms=self._timeout_ms,
            max_block_ms=options.connection.request_timeout_ms, max_request_size=LARGEST_BATCH, linger_ms=5,
            # A record that its producer compressed may be over the topics' limit without.
            compression_type="gzip",
            # While a broker waits for its followers it takes no more bytes, and that is no sign of death.
            socket_options=socket_options(options, noticing(options.connection.request_timeout_ms)),
        )  # fmt: skip
        _go_on_after_refusals(self._producer._transaction_manager)
        _ask_again_for_producer_id(self._producer._transaction_manager)
        _rest_while_connecting(self._producer._sender)
        if attempt is not None:
            self._tell_of_attempts(attempt)

    @property
    def last_failure(self) -> str | None:
        """Why the last connection could not be made, or ended, with its address."""
        failure: str | None = self._manager.last_failure
        return failure

    @property
    def refreshed_s(self) -> float:
        """When brokers last said which topics there are, by time.monotonic()."""
        ms: float = self._producer._metadata._last_successful_refresh_ms
        return ms / 1000

    def known(self) -> list[str]:
        """Addresses of the cluster's brokers; no I/O."""
        return sorted(address(broker.host, broker.port) for broker in self._producer._metadata.brokers())

    def check_refused(self) -> None:
        """That no broker refuses connections for a reason that stays; no I/O.

        Raises
        ------
        AuthenticationError, UnsupportedVersionError
        """
        with translated("connecting"):
            for refusal in list(self._manager._auth_failures.values()):
                raise refusal

    def known_partitions(self, topic: str) -> int | None:
        """How many partitions a topic has, if that is known; else brokers are asked, and this returns at once.

        Raises
        ------
        BrokerError
            When this user may not write there, or no topic can have this name.
        """
        metadata = self._producer._metadata
        known = metadata.partitions_for_topic(topic)
        if known is not None:
            return len(known)
        if topic in metadata.unauthorized_topics:
            raise _ours(f"sending to {topic}", topic, kafka_errors.TopicAuthorizationFailedError(topic))
        try:
            self._producer._sender.add_topic(topic)
        except Exception as error:
            raise _ours(f"sending to {topic}", topic, error) from error
        metadata.request_update()
        return None

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises
        ------
        BrokerError
            Also when the topic does not exist: none is created.
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
        self.send_to(TopicPartition(topic, partition % self.partitions(topic)), key, value, headers, settled)

    def send_to(
        self,
        tp: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        settled: Callable[[BrokerError | None], None],
    ) -> None:
        """As :meth:`send`, to a partition that there is; this does not wait."""
        doing = f"sending to {tp}"
        with self._settling:
            self._unsettled += 1
        try:
            with translated(doing):
                future, full, new, _ = self._producer._accumulator.append(
                    KafkaTopicPartition(*tp), None, key, value, _Headers(headers)
                )
        except BaseException:
            self._settle()
            raise

        def done(error: Exception | None) -> None:
            try:
                settled(None if error is None else _ours(doing, tp.topic, error))
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
                limit_s = None if self._timeout_ms == math.inf else self._timeout_ms / 1000
                if not self._settling.wait_for(lambda: not self._unsettled, limit_s):
                    raise BrokerTimeoutError(f"records sent are not acknowledged within {self._timeout_ms} ms")
        finally:
            accumulator._flushes_in_progress.decrement()

    def close(self) -> None:
        """Drop records that are not settled, and close connections. Harmless when repeated."""
        if self._producer._closed:
            return
        # As its own close(), which gives up closing where a record is not settled.
        sender = self._producer._sender
        sender.force_close()
        if threading.current_thread() is not sender:
            sender.join(min(CLOSED_WITHIN_S, self._request_timeout_ms / 1000))
        self._producer._unregister_cleanup()
        self._producer._closed = True

    @property
    def _manager(self) -> Any:
        return self._producer._sender._client._manager

    def _tell_of_attempts(self, attempt: Attempt) -> None:
        sender, metadata = self._producer._sender, self._producer._metadata
        retried, dispatch = sender._can_retry, sender._dispatch_error

        def dispatched(batch: Any, error: Any, partition_response: Any) -> None:
            tp, answered = TopicPartition(*batch.topic_partition), partition_response is not None
            if retried(batch, type(error)):
                if reaction_to(error, Request.PRODUCE) is Reaction.REPLICAS_AWAY:
                    metadata.request_update()
                to_blame = answered and not _for_want_of_brokers(error, metadata, tp)
                attempt(tp, _ours(f"sending to {tp}", tp.topic, error), to_blame)
            dispatch(batch, error, partition_response)

        sender._dispatch_error = dispatched

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

    1. A batch takes sequence numbers, and is refused. 2. No record of it was written. 3. The partition has one batch
    under way at a time, so the next batch takes the numbers of step 1, and the broker sees no gap.
    """
    classify = manager.classify_batch_error

    def classified(error: Any, batch: Any, log_start_offset: int = -1) -> Any:
        kind = classify(error, batch, log_start_offset=log_start_offset)
        refused = reaction_to(error, Request.PRODUCE) in REFUSED
        if kind != manager.ERROR_CLASS_FATAL or not refused or not batch.has_sequence:
            return kind
        manager.set_sequence_number(batch.topic_partition, batch.base_sequence)
        return manager.ERROR_CLASS_RETRIABLE  # which fails a batch that is not tried again, and does nothing else

    manager.classify_batch_error = classified


def _ask_again_for_producer_id(manager: Any) -> None:
    """Repeat a request for a producer id that gets no answer.

    1. The broker of an InitProducerId goes away. 2. kafka-python takes its silence for a refusal, and fails all
    records, those of other brokers too. Here it goes back to the state in which it asks another broker.
    """
    fail = manager.transition_to_fatal_error

    def failed(error: Exception) -> None:
        unanswered = any(kind.__name__ in str(error) for kind in UNANSWERED)
        if manager.has_producer_id() or not unanswered:
            fail(error)
        else:
            manager._current_state = TransactionState.UNINITIALIZED  # from which it asks again

    manager.transition_to_fatal_error = failed


def _rest_while_connecting(sender: Any) -> None:
    """Pause while a connection is being made: kafka-python polls for it, though an event wakes it."""
    connect, send = sender._client.maybe_connect, sender._send_producer_data
    connecting = False

    def connected(node_id: Any, **how: Any) -> None:
        nonlocal connecting
        connecting = True
        connect(node_id, **how)

    def sent(now: float | None = None) -> float:
        nonlocal connecting
        connecting = False
        wait_ms: float = send(now)
        return max(wait_ms, WHILE_CONNECTING_MS) if connecting else wait_ms

    sender._client.maybe_connect, sender._send_producer_data = connected, sent


def _for_want_of_brokers(error: Any, metadata: Any, tp: TopicPartition) -> bool:
    """Whether a leader refuses, or has not answered in time, as brokers of other replicas are away."""
    match reaction_to(error, Request.PRODUCE):
        case Reaction.BROKERS_AWAY:
            return True
        case Reaction.REPLICAS_AWAY:
            partition = metadata._partitions.get(tp.topic, {}).get(tp.partition)
            return partition is not None and len(partition.isr_nodes) < len(partition.replica_nodes)
        case _:
            return False


def _ours(doing: str, topic: str, error: Exception) -> BrokerError:
    """kafka-python's error as one of this package, with what to change."""
    unlisted = NO_PRODUCER_ID in str(error)  # of a user that may write nowhere, in kafka-python's own words
    name = kafka_errors.ClusterAuthorizationFailedError.message if unlisted else name_of(type(error))
    if unlisted or reaction_to(error, Request.PRODUCE) in REFUSED:
        change = advice(MAY_NOT_WRITE if unlisted else name, Request.PRODUCE, Facts(), [topic])
        if change is not None:
            return BrokerError(f"{doing}: {name}: {change}")
    try:
        with translated(doing):
            raise error
    except BrokerError as ours:
        return ours
    except Exception as other:  # noqa: BLE001 - after any error the record may not be written
        return BrokerError(f"{doing}: {type(other).__name__}: {other}")
