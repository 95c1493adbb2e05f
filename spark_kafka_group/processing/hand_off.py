"""Where a record goes whose handler failed, as a row for that topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from spark_kafka_group.errors import OptionError, ProcessingError
from spark_kafka_group.executor.reading.output_rows import OutputRow
from spark_kafka_group.options import ClientOptions
from spark_kafka_group.options.subscription import Subscription
from spark_kafka_group.processing.processor_settings import Settings
from spark_kafka_group.processing.record import Record
from spark_kafka_group.text.printable import printable
from spark_kafka_group.values.error_headers import Failure, Origin, Reader, attempts_made, handed_on, origin_of
from spark_kafka_group.values.retry_topics import main_topic

log = logging.getLogger(__name__)


class HandOff:
    """To retry topics and dead-letter topics, for one task. Thread-safe."""

    def __init__(self, settings: Settings, task: int) -> None:
        self._settings = settings
        self._reader = Reader(settings.group or "", settings.handler_name, task)

    def __call__(self, record: Record, failure: Failure) -> tuple[str, OutputRow]:
        """As ``work_queue.HandOn``.

        Raises
        ------
        ProcessingError
        """
        topic, delay_ms = self._settings.destination(record.topic, failure.fatal)
        if topic is None:
            raise ProcessingError(
                f"{record}: the handler {self._settings.handler_name} failed: {failure.exception}: {failure.message}. "
                f"Nothing of this batch is committed. Set dead_letter_topic, and records whose handler fails go there"
            )
        origin, made = history_of(record, self._settings)
        attempts = made + 1
        due_ms = None if delay_ms is None else int(time.time() * 1000) + delay_ms
        headers = handed_on(
            record.headers, self._settings.error_headers, origin, failure, self._reader, attempts, due_ms
        )
        log.warning(
            "%s: attempt %d failed, goes to %s: %s: %s",
            record, attempts, topic, printable(failure.exception), printable(failure.message),
        )  # fmt: skip
        row = OutputRow(topic, record.key, record.value, headers, origin_partition=record.partition)
        return ("dead" if delay_ms is None else "retried"), row


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


def check_topics(settings: Settings, topics: Collection[str], options: ClientOptions) -> None:
    """Check that every topic exists to which records of `topics` may go. Topics of a pattern are not checked.

    Raises
    ------
    OptionError, BrokerError
    """
    from spark_kafka_group.wire import LogClient

    wanted = dict.fromkeys(name for topic in sorted(topics) for name in settings.destinations(topic))
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
