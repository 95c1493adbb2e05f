"""Producers that name each record by producer, partition and sequence number, and keep the acknowledged ones."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from faults.evidence import Acknowledged

TICK_S = 0.2
MOST_PENDING = 50_000
TRANSACTION_S = 10
"""A producer whose transaction takes longer is replaced; kafka-python's may never go on after a broker's end."""
GIVEN_UP_SOON = {"max_block_ms": TRANSACTION_S * 1000, "delivery_timeout_ms": TRANSACTION_S * 1000}
FLUSHED_WITHIN_S = 120.0


def identity(producer: str, topic: str, partition: int, sequence: int) -> str:
    """The name of a record, which is its value, too."""
    return f"{producer}:{topic}:{partition}:{sequence}"


class Load:
    """Records at a steady rate, from a thread, until it is stopped. A context manager.

    Attributes
    ----------
    acknowledged
        In the order of the answers.
    aborted, unknown
        Records of transactions that were, or are to be, aborted; and of those that may have been committed or not.
    ahead_s
        So far the producers' clocks are ahead.
    """

    def __init__(
        self,
        servers: str,
        topics: dict[str, int],
        per_second: float,
        producers: int = 2,
        named: str = "p",
        **configs: Any,
    ) -> None:
        self._configs = {
            "bootstrap_servers": servers, "acks": "all", "linger_ms": 5, "delivery_timeout_ms": 900_000,
            "request_timeout_ms": 5_000, "max_block_ms": 600_000, "retry_backoff_ms": 100,
            "metadata_max_age_ms": 1_000,  # added partitions get records soon
        } | configs  # fmt: skip
        self._topics = dict(topics)
        self._per_second = per_second
        self._names = [f"{named}{n}" for n in range(producers)]
        self._turns = itertools.count()
        self._sequences: dict[tuple[str, str, int], Iterator[int]] = {}
        self._stopping, self._counting = threading.Event(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self.acknowledged: list[Acknowledged] = []
        self.sent = 0
        self.failed: list[str] = []
        self.aborted: set[str] = set()
        self.unknown: set[str] = set()
        self.ahead_s = 0

    def __enter__(self) -> Load:
        for name in self._names:
            thread = threading.Thread(target=self._produce, args=(name,), name=f"load {name}", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send nothing more, and wait until all that was sent is acknowledged, or has failed."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def also(self, acknowledged: Sequence[Acknowledged]) -> None:
        """Count records that another producer has written."""
        with self._counting:
            self.sent += len(acknowledged)
        self.acknowledged.extend(acknowledged)

    def spread(self, topic: str, partitions: int) -> None:
        """From now on write to as many partitions of a topic; 0 for none.

        Once nothing is `pending`, nothing comes any more to partitions that were left out.
        """
        with self._counting:
            self._topics[topic] = partitions

    @property
    def pending(self) -> int:
        """Records without an answer."""
        return self.sent - len(self.acknowledged) - len(self.failed)

    def _produce(self, name: str) -> None:
        producer = KafkaProducer(**self._configs)
        try:
            for count in self._due():
                for _ in range(count):
                    self._send(producer, name)
            with contextlib.suppress(KafkaError):
                producer.flush(timeout=FLUSHED_WITHIN_S)
        finally:
            producer.close(timeout=5)

    def _due(self) -> Iterator[int]:
        """Numbers of records to send now, until the load is stopped; what was not sent in a second is left out."""
        rate, sent = self._per_second / len(self._names), 0.0
        last = time.monotonic()
        while not self._stopping.wait(TICK_S):
            now = time.monotonic()
            sent += min(now - last, 1.0) * rate
            last = now
            if self.pending < MOST_PENDING:
                yield int(sent)
            sent -= int(sent)

    def _send(self, producer: KafkaProducer, name: str) -> Any:
        """Send one record; returns its name, and the future of its answer."""
        with self._counting:
            places = [(topic, partition) for topic, count in self._topics.items() for partition in range(count)]
            if not places:
                return None
            topic, partition = places[next(self._turns) % len(places)]
            self.sent += 1
        sequence = next(self._sequences.setdefault((name, topic, partition), itertools.count()))
        record = identity(name, topic, partition, sequence)
        try:
            time_ms = round((time.time() + self.ahead_s) * 1000)
            future = producer.send(topic, record.encode(), partition=partition, timestamp_ms=time_ms)
        except (KafkaError, AssertionError, ValueError):  # the latter two where the partition is not known yet
            self.failed.append(record)
            return None
        future.add_callback(lambda answer: self._acknowledged(record, answer))
        future.add_errback(lambda error: self.failed.append(record))
        return record, future

    def _acknowledged(self, record: str, answer: Any) -> None:
        self.acknowledged.append(Acknowledged(record, answer.topic, answer.partition, answer.offset))


class TransactionalLoad(Load):
    """The same in transactions of some hundred milliseconds each, of which some are aborted.

    Parameters
    ----------
    aborts
        How many of them, between 0 and 1.
    """

    def __init__(self, *arguments: Any, aborts: float, seed: int, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._aborts = aborts
        self._rng = random.Random(seed)

    def _produce(self, name: str) -> None:
        configs = self._configs | GIVEN_UP_SOON | {"transactional_id": f"{name}-{uuid.uuid4().hex[:8]}"}
        due = self._due()
        while not self._stopping.is_set():
            with contextlib.suppress(KafkaError):  # as after a coordinator that was away: another producer goes on
                self._transactions(KafkaProducer(**configs), name, due)

    def _transactions(self, producer: KafkaProducer, name: str, due: Iterator[int]) -> None:
        sent: list[tuple[str, Any]] = []
        try:
            producer.init_transactions()
            for count in filter(None, due):
                producer.begin_transaction()
                sent = [made for made in (self._send(producer, name) for _ in range(count)) if made]
                self._end(producer, {record for record, _ in sent})
        finally:
            producer.close(timeout=5)
            self.failed += [record for record, future in sent if not future.is_done]

    def _end(self, producer: KafkaProducer, names: set[str]) -> None:
        """Commit or abort a transaction with these records."""
        if self._rng.random() < self._aborts:
            self.aborted |= names
            end = producer.abort_transaction
        else:
            self.unknown |= names
            end = producer.commit_transaction
        producer.flush(timeout=TRANSACTION_S)
        _in_time(end)
        self.unknown -= names


def _in_time(end: Callable[[], None]) -> None:
    """End a transaction. kafka-python's producer waits for ever where its coordinator was killed meanwhile.

    Raises
    ------
    KafkaError
    """
    failed: list[KafkaError] = [KafkaTimeoutError(f"the transaction did not end within {TRANSACTION_S} s")]

    def call() -> None:
        try:
            end()
            failed.clear()
        except KafkaError as error:
            failed[0] = error

    thread = threading.Thread(target=call, name="load ends a transaction", daemon=True)
    thread.start()
    thread.join(TRANSACTION_S)
    if failed:
        raise failed[0]
