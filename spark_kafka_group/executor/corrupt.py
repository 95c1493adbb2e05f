"""onCorruptRecord: what is done about a record batch that cannot be read, and where reading goes on after it.

What is left out begins at the first offset that was not read and ends where the next record batch begins that can be
found. Most often that is the next one in the same response: where the header of the bad batch leads to one with the
offset that it says, both are right. Otherwise the broker is asked (``search``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.executor import decode, frames
from spark_kafka_group.executor.fetch import Chunk, Fetcher
from spark_kafka_group.executor.search import Found, Search
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import DEAD_LETTER, FAIL, Options
from spark_kafka_group.wire import Brokers

if TYPE_CHECKING:
    from spark_kafka_group.executor.dead_letters import DeadLetters

log = logging.getLogger(__name__)

ADVICE = (
    "Set onCorruptRecord=skip to go on after what cannot be read, or deadLetter to keep its bytes in a topic as well"
)
ASKED_AGAIN = 3
"""How often a broker that has nothing for an offset may change its mind, before what it has nothing for is left out."""
MOST_OF_AN_UNKNOWN_END = 1 << 19
"""Bytes that are kept of a record batch whose end is not known."""


class WayOn(NamedTuple):
    """Where to go on within a chunk."""

    position: int
    """Byte of its records."""
    start: int
    """First offset wanted from there on."""
    anew: bool = False
    """Whether the fetcher was told where to go on behind the chunk, whatever it thought of it before."""


@dataclass(frozen=True)
class LeftOut:
    """Offsets of one partition that were not read, ``first <= offset < following``, and why.

    Attributes
    ----------
    raw
        The bytes of their record batch, as far as they came and its end is known.
    """

    tp: TopicPartition
    first: int
    following: int
    error: CorruptRecordError
    raw: bytes

    def __str__(self) -> str:
        if self.following <= self.first:
            return f"{self.tp}: {len(self.raw)} bytes before offset {self.following}"
        return f"{self.tp}: offsets {self.first} to {self.following - 1}"


class Remedy:
    """What one task does about record batches that cannot be read.

    Parameters
    ----------
    largest
        Most bytes that a record batch may have.
    connect
        Makes the connections over which the way on is looked for.
    """

    def __init__(
        self,
        options: Options,
        twin: decode.Decoder,
        fetcher: Fetcher,
        largest: int,
        connect: Callable[[Options], Brokers] = Brokers,
    ) -> None:
        self._policy = options.on_corrupt_record
        self._scan = twin.scan
        self._fetcher = fetcher
        self._largest = largest
        self._searching: Search | None = None
        self._make_search: Callable[[], Search] = partial(Search, options, twin, connect)
        self._dead_letters: DeadLetters | None = None
        if self._policy == DEAD_LETTER:
            from spark_kafka_group.executor.dead_letters import DeadLetters

            self._dead_letters = DeadLetters(options)
        self._asked_again: dict[tuple[TopicPartition, int], int] = {}
        self._looked_back: set[tuple[TopicPartition, int]] = set()
        self._searched: set[tuple[TopicPartition, int]] = set()
        self._read_to: dict[TopicPartition, int] = {}  # where the last that was left out ended
        self._ranges = 0
        self._offsets = 0

    def after(self, chunk: Chunk, begin: int, start: int, position: int, error: CorruptRecordError) -> WayOn | None:
        """Leave out the record batch at a byte of `chunk`, or as much as has to be left out with it.

        Parameters
        ----------
        begin, start
            Byte from which `chunk` has been decoded without an error, and the first offset that was wanted there.
        position
            Byte where the record batch begins.
        error
            What is wrong there.

        Returns
        -------
        WayOn or None
            None when there is no more to decode in `chunk`: if more of the partition is to be read, the fetcher has
            been told from where on.

        Raises
        ------
        CorruptRecordError
            With onCorruptRecord=fail.
        BrokerError, ReadError
            When brokers do not answer, or the dead-letter topic does not take what was left out.
        """
        tp, records = chunk.tp, chunk.records
        bad = frames.at(self._scan, tp, records, position)
        at, first = (-1, -1) if bad is None else (bad.base_offset, error.offset)
        if bad is None:  # its offset is no more certain than its length
            _, first = self._scan(tp.topic, tp.partition, records[begin:position])
            at = first if first > start else -1  # record batches before `start` were hopped over, bad ones too
        first = max(first, start, self._read_to.get(tp, 0))
        if first >= chunk.end or (not records and self._can_be_reached(tp, first)):
            return None
        if self._policy == FAIL:
            told = f"{error.problem}. {ADVICE}"
            raise CorruptRecordError(tp.topic, tp.partition, first, told) from error
        if bad is None or not frames.ends_there(self._scan, tp, records, bad, self._largest):
            return self._look_for_more(chunk, position, bad, at, first, error)
        following = max(first, bad.next_offset)
        self._leave_out(LeftOut(tp, first, min(following, chunk.end), error, bytes(records[position : bad.end])))
        if chunk.aborted:
            # It may have been the marker that ends an aborted transaction. The next response tells which are left.
            self._fetcher.go_on(tp, following, following)
            return None
        return WayOn(bad.end, following)

    def close(self) -> None:
        """Close connections."""
        if self._searching is not None:
            self._searching.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def _look_for_more(
        self, chunk: Chunk, position: int, bad: frames.Frame | None, at: int, first: int, error: CorruptRecordError
    ) -> WayOn | None:
        """Go on at the next record batch of the range that a broker can find, or that leads to that one.

        Parameters
        ----------
        at
            Offset of the damaged one, or the least it can have; -1 if that is not known.
        """
        tp, end, records = chunk.tp, chunk.end, chunk.records
        if at >= 0:
            behind, least = (first if at < first else first + 1), at + 1
        elif (tp, first) not in self._searched:
            # What holds the first offset may be good, and what leads the broker to it be damaged.
            behind, least = first + 1, 0
            self._searched.add((tp, first))
        else:
            behind = least = first + 1
        found = self._search().first_from(tp, behind, end, least)
        target = -1 if found is None else bytes(records[position:]).find(found.header, 1)
        if target > 0 and not chunk.aborted:  # or it has to be fetched anew, as above
            reached = frames.leading_to(
                self._scan, tp, records, position, position + target, least, self._search().intact
            )
            if reached is not None:
                following = max(reached.base_offset, first)
                raw = bytes(records[position : reached.begin])
                if following > first or bad is not None:  # or the damage ends before what is wanted begins
                    self._leave_out(LeftOut(tp, first, min(following, end), error, raw))
                self._go_on_behind(chunk, reached)
                return WayOn(reached.begin, following, anew=True)
        following = end if found is None else max(found.start, first)
        raw = _bytes_of(records, position, bad, found)
        if following > first or bad is not None:
            self._leave_out(LeftOut(tp, first, following, error, raw))
        if found is None:
            log.warning("%s: nothing can be read from offset %d to the end of this task's range, %d", tp, first, end)
            self._fetcher.go_on(tp, end, end)
        else:
            self._fetcher.go_on(tp, found.ask_at, following)
        return None

    def _go_on_behind(self, chunk: Chunk, batch: frames.Frame) -> None:
        """Have the fetcher go on behind a chunk that is read on from `batch`."""
        try:
            _, next_offset = self._scan(chunk.tp.topic, chunk.tp.partition, chunk.records[batch.begin :])
        except CorruptRecordError:
            next_offset = chunk.end  # there is more damage, and the decoder will come to it
        self._fetcher.go_on(chunk.tp, next_offset, next_offset)

    def _can_be_reached(self, tp: TopicPartition, offset: int) -> bool:
        """Have the fetcher ask again for an offset for which a broker had nothing, if it has something now, or for one
        before, so that it comes with what is before it."""
        asked = self._asked_again[tp, offset] = self._asked_again.get((tp, offset), 0) + 1
        if asked <= ASKED_AGAIN and self._search().answers(tp, offset):
            self._fetcher.go_on(tp, offset, offset)
            return True
        if (tp, offset) in self._looked_back:
            return False
        self._looked_back.add((tp, offset))
        before = self._search().before(tp, offset)
        if before is None:
            return False
        self._fetcher.go_on(tp, before, offset)
        return True

    def _search(self) -> Search:
        if self._searching is None:
            self._searching = self._make_search()
        return self._searching

    def _leave_out(self, left_out: LeftOut) -> None:
        if self._dead_letters is not None:
            self._dead_letters.send(left_out)
        self._read_to[left_out.tp] = max(left_out.first, left_out.following)
        self._ranges += 1
        self._offsets += max(0, left_out.following - left_out.first)
        log.warning(
            "%s left out, as onCorruptRecord is %s: %s (so far by this task: %d offsets in %d places)",
            left_out, self._policy, left_out.error.problem, self._offsets, self._ranges,
        )  # fmt: skip


def _bytes_of(records: memoryview, position: int, bad: frames.Frame | None, found: Found | None) -> bytes:
    """Of the bytes from `position` on those of one record batch."""
    end = len(records) if bad is None else bad.end
    rest, after = bytes(records[position:end]), bytes(records[end : end + frames.HEADER_BYTES])
    next_header = b"" if found is None else found.header
    known_again = rest.find(next_header, 1) if next_header else -1
    if known_again > 0:
        return rest[:known_again]
    return rest if bad is not None and next_header.startswith(after) else rest[:MOST_OF_AN_UNKNOWN_END]
