"""Producers that name each record by producer, partition and sequence number, and keep the acknowledged ones."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

TICK_S = 0.05
MOST_PENDING = 50_000
FLUSHED_WITHIN_S = 120.0


@dataclass(frozen=True)
class Acknowledged:
    """A record that a broker has acknowledged; the offset is -1 where a broker had it already."""

    identity: str
    topic: str
    partition: int
    offset: int


def identity(producer: str, topic: str, partition: int, sequence: int) -> str:
    """The name of a record, which is its value, too."""
    return f"{producer}:{topic}:{partition}:{sequence}"


class Load:
    """Records at a steady rate, from a thread, until it is stopped. A context manager.

    Attributes
    ----------
    acknowledged
        In the order of the answers.
    """

    def __init__(
        self, servers: str, topics: dict[str, int], per_second: float, producers: int = 2, **configs: Any
    ) -> None:
        self._configs = {
            "bootstrap_servers": servers, "acks": "all", "linger_ms": 5, "delivery_timeout_ms": 900_000,
            "request_timeout_ms": 5_000, "max_block_ms": 600_000, "retry_backoff_ms": 100,
        } | configs  # fmt: skip
        self._topics = dict(topics)
        self._per_second = per_second
        self._names = [f"p{n}" for n in range(producers)]
        self._sequences: dict[tuple[str, str, int], Iterator[int]] = {}
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self.acknowledged: list[Acknowledged] = []
        self.sent = 0
        self.failed: list[str] = []

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

    def spread(self, topic: str, partitions: int) -> None:
        """From now on write to as many partitions of a topic; 0 for none."""
        self._topics[topic] = partitions

    @property
    def pending(self) -> int:
        """Records without an answer."""
        return self.sent - len(self.acknowledged) - len(self.failed)

    def _produce(self, name: str) -> None:
        producer = KafkaProducer(**self._configs)
        turns = itertools.count()
        due, began = 0.0, time.monotonic()
        try:
            while not self._stopping.wait(TICK_S):
                due = (time.monotonic() - began) * self._per_second / len(self._names)
                while due >= 1 and self.pending < MOST_PENDING:
                    due, began = due - 1, began + len(self._names) / self._per_second
                    self._send(producer, name, next(turns))
                began = max(began, time.monotonic() - 1)  # what was not sent in a second is not made up for
            with contextlib.suppress(KafkaError):
                producer.flush(timeout=FLUSHED_WITHIN_S)
        finally:
            producer.close(timeout=5)

    def _send(self, producer: KafkaProducer, name: str, turn: int) -> None:
        places = [(topic, partition) for topic, count in self._topics.items() for partition in range(count)]
        if not places:
            return
        topic, partition = places[turn % len(places)]
        sequence = next(self._sequences.setdefault((name, topic, partition), itertools.count()))
        self.sent += 1
        record = identity(name, topic, partition, sequence)
        try:
            future = producer.send(topic, record.encode(), partition=partition)
        except (KafkaError, AssertionError):  # an assertion where the partition is not known yet
            self.failed.append(record)
            return
        future.add_callback(
            lambda answer: self.acknowledged.append(Acknowledged(record, answer.topic, answer.partition, answer.offset))
        )
        future.add_errback(lambda error: self.failed.append(record))
