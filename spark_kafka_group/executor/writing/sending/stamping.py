"""Who sends a task's record batches: a producer of this worker, one in a transaction, or nobody in particular.

A producer of this worker has an id, and has counted so far in each partition. Tasks of a worker take it over from each
other. Brokers keep something for each producer id in each partition for a day,
so an id for each task would fill their memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from spark_kafka_group.executor.encode.encoder_contract import EncodedBatch
from spark_kafka_group.executor.writing.sending.outbox import Outbox, Sealed
from spark_kafka_group.values.offsets import TopicPartition


@dataclass
class ProducerSession:
    """A producer without transactions."""

    producer_id: int
    epoch: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)  # of the next record of each partition


NOBODY, NO_SEQUENCE = (-1, -1), -1


class Stamps(Protocol):
    """The encoder's part in sending."""

    def stamp(
        self, data: bytearray, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool
    ) -> None:
        """Write who sends a record batch, and its CRC."""

    def split(self, batch: EncodedBatch) -> list[EncodedBatch]:
        """Two halves of a batch; one of one record alone."""


class Producer(Protocol):
    """Who sends, as brokers know it."""

    @property
    def producer_id(self) -> int:
        """Of all its attempts."""

    @property
    def epoch(self) -> int:
        """The later one fences the earlier ones."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that is open."""

    transactional_id: str
    producer: Producer
    before_first: Callable[[set[TopicPartition]], None]  # called with partitions before the first batch of each is sent


class Stamping:
    """Stamps the batches of one task. `session`: of a producer without a transaction; None where brokers need not know
    batches again."""

    def __init__(self, encoder: Stamps, transaction: Transaction | None) -> None:
        self._encoder = encoder
        self._transaction = transaction
        self._added: set[TopicPartition] = set()
        self.session: ProducerSession | None = None

    @property
    def producer(self) -> Producer | None:
        """Who sends; None for nobody in particular."""
        return self.session if self._transaction is None else self._transaction.producer

    def first_sequence(self, tp: TopicPartition) -> int:
        """The sequence number with which the task begins in a partition."""
        return 0 if self.session is None else self.session.sequences.get(tp, 0)

    def before(self, boxes: Iterable[Outbox]) -> None:
        """Have the transaction, if there is one, cover partitions that are about to be written to."""
        if self._transaction is not None:
            new = {box.tp for box in boxes} - self._added
            if new:
                self._transaction.before_first(new)
                self._added |= new

    def stamp(self, box: Outbox, sealed: Sealed) -> None:
        """Write producer and sequence number into a batch, unless they are there."""
        producer = self.producer
        sequence = NO_SEQUENCE if producer is None else box.sequence(sealed)
        if sealed.stamped != sequence:
            producer_id, epoch = NOBODY if producer is None else (producer.producer_id, producer.epoch)
            self._encoder.stamp(sealed.batch.data, producer_id, epoch, sequence, self._transaction is not None)
            sealed.stamped = sequence
