"""Messages of formats v0 and v1, which logs from before Kafka 0.11 hold; both twins decode them here.

The rules are those of Kafka's ``AbstractLegacyRecordBatch`` and ``LegacyRecord``. A compressed message wraps others
in its value. Its offset is that of the last one inside; in v1 the ones inside count from 0, in v0 they carry their
own offsets. This is strict where Java is lenient: bytes left over, inside or after a message, are an error.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
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

MIN_LENGTH = {0: 14, 1: 22}  # what follows offset and length, with empty key and value

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


def append_message(
    builder: RecordBatchBuilder,
    topic: str,
    partition: int,
    entry: memoryview,
    reached: int,
    start: int,
    end: int,
) -> None:
    """Add the rows of one message, which may wrap others, with ``start <= offset < end``.

    Parameters
    ----------
    entry
        Offset, length and message; the caller has checked length and magic.
    reached
        First offset the caller has not read: where a compressed message begins is known only once it is unpacked.
    """
    offset, _ = _ENTRY.unpack_from(entry)
    compressed = bool(entry[_ENTRY.size + _HEAD.size - 1] & _CODEC_MASK)
    if offset < start or (offset >= end and not compressed):
        return
    first_unread = reached if compressed else max(offset, start)
    try:
        message = _parse(entry[_ENTRY.size :], offset, builder.check_crcs)
        inner = _unwrap(message, offset, builder.unpacked_limit) if message.codec else [(offset, entry)]
        for at, inner_entry in inner:
            if message.codec:
                row = _inherit(_parse(inner_entry[_ENTRY.size :], at, builder.check_crcs), message, at)
            else:
                row = message
            if abs(row.timestamp_ms) > MAX_TIMESTAMP_MS:
                raise MalformedError(problems.message_timestamp(at, row.timestamp_ms))
            if start <= at < end:
                builder.append_row(at, row.timestamp_ms, row.timestamp_type, row.key, row.value)
            first_unread = max(start, at + 1)
    except MalformedError as problem:
        raise problems.corrupt(topic, partition, first_unread, str(problem)) from problem.__cause__


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


def _unwrap(wrapper: _Message, offset: int, limit: int) -> list[tuple[int, memoryview]]:
    """The messages inside a compressed one, each with its absolute offset."""
    if wrapper.codec not in (codecs.GZIP, codecs.SNAPPY, codecs.LZ4):
        raise MalformedError(problems.unknown_codec(offset, wrapper.codec))
    if wrapper.value is None:
        raise MalformedError(f"the message at offset {offset} is compressed and has no value")
    packed = wrapper.value
    if wrapper.codec == codecs.LZ4 and wrapper.magic == 0:
        packed = memoryview(codecs.mend_lz4_header(packed))
    try:
        unpacked = memoryview(codecs.unpack(wrapper.codec, packed, limit))
    except MalformedError as problem:
        raise MalformedError(problems.codec_failed(offset, str(problem))) from problem.__cause__
    inner: list[tuple[int, memoryview]] = []
    position = 0
    while position < len(unpacked):
        left = len(unpacked) - position - _ENTRY.size
        if left < MIN_LENGTH[0]:
            raise MalformedError(f"the messages inside the one at offset {offset} are cut short")
        at, length = _ENTRY.unpack_from(unpacked, position)
        magic = unpacked[position + _ENTRY.size + _CRC_BYTES]
        if magic not in MIN_LENGTH:
            raise MalformedError(f"a message inside the one at offset {offset} has magic {magic}")
        if not MIN_LENGTH[magic] <= length <= left:
            raise MalformedError(f"a message inside the one at offset {offset} gives its length as {length}")
        entry_end = position + _ENTRY.size + length
        inner.append((at, unpacked[position:entry_end]))
        position = entry_end
    if not inner:
        raise MalformedError(f"the message at offset {offset} is compressed and has no messages inside")
    base = 0
    # An outer offset of 0 is from clients (certain versions of librdkafka) that left it to the broker.
    if wrapper.magic == 1 and offset != 0:
        base = offset - inner[-1][0]
    absolute = [(base + at, entry) for at, entry in inner]
    for at, _ in absolute:
        if base < 0 or not 0 <= at <= MAX_OFFSET:
            raise MalformedError(f"a message inside the one at offset {offset} has an impossible offset")
    return absolute


def _inherit(message: _Message, wrapper: _Message, offset: int) -> _Message:
    """What a message inside a compressed one takes from that: type of timestamp, and the time of a log append."""
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
