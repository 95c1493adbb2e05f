# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the decoder. ``contract`` has its rules; ``_decode_py`` does the same in plain Python.

Memory safety rests on three rules. 1. Bytes are read through a Cursor only, and each of its reads is checked. 2. Bytes are
written through the columns only, after the builder has made room for their rows (_make_room). 3. A builder that failed
halfway, as for want of memory, is not written to again (usable). No other code here moves a pointer.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

import pyarrow as pa

from spark_kafka_group.errors import ReadError
from spark_kafka_group.executor.decode import codecs, contract, legacy, problems
from spark_kafka_group.executor.decode.problems import TopicColumn
from spark_kafka_group.values.schema import HEADER, arrow_schema


cdef extern from "crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c_of(const uint8_t *data, size_t size, int may_use_instruction)


crc32c_init()

cdef enum:
    # of a record: the numbers in ``problems``
    SHORT = 1
    OVERLONG = 2
    NEGATIVE = 3
    LEFTOVER = 4
    OFFSET_DELTA = 5
    TOO_MANY = 6

    # of a row that was not added
    BUILDER_FULL = 1

    LENGTH_END = 12  # bytes of a record batch that its length does not count
    FRAME_SIZE = 17  # up to the magic, which is included
    CRC_FROM = 21  # the CRC covers the bytes from the attributes on
    HEADER_SIZE = 61
    CODEC_MASK = 0b111
    LOG_APPEND_BIT = 0b1000
    TRANSACTIONAL_BIT = 0b10000
    CONTROL_BIT = 0b100000
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

cdef int64_t ROW_COST = contract.ROW_COST
cdef int64_t HEADER_COST = contract.HEADER_COST
cdef int64_t MAX_OFFSET = contract.MAX_OFFSET
cdef int64_t MAX_TIMESTAMP_MS = contract.MAX_TIMESTAMP_MS
cdef int ABORT = contract.ABORT
cdef Py_ssize_t MARKER_KEY_SIZE = contract.MARKER_KEY_SIZE

cdef Py_ssize_t LARGE_KEY = problems.LARGE
cdef int32_t FIRST_ROWS = 1024
cdef Py_ssize_t FIRST_BYTES = 65536


# --- reading ----------------------------------------------------------------------------------------------------------

include "../cursor.pxi"


cdef inline Cursor cursor_over(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    cdef Cursor cursor
    cursor.at = data
    cursor.end = data + size
    cursor.failed = 0
    return cursor


cdef inline uint64_t big_endian(Cursor *cursor, int size) noexcept nogil:
    cdef Span span = take(cursor, size)
    cdef uint64_t value = 0
    cdef Py_ssize_t i
    for i in range(span.size):
        value = value << 8 | span.at[i]
    return value


cdef int64_t read_long_varint(Cursor *cursor, uint64_t value, int bits) noexcept nogil:
    """The rest of a varint of at most `bits` bits, after its first byte `value`."""
    cdef int shift = 7
    cdef uint64_t byte
    value &= 0x7F
    while True:
        byte = read_byte(cursor)
        if cursor.failed:
            return 0
        # Bits above `bits` are refused, also where the type would hold them (32).
        if shift + 7 > bits and (byte & 0x7F) >> (bits - shift):
            return fail(cursor, OVERLONG)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
        shift += 7
        if shift >= bits:
            return fail(cursor, OVERLONG)


cdef inline int64_t read_zigzag(Cursor *cursor, int bits) noexcept nogil:
    """A varint of at most `bits` bits. Nearly all have one or two bytes, which are read in place."""
    cdef uint64_t value = read_byte(cursor)
    if value >= 0x80:
        if cursor.at == cursor.end or cursor.at[0] >= 0x80:
            return read_long_varint(cursor, value, bits)
        value = value & 0x7F | <uint64_t>cursor.at[0] << 7
        cursor.at += 1
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)


cdef inline int64_t read_varint(Cursor *cursor) noexcept nogil:
    return read_zigzag(cursor, 32)


cdef inline int64_t read_varlong(Cursor *cursor) noexcept nogil:
    return read_zigzag(cursor, 64)


cdef inline Span read_sized(Cursor *cursor) noexcept nogil:
    """Bytes after their length."""
    return take(cursor, <Py_ssize_t>read_varint(cursor))


cdef inline Span read_nullable(Cursor *cursor) noexcept nogil:
    """Bytes after their length; a length of -1 stands for null."""
    cdef int64_t size = read_varint(cursor)
    cdef Span null
    if size == -1:
        null.at = cursor.at
        null.size = -1
        return null
    return take(cursor, <Py_ssize_t>size)


# --- frames -----------------------------------------------------------------------------------------------------------

cdef struct Frame:
    int64_t base_offset
    int64_t next_offset
    int32_t last_offset_delta
    int magic
    bint control
    Py_ssize_t end


cdef bint read_frame(
    str topic, partition, const uint8_t *data, Py_ssize_t size, Py_ssize_t position, int64_t start, Frame *frame
) except -1:
    """The fields of the record batch at `position` that scan and append need; False when it is cut off."""
    cdef Cursor cursor = cursor_over(data, size)
    cdef int32_t length
    cdef int least
    take(&cursor, position)
    if left(&cursor) < FRAME_SIZE:
        return False
    frame.base_offset = <int64_t>big_endian(&cursor, 8)
    length = <int32_t>big_endian(&cursor, 4)
    big_endian(&cursor, 4)  # leader epoch in v2, CRC in v0 and v1
    frame.magic = <int8_t>read_byte(&cursor)
    if frame.magic == 2:
        least = 49
    elif frame.magic == 1:
        least = 22
    elif frame.magic == 0:
        least = 14
    else:
        raise bad_frame(topic, partition, start, frame, problems.magic(frame.base_offset, frame.magic))
    if length < least:
        raise bad_frame(topic, partition, start, frame, problems.batch_length(frame.base_offset, length))
    if frame.base_offset < 0:
        raise bad_frame(topic, partition, start, frame, problems.negative_offset(frame.base_offset))
    if length > size - position - LENGTH_END:
        return False
    frame.end = position + LENGTH_END + length
    if frame.magic == 2:
        take(&cursor, 4)  # CRC
        frame.control = big_endian(&cursor, 2) & CONTROL_BIT != 0
        frame.last_offset_delta = <int32_t>big_endian(&cursor, 4)
        if frame.last_offset_delta < 0 or frame.base_offset > MAX_OFFSET - frame.last_offset_delta:
            raise bad_frame(
                topic, partition, start, frame, problems.last_offset_delta(frame.base_offset, frame.last_offset_delta)
            )
    else:
        frame.control = False
        frame.last_offset_delta = 0
        if frame.base_offset > MAX_OFFSET:
            raise bad_frame(topic, partition, start, frame, problems.last_offset(frame.base_offset))
    frame.next_offset = frame.base_offset + frame.last_offset_delta + 1
    return True


cdef bad_frame(str topic, partition, int64_t start, const Frame *frame, str problem):
    return problems.corrupt(topic, partition, max(start, frame.base_offset), problem)


cdef class _View:
    """The bytes of an object, held for as long as this lives."""

    cdef object owner
    cdef Py_buffer buffer
    cdef bint held
    cdef const uint8_t *data
    cdef Py_ssize_t size

    def __cinit__(self, records):
        PyObject_GetBuffer(records, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        self.owner = records
        self.data = <const uint8_t *>self.buffer.buf
        self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef _View view_of(records, Py_ssize_t position):
    cdef _View view = _View(records)
    if not 0 <= position <= view.size:
        raise ValueError(f"position {position} is outside the {view.size} bytes of records")
    return view


def scan(str topic not None, partition, records, Py_ssize_t position=0):
    cdef _View view = view_of(records, position)
    cdef Frame frame
    cdef int64_t next_offset = -1
    while read_frame(topic, partition, view.data, view.size, position, 0, &frame):
        position = frame.end
        next_offset = frame.next_offset
    return position, next_offset


def crc32c(data, bint use_instruction=True):
    """CRC-32C; without `use_instruction` by tables, for processors without an instruction for it."""
    cdef _View view = _View(data)
    return crc32c_of(view.data, view.size, use_instruction)


# --- writing ----------------------------------------------------------------------------------------------------------

cdef class _Growing:
    """Arrow's memory, which grows by doubling. An array can take it over without a copy."""

    cdef object buffer
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __cinit__(self, Py_ssize_t capacity):
        self.buffer = pa.allocate_buffer(capacity, resizable=True)
        self.capacity = capacity
        self.size = 0
        self._locate()

    cdef int _locate(self) except -1:
        cdef uint64_t address = self.buffer.address
        self.data = <uint8_t *><size_t>address
        return 0

    cdef int make_room(self, Py_ssize_t size) except -1:
        """Grow until `size` bytes fit in all."""
        # No size comes near 63 bits: all data together is at most BUILDER_LIMIT, the number of rows a 40th of that.
        cdef Py_ssize_t capacity
        if size > self.capacity:
            capacity = max(2 * self.capacity, size)
            self.buffer.resize(capacity)
            self._locate()
            self.capacity = capacity
        return 0

    cdef inline int put(self, const void *data, Py_ssize_t size) except -1:
        if size > self.capacity - self.size:
            self.make_room(self.size + size)
        memcpy(self.data + self.size, data, <size_t>size)
        self.size += size
        return 0


cdef class _Fixed:
    """A column of numbers of one width; the builder makes room before it sets any."""

    cdef _Growing memory
    cdef int32_t *int32
    cdef int64_t *int64
    cdef Py_ssize_t width

    def __cinit__(self, Py_ssize_t width):
        self.width = width
        self.memory = _Growing(0)

    cdef int make_room(self, Py_ssize_t rows) except -1:
        self.memory.make_room(rows * self.width)
        self.int32 = <int32_t *>self.memory.data
        self.int64 = <int64_t *>self.memory.data
        return 0


cdef class _Validity:
    """A bit for each row that is not null; empty until the first null. The builder makes room."""

    cdef _Growing bits
    cdef Py_ssize_t room
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.bits = _Growing(0)
        self.room = self.nulls = 0

    cdef int make_room(self, Py_ssize_t rows) except -1:
        cdef Py_ssize_t size = (rows + 7) // 8
        if size > self.room:
            self.bits.make_room(size)
            memset(self.bits.data + self.room, 0, <size_t>(self.bits.capacity - self.room))
            self.room = self.bits.capacity
        return 0

    cdef inline void set(self, Py_ssize_t row, bint valid) noexcept:
        """Mark a row. Callers do so in order, once a row."""
        if valid:
            if self.nulls:
                self.bits.data[row >> 3] |= <uint8_t>(1 << (row & 7))
            return
        if not self.nulls:
            memset(self.bits.data, 0xFF, <size_t>(row >> 3))
            self.bits.data[row >> 3] = <uint8_t>((1 << (row & 7)) - 1)
        self.nulls += 1

    cdef object buffer(self):
        return self.bits.buffer if self.nulls else None


cdef class _Binary:
    """A column of bytes: validity, 32-bit offsets, data. The builder makes room for rows."""

    cdef _Validity valid
    cdef _Fixed ends
    cdef _Growing data
    cdef Py_ssize_t rows

    def __cinit__(self, Py_ssize_t rows, Py_ssize_t size):
        self.valid = _Validity()
        self.ends = _Fixed(4)
        self.data = _Growing(size)
        self.rows = 0
        self.make_room(rows)
        self.ends.int32[0] = 0

    cdef int make_room(self, Py_ssize_t rows) except -1:
        self.valid.make_room(rows)
        self.ends.make_room(rows + 1)
        return 0

    cdef inline int add(self, Span span) except -1:
        """The builder has checked that the data stays below BUILDER_LIMIT."""
        self.valid.set(self.rows, span.size >= 0)
        if span.size > 0:
            self.data.put(span.at, span.size)
        self.rows += 1
        self.ends.int32[self.rows] = <int32_t>self.data.size
        return 0

    cdef array(self, kind):
        buffers = [self.valid.buffer(), self.ends.memory.buffer, self.data.buffer]
        return pa.Array.from_buffers(kind, self.rows, buffers, self.valid.nulls)


cdef bint is_ascii(Span span) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    for i in range(span.size):
        seen |= span.at[i]
    return seen < 0x80


cdef bytes as_utf8(Span span, int64_t limit):
    if span.size > LARGE_KEY:
        return problems.utf8(span.at[:span.size], limit)
    return span.at[:span.size].decode("utf-8", "replace").encode()


cdef struct Record:
    int64_t timestamp_delta
    int64_t offset_delta
    Span key
    Span value
    Span headers  # from the first header to the end of the record
    int32_t header_count
    int64_t header_cost  # bytes that nbytes counts for them
    bint keys_ascii


cdef int read_record(Cursor *batch, bint include_headers, int64_t header_limit, Record *record) except -1:
    """Read one record and keep nothing of it yet; 0, or the number of its problem."""
    cdef Span span = read_sized(batch)
    cdef Cursor cursor, at_headers
    cdef Span header_key, header_value
    cdef int64_t count
    cdef int32_t i
    if batch.failed:
        return batch.failed
    cursor = cursor_over(span.at, span.size)
    read_byte(&cursor)  # attributes: none is in use
    record.timestamp_delta = read_varlong(&cursor)
    record.offset_delta = read_varint(&cursor)
    record.key = read_nullable(&cursor)
    record.value = read_nullable(&cursor)
    record.header_count = 0
    record.header_cost = 0
    record.keys_ascii = True
    if include_headers:
        count = read_varint(&cursor)
        if cursor.failed:
            return cursor.failed
        if count < 0:
            return NEGATIVE
        at_headers = cursor
        record.headers = take(&at_headers, left(&cursor))
        record.header_count = <int32_t>count  # at most 32 bits, as its varint; nothing is allocated for it
        for i in range(record.header_count):
            header_key = read_sized(&cursor)
            header_value = read_nullable(&cursor)
            if cursor.failed:
                return cursor.failed
            record.header_cost += HEADER_COST + max(header_value.size, 0)
            if is_ascii(header_key):
                record.header_cost += header_key.size
            else:
                record.keys_ascii = False
                record.header_cost += len(as_utf8(header_key, header_limit))
            if record.header_cost > header_limit:
                return TOO_MANY
        if left(&cursor):
            return LEFTOVER
    return cursor.failed


cdef struct Batch:  # a record batch: its header, and how many of its records have been read
    int64_t base_offset
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    bint log_append
    int32_t count
    int64_t first_unread
    int32_t read  # number of records
    Py_ssize_t position  # byte after these records


cdef class RecordBatchBuilder:
    """Rows in Arrow's memory from the start."""

    cdef readonly int64_t nbytes
    cdef readonly Py_ssize_t position
    cdef readonly bint check_crcs
    cdef readonly bint check_timestamps
    cdef readonly object unpacked_limit
    cdef readonly bint halfway  # through `batch`, or through `messages`
    cdef Batch batch
    cdef _View unpacked  # None if it is not compressed
    cdef object messages
    cdef int64_t reached
    cdef int64_t following
    cdef bint usable
    cdef tuple columns
    cdef bint has_key, has_value, has_topic, has_partition, has_offset, has_timestamp, has_timestamp_type, has_headers
    cdef int64_t header_limit
    cdef int64_t target_bytes
    cdef int64_t limit
    cdef object topics
    cdef str topic
    cdef int64_t topic_cost
    cdef int32_t partition
    cdef list runs
    cdef Py_ssize_t row_count
    # the sizes of the last batch; the next is likely to have them too
    cdef Py_ssize_t likely_rows, likely_key_bytes, likely_value_bytes
    cdef Py_ssize_t room  # rows that every column has memory for
    cdef Py_ssize_t header_room
    cdef _Binary keys, values, header_keys, header_values
    cdef _Fixed partitions, offsets, timestamps, timestamp_types, header_ends
    cdef _Validity timestamps_fit, with_headers

    def __cinit__(
        self, *, tuple columns, bint check_crcs, unpacked_limit, target_bytes, bint check_timestamps=True
    ):
        if unpacked_limit <= 0 or target_bytes <= 0:
            raise ValueError(f"unpacked_limit ({unpacked_limit}) and target_bytes ({target_bytes}) must be above 0")
        self.check_crcs = check_crcs
        self.unpacked_limit = unpacked_limit
        self.header_limit = min(unpacked_limit, INT64_MAX)
        self.columns = columns
        self.has_key = "key" in columns
        self.has_value = "value" in columns
        self.has_topic = "topic" in columns
        self.has_partition = "partition" in columns
        self.has_offset = "offset" in columns
        self.has_timestamp = "timestamp" in columns
        self.check_timestamps = check_timestamps and self.has_timestamp
        self.has_timestamp_type = "timestampType" in columns
        self.has_headers = "headers" in columns
        self.target_bytes = min(target_bytes, INT64_MAX)
        self.limit = contract.BUILDER_LIMIT
        self.topics = TopicColumn()
        self.topic = ""
        self.topic_cost = 0
        self.partition = -1
        self.position = 0
        self.reached = 0
        self.following = -1
        self.halfway = False
        self.usable = True
        self.likely_rows = FIRST_ROWS
        self.likely_key_bytes = self.likely_value_bytes = FIRST_BYTES
        self._clear()

    cdef int _clear(self) except -1:
        self.keys = _Binary(0, self.likely_key_bytes if self.has_key else 0)
        self.values = _Binary(0, self.likely_value_bytes if self.has_value else 0)
        self.partitions = _Fixed(4)
        self.offsets = _Fixed(8)
        self.timestamps = _Fixed(8)
        self.timestamps_fit = _Validity()
        self.timestamp_types = _Fixed(4)
        self.header_room = 0
        if self.has_headers:
            self.header_keys = _Binary(0, FIRST_BYTES)
            self.header_values = _Binary(0, FIRST_BYTES)
            self.with_headers = _Validity()
            self.header_ends = _Fixed(4)
        self.room = 0
        self._make_room(self.likely_rows)
        if self.has_headers:
            self.header_ends.int32[0] = 0
        self.row_count = 0
        self.nbytes = 0
        self.runs = []
        return 0

    cdef int _make_room(self, Py_ssize_t rows) except -1:
        if self.has_key:
            self.keys.make_room(rows)
        if self.has_value:
            self.values.make_room(rows)
        if self.has_partition:
            self.partitions.make_room(rows)
        if self.has_offset:
            self.offsets.make_room(rows)
        if self.has_timestamp:
            self.timestamps.make_room(rows)
            self.timestamps_fit.make_room(rows)
        if self.has_timestamp_type:
            self.timestamp_types.make_room(rows)
        if self.has_headers:
            self.with_headers.make_room(rows)
            self.header_ends.make_room(rows + 1)
        self.room = rows
        return 0

    cdef int _make_header_room(self, Py_ssize_t headers) except -1:
        cdef Py_ssize_t room = max(2 * self.header_room, headers)
        self.header_keys.make_room(room)
        self.header_values.make_room(room)
        self.header_room = room
        return 0

    @property
    def rows(self):
        return self.row_count

    @property
    def full(self):
        return self.nbytes >= self.target_bytes

    def append(
        self,
        str topic not None,
        int32_t partition,
        records,
        Py_ssize_t position,
        int64_t start,
        int64_t end,
        aborted=None,
    ):
        cdef _View view = view_of(records, position)
        cdef Py_ssize_t rows_before = self.row_count
        cdef bint goes_on = position == self.position and partition == self.partition and topic == self.topic
        if self.halfway and not goes_on:
            raise problems.halfway(self.topic, self.partition, self.position)
        if not goes_on:
            self.topic = topic
            self.topic_cost = len(topic.encode()) if self.has_topic else 0
            self.partition = partition
        self.reached = max(start, self.reached) if goes_on else start
        if not goes_on:
            self.following = -1
        self.position = position
        self._begin_change()
        try:
            self._append_frames(view, start, end, aborted)
        except ReadError:
            self.usable = True
            raise
        finally:
            if not self.halfway:
                self.unpacked = self.messages = None
            if self.row_count > rows_before:
                self.runs.append((topic, self.row_count - rows_before))
        self.usable = True
        return self.position

    cdef int _begin_change(self) except -1:
        """The builder is unusable until the change is done, or has raised an error that leaves only whole rows."""
        if not self.usable:
            raise problems.unusable()
        self.usable = False
        return 0

    cdef int _append_frames(self, _View view, int64_t start, int64_t end, aborted) except -1:
        cdef Frame frame
        cdef bint goes_on = self.halfway
        self.halfway = False
        while read_frame(self.topic, self.partition, view.data, view.size, self.position, start, &frame):
            if not goes_on:
                self._check_order(view, &frame)
            if frame.magic != 2:
                self._append_messages(view, &frame, start, end)
            elif goes_on:
                self._append_records(view, &frame, start, end)
            elif frame.base_offset < end and (frame.next_offset > start or (frame.control and aborted is not None)):
                self._append_batch(view, &frame, start, end, aborted)
            if self.halfway:
                return 0
            goes_on = False
            self.unpacked = None
            self.position = frame.end
            self.reached = max(self.reached, frame.next_offset)
            self.following = frame.next_offset
            if self.nbytes >= self.target_bytes:
                return 0
        return 0

    cdef int _check_order(self, _View view, const Frame *frame) except -1:
        """Check that offsets go up from batch to batch, as no checksum covers the first offset of a record batch."""
        cdef Cursor cursor
        cdef int64_t after
        cdef int magic
        if frame.base_offset < self.following:
            raise self._corrupt(self.reached, problems.behind(frame.base_offset, self.following))
        if frame.base_offset <= self.reached or view.size - frame.end < FRAME_SIZE:
            return 0
        cursor = cursor_over(view.data, view.size)
        take(&cursor, frame.end)
        after = <int64_t>big_endian(&cursor, 8)
        take(&cursor, 8)
        magic = <int8_t>read_byte(&cursor)
        if 0 <= magic <= 2 and self.reached <= after < frame.next_offset:
            raise self._corrupt(self.reached, problems.ahead(frame.base_offset, after))
        return 0

    cdef int _append_messages(self, _View view, const Frame *frame, int64_t start, int64_t end) except -1:
        """The messages of format v0 or v1 in one entry."""
        messages, self.messages = self.messages, None
        if messages is None:
            entry = memoryview(view.owner).cast("B")[self.position : frame.end]
            self.messages = legacy.append_message(self, self.topic, self.partition, entry, self.reached, start, end)
        elif not messages.append_to(self):
            self.messages = messages
        self.halfway = self.messages is not None
        return 0

    cdef int _append_batch(
        self, _View view, const Frame *frame, int64_t start, int64_t end, aborted
    ) except -1:
        cdef Cursor cursor = cursor_over(view.data, view.size)
        cdef Span batch
        cdef uint32_t stored_crc, crc
        cdef int16_t attributes
        cdef int64_t base_timestamp, max_timestamp, producer_id
        cdef int32_t count
        cdef int codec
        cdef bint log_append, transactional, judged, within_aborted
        cdef int64_t first_unread = max(start, frame.base_offset)
        take(&cursor, self.position)
        batch = take(&cursor, frame.end - self.position)
        cursor = cursor_over(batch.at, batch.size)
        take(&cursor, FRAME_SIZE)
        stored_crc = <uint32_t>big_endian(&cursor, 4)
        if self.check_crcs:
            crc = crc32c_of(cursor.at, left(&cursor), True)
            if crc != stored_crc:
                raise self._corrupt(first_unread, problems.wrong_crc(frame.base_offset, stored_crc, crc))
        attributes = <int16_t>big_endian(&cursor, 2)
        take(&cursor, 4)  # last offset delta
        base_timestamp = <int64_t>big_endian(&cursor, 8)
        max_timestamp = <int64_t>big_endian(&cursor, 8)
        producer_id = -1
        if aborted is None:
            take(&cursor, 8)
        else:
            producer_id = <int64_t>big_endian(&cursor, 8)
        take(&cursor, 6)  # producer epoch, base sequence
        count = <int32_t>big_endian(&cursor, 4)
        if cursor.failed:
            raise SystemError("read_frame lets no batch through that is shorter than its header")
        transactional = attributes & TRANSACTIONAL_BIT != 0
        judged = producer_id >= 0
        within_aborted = judged and aborted.reached(producer_id, frame.next_offset - 1)
        if not judged if frame.control else within_aborted and transactional:
            return 0
        if count < 0:
            raise self._corrupt(first_unread, problems.record_count(frame.base_offset, count))
        log_append = attributes & LOG_APPEND_BIT != 0
        codec = attributes & CODEC_MASK
        if codec and codec not in codecs.NAMES:
            raise self._corrupt(first_unread, problems.unknown_codec(frame.base_offset, codec))
        if codec and (count or left(&cursor)):
            packed = memoryview(view.owner).cast("B")[frame.end - left(&cursor) : frame.end]
            try:
                self.unpacked = _View(codecs.unpack(codec, packed, self.unpacked_limit))
            except problems.MalformedError as problem:
                failure = problems.codec_failed(frame.base_offset, str(problem))
                raise self._corrupt(first_unread, failure) from problem.__cause__
            cursor = cursor_over(self.unpacked.data, self.unpacked.size)
        if frame.control:
            if count and self._is_abort(&cursor, frame, first_unread):
                aborted.ended(producer_id)
            return 0
        self.batch = Batch(
            base_offset=frame.base_offset,
            last_offset_delta=frame.last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            log_append=log_append,
            count=count,
            first_unread=first_unread,
            read=0,
            position=0,
        )
        return self._append_records(view, frame, start, end)

    cdef bint _is_abort(self, Cursor *batch, const Frame *frame, int64_t first_unread) except -1:
        """Whether a control batch ends an aborted transaction; its first record says so."""
        cdef Record record
        cdef Cursor key
        cdef int problem = read_record(batch, False, 0, &record)
        cdef int version
        if problem:
            raise self._corrupt(first_unread, problems.record(frame.base_offset, 0, problem))
        if record.key.size < MARKER_KEY_SIZE:
            raise self._corrupt(first_unread, problems.marker_size(frame.base_offset, record.key.size))
        key = cursor_over(record.key.at, record.key.size)
        version = <int16_t>big_endian(&key, 2)
        if version < 0:
            raise self._corrupt(first_unread, problems.marker_version(frame.base_offset, version))
        return <int16_t>big_endian(&key, 2) == ABORT

    cdef int _append_records(self, _View view, const Frame *frame, int64_t start, int64_t end) except -1:
        """Add rows of `batch`, from its position on, until the builder is full."""
        cdef Batch batch = self.batch
        cdef Cursor cursor
        cdef Record record
        cdef const uint8_t *first
        cdef int problem
        cdef int64_t offset, timestamp
        cdef int32_t timestamp_type = LOG_APPEND_TIME if batch.log_append else CREATE_TIME
        if self.unpacked is None:
            cursor = cursor_over(view.data, frame.end)
            take(&cursor, self.position + HEADER_SIZE)
        else:
            cursor = cursor_over(self.unpacked.data, self.unpacked.size)
        first = cursor.at
        take(&cursor, batch.position)
        while batch.read < batch.count:
            problem = read_record(&cursor, self.has_headers, self.header_limit, &record)
            if not problem and not 0 <= record.offset_delta <= batch.last_offset_delta:
                problem = OFFSET_DELTA
            if problem:
                raise self._corrupt(batch.first_unread, self._bad_record(&batch, &record, problem))
            offset = batch.base_offset + record.offset_delta
            if start <= offset < end:
                if batch.log_append:
                    timestamp = batch.max_timestamp
                else:
                    timestamp = sum_of_times(batch.base_timestamp, record.timestamp_delta)
                if self.check_timestamps and not fits(timestamp):
                    raise self._wrong_timestamp(&batch, &record, offset)
                if self._add(offset, timestamp, timestamp_type, &record) == BUILDER_FULL:
                    raise problems.builder_full(self.topic, self.partition, offset)
            batch.first_unread = max(start, offset + 1)
            batch.read += 1
            if self.nbytes >= self.target_bytes and batch.read < batch.count:
                batch.position = cursor.at - first
                self.batch = batch
                self.halfway = True
                return 0
        if left(&cursor):
            raise self._corrupt(
                batch.first_unread, problems.trailing(batch.base_offset, batch.count, left(&cursor))
            )
        return 0

    cdef str _bad_record(self, const Batch *batch, const Record *record, int problem):
        if problem == TOO_MANY:
            return problems.record_headers(batch.base_offset, batch.read, self.unpacked_limit)
        return problems.record(batch.base_offset, batch.read, problem)

    cdef object _wrong_timestamp(self, const Batch *batch, const Record *record, int64_t offset):
        beyond = <object>batch.base_timestamp + <object>record.timestamp_delta  # may exceed int64
        return problems.timestamp(
            self.topic, self.partition, offset, batch.max_timestamp if batch.log_append else beyond
        )

    def append_row(self, int64_t offset, int64_t timestamp_ms, int32_t timestamp_type, key, value):
        cdef Record record
        cdef _View key_view = None if key is None else _View(key)
        cdef _View value_view = None if value is None else _View(value)
        record.key = span_of(key_view)
        record.value = span_of(value_view)
        record.header_count = 0
        record.header_cost = 0
        if self._add(offset, timestamp_ms, timestamp_type, &record) == BUILDER_FULL:
            raise problems.builder_full(self.topic, self.partition, offset)

    cdef int _add(
        self, int64_t offset, int64_t timestamp_ms, int32_t timestamp_type, const Record *record
    ) except -1:
        """Add a row that was checked in full. If the builder is full, leave it as it is."""
        cdef Py_ssize_t row = self.row_count
        cdef int64_t cost = ROW_COST + self.topic_cost + record.header_cost
        if self.has_key:
            cost += max(record.key.size, 0)
        if self.has_value:
            cost += max(record.value.size, 0)
        if cost > self.limit - self.nbytes:
            return BUILDER_FULL
        self.nbytes += cost
        if row == self.room:
            self._make_room(2 * self.room)
        if self.has_key:
            self.keys.add(record.key)
        if self.has_value:
            self.values.add(record.value)
        if self.has_partition:
            self.partitions.int32[row] = self.partition
        if self.has_offset:
            self.offsets.int64[row] = offset
        if self.has_timestamp:
            self.timestamps_fit.set(row, fits(timestamp_ms))
            self.timestamps.int64[row] = timestamp_ms * 1000 if fits(timestamp_ms) else 0
        if self.has_timestamp_type:
            self.timestamp_types.int32[row] = timestamp_type
        if self.has_headers:
            self._add_headers(record)
        self.row_count += 1
        return 0

    cdef int _add_headers(self, const Record *record) except -1:
        cdef Cursor cursor
        cdef Span key
        cdef int32_t i
        cdef bytes replaced
        self.with_headers.set(self.row_count, record.header_count > 0)
        if record.header_count:
            if record.header_count > self.header_room - self.header_keys.rows:
                self._make_header_room(self.header_keys.rows + record.header_count)
            cursor = cursor_over(record.headers.at, record.headers.size)
            for i in range(record.header_count):
                key = read_sized(&cursor)
                if record.keys_ascii or is_ascii(key):
                    self.header_keys.add(key)
                else:
                    replaced = as_utf8(key, self.header_limit)
                    self.header_keys.add(Span(<const uint8_t *>replaced, len(replaced)))
                self.header_values.add(read_nullable(&cursor))
        self.header_ends.int32[self.row_count + 1] = <int32_t>self.header_keys.rows
        return 0

    cdef object _corrupt(self, int64_t offset, str problem):
        return problems.corrupt(self.topic, self.partition, offset, problem)

    def finish(self):
        self._begin_change()
        batch = self._made()
        self._clear()
        self.usable = True
        return batch

    cdef object _made(self):
        schema = arrow_schema(self.columns)
        arrays = [self._array(field.name, field.type) for field in schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        if self.row_count:
            self.likely_rows = self.row_count + self.row_count // 8 + 8
            self.likely_key_bytes = self.keys.data.size + self.keys.data.size // 8 + 8
            self.likely_value_bytes = self.values.data.size + self.values.data.size // 8 + 8
        return batch

    cdef object _array(self, str name, kind):
        cdef _Fixed column
        cdef _Validity valid = None
        if name == "key":
            return self.keys.array(kind)
        if name == "value":
            return self.values.array(kind)
        if name == "topic":
            return self.topics.build(self.runs)
        if name == "headers":
            return self._headers(kind)
        if name == "partition":
            column = self.partitions
        elif name == "offset":
            column = self.offsets
        elif name == "timestamp":
            valid = self.timestamps_fit
            column = self.timestamps
        else:
            column = self.timestamp_types
        if valid is None:
            return pa.Array.from_buffers(kind, self.row_count, [None, column.memory.buffer], 0)
        return pa.Array.from_buffers(kind, self.row_count, [valid.buffer(), column.memory.buffer], valid.nulls)

    cdef object _headers(self, kind):
        keys = self.header_keys.array(HEADER.field("key").type)
        values = self.header_values.array(HEADER.field("value").type)
        structs = pa.Array.from_buffers(HEADER, self.header_keys.rows, [None], 0, children=[keys, values])
        buffers = [self.with_headers.buffer(), self.header_ends.memory.buffer]
        return pa.Array.from_buffers(kind, self.row_count, buffers, self.with_headers.nulls, children=[structs])


cdef inline Span span_of(_View view) noexcept:
    cdef Span span
    if view is None:
        span.at = NULL
        span.size = -1
    else:
        span.at = view.data
        span.size = view.size
    return span


cdef inline bint fits(int64_t timestamp_ms) noexcept nogil:
    """Whether a time fits microseconds."""
    return -MAX_TIMESTAMP_MS <= timestamp_ms <= MAX_TIMESTAMP_MS


cdef inline int64_t sum_of_times(int64_t base, int64_t delta) noexcept nogil:
    """The sum, or if it may not be an int64 a time that does not fit microseconds either."""
    if delta > 0 and base > MAX_TIMESTAMP_MS - delta or delta <= 0 and base < -MAX_TIMESTAMP_MS - delta:
        return INT64_MIN
    return base + delta
