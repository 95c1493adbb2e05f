"""Record batches that could not be read, sent to a dead-letter topic as the broker sent them."""

from __future__ import annotations

from pyspark import TaskContext

from spark_kafka_group.error_headers import SOURCE, Failure, Origin, Reader, handed_on
from spark_kafka_group.errors import BrokerError
from spark_kafka_group.executor.corrupt.left_out import LeftOut
from spark_kafka_group.options import Options
from spark_kafka_group.retry_topics import dead_letter_topic, main_topic
from spark_kafka_group.wire.delivery import Delivery

NEXT_OFFSET = "groupkafka.next.offset"
"""Header of our own: the offset, as text, at which reading went on."""


class DeadLetters:
    """Sends the record batches that a task left out to ``<topic>-dlt``, one by one; those of a retry topic to its main
    topic's.

    The value of a record is the bytes of the record batch; the key is null. Its headers are those of Kafka Connect's
    dead letters, with the first offset that was not read, and :data:`NEXT_OFFSET`.

    Parameters
    ----------
    outlives
        As of :class:`Delivery`.
    """

    def __init__(self, options: Options, outlives: bool = False) -> None:
        self._options = options
        self._outlives = outlives
        self._delivery: Delivery | None = None

    def send(self, left_out: LeftOut) -> None:
        """Send one; returns when all in-sync replicas have it.

        Raises
        ------
        BrokerError
            When the topic does not exist, or does not take the record.
        """
        tp, error = left_out.tp, left_out.error
        origin = Origin(tp.topic, tp.partition, left_out.first, -1, -1)
        context = TaskContext.get()
        reader = Reader(self._options.group.id or "", SOURCE, 0 if context is None else context.partitionId())
        headers = handed_on((), "connect", origin, Failure.of(error), reader, 1, None)
        headers.append((NEXT_OFFSET, str(left_out.following).encode()))
        topic = dead_letter_topic(main_topic(tp.topic, self._options.reading.retry_delays_ms))
        if self._delivery is None:
            self._delivery = Delivery(self._options, self._outlives)
        said = list[BrokerError | None]()
        self._delivery.send(topic, tp.partition, None, left_out.raw, headers, said.append)
        self._delivery.flush()
        (problem,) = said
        if problem is not None:
            raise BrokerError(
                f"{left_out}, which cannot be read ({error.problem}), could not be sent to {topic} "
                f"(onCorruptRecord=deadLetter): {problem}"
            ) from problem

    def close(self) -> None:
        """Close connections."""
        if self._delivery is not None:
            self._delivery.close()
            self._delivery = None
