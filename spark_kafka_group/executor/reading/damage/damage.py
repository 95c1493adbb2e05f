"""A damaged record batch, and the place where reading goes on after it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.executor.reading.batch_headers import HEADER_BYTES, Frame
from spark_kafka_group.executor.reading.chunk import Chunk
from spark_kafka_group.values.offsets import TopicPartition

MOST_OF_AN_UNKNOWN_END = 1 << 19
"""Bytes that are kept of a record batch whose end is not known."""


@dataclass(frozen=True)
class Damage:
    """A record batch of a chunk that cannot be read.

    Attributes
    ----------
    byte
        Where it begins in the chunk's records.
    header
        Its header, if that is possible and the whole batch is in the chunk.
    least_offset
        Its base offset by the header, or the least offset it can have; None if neither is known.
    first
        The first wanted offset that was not read.
    error
        Why it cannot be read.
    """

    chunk: Chunk
    byte: int
    header: Frame | None
    least_offset: int | None
    first: int
    error: CorruptRecordError

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
        """The bytes of the damaged record batch.

        Parameters
        ----------
        next_header
            First bytes of the next record batch that the broker finds; empty if it finds none.
        """
        end = len(self.records) if self.header is None else self.header.end
        rest, after = bytes(self.records[self.byte : end]), bytes(self.records[end : end + HEADER_BYTES])
        next_begins = rest.find(next_header, 1) if next_header else -1
        if next_begins > 0:
            return rest[:next_begins]
        return rest if self.header is not None and next_header.startswith(after) else rest[:MOST_OF_AN_UNKNOWN_END]


class WayOn(NamedTuple):
    """Where decoding goes on within a chunk."""

    chunk: Chunk
    """The chunk that was decoded, or one that has more of the log."""
    position: int
    """Byte of its records."""
    start: int
    """First offset wanted from there on."""
    fetcher_redirected: bool = False
    """Whether the fetcher already has the position behind the chunk, so that the chunk's problem no longer counts."""
