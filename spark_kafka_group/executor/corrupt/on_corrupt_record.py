"""onCorruptRecord: what is done about a record batch that cannot be read, and where reading goes on after it.

What is left out begins at the first offset that was not read and ends where the next record batch begins that can be
found. Most often that is the next one in the same response: where the header of the bad batch leads to one with the
offset that it says, both are right. Otherwise the broker is asked (``search``).

A broker that is silent, with neither records nor an error, says nothing about its log. Where it was silent about some
of what would be left out, the damage and the next record batch have to be seen in the bytes of one response, with all
that is in between. Until then the task waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_group.errors import BrokerTimeoutError, CorruptRecordError
from spark_kafka_group.executor import batch_headers, decode
from spark_kafka_group.executor.corrupt.search import Found, LeaderChangedError, Search, Seen
from spark_kafka_group.executor.fetcher import SILENCE, Chunk, Fetcher
from spark_kafka_group.offsets import TopicPartition
from spark_kafka_group.options import ClientOptions, Options
from spark_kafka_group.options.reading import DEAD_LETTER, FAIL
from spark_kafka_group.wire import Brokers

if TYPE_CHECKING:
    from spark_kafka_group.executor.corrupt.dead_letter_sender import DeadLetters
    from spark_kafka_group.wire.task_outage import Outage

log = logging.getLogger(__name__)

ADVICE = (
    "Set onCorruptRecord=skip to go on after what cannot be read, or deadLetter to keep its bytes in a topic as well"
)
ASKED_AGAIN = 3
"""How often a broker that has nothing for an offset may change its mind, before what it has nothing for is left out."""
MOST_OF_AN_UNKNOWN_END = 1 << 19
"""Bytes that are kept of a record batch whose end is not known."""
LONGEST_PAUSE_S = 5.0
"""Between two searches for the way on, while the broker is silent."""


class WayOn(NamedTuple):
    """Where to go on within a chunk."""

    chunk: Chunk
    """The one that was decoded, or one that has more of the log."""
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
    outage
        Waits for brokers that are away; None where that is an error.
    """

    def __init__(
        self,
        options: Options,
        twin: decode.Decoder,
        fetcher: Fetcher,
        largest: int,
        connect: Callable[[ClientOptions], Brokers] = Brokers,
        outage: Outage | None = None,
    ) -> None:
        self._policy = options.reading.on_corrupt_record
        self._scan = twin.scan
        self._fetcher = fetcher
        self._largest = largest
        self._waits_s = options.fetching.poll_timeout_ms / 1000
        self._outage = outage
        self._searching: Search | None = None
        self._make_search: Callable[[], Search] = partial(Search, options.client, twin, connect, fetcher.epochs, outage)
        self._dead_letters: DeadLetters | None = None
        if self._policy == DEAD_LETTER:
            from spark_kafka_group.executor.corrupt.dead_letter_sender import DeadLetters

            self._dead_letters = DeadLetters(options, outlives=outage is not None)
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
        bad = batch_headers.at(self._scan, tp, records, position)
        at, first = (-1, -1) if bad is None else (bad.base_offset, error.offset)
        if bad is None:  # its offset is no more certain than its length
            _, first = self._scan(tp.topic, tp.partition, records[begin:position])
            at = first if first > start else -1  # record batches before `start` were hopped over, bad ones too
        first = max(first, start, self._read_to.get(tp, 0))
        try:
            return self._way_on(chunk, position, bad, at, first, error)
        except LeaderChangedError:
            self._ask_next_leader(tp, first)
            return None

    def _way_on(
        self,
        chunk: Chunk,
        position: int,
        bad: batch_headers.Frame | None,
        at: int,
        first: int,
        error: CorruptRecordError,
    ) -> WayOn | None:
        tp, records = chunk.tp, chunk.records
        if first >= chunk.end:
            self._fetcher.go_on(tp, chunk.end, chunk.end)  # what it took for the next offset may be part of the damage
            return None
        if not records and self._can_be_reached(tp, first):
            return None
        if self._policy == FAIL:
            told = f"{error.problem}. {ADVICE}"
            raise CorruptRecordError(tp.topic, tp.partition, first, told) from error
        earlier = None if bad is None else batch_headers.before_an_earlier(records, bad, error.offset)
        if bad is None or (
            earlier is None and not batch_headers.ends_there(self._scan, tp, records, bad, self._largest)
        ):
            return self._look_for_more(chunk, position, bad, at, first, error)
        following = max(first, bad.next_offset if earlier is None else earlier)
        self._leave_out(LeftOut(tp, first, min(following, chunk.end), error, bytes(records[position : bad.end])))
        if chunk.aborted and (earlier is None or (earlier > first and batch_headers.is_control(records, bad))):
            # It may have been the marker that ends an aborted transaction. The next response tells which are left.
            self._fetcher.go_on(tp, following, following)
            return None
        return WayOn(chunk, bad.end, following)

    def shown(self, silent: Chunk) -> Chunk | None:
        """Bytes of the log from before an offset that the broker is silent about, if they show why.

        Returns
        -------
        Chunk or None
            It holds the record batch in question, or damage in its place. None when there is nothing to be seen: the
            fetcher then asks again, or for another offset of that record batch.

        Raises
        ------
        BrokerError, ReadError
        """
        try:
            return self._shown(silent)
        except LeaderChangedError:
            self._ask_next_leader(silent.tp, silent.start)
            return None

    def _shown(self, silent: Chunk) -> Chunk | None:
        tp, first = silent.tp, silent.start
        problem, position = None, 0
        chunk = silent._replace(silent=False)
        seen = self._seen_before(tp, first)
        if seen is not None:
            chunk = chunk._replace(asked=seen.asked, records=seen.records, aborted=seen.aborted, problem=None)
            position, at = batch_headers.past(self._scan, tp, seen.records, first)
            batch = batch_headers.at(self._scan, tp, seen.records, position)
            if batch is not None:  # to find it the broker needs the header behind it
                self._go_on_behind(chunk, batch)
                return chunk
            if at == first:  # or the damage is in another place, as that of a record batch before
                problem = batch_headers.impossible(self._scan, tp, seen.records, position, self._largest)
        if problem is None:
            found = self._search().first_from(tp, first + 1, silent.end, 0)
            if found is not None and found.start <= first:
                self._fetcher.go_on(tp, found.ask_at, first)
                return None
            problem = None if found is None else self._overlapping(chunk, position, found, first)
        if problem is not None:
            return chunk._replace(problem=problem)
        self._fetcher.wait_on(silent)
        return None

    def _overlapping(self, chunk: Chunk, position: int, found: Found, first: int) -> str | None:
        """Why there is no record batch at a byte of `chunk`, if that is so: it would reach beyond one that the broker
        finds, and nothing in between can be read."""
        within = batch_headers.found_again(chunk.records, position, found.header)
        if not within or self._hidden(chunk, position, position + within, first + 1, first):
            return None
        return f"a batch reaches beyond the one that begins {within} bytes behind it"

    def _ask_next_leader(self, tp: TopicPartition, first: int) -> None:
        """Have the fetcher ask the next leader, once their logs are compared: that one may be undamaged."""
        self._asked_again = {key: asked for key, asked in self._asked_again.items() if key[0] != tp}
        self._looked_back = {key for key in self._looked_back if key[0] != tp}
        self._searched = {key for key in self._searched if key[0] != tp}
        self._fetcher.go_on(tp, first, first)

    def close(self) -> None:
        """Close connections."""
        if self._searching is not None:
            self._searching.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    def _look_for_more(
        self,
        chunk: Chunk,
        position: int,
        bad: batch_headers.Frame | None,
        at: int,
        first: int,
        error: CorruptRecordError,
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
        found, chunk, position, target = self._found(chunk, position, behind, least, first, error)
        records = chunk.records
        if found is not None and target and not chunk.aborted:  # or it has to be fetched anew, as above
            reached = batch_headers.leading_to(
                self._scan, tp, records, position, position + target, least, self._search().intact
            )
            if reached is not None:
                following = max(reached.base_offset, first)
                raw = bytes(records[position : reached.begin])
                if following > first or bad is not None:  # or the damage ends before what is wanted begins
                    self._leave_out(LeftOut(tp, first, min(following, end), error, raw))
                self._go_on_behind(chunk, reached)
                return WayOn(chunk, reached.begin, following, anew=True)
        following = end if found is None else min(max(found.start, first), end)
        raw = _bytes_of(records, position, bad, found)
        if following > first or bad is not None:
            self._leave_out(LeftOut(tp, first, following, error, raw))
        if found is None or found.start >= end:
            log.warning("%s: nothing can be read from offset %d to the end of this task's range, %d", tp, first, end)
            self._fetcher.go_on(tp, end, end)
        else:
            self._fetcher.go_on(tp, found.ask_at, following)
        return None

    def _found(
        self, chunk: Chunk, position: int, behind: int, least: int, first: int, error: CorruptRecordError
    ) -> tuple[Found | None, Chunk, int, int]:
        """The next record batch that the broker finds, and where it is in a chunk: the chunk, the byte of the damage in
        it, and how many bytes behind the record batch begins, 0 where it is not in it.

        What it is in is the chunk at hand, or one with more of the log, which is asked for only where the broker was
        silent about an offset in between.

        Raises
        ------
        BrokerTimeoutError
            When a broker is silent about what would be left out, for as long as reading may stall.
        """
        tp, began, pause_s = chunk.tp, time.monotonic(), 0.1
        while True:
            found = self._search().first_from(tp, behind, chunk.end, least)
            unanswered = self._search().unanswered
            target = 0 if found is None else batch_headers.found_again(chunk.records, position, found.header)
            if not unanswered or (found is not None and found.start <= first):  # then nothing is left out
                return found, chunk, position, target
            if found is not None:
                seen, its = (chunk, position) if target else self._wider(chunk, position, first)
                target = batch_headers.found_again(seen.records, its, found.header)
                if target and not self._hidden(seen, its, its + target, least, first):
                    return found, seen, its, target
            if self._outage is not None:
                began = max(began, self._outage.over_at)
            waited_s = time.monotonic() - began
            if waited_s >= self._waits_s:
                raise BrokerTimeoutError(
                    f"{tp}: offset {first} cannot be read: {error.problem}. For {waited_s:.0f} s "
                    f"(kafkaConsumer.pollTimeoutMs) the broker has sent neither records nor an error for an offset "
                    f"behind it, so it is not known what can be read there, and nothing is left out. {SILENCE}"
                )
            time.sleep(min(pause_s, self._waits_s - waited_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _hidden(self, chunk: Chunk, position: int, target: int, least: int, first: int) -> bool:
        """Whether something that can be read may be among the bytes that would be left out."""
        reached = batch_headers.leading_to(
            self._scan, chunk.tp, chunk.records, position, target, least, self._search().intact
        )
        end = target if reached is None or chunk.aborted else reached.begin
        return batch_headers.hidden(self._scan, chunk.tp, chunk.records, position, end, first, self._search().intact)

    def _wider(self, chunk: Chunk, position: int, first: int) -> tuple[Chunk, int]:
        """More bytes of the log, with those of `chunk`, and the byte of the damage in them; `chunk` if none come."""
        tp = chunk.tp
        if not chunk.records:
            before = self._seen_before(tp, first)
            if before is None:
                return chunk, position
            more = chunk._replace(asked=before.asked, records=before.records, aborted=before.aborted)
            position, _ = batch_headers.past(self._scan, tp, before.records, first)
            return more, position
        seen = self._search().seen(tp, chunk.asked)
        if seen.records[: len(chunk.records)] != chunk.records:
            return chunk, position
        return chunk._replace(records=seen.records, aborted=seen.aborted), position

    def _seen_before(self, tp: TopicPartition, offset: int) -> Seen | None:
        """Bytes of the log from an offset before this one on; None if the broker sends none."""
        before = self._search().before(tp, offset)
        seen = None if before is None else self._search().seen(tp, before)
        return seen if seen is not None and seen.records else None

    def _go_on_behind(self, chunk: Chunk, batch: batch_headers.Frame) -> None:
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


def _bytes_of(records: memoryview, position: int, bad: batch_headers.Frame | None, found: Found | None) -> bytes:
    """Of the bytes from `position` on those of one record batch."""
    end = len(records) if bad is None else bad.end
    rest, after = bytes(records[position:end]), bytes(records[end : end + batch_headers.HEADER_BYTES])
    next_header = b"" if found is None else found.header
    known_again = rest.find(next_header, 1) if next_header else -1
    if known_again > 0:
        return rest[:known_again]
    return rest if bad is not None and next_header.startswith(after) else rest[:MOST_OF_AN_UNKNOWN_END]
