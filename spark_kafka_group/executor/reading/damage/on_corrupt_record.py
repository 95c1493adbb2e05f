"""onCorruptRecord: leaves out a record batch that cannot be read, and goes on after it.

The gap begins at the first offset that was not read, and ends where the next record batch begins. Most often that is
the next batch of the same response: where the header of the damaged batch leads to a batch with the expected offset,
both headers are right. Otherwise ``search`` asks the broker.

A silent answer, with neither records nor an error, proves nothing about the log. Where the broker was silent about a
part of the gap, the task waits until the bytes of one response show the damage, the next record batch, and all in
between.

With ``deadLetter`` such a record batch is sent to a dead-letter topic as the broker sent it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_group.errors import BrokerTimeoutError, CorruptRecordError
from spark_kafka_group.executor import decode
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.executor.reading.batch_headers import Chunk
from spark_kafka_group.executor.reading.damage.damage import Damage, Surroundings, WayOn
from spark_kafka_group.executor.reading.damage.search import Found, LeaderChangedError, Search
from spark_kafka_group.executor.reading.fetcher import SILENCE, Fetcher
from spark_kafka_group.executor.writing.dead_letters import letter, send
from spark_kafka_group.options import ClientOptions, Options
from spark_kafka_group.options.reading import DEAD_LETTER, FAIL
from spark_kafka_group.options.sink_options import sink_options
from spark_kafka_group.values.error_headers import Origin
from spark_kafka_group.values.offsets import TopicPartition
from spark_kafka_group.wire import Brokers

if TYPE_CHECKING:
    from spark_kafka_group.wire.outage import TaskOutage

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LeftOut:
    """Offsets of one partition that were not read, ``first <= offset < following``, and why."""

    tp: TopicPartition
    first: int
    following: int
    error: CorruptRecordError
    raw: bytes  # the bytes of their record batch, as far as the task has them and knows its end

    def __str__(self) -> str:
        if self.following <= self.first:
            return f"{self.tp}: {len(self.raw)} bytes before offset {self.following}"
        return f"{self.tp}: offsets {self.first} to {self.following - 1}"


NEXT_OFFSET = "groupkafka.next.offset"  # header of our own: the offset, as text, at which reading went on


class DeadLetters:
    """Sends the record batches that a task left out to ``<topic>-dlt``, one by one; those of a retry topic to its main
    topic's.

    The value of a record is the bytes of the record batch; the key is null. Its headers are those of Kafka Connect's
    dead letters, with the first offset that was not read, and :data:`NEXT_OFFSET`.

    `outlives`: whether brokers that are away are waited for, up to maxBrokerOutage if that is set.
    """

    def __init__(self, options: Options, outlives: bool = False) -> None:
        self._options = options
        self._sink_options = sink_options(options, outlives)

    def send(self, left_out: LeftOut) -> None:
        """Send one, until all in-sync replicas have it. Raises BrokerError when the topic refuses it, or is missing."""
        tp, error = left_out.tp, left_out.error
        origin = Origin(tp.topic, tp.partition, left_out.first, -1, -1)
        row = letter(self._options, error, origin, None, left_out.raw)
        headers = [*row.headers, (NEXT_OFFSET, str(left_out.following).encode())]
        told = f"{left_out}, which cannot be read ({error.problem})"
        send([row._replace(headers=headers)], self._sink_options, told, by="onCorruptRecord")


ADVICE = "Set onCorruptRecord=skip to go on after it, or deadLetter to keep its bytes in a topic as well"
ASKED_AGAIN = 3  # how often the task asks again for an offset without records, before the offset is left out
LONGEST_PAUSE_S = 5.0  # longest pause between two searches for the next record batch, while the broker is silent


class Remedy:
    """Handles the record batches of one task that cannot be read. `largest`: most bytes that a record batch may have.
    `connect`: makes the connections of the search. `outage`: waits for brokers that are away; None where that is an
    error."""

    def __init__(
        self,
        options: Options,
        twin: decode.Decoder,
        fetcher: Fetcher,
        largest: int,
        connect: Callable[[ClientOptions], Brokers] = Brokers,
        outage: TaskOutage | None = None,
    ) -> None:
        self._policy = options.reading.on_corrupt_record
        self._scan = twin.scan
        self._fetcher = fetcher
        self._largest = largest
        self._waits_s = options.fetching.poll_timeout_ms / 1000
        self._outage = outage
        self._searching: Search | None = None
        self._make_search: Callable[[], Search] = partial(Search, options.client, twin, connect, fetcher.epochs, outage)
        self._surroundings = Surroundings(twin.scan, self._search)
        self._dead_letters: DeadLetters | None = None
        if self._policy == DEAD_LETTER:
            self._dead_letters = DeadLetters(options, outlives=outage is not None)
        self._asked_again: dict[tuple[TopicPartition, int], int] = {}
        self._looked_back: set[tuple[TopicPartition, int]] = set()
        self._searched: set[tuple[TopicPartition, int]] = set()
        self._read_to: dict[TopicPartition, int] = {}  # where the last gap ended
        self._ranges = 0
        self._offsets = 0

    def after(
        self, chunk: Chunk, error: CorruptRecordError, *, decoded_from: int, wanted: int, damaged_at: int
    ) -> WayOn | None:
        """Leave out the record batch at a byte of `chunk`, and with it as little as possible.

        `error`: why the record batch cannot be read.
        `decoded_from`: byte from which `chunk` was decoded without an error.
        `wanted`: the first offset wanted from that byte on.
        `damaged_at`: byte where the record batch begins.
        Returns None when `chunk` has nothing more to decode. If more of the partition is wanted, the fetcher has its
        position.
        Raises CorruptRecordError with onCorruptRecord=fail; BrokerError, ReadError when brokers do not answer, or the
        dead-letter topic does not take the record.
        """
        damage = self._damage(chunk, error, decoded_from, wanted, damaged_at)
        if chunk.of_follower:
            self._fetcher.ask_leader(damage.tp, damage.first)
            return None
        try:
            return self._way_on(damage)
        except LeaderChangedError:
            self._ask_next_leader(damage.tp, damage.first)
            return None

    def _damage(
        self, chunk: Chunk, error: CorruptRecordError, decoded_from: int, wanted: int, damaged_at: int
    ) -> Damage:
        tp, records = chunk.tp, chunk.records
        header = batch_headers.at(self._scan, tp, records, damaged_at)
        least: int | None
        if header is not None:
            least, first = header.base_offset, error.offset
        else:  # its offset is no more certain than its length
            _, first = self._scan(tp.topic, tp.partition, records[decoded_from:damaged_at])
            least = first if first > wanted else None  # the decoder skips batches before `wanted`, damaged ones too
        return Damage(chunk, damaged_at, header, least, max(first, wanted, self._read_to.get(tp, 0)), error)

    def _way_on(self, damage: Damage) -> WayOn | None:
        tp, first, end = damage.tp, damage.first, damage.chunk.end
        if first >= end:
            self._fetcher.go_on(tp, end, end)  # the fetcher's next offset may come from the damaged bytes
            return None
        if not damage.records and self._can_be_reached(tp, first):
            return None
        if self._policy == FAIL:
            message = f"{damage.error.problem}. {ADVICE}"
            raise CorruptRecordError(tp.topic, tp.partition, first, message) from damage.error
        if damage.header is None:
            return self._search_on(damage)
        earlier = batch_headers.before_an_earlier(damage.records, damage.header, damage.error.offset)
        if earlier is None and not batch_headers.ends_there(
            self._scan, tp, damage.records, damage.header, self._largest
        ):
            return self._search_on(damage)
        return self._behind(damage, damage.header, earlier)

    def _behind(self, damage: Damage, header: batch_headers.Frame, earlier: int | None) -> WayOn | None:
        """Go on at the next record batch of the chunk; `earlier` is its offset where that of `header` is damaged."""
        tp, chunk, first = damage.tp, damage.chunk, damage.first
        following = max(first, header.next_offset if earlier is None else earlier)
        raw = bytes(damage.records[damage.byte : header.end])
        self._leave_out(LeftOut(tp, first, min(following, chunk.end), damage.error, raw))
        if chunk.aborted and (
            earlier is None or (earlier > first and batch_headers.is_control(damage.records, header))
        ):
            # It may be the marker that ends an aborted transaction. The next response says which transactions remain.
            self._fetcher.go_on(tp, following, following)
            return None
        return WayOn(chunk, header.end, following)

    def shown(self, silent: Chunk) -> Chunk | None:
        """Bytes of the log from before an offset that the broker is silent about, with the record batch in question, or
        damage in its place; None when the fetcher is to ask again. Raises BrokerError, ReadError."""
        try:
            return self._shown(silent)
        except LeaderChangedError:
            self._ask_next_leader(silent.tp, silent.start)
            return None

    def _shown(self, silent: Chunk) -> Chunk | None:
        tp, first = silent.tp, silent.start
        problem, position = None, 0
        chunk = silent._replace(silent=False)
        seen = self._surroundings.seen_before(tp, first)
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
        """Why no record batch is at a byte of `chunk`, if it would reach beyond one that the broker finds."""
        within = batch_headers.found_again(chunk.records, position, found.header)
        if within is None or self._surroundings.hidden(chunk, position, position + within, first + 1, first):
            return None
        return f"a batch reaches beyond the one that begins {within} bytes behind it"

    def _ask_next_leader(self, tp: TopicPartition, first: int) -> None:
        """Have the fetcher ask the next leader, once their logs are compared: that one may be undamaged."""
        self._asked_again = {key: asked for key, asked in self._asked_again.items() if key[0] != tp}
        self._looked_back = {key for key in self._looked_back if key[0] != tp}
        self._searched = {key for key in self._searched if key[0] != tp}
        self._fetcher.go_on(tp, first, first)

    def close(self) -> None:
        if self._searching is not None:
            self._searching.close()

    def _search_on(self, damage: Damage) -> WayOn | None:
        """Go on at the next record batch of the range that a broker finds, or that leads to that one."""
        ask_from, least = self._search_bounds(damage)
        found, damage, target = self._located(damage, ask_from, least)
        if target is not None and not damage.chunk.aborted:  # aborted transactions come with a new response only
            linked = self._surroundings.linked(damage.chunk, damage.byte, target, least)
            if linked is not None:
                return self._on_from(damage, linked)
        self._ask_for(found, damage)
        return None

    def _search_bounds(self, damage: Damage) -> tuple[int, int]:
        """The offset to search from, and the least base offset that the next record batch may have."""
        first, least = damage.first, damage.least_offset
        if least is not None:
            return (first if least < first else first + 1), least + 1
        if (damage.tp, first) not in self._searched:
            # The record batch of the first offset may be good, and the damage be before it, on the broker's way to it.
            self._searched.add((damage.tp, first))
            return first + 1, 0
        return first + 1, first + 1

    def _on_from(self, damage: Damage, linked: batch_headers.Frame) -> WayOn:
        """Decode the chunk from `linked` on."""
        following = max(linked.base_offset, damage.first)
        self._leave_out_before(following, damage, bytes(damage.records[damage.byte : linked.begin]))
        self._go_on_behind(damage.chunk, linked)
        return WayOn(damage.chunk, linked.begin, following, fetcher_redirected=True)

    def _ask_for(self, found: Found | None, damage: Damage) -> None:
        """Have the fetcher ask for the record batch that the broker finds, or end the range where it finds none."""
        tp, first, end = damage.tp, damage.first, damage.chunk.end
        following = end if found is None else min(max(found.start, first), end)
        self._leave_out_before(following, damage, damage.raw(b"" if found is None else found.header))
        if found is None or found.start >= end:
            log.warning("%s: no record from offset %d to the end of this task's range, %d, can be read", tp, first, end)
            self._fetcher.go_on(tp, end, end)
        else:
            self._fetcher.go_on(tp, found.ask_at, following)

    def _leave_out_before(self, following: int, damage: Damage, raw: bytes) -> None:
        """Leave out the offsets before `following`: none if the damage ends before the first wanted offset."""
        if following > damage.first or damage.header is not None:
            end = min(following, damage.chunk.end)
            self._leave_out(LeftOut(damage.tp, damage.first, end, damage.error, raw))

    def _located(self, damage: Damage, ask_from: int, least: int) -> tuple[Found | None, Damage, int | None]:
        """The next record batch that the broker finds, and the byte where it begins in a chunk, None if it is in none.

        The chunk is that of `damage`, or one with more of the log. More is asked for only where the broker was silent
        about an offset in between. Raises BrokerTimeoutError when a broker is silent about offsets that would be left
        out, for as long as reading may stall. Meanwhile no other partition is asked for, so outages of others count:
        they cannot end.
        """
        began, pause_s = time.monotonic(), 0.1
        while True:
            found = self._search().first_from(damage.tp, ask_from, damage.chunk.end, least)
            target = _byte_of(found, damage)
            if not self._search().unanswered or (found is not None and found.start <= damage.first):
                return found, damage, target  # in the second case no offset is left out
            if found is not None:
                seen = damage if target is not None else self._surroundings.wider(damage)
                target = _byte_of(found, seen)
                if target is not None and not self._surroundings.hidden(
                    seen.chunk, seen.byte, target, least, damage.first
                ):
                    return found, seen, target
            if self._outage is not None:
                began = max(began, self._outage.answered_at(damage.tp))
            self._check_waited(damage, time.monotonic() - began)
            time.sleep(min(pause_s, max(0.0, self._waits_s - (time.monotonic() - began))))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _check_waited(self, damage: Damage, waited_s: float) -> None:
        if waited_s >= self._waits_s:
            raise BrokerTimeoutError(
                f"{damage.tp}: offset {damage.first} cannot be read: {damage.error.problem}. For {waited_s:.0f} s "
                f"(kafkaConsumer.pollTimeoutMs) the broker has sent neither records nor an error for a later offset. "
                f"So it is unknown which records can be read there, and none is left out. {SILENCE}"
            )

    def _go_on_behind(self, chunk: Chunk, batch: batch_headers.Frame) -> None:
        """Have the fetcher go on behind a chunk that is read on from `batch`."""
        try:
            _, next_offset = self._scan(chunk.tp.topic, chunk.tp.partition, chunk.records[batch.begin :])
        except CorruptRecordError:
            next_offset = chunk.end  # there is more damage, and the decoder will come to it
        self._fetcher.go_on(chunk.tp, next_offset, next_offset)

    def _can_be_reached(self, tp: TopicPartition, offset: int) -> bool:
        """Have the fetcher ask again for an offset, or one before, if the broker now has something for it."""
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


def _byte_of(found: Found | None, damage: Damage) -> int | None:
    """Where a record batch that the broker finds begins in the chunk, behind the damage."""
    behind = None if found is None else batch_headers.found_again(damage.records, damage.byte, found.header)
    return None if behind is None else damage.byte + behind
