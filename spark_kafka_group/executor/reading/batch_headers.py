"""Record batches by their headers, as far as these are plausible: where one ends, and the next one begins."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from spark_kafka_group.errors import CorruptRecordError
from spark_kafka_group.values.offsets import TopicPartition

_FRAME = Struct(">qiib")  # offset, length, (leader epoch in v2, CRC in v0 and v1), magic
_OFFSET = Struct(">q")
_MAGIC_2 = b"\x02"
_LENGTH_END = 12  # bytes before those that the length counts
_MIN_LENGTH = {0: 14, 1: 22, 2: 49}
_CONTROL_AT, _CONTROL_BIT = 22, 0b100000
HEADER_BYTES = 61

Scan = Callable[[str, int, memoryview], tuple[int, int]]
Intact = Callable[[TopicPartition, memoryview], bool]


class Frame(NamedTuple):
    """A record batch whose header is possible, and which is there to its end."""

    base_offset: int
    magic: int
    begin: int  # its first byte
    end: int  # byte after it
    next_offset: int  # offset after its last one, as its header says


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
    return Frame(base_offset, magic, position, end, next_offset) if size == end - position else None


def past(scan: Scan, tp: TopicPartition, records: memoryview, offset: int) -> tuple[int, int | None]:
    """The byte and the offset after the record batches in a row that end before `offset`; None if there are none."""
    position, next_offset = 0, None
    while (batch := at(scan, tp, records, position)) is not None and batch.next_offset <= offset:
        position, next_offset = batch.end, batch.next_offset
    return position, next_offset


def found_again(records: memoryview, position: int, header: bytes) -> int | None:
    """How many bytes behind a byte the record batch with this header begins; None if it is not there."""
    behind = bytes(records[position:]).find(header, 1)
    return behind if behind > 0 else None


def hidden(
    scan: Scan, tp: TopicPartition, records: memoryview, position: int, target: int, first: int, intact: Intact
) -> bool:
    """Whether bytes between two others may be an undamaged record batch with offsets from `first` on. They may be part
    of a value too. So this is no reason to read them, but a reason to ask before leaving them out."""
    between = bytes(records[position:target])
    magic_at = _FRAME.size
    while (magic_at := between.find(_MAGIC_2, magic_at)) >= 0:
        begin = position + magic_at - _FRAME.size + 1
        frame = at(scan, tp, records, begin)
        possible = frame is not None and frame.end <= target and frame.next_offset > first
        if frame is not None and possible and intact(tp, records[begin : frame.end]):
            return True
        magic_at += 1
    return False


def impossible(scan: Scan, tp: TopicPartition, records: memoryview, position: int, largest: int) -> str | None:
    """Why no record batch can begin at a byte; None if one may that is cut off, or there are too few bytes to tell.
    `largest`: most bytes that a record batch may have."""
    if len(records) - position < _FRAME.size:
        return None
    _, length, _, _ = _FRAME.unpack_from(records, position)
    if length > largest:
        return f"a batch gives its length as {length}, and none may have more than {largest} bytes"
    try:
        scan(tp.topic, tp.partition, records[position:])
    except CorruptRecordError as error:
        return error.problem
    return None


def ends_there(scan: Scan, tp: TopicPartition, records: memoryview, batch: Frame, largest: int) -> bool:
    """Whether `batch`, which cannot be read, ends where its header says: the next one is there, with the next offset.
    Otherwise its length and its last offset in the header may be damaged. `largest`: most bytes that a record batch may
    have."""
    if len(records) - batch.end < _FRAME.size:
        return False
    base_offset, length, _, magic = _FRAME.unpack_from(records, batch.end)
    if base_offset != batch.next_offset or not _MIN_LENGTH.get(magic, largest + 1) <= length <= largest:
        return False
    cut_off = length > len(records) - batch.end - _LENGTH_END
    return cut_off or at(scan, tp, records, batch.end) is not None


def is_control(records: memoryview, batch: Frame) -> bool:
    """Whether a record batch has a marker of a transaction, if its header is right."""
    return batch.magic == 2 and records[batch.begin + _CONTROL_AT] & _CONTROL_BIT != 0


def before_an_earlier(records: memoryview, batch: Frame, offset: int) -> int | None:
    """Where the record batch behind `batch` begins, if that is from `offset` on but not behind the offsets of `batch`:
    then its own first offset is damaged, which no checksum covers, and its length is right."""
    if batch.base_offset <= offset or len(records) - batch.end < _FRAME.size:
        return None
    after, _, _, magic = _FRAME.unpack_from(records, batch.end)
    return after if magic in _MIN_LENGTH and offset <= after < batch.next_offset else None


def leading_to(
    scan: Scan, tp: TopicPartition, records: memoryview, position: int, target: int, first: int, intact: Intact
) -> Frame | None:
    """The first record batch behind byte `position` from which one header leads to the next, up to byte `target`.

    A record batch is known to begin at `target`, so the link is no accident: bytes of a value that look like a record
    batch, as in a dead-letter topic, do not lead to one.

    `first`: least offset it may have.
    `intact`: whether the bytes of a record batch are undamaged, which that one has to be.
    """
    between = bytes(records[position:target])
    (next_offset,) = _OFFSET.unpack_from(records, target)
    leading = {target - position: next_offset}
    magic_at = between.rfind(_MAGIC_2, _FRAME.size)
    while magic_at >= 0:
        begin = magic_at - _FRAME.size + 1
        base_offset, length, _, _ = _FRAME.unpack_from(between, begin)
        limit = leading.get(begin + _LENGTH_END + length)
        if limit is not None and base_offset >= first:
            frame = at(scan, tp, records, position + begin)
            if frame is not None and frame.next_offset <= limit:
                leading[begin] = base_offset
        magic_at = between.rfind(_MAGIC_2, _FRAME.size, magic_at)
    del leading[target - position]
    for begin in sorted(leading):
        frame = at(scan, tp, records, position + begin)
        if frame is not None and intact(tp, records[position + begin : frame.end]):
            return frame
    return None


class Chunk(NamedTuple):
    """Record batches of one partition, of which the records from start to end are wanted."""

    tp: TopicPartition
    asked: int  # the offset that was asked for
    start: int
    end: int
    records: memoryview  # valid until the next chunk is asked for
    aborted: tuple[tuple[int, int], ...] = ()  # producer id and first offset of each aborted transaction in them
    problem: str | None = None
    """Why the bytes behind these record batches cannot be read. Reading the partition ends unless the caller goes
    on."""
    silent: bool = False
    """Whether the broker sends neither records nor an error, though the log goes on. That is no proof of damage. The
    caller looks for damage and goes on behind it (:meth:`Fetcher.go_on`), or waits (:meth:`Fetcher.wait_on`)."""
    of_follower: bool = False
    """Whether they may be a follower's copy. Where that is damaged the leader is asked (:meth:`Fetcher.ask_leader`)."""
