"""Processes around a broker while something is measured: one that sends records evenly, and members of a group."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

STOP_WITHIN_S = 60.0
WIDTH = 100
"""Bytes of a record that :func:`send_evenly` sends."""


class Actor:
    """A function in a process of its own: called with an event that ends it and an event that it sets when it is ready.

    Its moments are those of time.monotonic(), which all processes of a machine share.
    """

    def __init__(self, run: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._ending, self._ready = context.Event(), context.Event()
        self._answer, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_act, args=(run, arguments, self._ending, self._ready, theirs), daemon=True
        )
        self._process.start()
        theirs.close()

    def wait_until_ready(self, within_s: float = 60.0) -> None:
        """Raises RuntimeError when it is not, in time."""
        deadline = time.monotonic() + within_s
        while not self._ready.wait(0.2):
            if time.monotonic() > deadline or not self._process.is_alive():
                raise RuntimeError(f"{self._process} is not ready")

    def end(self) -> Any:
        """Its result."""
        self._ending.set()
        try:
            if not self._answer.poll(STOP_WITHIN_S):
                raise RuntimeError(f"{self._process} does not end")
            answer = self._answer.recv()
        finally:
            self._process.join(5)
            if self._process.is_alive():
                self._process.kill()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _act(run: Callable[..., Any], arguments: tuple[Any, ...], ending: Event, ready: Event, answer: Connection) -> None:
    try:
        answer.send(run(*arguments, ending, ready))
    except BaseException as error:
        answer.send(RuntimeError(f"{run.__name__}: {type(error).__name__}: {error}"))
        raise


@contextlib.contextmanager
def acting(run: Callable[..., Any], *arguments: Any) -> Iterator[Actor]:
    """An actor that is ready, for the length of a block; it ends with it, if it has not been ended before."""
    actor = Actor(run, *arguments)
    try:
        actor.wait_until_ready()
        yield actor
    finally:
        if actor._process.is_alive():
            actor.end()


def send_evenly(servers: str, topic: str, partitions: int, per_second: int, ending: Event, ready: Event) -> int:
    """Send records at a steady pace, to one partition after the other, each at once and by itself.

    A record's value is the moment at which it was sent, in nanoseconds since the epoch, as text of `WIDTH` bytes.

    Returns
    -------
    int
        How many were sent.
    """
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "1"})
    began, sent = time.monotonic(), 0
    while not ending.is_set():
        early = began + sent / per_second - time.monotonic()
        if early > 0:
            time.sleep(early)
        producer.produce(topic, b"%-*d" % (WIDTH, time.time_ns()), partition=sent % partitions)
        producer.poll(0)
        sent += 1
        if sent == per_second:
            ready.set()
    producer.flush()
    return sent


@dataclass
class Batches:
    """Micro-batches of a driver: when each was asked for, and the seconds until it was planned."""

    at_s: list[float] = field(default_factory=list)
    planned_s: list[float] = field(default_factory=list)
    records: int = 0

    def within(self, began_s: float, ended_s: float) -> list[float]:
        """Seconds of those that were asked for in between."""
        return [took for at, took in zip(self.at_s, self.planned_s, strict=True) if began_s <= at < ended_s]


def run_query(options: Mapping[str, str], every_s: float, batch_s: float, ending: Event, ready: Event) -> Batches:
    """A driver, called as Spark's micro-batch engine does, that reads its batches in this process.

    Parameters
    ----------
    every_s
        Its trigger's interval.
    batch_s
        How long a batch takes at least.
    """
    from spark_kafka_group.driver.stream import StreamDriver
    from spark_kafka_group.executor.reading.read import read
    from spark_kafka_group.options import Options
    from spark_kafka_group.values.offsets import ReadTask

    parsed = Options.parse(dict(options))
    driver, batches = StreamDriver(parsed), Batches()
    try:
        offset = driver.initial_offset()
        trigger_s = time.monotonic()
        while not ending.is_set():
            began = time.monotonic()
            end = driver.latest_offset(offset)
            if end != offset:
                tasks = driver.plan(offset, end)
                planned = time.monotonic()
                batches.at_s.append(began)
                batches.planned_s.append(planned - began)
                for ranges in tasks:
                    batches.records += sum(rows.num_rows for rows in read(ReadTask(ranges), parsed))
                ending.wait(max(0.0, planned + batch_s - time.monotonic()))
                offset = end
                driver.commit(end)
            ready.set()
            trigger_s = max(trigger_s + every_s, time.monotonic())
            ending.wait(trigger_s - time.monotonic())
    finally:
        driver.stop()
    return batches


@dataclass
class Membership:
    """The rebalances and pauses of an ordinary consumer.

    Attributes
    ----------
    assigned_s
        When it was given its partitions.
    without_s
        From when to when it had to do without.
    polled_s
        When a poll brought a record.
    """

    assigned_s: list[float] = field(default_factory=list)
    without_s: list[tuple[float, float]] = field(default_factory=list)
    polled_s: list[float] = field(default_factory=list)

    def rebalances(self, began_s: float, ended_s: float) -> int:
        return sum(began_s <= at < ended_s for at in self.assigned_s)

    def without(self, began_s: float, ended_s: float) -> float:
        """Seconds without partitions."""
        return sum(max(0.0, min(till, ended_s) - max(since, began_s)) for since, till in self.without_s)

    def longest_pause(self, began_s: float, ended_s: float) -> float:
        """Most seconds between two records."""
        polled = [began_s, *(at for at in self.polled_s if began_s <= at < ended_s), ended_s]
        return max(later - earlier for earlier, later in itertools.pairwise(polled))


def consume(servers: str, topic: str, group: str, strategy: str, ending: Event, ready: Event) -> Membership:
    """An ordinary consumer (librdkafka) that polls all the time and commits every five seconds, its default."""
    from confluent_kafka import Consumer

    told = Membership()
    revoked_s: list[float] = []

    def revoked(consumer: Any, partitions: Any) -> None:
        if not revoked_s and partitions:
            revoked_s.append(time.monotonic())

    def assigned(consumer: Any, partitions: Any) -> None:
        now = time.monotonic()
        told.assigned_s.append(now)
        if revoked_s:
            told.without_s.append((revoked_s.pop(), now))

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "auto.offset.reset": "latest",
        }
    )
    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not ending.is_set():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            told.polled_s.append(time.monotonic())
            ready.set()
    if revoked_s:
        told.without_s.append((revoked_s.pop(), time.monotonic()))
    consumer.close()
    return told
