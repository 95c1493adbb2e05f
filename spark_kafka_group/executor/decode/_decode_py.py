"""The readable twin of the decoder; ``contract`` has its interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from spark_kafka_group.errors import ReadError
from spark_kafka_group.executor.decode import codecs, contract, legacy, problems
from spark_kafka_group.executor.decode.contract import (
    ABORT,
    CREATE_TIME,
    HEADER_COST,
    LOG_APPEND_TIME,
    MARKER_KEY_SIZE,
    MAX_OFFSET,
    MAX_TIMESTAMP_MS,
    ROW_COST,
    AbortedTransactions,
    Buffer,
)
from spark_kafka_group.executor.decode.problems import MalformedError, TopicColumn, utf8
from spark_kafka_group.values.schema import HEADER, arrow_schema

_FRAME = Struct(">qiib")  # offset, length, (leader epoch in v2, CRC in v0 and v1), magic
_LENGTH_END = 12  # bytes before those that the length counts
_MIN_LENGTH = {**legacy.MIN_LENGTH, 2: 49}
_HEADER = Struct(">qiibIhiqqqhii")  # of a record batch of magic 2, up to its records
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_CRC_FROM = 21  # the CRC covers the attributes and all after them
_CODEC_MASK, _LOG_APPEND_BIT, _TRANSACTIONAL_BIT, _CONTROL_BIT = 0b111, 0b1000, 0b10000, 0b100000
_MARKER_KEY = Struct(">hh")  # version, type

Header = tuple[bytes, bytes | None]


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE = _crc_table()


def crc32c(data: Buffer) -> int:
    """CRC-32C (Castagnoli), as in RFC 3720."""
    table = _CRC_TABLE
    crc = 0xFFFFFFFF
    for byte in memoryview(data).cast("B"):
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class _BadRecordError(Exception):
    """Raised, and caught, in here, with a code of ``problems``."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Cursor:
    """All reads of a record go through here: none goes past the end, and lengths are judged before they are used."""

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def byte(self) -> int:
        if self.position >= self.end:
            raise _BadRecordError(problems.SHORT)
        self.position += 1
        return self.data[self.position - 1]

    def _varint(self, bits: int) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if value >> bits:
                raise _BadRecordError(problems.OVERLONG)
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)  # zigzag
            shift += 7
            if shift >= bits:
                raise _BadRecordError(problems.OVERLONG)

    def varint(self) -> int:
        return self._varint(32)

    def varlong(self) -> int:
        return self._varint(64)

    def length(self, lowest: int) -> int:
        """A length, or, when `lowest` is -1, perhaps the -1 that stands for null."""
        length = self.varint()
        if length < lowest:
            raise _BadRecordError(problems.NEGATIVE)
        if length > self.end - self.position:
            raise _BadRecordError(problems.SHORT)
        return length

    def take(self, length: int) -> bytes:
        self.position += length
        return bytes(self.data[self.position - length : self.position])

    def nullable(self) -> bytes | None:
        length = self.length(-1)
        return None if length < 0 else self.take(length)


class _Record(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    header_cost: int


def _read_record(cursor: _Cursor, header_limit: int | None) -> _Record:
    """Read one record; its headers too, unless there is no limit for them."""
    length = cursor.length(0)
    end_of_batch, cursor.end = cursor.end, cursor.position + length
    cursor.byte()  # attributes; none is in use
    timestamp_delta = cursor.varlong()
    offset_delta = cursor.varint()
    key = cursor.nullable()
    value = cursor.nullable()
    headers: list[Header] = []
    cost = 0
    if header_limit is not None:
        count = cursor.varint()
        if count < 0:
            raise _BadRecordError(problems.NEGATIVE)
        for _ in range(count):
            raw_key, header_value = cursor.take(cursor.length(0)), cursor.nullable()
            header_key = utf8(raw_key, header_limit)
            cost += HEADER_COST + len(header_key) + len(header_value or b"")
            if cost > header_limit:
                raise _BadRecordError(problems.TOO_MANY)
            headers.append((header_key, header_value))
        if cursor.position != cursor.end:
            raise _BadRecordError(problems.LEFTOVER)
    cursor.position, cursor.end = cursor.end, end_of_batch
    return _Record(timestamp_delta, offset_delta, key, value, headers, cost)


def _is_abort(cursor: _Cursor, base_offset: int) -> bool:
    """Whether a control batch ends an aborted transaction, as its first record tells."""
    try:
        key = _read_record(cursor, None).key
    except _BadRecordError as bad:
        raise MalformedError(problems.record(base_offset, 0, bad.code)) from None
    if key is None or len(key) < MARKER_KEY_SIZE:
        raise MalformedError(problems.marker_size(base_offset, -1 if key is None else len(key)))
    version, kind = _MARKER_KEY.unpack_from(key)
    if version < 0:
        raise MalformedError(problems.marker_version(base_offset, version))
    return bool(kind == ABORT)


class _Frame(NamedTuple):
    base_offset: int
    magic: int
    end: int
    next_offset: int


def _read_frame(topic: str, partition: int, view: memoryview, position: int, start: int) -> _Frame | None:
    """The record batch at `position`, for scan and append; None when it is cut off."""
    if len(view) - position < _FRAME.size:
        return None
    base_offset, length, _, magic = _FRAME.unpack_from(view, position)
    end = position + _LENGTH_END + length
    next_offset = base_offset + 1
    problem = None
    if magic not in _MIN_LENGTH:
        problem = problems.magic(base_offset, magic)
    elif length < _MIN_LENGTH[magic]:
        problem = problems.batch_length(base_offset, length)
    elif base_offset < 0:
        problem = problems.negative_offset(base_offset)
    elif end > len(view):
        return None
    elif magic == 2:
        (last_offset_delta,) = _LAST_OFFSET_DELTA.unpack_from(view, position + _LAST_OFFSET_DELTA_AT)
        next_offset = base_offset + last_offset_delta + 1
        if last_offset_delta < 0 or next_offset > MAX_OFFSET + 1:
            problem = problems.last_offset_delta(base_offset, last_offset_delta)
    elif base_offset > MAX_OFFSET:
        problem = problems.last_offset(base_offset)
    if problem is not None:
        raise problems.corrupt(topic, partition, max(start, base_offset), problem)
    return _Frame(base_offset, magic, end, next_offset)


def _view(records: Buffer, position: int) -> memoryview:
    view = memoryview(records).cast("B")
    if not 0 <= position <= len(view):
        raise ValueError(f"position {position} is outside the {len(view)} bytes of records")
    return view


def scan(topic: str, partition: int, records: Buffer, position: int = 0) -> tuple[int, int]:
    view = _view(records, position)
    next_offset = -1
    while frame := _read_frame(topic, partition, view, position, 0):
        position, next_offset = frame.end, frame.next_offset
    return position, next_offset


@dataclass
class _Batch:
    """A record batch whose header has been read, and how far its records have been."""

    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    log_append: bool
    count: int
    unpacked: memoryview | None  # None if it is not compressed
    first_unread: int
    read: int = 0  # records
    position: int = 0  # byte of the records after them

    def timestamp(self, record: _Record) -> int:
        return self.max_timestamp if self.log_append else self.base_timestamp + record.timestamp_delta


def _check_crc(data: memoryview, base_offset: int, stored_crc: int) -> None:
    computed = crc32c(data[_CRC_FROM:])
    if computed != stored_crc:
        raise MalformedError(problems.wrong_crc(base_offset, stored_crc, computed))


def _unpacked(codec: int, data: memoryview, base_offset: int, limit: int) -> memoryview:
    """The records of a compressed record batch."""
    try:
        return memoryview(codecs.unpack(codec, data[_HEADER.size :], limit))
    except MalformedError as problem:
        raise MalformedError(problems.codec_failed(base_offset, str(problem))) from problem.__cause__


class RecordBatchBuilder:
    """Rows as Python lists."""

    def __init__(
        self,
        *,
        columns: tuple[str, ...],
        check_crcs: bool,
        unpacked_limit: int,
        target_bytes: int,
        check_timestamps: bool = True,
    ) -> None:
        if unpacked_limit <= 0 or target_bytes <= 0:
            raise ValueError(f"unpacked_limit ({unpacked_limit}) and target_bytes ({target_bytes}) must be above 0")
        self.check_crcs = check_crcs
        self.check_timestamps = check_timestamps and "timestamp" in columns
        self.unpacked_limit = unpacked_limit
        self._columns = columns
        self._with_key, self._with_value = "key" in columns, "value" in columns
        self._with_headers = "headers" in columns
        self._target_bytes = target_bytes
        self._limit = contract.BUILDER_LIMIT
        self._topics = TopicColumn()
        self._topic = ""
        self._topic_cost = 0
        self._partition = -1
        self.position = 0
        self._reached = 0
        self._following = -1
        self._rest: _Batch | legacy.LegacyMessages | None = None
        self._usable = True
        self._clear()

    def _clear(self) -> None:
        self.nbytes = 0
        self._runs: list[tuple[str, int]] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._partitions: list[int] = []
        self._offsets: list[int] = []
        self._timestamps: list[int | None] = []
        self._timestamp_types: list[int] = []
        self._header_keys: list[bytes] = []
        self._header_values: list[bytes | None] = []
        self._header_begins: list[int | None] = []

    @property
    def rows(self) -> int:
        return len(self._offsets)

    @property
    def full(self) -> bool:
        return self.nbytes >= self._target_bytes

    @property
    def halfway(self) -> bool:
        return self._rest is not None

    def append(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        position: int,
        start: int,
        end: int,
        aborted: AbortedTransactions | None = None,
    ) -> int:
        view = _view(records, position)
        goes_on = (topic, partition, position) == (self._topic, self._partition, self.position)
        if self._rest is not None and not goes_on:
            raise problems.halfway(self._topic, self._partition, self.position)
        if not goes_on:
            self._topic, self._partition = topic, partition
            self._topic_cost = len(topic.encode()) if "topic" in self._columns else 0
        self._reached = max(start, self._reached) if goes_on else start
        self._following = self._following if goes_on else -1
        self.position = position
        rows_before = self.rows
        with self._unusable_after_errors():
            try:
                while frame := _read_frame(topic, partition, view, self.position, start):
                    if self._rest is None:
                        self._check_order(view, frame)
                    self._append_frame(frame, view[self.position : frame.end], start, end, aborted)
                    if self._rest is not None:
                        break
                    self.position, self._reached = frame.end, max(self._reached, frame.next_offset)
                    self._following = frame.next_offset
                    if self.full:
                        break
            finally:
                if self.rows > rows_before:
                    self._runs.append((topic, self.rows - rows_before))
        return self.position

    def _check_order(self, view: memoryview, frame: _Frame) -> None:
        """No checksum covers the first offset of a record batch, but offsets go up from one to the next."""
        least, problem = self._reached, None
        if frame.base_offset < self._following:
            problem = problems.behind(frame.base_offset, self._following)
        elif frame.base_offset > least and len(view) - frame.end >= _FRAME.size:
            after, _, _, magic = _FRAME.unpack_from(view, frame.end)
            if magic in _MIN_LENGTH and least <= after < frame.next_offset:
                problem = problems.ahead(frame.base_offset, after)
        if problem is not None:
            raise problems.corrupt(self._topic, self._partition, least, problem)

    @contextmanager
    def _unusable_after_errors(self) -> Iterator[None]:
        if not self._usable:
            raise problems.unusable()
        self._usable = False
        try:
            yield
        except ReadError:
            self._usable = True
            raise
        self._usable = True

    def _append_frame(
        self, frame: _Frame, data: memoryview, start: int, end: int, aborted: AbortedTransactions | None
    ) -> None:
        """Add rows of a record batch; if the builder is full before its end, `_rest` says where to go on."""
        rest, self._rest = self._rest, None
        if isinstance(rest, legacy.LegacyMessages):
            self._rest = None if rest.append_to(self) else rest
        elif frame.magic == 2:
            batch = rest or self._begun(frame, data, start, end, aborted)
            if batch is not None and not self._append_records(batch, data, start, end):
                self._rest = batch
        else:
            self._rest = legacy.append_message(self, self._topic, self._partition, data, self._reached, start, end)

    def _begun(
        self, frame: _Frame, data: memoryview, start: int, end: int, aborted: AbortedTransactions | None
    ) -> _Batch | None:
        """The record batch, or None without a wanted row; one function, as the order of checks decides the error."""
        base_offset, _, _, _, stored_crc, attributes, last_offset_delta, *rest = _HEADER.unpack_from(data)
        control, transactional = attributes & _CONTROL_BIT, attributes & _TRANSACTIONAL_BIT
        if base_offset >= end or (frame.next_offset <= start and not (control and aborted is not None)):
            return None
        base_timestamp, max_timestamp, producer_id, _, _, count = rest
        first_unread = max(start, base_offset)
        try:
            if self.check_crcs:
                _check_crc(data, base_offset, stored_crc)
            transactions = aborted if producer_id >= 0 else None
            within_aborted = transactions is not None and transactions.reached(producer_id, frame.next_offset - 1)
            if transactions is None if control else within_aborted and transactional:
                return None
            if count < 0:
                raise MalformedError(problems.record_count(base_offset, count))
            log_append = bool(attributes & _LOG_APPEND_BIT)
            codec, unpacked = attributes & _CODEC_MASK, None
            if codec not in (0, *codecs.NAMES):
                raise MalformedError(problems.unknown_codec(base_offset, codec))
            if codec and (count or len(data) > _HEADER.size):
                unpacked = _unpacked(codec, data, base_offset, self.unpacked_limit)
            if transactions is not None and control:
                payload = data[_HEADER.size :] if unpacked is None else unpacked
                if count and _is_abort(_Cursor(payload, 0, len(payload)), base_offset):
                    transactions.ended(producer_id)
                return None
        except MalformedError as problem:
            raise problems.corrupt(self._topic, self._partition, first_unread, str(problem)) from problem.__cause__
        return _Batch(
            base_offset, last_offset_delta, base_timestamp, max_timestamp, log_append, count, unpacked, first_unread
        )

    def _append_records(self, batch: _Batch, data: memoryview, start: int, end: int) -> bool:
        """Add rows until the builder is full; whether these were all of `batch`."""
        payload = data[_HEADER.size :] if batch.unpacked is None else batch.unpacked
        cursor = _Cursor(payload, batch.position, len(payload))
        try:
            while batch.read < batch.count:
                self._append_record(batch, self._read(batch, cursor), start, end)
                batch.read, batch.position = batch.read + 1, cursor.position
                if self.full and batch.read < batch.count:
                    return False
            if cursor.position != cursor.end:
                raise MalformedError(problems.trailing(batch.base_offset, batch.count, cursor.end - cursor.position))
        except MalformedError as problem:
            raise problems.corrupt(self._topic, self._partition, batch.first_unread, str(problem)) from None
        return True

    def _read(self, batch: _Batch, cursor: _Cursor) -> _Record:
        try:
            record = _read_record(cursor, self.unpacked_limit if self._with_headers else None)
            if not 0 <= record.offset_delta <= batch.last_offset_delta:
                raise _BadRecordError(problems.OFFSET_DELTA)
        except _BadRecordError as bad:
            if bad.code == problems.TOO_MANY:
                text = problems.record_headers(batch.base_offset, batch.read, self.unpacked_limit)
            else:
                text = problems.record(batch.base_offset, batch.read, bad.code)
            raise MalformedError(text) from None
        return record

    def _append_record(self, batch: _Batch, record: _Record, start: int, end: int) -> None:
        offset = batch.base_offset + record.offset_delta
        if start <= offset < end:
            timestamp = batch.timestamp(record)
            if self.check_timestamps and abs(timestamp) > MAX_TIMESTAMP_MS:
                raise problems.timestamp(self._topic, self._partition, offset, timestamp)
            timestamp_type = LOG_APPEND_TIME if batch.log_append else CREATE_TIME
            self._append(
                offset, timestamp, timestamp_type, record.key, record.value, record.headers, record.header_cost
            )
        batch.first_unread = max(start, offset + 1)

    def append_row(
        self, offset: int, timestamp_ms: int, timestamp_type: int, key: Buffer | None, value: Buffer | None
    ) -> None:
        self._append(
            offset,
            timestamp_ms,
            timestamp_type,
            None if key is None else bytes(key),
            None if value is None else bytes(value),
            [],
            0,
        )

    def _append(
        self,
        offset: int,
        timestamp_ms: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        header_cost: int,
    ) -> None:
        key = key if self._with_key else None
        value = value if self._with_value else None
        cost = ROW_COST + self._topic_cost + len(key or b"") + len(value or b"") + header_cost
        if self.nbytes + cost > self._limit:
            raise problems.builder_full(self._topic, self._partition, offset)
        self.nbytes += cost
        self._keys.append(key)
        self._values.append(value)
        self._partitions.append(self._partition)
        self._offsets.append(offset)
        self._timestamps.append(timestamp_ms * 1000 if abs(timestamp_ms) <= MAX_TIMESTAMP_MS else None)
        self._timestamp_types.append(timestamp_type)
        self._header_begins.append(len(self._header_keys) if headers else None)
        for header_key, header_value in headers:
            self._header_keys.append(header_key)
            self._header_values.append(header_value)

    def finish(self) -> pa.RecordBatch:
        with self._unusable_after_errors():
            batch = self._made()
            self._clear()
        return batch

    def _made(self) -> pa.RecordBatch:
        schema = arrow_schema(self._columns)
        columns = {
            "key": self._keys,
            "value": self._values,
            "topic": self._topics.build(self._runs),
            "partition": self._partitions,
            "offset": self._offsets,
            "timestamp": self._timestamps,
            "timestampType": self._timestamp_types,
        }
        arrays = []
        for field in schema:
            column = self._headers(field.type) if field.name == "headers" else columns[field.name]
            arrays.append(column if isinstance(column, pa.Array) else pa.array(column, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _headers(self, kind: pa.DataType) -> pa.Array:
        children = [
            pa.array(self._header_keys, HEADER.field("key").type),
            pa.array(self._header_values, HEADER.field("value").type),
        ]
        structs = pa.StructArray.from_arrays(children, fields=list(HEADER))
        begins = pa.array([*self._header_begins, len(self._header_keys)], pa.int32())
        return pa.ListArray.from_arrays(begins, structs).cast(kind)
