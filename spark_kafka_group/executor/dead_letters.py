"""Record batches that could not be read, sent to a dead-letter topic as the broker sent them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark import TaskContext

from spark_kafka_group.destinations import dead_letter_topic, main_topic
from spark_kafka_group.error_headers import SOURCE, Failure, Origin, Reader, handed_on
from spark_kafka_group.errors import BrokerError
from spark_kafka_group.executor.outage import Outage, outlived
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import Options
from spark_kafka_group.wire.produce import Headers, Producer

if TYPE_CHECKING:
    from spark_kafka_group.executor.corrupt import LeftOut

NEXT_OFFSET = "groupkafka.next.offset"
"""Header of our own: the offset, as text, at which reading went on."""


class DeadLetters:
    """Sends what a task left out to ``<topic>-dlt``, one by one; that of a retry topic to that of the topic it is of.

    The value of a record is the bytes of the record batch; the key is null. Its headers are those of Kafka Connect's
    dead letters, with the first offset that was not read, and :data:`NEXT_OFFSET`.
    """

    def __init__(self, options: Options, outage: Outage | None = None) -> None:
        self._options = options
        self._outage = outage
        self._producer: Producer | None = None

    def send(self, left_out: LeftOut) -> None:
        """Send what was left out; returns when all in-sync replicas have it.

        Raises
        ------
        BrokerError
            When there is no such topic, or it does not take the record.
        """
        tp, error = left_out.tp, left_out.error
        origin = Origin(tp.topic, tp.partition, left_out.first, -1, -1)
        context = TaskContext.get()
        reader = Reader(self._options.group_id or "", SOURCE, 0 if context is None else context.partitionId())
        headers = handed_on((), "connect", origin, Failure.of(error), reader, 1, None)
        headers.append((NEXT_OFFSET, str(left_out.following).encode()))
        topic = dead_letter_topic(main_topic(tp.topic, self._options.retry_delays_ms))
        key, going = (
            TopicPartition(topic, tp.partition),
            partial(self._sent, topic, tp.partition, left_out.raw, headers),
        )
        try:
            outlived(self._outage, key, going)
        except BrokerError as problem:
            raise BrokerError(
                f"{left_out}, which cannot be read ({error.problem}), could not be handed on to {topic}, as "
                f"onCorruptRecord=deadLetter wants: {problem}"
            ) from problem

    def _sent(self, topic: str, partition: int, raw: bytes, headers: Headers) -> None:
        refused = list[BrokerError]()

        def settled(problem: BrokerError | None) -> None:
            if problem is not None:
                refused.append(problem)

        try:
            if self._producer is None:
                self._producer = Producer(self._options)
            self._producer.send(topic, partition, None, raw, headers, settled)
            self._producer.flush()
        except BrokerError as problem:
            refused.append(problem)
        if refused:
            self.close()  # what it has not sent by now is sent by the next one, if it is
            raise refused[0]

    def close(self) -> None:
        """Close connections."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
