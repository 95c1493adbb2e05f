"""Messages of formats v0 and v1, which logs from before Kafka 0.11 hold; both twins decode them here.

The rules are those of Kafka's ``AbstractLegacyRecordBatch`` and ``LegacyRecord``. A compressed message wraps others
in its value. Its offset is that of the last one inside; in v1 the ones inside count from 0, in v0 they carry their
own offsets. This is strict where Java is lenient: bytes left over, inside or after a message, are an error.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from struct import Struct

from spark_kafka_group.executor.decode import codecs, problems
from spark_kafka_group.executor.decode.contract import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    MAX_OFFSET,
    MAX_TIMESTAMP_MS,
    NO_TIMESTAMP_TYPE,
    RecordBatchBuilder,
)
from spark_kafka_group.executor.decode.problems import MalformedError

MIN_LENGTH = {0: 14, 1: 22}  # bytes after offset and length, with empty key and value

_ENTRY = Struct(">qi")  # offset, length
_HEAD = Struct(">IbB")  # CRC, magic, attributes
_TIMESTAMP = Struct(">q")
_LENGTH = Struct(">i")
_CRC_BYTES = 4
_CODEC_MASK, _LOG_APPEND_BIT = 0b111, 0b1000


@dataclass(frozen=True)
class _Message:
    magic: int
    codec: int
    timestamp_ms: int
    timestamp_type: int
    key: memoryview | None
    value: memoryview | None


Row = tuple[int, _Message, bool]  # offset, message, and whether it is the last of its entry


class LegacyMessages:
    """The messages of one entry that are not taken yet. It holds no bytes of the response."""

    def __init__(
        self, topic: str, partition: int, rows: Iterator[Row], first_unread: int, start: int, end: int
    ) -> None:
        self._topic, self._partition = topic, partition
        self._rows = rows
        self._first_unread = first_unread
        self._start, self._end = start, end

    def append_to(self, builder: RecordBatchBuilder) -> bool:
        """Add rows until the builder is full; whether these were all. Raises CorruptRecordError, ReadError."""
        try:
            for at, row, is_last in self._rows:
                if self._start <= at < self._end:
                    if builder.check_timestamps and abs(row.timestamp_ms) > MAX_TIMESTAMP_MS:
                        raise problems.timestamp(self._topic, self._partition, at, row.timestamp_ms)
                    builder.append_row(at, row.timestamp_ms, row.timestamp_type, row.key, row.value)
                self._first_unread = max(self._start, at + 1)
                if builder.full and not is_last:
                    return False
        except MalformedError as problem:
            raise problems.corrupt(
                self._topic, self._partition, self._first_unread, str(problem)
            ) from problem.__cause__
        return True


def append_message(
    builder: RecordBatchBuilder,
    topic: str,
    partition: int,
    entry: memoryview,
    reached: int,
    start: int,
    end: int,
) -> LegacyMessages | None:
    """Add the rows of one message, which may wrap others, with ``start <= offset < end``.

    `entry`: offset, length and message; the caller has checked length and magic.
    `reached`: first offset the caller has not read: where a compressed message begins is known only once it is
        unpacked.
    Returns those inside that are left when the builder was full before the last of them.
    """
    offset, _ = _ENTRY.unpack_from(entry)
    compressed = bool(entry[_ENTRY.size + _HEAD.size - 1] & _CODEC_MASK)
    if offset < start or (offset >= end and not compressed):
        return None
    first_unread = reached if compressed else max(offset, start)
    try:
        message = _parse(entry[_ENTRY.size :], offset, builder.check_crcs)
        inside = _unwrap(message, offset, builder) if message.codec else iter([(offset, message, True)])
    except MalformedError as problem:
        raise problems.corrupt(topic, partition, first_unread, str(problem)) from problem.__cause__
    messages = LegacyMessages(topic, partition, inside, first_unread, start, end)
    return None if messages.append_to(builder) else messages


def _parse(message: memoryview, offset: int, check_crc: bool) -> _Message:
    stored, magic, attributes = _HEAD.unpack_from(message)
    if check_crc:
        computed = zlib.crc32(message[_CRC_BYTES:])
        if computed != stored:
            raise MalformedError(problems.wrong_crc(offset, stored, computed))
    position = _HEAD.size
    timestamp_ms, timestamp_type = -1, NO_TIMESTAMP_TYPE
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(message, position)
        timestamp_type = LOG_APPEND_TIME if attributes & _LOG_APPEND_BIT else CREATE_TIME
        position += _TIMESTAMP.size
    key, position = _field(message, position, offset)
    value, position = _field(message, position, offset)
    if position != len(message):
        raise MalformedError(f"the message at offset {offset} has bytes left over at its end")
    return _Message(magic, attributes & _CODEC_MASK, timestamp_ms, timestamp_type, key, value)


def _field(message: memoryview, position: int, offset: int) -> tuple[memoryview | None, int]:
    if len(message) - position < _LENGTH.size:
        raise MalformedError(f"the message at offset {offset} is cut short")
    (length,) = _LENGTH.unpack_from(message, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if length < 0:
        raise MalformedError(f"the message at offset {offset} has a negative length")
    if length > len(message) - position:
        raise MalformedError(f"the message at offset {offset} is cut short")
    return message[position : position + length], position + length


def _unwrap(wrapper: _Message, offset: int, builder: RecordBatchBuilder) -> Iterator[Row]:
    """The messages inside a compressed one. Their frames are checked at once, the messages as they are taken."""
    if wrapper.codec not in (codecs.GZIP, codecs.SNAPPY, codecs.LZ4):
        raise MalformedError(problems.unknown_codec(offset, wrapper.codec))
    if wrapper.value is None:
        raise MalformedError(f"the message at offset {offset} is compressed and has no value")
    unpacked = _unpacked(wrapper, wrapper.value, offset, builder.unpacked_limit)
    last: int | None = None
    lowest, highest = MAX_OFFSET, -1
    for last, _ in _frames(unpacked, offset):
        lowest, highest = min(lowest, last), max(highest, last)
    if last is None:
        raise MalformedError(f"the message at offset {offset} is compressed and has no messages inside")
    # An outer offset of 0 is from clients (certain versions of librdkafka) that left it to the broker.
    base = offset - last if wrapper.magic == 1 and offset != 0 else 0
    if base < 0 or base + lowest < 0 or base + highest > MAX_OFFSET:
        raise MalformedError(f"a message inside the one at offset {offset} has an impossible offset")
    return _inside(unpacked, offset, base, replace(wrapper, key=None, value=None), builder.check_crcs)


def _unpacked(wrapper: _Message, packed: memoryview, offset: int, limit: int) -> memoryview:
    if wrapper.codec == codecs.LZ4 and wrapper.magic == 0:
        packed = memoryview(codecs.mend_lz4_header(packed))
    try:
        return memoryview(codecs.unpack(wrapper.codec, packed, limit))
    except MalformedError as problem:
        raise MalformedError(problems.codec_failed(offset, str(problem))) from problem.__cause__


def _frames(unpacked: memoryview, offset: int) -> Iterator[tuple[int, memoryview]]:
    """The offset that each message inside a compressed one gives, and its bytes."""
    position = 0
    while position < len(unpacked):
        left = len(unpacked) - position - _ENTRY.size
        if left < MIN_LENGTH[0]:
            raise MalformedError(f"the messages inside the one at offset {offset} are cut short")
        at, length = _ENTRY.unpack_from(unpacked, position)
        position += _ENTRY.size
        magic = unpacked[position + _CRC_BYTES]
        if magic not in MIN_LENGTH:
            raise MalformedError(f"a message inside the one at offset {offset} has magic {magic}")
        if not MIN_LENGTH[magic] <= length <= left:
            raise MalformedError(f"a message inside the one at offset {offset} gives its length as {length}")
        yield at, unpacked[position : position + length]
        position += length


def _inside(unpacked: memoryview, offset: int, base: int, wrapper: _Message, check_crc: bool) -> Iterator[Row]:
    left = len(unpacked)
    for at, message in _frames(unpacked, offset):
        left -= _ENTRY.size + len(message)
        yield base + at, _inherit(_parse(message, base + at, check_crc), wrapper, base + at), left == 0


def _inherit(message: _Message, wrapper: _Message, offset: int) -> _Message:
    """A message inside a compressed one inherits its type of timestamp, and the time of a log append."""
    if message.codec:
        raise MalformedError(f"the message at offset {offset} is compressed inside a compressed one")
    if message.magic == 0:
        return message
    log_append = wrapper.timestamp_type == LOG_APPEND_TIME
    return _Message(
        message.magic,
        message.codec,
        wrapper.timestamp_ms if log_append else message.timestamp_ms,
        wrapper.timestamp_type,
        message.key,
        message.value,
    )
