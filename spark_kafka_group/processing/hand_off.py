"""Sends records whose handler failed to the next topic, from a task."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

from spark_kafka_group.error_headers import Failure, Origin, Reader, attempts_made, handed_on, origin_of
from spark_kafka_group.errors import OptionError, ProcessingError
from spark_kafka_group.options.subscription import Subscription
from spark_kafka_group.printable import printable
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import Record
from spark_kafka_group.processing.work_queue import Settled
from spark_kafka_group.retry_topics import main_topic
from spark_kafka_group.wire.delivery import Delivery

log = logging.getLogger(__name__)


class HandOff:
    """To retry topics and dead-letter topics; connects when the first record has to go. Thread-safe.

    Parameters
    ----------
    outlives
        As of :class:`Delivery`: records wait for brokers there, and hold up no handler.
    """

    def __init__(self, settings: Settings, task: int, outlives: bool = False) -> None:
        self._settings = settings
        self._outlives = outlives
        group = "" if settings.options is None else settings.options.group.id or settings.options.group.id_prefix
        self._reader = Reader(group, settings.handler_name, task)
        self._lock = threading.Lock()
        self._delivery: Delivery | None = None

    @contextlib.contextmanager
    def connected(self) -> Iterator[HandOff]:
        """Open in this block. Leaving it drops records that are not acknowledged; the work has ended by then."""
        try:
            yield self
        finally:
            if self._delivery is not None:
                self._delivery.close()

    def __call__(self, record: Record, failure: Failure, settled: Settled) -> None:
        """Send a record on, see ``work_queue.HandOn``.

        Raises
        ------
        ProcessingError
        """
        topic, delay_ms = self._settings.destination(record.topic, failure.fatal)
        if topic is None:
            raise ProcessingError(
                f"{record}: the handler {self._settings.handler_name} failed: {failure.exception}: {failure.message}. "
                f"Nothing is committed. Set dead_letter_topic, and records whose handler fails go there"
            )
        origin, made = history_of(record, self._settings)
        attempts = made + 1
        due_ms = None if delay_ms is None else int(time.time() * 1000) + delay_ms
        headers = handed_on(
            record.headers, self._settings.error_headers, origin, failure, self._reader, attempts, due_ms
        )
        counter = "dead" if delay_ms is None else "retried"
        log.warning(
            "%s: attempt %d failed, sent to %s: %s: %s",
            record, attempts, topic, printable(failure.exception), printable(failure.message),
        )  # fmt: skip
        self._opened().send(
            topic, record.partition, record.key, record.value, headers, lambda problem: settled(counter, problem)
        )

    def _opened(self) -> Delivery:
        with self._lock:
            if self._delivery is None:
                assert self._settings.options is not None, "checked with the settings"
                self._delivery = Delivery(self._settings.options, self._outlives)
            return self._delivery


def history_of(record: Record, settings: Settings) -> tuple[Origin, int]:
    """Where a record was first read, and how many attempts were made before.

    Its headers say so if this query has sent it: if it is from a retry topic, and of the topic that this belongs to. In
    any other topic they are the producer's, who may name one that it may not write to.
    """
    here = Origin(record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type)
    main = main_topic(record.topic, settings.retry_topics)
    if main == record.topic:
        return here, 0
    origin = origin_of(record.headers, here)
    return (origin, attempts_made(record.headers)) if origin.topic == main else (here, 0)


def check_topics(settings: Settings) -> None:
    """Check that every topic exists to which records of the subscribed topics may go. Topics of a pattern are not
    checked.

    Raises
    ------
    OptionError, BrokerError
    """
    from spark_kafka_group.wire import LogClient

    options = settings.options
    assert options is not None, "checked with the settings"
    wanted = dict.fromkeys(name for topic in sorted(options.reading.topics) for name in settings.destinations(topic))
    if not wanted:
        return
    client = LogClient(options)
    try:
        there = {tp.topic for tp in client.partitions(Subscription(tuple(wanted)))}
    finally:
        client.close()
    missing = [topic for topic in wanted if topic not in there]
    if missing:
        raise OptionError(
            f"records that fail go to topics that the cluster does not have: {', '.join(missing)}. Create them, retry "
            f"topics with as many partitions as the topic that they belong to"
        )
