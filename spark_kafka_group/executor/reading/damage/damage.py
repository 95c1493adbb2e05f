"""A damaged record batch, the bytes around it, and the place where reading goes on after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.executor.reading import batch_headers
from spark_kafka_group.executor.reading.batch_headers import HEADER_BYTES, Chunk, Frame, Scan
from spark_kafka_group.executor.reading.damage.search import Search, SeenBytes
from spark_kafka_group.values.offsets import TopicPartition

MOST_OF_AN_UNKNOWN_END = 1 << 19  # bytes that are kept of a record batch whose end is not known


@dataclass(frozen=True)
class Damage:
    """A record batch of a chunk that cannot be read."""

    chunk: Chunk
    byte: int  # where it begins in the chunk's records
    header: Frame | None  # its header, if that is possible and the whole batch is in the chunk
    least_offset: int | None  # its base offset by the header, or the least offset it can have; None if neither is known
    first: int  # the first wanted offset that was not read
    error: CorruptRecordError  # why it cannot be read

    @property
    def tp(self) -> TopicPartition:
        return self.chunk.tp

    @property
    def records(self) -> memoryview:
        return self.chunk.records

    def seen_in(self, chunk: Chunk, byte: int) -> Damage:
        """The same damage in a chunk that has more of the log."""
        return replace(self, chunk=chunk, byte=byte)

    def raw(self, next_header: bytes = b"") -> bytes:
        """The bytes of the damaged record batch. `next_header`: first bytes of the next record batch that the broker
        finds; empty if it finds none."""
        end = len(self.records) if self.header is None else self.header.end
        rest, after = bytes(self.records[self.byte : end]), bytes(self.records[end : end + HEADER_BYTES])
        next_begins = rest.find(next_header, 1) if next_header else -1
        if next_begins > 0:
            return rest[:next_begins]
        return rest if self.header is not None and next_header.startswith(after) else rest[:MOST_OF_AN_UNKNOWN_END]


class WayOn(NamedTuple):
    """Where decoding goes on within a chunk."""

    chunk: Chunk  # the chunk that was decoded, or one that has more of the log
    position: int  # byte of its records
    start: int  # first offset wanted from there on
    fetcher_redirected: bool = False
    """Whether the fetcher already has the position behind the chunk, so that the chunk's problem no longer counts."""


class Surroundings:
    """Looks at the bytes of a log beside a damaged record batch. `scan`: of the decoder. `search`: returns the task's
    search, which connects when it is first needed."""

    def __init__(self, scan: Scan, search: Callable[[], Search]) -> None:
        self._scan = scan
        self._search = search

    def linked(self, chunk: Chunk, byte: int, target: int, least: int) -> Frame | None:
        """The first undamaged record batch behind `byte` whose headers lead to the batch at byte `target`. `least`:
        least base offset it may have."""
        return batch_headers.leading_to(self._scan, chunk.tp, chunk.records, byte, target, least, self._search().intact)

    def hidden(self, chunk: Chunk, byte: int, target: int, least: int, first: int) -> bool:
        """Whether a readable record batch with offsets from `first` on may be in the bytes that would be left out."""
        linked = self.linked(chunk, byte, target, least)
        end = target if linked is None or chunk.aborted else linked.begin
        return batch_headers.hidden(self._scan, chunk.tp, chunk.records, byte, end, first, self._search().intact)

    def wider(self, damage: Damage) -> Damage:
        """The damage among more bytes of the log; `damage` itself if the broker sends no others."""
        chunk, tp = damage.chunk, damage.tp
        if not chunk.records:
            before = self.seen_before(tp, damage.first)
            if before is None:
                return damage
            byte, _ = batch_headers.past(self._scan, tp, before.records, damage.first)
            more = chunk._replace(asked=before.asked, records=before.records, aborted=before.aborted)
            return damage.seen_in(more, byte)
        seen = self._search().seen(tp, chunk.asked)
        if seen.records[: len(chunk.records)] != chunk.records:
            return damage
        return damage.seen_in(chunk._replace(records=seen.records, aborted=seen.aborted), damage.byte)

    def seen_before(self, tp: TopicPartition, offset: int) -> SeenBytes | None:
        """Bytes of the log from an offset before this one on; None if the broker sends none."""
        before = self._search().before(tp, offset)
        seen = None if before is None else self._search().seen(tp, before)
        return seen if seen is not None and seen.records else None
