"""The record batches of one partition that are not acknowledged yet, in order. No I/O.

Sequence numbers count records. Brokers know the last five batches of a producer in a partition again, so batches that
are sent once more keep their numbers, and are sent in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from spark_kafka_group.executor.encode.encoder_contract import EncodedBatch
from spark_kafka_group.values.offsets import TopicPartition

SEQUENCES = 1 << 31  # sequence numbers begin with 0 again after so many
NOT_STAMPED = -2


@dataclass(slots=True, eq=False)
class Sealed:
    """A record batch on its way."""

    batch: EncodedBatch
    first: int  # how many records of the partition were handed over before its first one
    since_s: float  # when it was handed over
    stamped: int = NOT_STAMPED  # the sequence number that is in its bytes
    halvings: int = 0  # how often record batches of its topic had been halved when it was made

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.batch.data)


class Outbox:
    """Batches of a partition.

    `sequence`: of the first record; 0 for a producer that has not written there.
    `node`: who leads, as far as that is known.
    `records`, `last_offset`: acknowledged records, and the offset of the last one; -1 where brokers have not said.
    `problem`: why the last attempt failed; empty while none has.
    `not_before_s`: when the next attempt may be made.
    `missing_since_s`: since when all answers of brokers lack the partition; None while they have it.
    """

    def __init__(self, tp: TopicPartition, sequence: int = 0) -> None:
        self.tp = tp
        self.node: int | None = None
        self.records = 0
        self.last_offset = -1
        self.problem = ""
        self.not_before_s = 0.0
        self.missing_since_s: float | None = None
        self._failures = 0
        self._sent_to = -1
        self._wanted = 0
        self._sequence_of_0 = sequence
        # A broker that does not know the producer takes any sequence number. 1. The first batch is refused. 2. The
        # second one, sent meanwhile, would be written. So it waits for the first.
        self._one_by_one = True
        self._begins_anew = False
        self._handed_over = 0
        self._acknowledged_to = 0  # the last batch's first record
        self._waiting: deque[Sealed] = deque()
        self._in_flight: deque[Sealed] = deque()

    @property
    def next_sequence(self) -> int:
        """Of the next record that is handed over."""
        return (self._sequence_of_0 + self._handed_over) % SEQUENCES

    @property
    def waiting(self) -> bool:
        """Whether there is a batch to send, now or later."""
        return bool(self._waiting)

    @property
    def empty(self) -> bool:
        """Whether everything is acknowledged."""
        return not self._waiting and not self._in_flight

    @property
    def oldest(self) -> Sealed | None:
        """The first batch that is not acknowledged."""
        heads = [batches[0] for batches in (self._waiting, self._in_flight) if batches]
        return min(heads, key=lambda sealed: sealed.first, default=None)

    def hand_over(self, batch: EncodedBatch, now_s: float, halvings: int = 0) -> None:
        """Add a batch."""
        self._waiting.append(Sealed(batch, self._handed_over, now_s, halvings=halvings))
        self._handed_over += batch.records

    def ready(self, node: int, now_s: float) -> Sealed | None:
        """The next batch, if it may be sent to a node now: all that are in flight are there."""
        if not self._waiting or now_s < self.not_before_s or self._wanted:
            return None
        if self._in_flight and (self._one_by_one or self._sent_to != node):
            return None
        return self._waiting[0]

    def send(self, node: int) -> Sealed:
        """Take the next batch out, to be sent to a node."""
        self._sent_to = node
        sealed = self._waiting.popleft()
        if self._begins_anew:
            self._begins_anew = False
            self._sequence_of_0 = -sealed.first
        self._in_flight.append(sealed)
        return sealed

    def sequence(self, sealed: Sealed) -> int:
        """The sequence number of a batch."""
        return (self._sequence_of_0 + sealed.first) % SEQUENCES

    def acknowledged(self, sealed: Sealed, base_offset: int) -> bool:
        """Take note that a batch is written; whether that can be true.

        It cannot if its records are not behind all those that were acknowledged and come before it: then these are
        lost. 1. A batch is written, but its leader says that it timed out. 2. Those behind it are acknowledged. 3. It
        is sent again, and has the offset that it had: it comes before these.
        """
        self._in_flight.remove(sealed)
        if not self._waiting or sealed.first < self._waiting[0].first:  # it is not behind one that is to be sent again
            self._one_by_one = False
        self._failures, self.problem, self.not_before_s = 0, "", 0.0
        self.records += sealed.batch.records
        if base_offset < 0:
            return True
        possible = sealed.first < self._acknowledged_to or base_offset > self.last_offset
        self._acknowledged_to = max(self._acknowledged_to, sealed.first)
        self.last_offset = max(self.last_offset, base_offset + sealed.batch.records - 1)
        return possible

    def returned(self, batches: Collection[Sealed], problem: str, now_s: float, pause_s: float, most_s: float) -> None:
        """Have batches that were in flight sent again, each in its place; after a pause that doubles. Only one is in
        flight until one has been acknowledged: what comes after it may be written before it otherwise."""
        for sealed in batches:
            self._in_flight.remove(sealed)
            self._insert(sealed)
        self._one_by_one = True
        self.problem = problem
        if now_s >= self.not_before_s:  # several answers about one failure are one
            self.not_before_s = now_s + min(pause_s * 2**self._failures, most_s)
            self._failures += 1

    def await_lookup(self, number: int) -> None:
        """Send nothing until the lookup of leaders with this number is answered.

        1. A topic is deleted and made again, and its old leader refuses a batch. 2. The batch is sent again, to the new
        topic. 3. The lookup comes later, when the task has ended, and nobody sees that what was written is lost.
        """
        self._wanted = number

    def looked_up(self, number: int) -> None:
        """The lookup with this number is answered."""
        if number >= self._wanted:
            self._wanted = 0

    def split(self, sealed: Sealed, halves: Collection[EncodedBatch]) -> None:
        """Have the parts of a batch that was in flight, and is not written, sent instead; sequence numbers stay."""
        self._in_flight.remove(sealed)
        self._one_by_one = True
        first = sealed.first
        for half in halves:
            self._insert(Sealed(half, first, sealed.since_s, halvings=sealed.halvings + 1))
            first += half.records

    def begin_anew(self) -> None:
        """Have the next batch that is sent begin with sequence number 0: brokers have forgotten the producer."""
        self._begins_anew = True

    def _insert(self, sealed: Sealed) -> None:
        place = 0
        while place < len(self._waiting) and self._waiting[place].first < sealed.first:
            place += 1
        self._waiting.insert(place, sealed)

    def is_alone(self, sealed: Sealed) -> bool:
        """Whether all batches before it are acknowledged, and no other one is in flight."""
        return len(self._in_flight) == 1 and self.is_first(sealed)

    def before(self, last_sequence: int) -> list[Sealed]:
        """The batches before the one that ends with this sequence number, of those that wait to be sent again."""
        found: list[Sealed] = []
        for sealed in self._waiting:
            if sealed.stamped == NOT_STAMPED:
                return []
            if (self.sequence(sealed) + sealed.batch.records - 1) % SEQUENCES == last_sequence:
                return found
            found.append(sealed)
        return []

    def pass_over(self, sealed: Sealed) -> None:
        """Count a batch that waits as written."""
        self._waiting.remove(sealed)
        self.records += sealed.batch.records
        self._acknowledged_to = max(self._acknowledged_to, sealed.first)

    def is_first(self, sealed: Sealed) -> bool:
        """Whether all batches before it are acknowledged."""
        return self.oldest is sealed
