"""Record batches by their headers, as far as these can be believed: where one ends, and what follows it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.offsets import TopicPartition

_FRAME = Struct(">qiib")  # offset, length, (leader epoch in v2, CRC in v0 and v1), magic
_LENGTH_END = 12  # bytes before what the length counts
_MIN_LENGTH = {0: 14, 1: 22, 2: 49}
FARTHEST = 2**31
"""Two record batches side by side with more offsets between them are not believed to be any: one holds at most so many."""
HEADER_BYTES = 61

Scan = Callable[[str, int, memoryview], tuple[int, int]]


class Frame(NamedTuple):
    """A record batch whose header is possible, and which is there to its end."""

    base_offset: int
    magic: int
    end: int
    """Byte after it."""
    next_offset: int
    """Offset after its last one, as its header says."""


def at(scan: Scan, tp: TopicPartition, records: memoryview, position: int) -> Frame | None:
    """The record batch that begins at a byte; None if its header is impossible, or it is cut off."""
    if len(records) - position < _FRAME.size:
        return None
    base_offset, length, _, magic = _FRAME.unpack_from(records, position)
    end = position + _LENGTH_END + length
    if not position < end <= len(records):
        return None
    try:
        size, next_offset = scan(tp.topic, tp.partition, records[position:end])
    except CorruptRecordError:
        return None
    return Frame(base_offset, magic, end, next_offset) if size == end - position else None


def follower(
    scan: Scan, tp: TopicPartition, records: memoryview, bad: Frame, first: int, largest: int
) -> tuple[int, int] | None:
    """Base offset and magic of what follows `bad`, a record batch that cannot be read, if it begins where that says that
    it ends. Then the length of `bad` is right, whatever else is wrong with it. None if that cannot be told.

    Parameters
    ----------
    first
        First offset of `bad` that was not read.
    largest
        Most bytes that a record batch may have.
    """
    if len(records) - bad.end < _FRAME.size:
        return None
    base_offset, length, _, magic = _FRAME.unpack_from(records, bad.end)
    possible = _MIN_LENGTH.get(magic, largest + 1) <= length <= largest
    if length <= len(records) - bad.end - _LENGTH_END:
        possible = possible and at(scan, tp, records, bad.end) is not None
    near = max(first, bad.base_offset + 1) <= base_offset < max(first, bad.next_offset) + FARTHEST
    return (base_offset, magic) if possible and near else None
