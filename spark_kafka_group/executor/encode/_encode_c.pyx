# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the encoder. ``encoder_contract`` has its rules; ``_encode_py`` does the same in plain Python.

Memory safety rests on three rules. 1. Rows of Arrow's buffers are found through Spans only, which are made where the
buffers are large enough, and each place that they give is checked. 2. A record is written only after its size was added
up and the builder has made room for it (make_room). 3. The GIL is held throughout, so that no buffer changes in between.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_FromStringAndSize, PyByteArray_Resize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from spark_kafka_group.executor.encode import encoder_contract, splitting
from spark_kafka_group.executor.encode.encoder_contract import UNCOMPRESSED
from spark_kafka_group.executor.encode.splitting import sealed


cdef extern from "crc32c.h" nogil:
    void crc32c_init()
    uint32_t crc32c_of(const uint8_t *data, size_t size, int may_use_instruction)


crc32c_init()

cdef enum:
    HEADER_SIZE = 61
    CRC_AT = 17
    CRC_FROM = 21  # the CRC covers the bytes from the attributes on
    ATTRIBUTES_LOW_AT = 22
    TRANSACTIONAL_BIT = 0b10000
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    NO_PARTITION = -1

    # sizes of a Span that has none
    NULL_SPAN = -1
    CONTRADICTION = -2

cdef int64_t BATCH_LIMIT = encoder_contract.BATCH_LIMIT
cdef Py_ssize_t FIRST_BYTES = 4096

split = splitting.split


# --- reading ----------------------------------------------------------------------------------------------------------

cdef const uint8_t *NOTHING = b""


cdef class _View:
    """The bytes of an object, held for as long as this lives; those of None are none."""

    cdef Py_buffer buffer
    cdef bint held
    cdef const uint8_t *data
    cdef Py_ssize_t size

    def __cinit__(self, source):
        self.data = NOTHING
        self.size = 0
        if source is None:
            return
        PyObject_GetBuffer(source, &self.buffer, PyBUF_SIMPLE)
        self.held = True
        if self.buffer.len:
            self.data = <const uint8_t *>self.buffer.buf
            self.size = self.buffer.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.buffer)


cdef _View int32s(str name, source):
    cdef _View view = _View(source)
    if view.size % 4:
        raise encoder_contract.no_int32s(name, view.size)
    return view


cdef inline int32_t int32_at(const uint8_t *data, Py_ssize_t place) noexcept nogil:
    cdef int32_t value
    memcpy(&value, data + 4 * place, 4)  # no buffer has to be aligned
    return value


cdef struct Span:
    int64_t begin
    int64_t size  # or NULL_SPAN, or CONTRADICTION


cdef struct Spans:
    const uint8_t *bits  # NULL: no row is null
    const uint8_t *ends  # NULL: every row is null
    Py_ssize_t first
    int64_t limit  # of what the ends point into


cdef inline bint is_valid(const uint8_t *bits, Py_ssize_t place) noexcept nogil:
    return bits == NULL or bits[place >> 3] >> (place & 7) & 1


cdef inline Span span_of(const Spans *spans, Py_ssize_t row) noexcept nogil:
    """Where a row is; the caller has checked that the row is one."""
    cdef Span span
    cdef Py_ssize_t place = spans.first + row
    cdef int64_t end
    span.begin = 0
    span.size = NULL_SPAN
    if spans.ends == NULL or not is_valid(spans.bits, place):
        return span
    span.begin = int32_at(spans.ends, place)
    end = int32_at(spans.ends, place + 1)
    span.size = end - span.begin if 0 <= span.begin <= end <= spans.limit else CONTRADICTION
    return span


cdef contradiction(str column, const Spans *spans, Py_ssize_t row):
    cdef int32_t begin = int32_at(spans.ends, spans.first + row)
    cdef int32_t end = int32_at(spans.ends, spans.first + row + 1)
    return encoder_contract.contradiction(column, row, begin, end, spans.limit)


cdef _View bits_of(str column, first, count, source):
    """Validity bits that are enough for the rows; None where no row is null."""
    cdef _View view
    if first < 0:
        raise encoder_contract.negative(f"column {column}: its first row", first)
    if source is None:
        return None
    view = _View(source)
    needed = (first + count + 7) // 8
    if view.size < needed:
        raise encoder_contract.short_buffer(column, "validity bits", view.size, needed)
    return view


cdef _View ends_of(str column, first, count, source):
    """Offsets that are enough for the rows."""
    cdef _View view = _View(source)
    needed = 4 * (first + count + 1)
    if count and view.size < needed:
        raise encoder_contract.short_buffer(column, "offsets", view.size, needed)
    return view


cdef class _Column:
    """A column of bytes, or of lists: where each row is, and the buffers that say so."""

    cdef str name
    cdef Spans spans
    cdef const uint8_t *data
    cdef _View bits
    cdef _View ends
    cdef _View bytes

    cdef int hold(self, str name, column, count) except -1:
        self.name = name
        self.bits = bits_of(name, column.first, count, column.validity)
        self.ends = ends_of(name, column.first, count, column.ends)
        self.spans.bits = NULL
        if self.bits is not None:
            self.spans.bits = self.bits.data
        self.spans.ends = self.ends.data
        # The buffers bound it, where there is a row.
        self.spans.first = column.first if count else 0
        return 0


cdef _Column nulls():
    cdef _Column column = _Column()
    column.spans.ends = NULL
    return column


cdef _Column bytes_column(str name, column, count):
    cdef _Column made
    if column is None:
        return nulls()
    made = _Column()
    made.bytes = _View(column.data)
    made.data = made.bytes.data
    made.spans.limit = made.bytes.size
    made.hold(name, column, count)
    return made


cdef _Column lists_column(column, count):
    cdef _Column made = _Column()
    made.hold("headers", column, count)
    made.spans.limit = column.count
    return made


cdef class Rows:
    cdef readonly Py_ssize_t count
    cdef _Column keys
    cdef _Column values
    cdef _Column headers
    cdef _View present  # bits of headers
    cdef const uint8_t *present_bits
    cdef Py_ssize_t present_first
    cdef _Column header_keys
    cdef _Column header_values

    def __init__(self, count, key, value, headers=None):
        if count < 0:
            raise encoder_contract.negative("count", count)
        self.count = count
        self.keys = bytes_column("key", key, count)
        self.values = bytes_column("value", value, count)
        self.headers = nulls()
        self.header_keys = self.header_values = nulls()
        self.present_bits = NULL
        if headers is not None:
            self.hold_headers(count, headers)

    cdef int hold_headers(self, count, headers) except -1:
        if headers.count < 0:
            raise encoder_contract.negative("column headers: its count", headers.count)
        cdef _Column lists = lists_column(headers, count)
        self.present = bits_of("headers", headers.struct_first, headers.count, headers.struct_validity)
        self.header_keys = bytes_column("headers.key", headers.keys, headers.count)
        self.header_values = bytes_column("headers.value", headers.values, headers.count)
        if self.present is not None and headers.count:
            self.present_bits = self.present.data
            self.present_first = headers.struct_first
        self.headers = lists
        return 0

    cdef inline int check(self, Py_ssize_t index) except -1:
        if not 0 <= index < self.count:
            raise encoder_contract.row_index(index, self.count)
        return 0


cdef inline Span checked_span(_Column column, Py_ssize_t row) except *:
    cdef Span span = span_of(&column.spans, row)
    if span.size == CONTRADICTION:
        raise contradiction(column.name, &column.spans, row)
    return span


# --- writing ----------------------------------------------------------------------------------------------------------

cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return <uint64_t>value << 1 ^ <uint64_t>(value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t left = zigzag(value)
    cdef int size = 1
    while left >= 0x80:
        left >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t left = zigzag(value)
    while left >= 0x80:
        at[0] = <uint8_t>(left | 0x80)
        at += 1
        left >>= 7
    at[0] = <uint8_t>left
    return at + 1


cdef inline int64_t sized(int64_t size) noexcept nogil:
    """Bytes of so many bytes, or of null, behind their length."""
    return 1 if size < 0 else varint_size(size) + size


cdef inline uint8_t *put_sized(uint8_t *at, const uint8_t *data, Span span) noexcept nogil:
    at = put_varint(at, span.size)
    if span.size > 0:
        memcpy(at, data + span.begin, <size_t>span.size)
        at += span.size
    return at


cdef inline void put_big_endian(uint8_t *at, uint64_t value, int size) noexcept nogil:
    cdef int place
    for place in range(size):
        at[place] = <uint8_t>(value >> 8 * (size - 1 - place))


cdef class BatchBuilder:
    cdef str topic
    cdef object partition
    cdef int64_t limit
    cdef int64_t max_request_size
    cdef object compression
    cdef object data  # a bytearray, the header first; None until there is a record
    cdef uint8_t *memory
    cdef int64_t size
    cdef int64_t capacity
    cdef int64_t expected  # bytes of the next batch
    cdef readonly int32_t records
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp

    def __init__(self, *, str topic not None, partition, batch_size, max_request_size, compression=UNCOMPRESSED):
        if batch_size < 0 or not 0 < max_request_size <= BATCH_LIMIT:
            raise encoder_contract.sizes(batch_size, max_request_size, BATCH_LIMIT)
        self.topic = topic
        self.partition = partition
        self.limit = min(batch_size, max_request_size)
        self.max_request_size = max_request_size
        self.compression = compression
        self.expected = min(self.limit, FIRST_BYTES)
        self.clear()

    cdef int clear(self) except -1:
        self.data = None
        self.memory = NULL
        self.capacity = 0
        self.size = HEADER_SIZE
        self.records = 0
        self.base_timestamp = self.max_timestamp = 0
        return 0

    @property
    def nbytes(self):
        return self.size if self.records else 0

    @property
    def full(self):
        return self.records > 0 and self.size >= self.limit

    def append(self, Rows rows not None, indices, position, int64_t timestamp_ms):
        cdef _View view = int32s("indices", indices)
        cdef Py_ssize_t count = view.size // 4
        cdef Py_ssize_t place
        if not 0 <= position <= count:
            raise encoder_contract.position(position, count)
        if timestamp_ms < 0:
            raise encoder_contract.negative("timestamp_ms", timestamp_ms)
        place = position
        while place < count and self.add(rows, int32_at(view.data, place), timestamp_ms):
            place += 1
        return place

    cdef bint add(self, Rows rows, Py_ssize_t index, int64_t timestamp_ms) except -1:
        """Add a row if there is room for it."""
        cdef Span key, value, headers
        cdef int64_t rest, alone, body, total, timestamp_delta
        cdef uint8_t *at
        rows.check(index)
        key = checked_span(rows.keys, index)
        value = checked_span(rows.values, index)
        headers = checked_span(rows.headers, index)
        rest = sized(key.size) + sized(value.size)
        if headers.size > 0:
            rest = self.with_headers(rows, headers, rest)
        else:
            headers.size = 0
            rest += 1
        alone = 3 + rest  # attributes, and both deltas when they are 0
        alone += HEADER_SIZE + varint_size(alone)
        if alone > self.max_request_size:
            raise encoder_contract.too_large(self.topic, self.partition, alone, self.max_request_size)
        timestamp_delta = timestamp_ms - self.base_timestamp if self.records else 0
        body = 1 + varint_size(timestamp_delta) + varint_size(self.records) + rest
        total = varint_size(body) + body
        if self.records and self.size + total > self.limit:
            return False
        self.make_room(self.size + total)
        at = put_varint(self.memory + self.size, body)
        at[0] = 0  # attributes
        at = put_varint(at + 1, timestamp_delta)
        at = put_varint(at, self.records)
        at = put_sized(at, rows.keys.data, key)
        at = put_sized(at, rows.values.data, value)
        at = put_varint(at, headers.size)
        if headers.size:
            put_headers(at, rows, headers)
        if not self.records:
            self.base_timestamp = timestamp_ms
        self.max_timestamp = max(self.max_timestamp, timestamp_ms)
        self.size += total
        self.records += 1
        return True

    cdef int64_t with_headers(self, Rows rows, Span headers, int64_t rest) except -1:
        """`rest` and the bytes of headers; part of them when the record is refused whatever the others are."""
        cdef int64_t place
        cdef Span key, value
        rest += varint_size(headers.size)
        for place in range(headers.begin, headers.begin + headers.size):
            if not is_valid(rows.present_bits, rows.present_first + place):
                raise encoder_contract.null_header(self.topic, self.partition)
            key = checked_span(rows.header_keys, place)
            if key.size == NULL_SPAN:
                raise encoder_contract.null_header_key(self.topic, self.partition)
            value = checked_span(rows.header_values, place)
            rest += sized(key.size) + sized(value.size)
            if rest > self.max_request_size:
                break
        return rest

    cdef int make_room(self, int64_t size) except -1:
        """Grow until `size` bytes fit in all: by doubling, but not beyond the limit of batches."""
        cdef int64_t capacity
        if size <= self.capacity:
            return 0
        capacity = max(size, min(max(2 * self.capacity, self.expected), self.limit))
        if self.data is None:
            self.data = PyByteArray_FromStringAndSize(NULL, capacity)
        else:
            PyByteArray_Resize(self.data, capacity)
        self.memory = <uint8_t *>PyByteArray_AsString(self.data)
        self.capacity = capacity
        return 0

    def seal(self):
        if not self.records:
            raise encoder_contract.empty_batch(self.topic, self.partition)
        # It may have moved, and the builder is used again if compression fails.
        PyByteArray_Resize(self.data, self.size)
        self.memory = <uint8_t *>PyByteArray_AsString(self.data)
        self.capacity = self.size
        batch = sealed(self.data, self.records, self.base_timestamp, self.max_timestamp, self.compression)
        self.expected = min(self.limit, max(self.size, FIRST_BYTES))
        self.clear()
        return batch


cdef int put_headers(uint8_t *at, Rows rows, Span headers) except -1:
    """All headers of a row; with_headers has added them up."""
    cdef int64_t place
    for place in range(headers.begin, headers.begin + headers.size):
        at = put_sized(at, rows.header_keys.data, span_of(&rows.header_keys.spans, place))
        at = put_sized(at, rows.header_values.data, span_of(&rows.header_values.spans, place))
    return 0


def stamp(
    bytearray data not None, int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, bint transactional
):
    cdef Py_ssize_t size = len(data)
    cdef uint8_t *memory
    if size < HEADER_SIZE:
        raise encoder_contract.no_batch(size)
    memory = <uint8_t *>PyByteArray_AsString(data)
    memory[ATTRIBUTES_LOW_AT] &= <uint8_t>~TRANSACTIONAL_BIT
    memory[ATTRIBUTES_LOW_AT] |= <uint8_t>(TRANSACTIONAL_BIT if transactional else 0)
    put_big_endian(memory + PRODUCER_ID_AT, <uint64_t>producer_id, 8)
    put_big_endian(memory + PRODUCER_EPOCH_AT, <uint64_t>producer_epoch, 2)
    put_big_endian(memory + BASE_SEQUENCE_AT, <uint64_t>base_sequence, 4)
    put_big_endian(memory + CRC_AT, crc32c_of(memory + CRC_FROM, <size_t>(size - CRC_FROM), 1), 4)


# --- partitions -------------------------------------------------------------------------------------------------------

cdef inline uint32_t little_endian(const uint8_t *data) noexcept nogil:
    return data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24


cdef uint32_t murmur2(const uint8_t *data, int64_t size) noexcept nogil:
    """Java's org.apache.kafka.common.utils.Utils.murmur2."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    cdef int64_t place
    cdef int64_t whole = size & ~<int64_t>3
    for place in range(0, whole, 4):
        k = little_endian(data + place) * m
        k = (k ^ k >> 24) * m
        h = h * m ^ k
    if whole < size:
        k = 0
        for place in range(whole, size):
            k |= <uint32_t>data[place] << 8 * (place & 3)
        h = (h ^ k) * m
    h = (h ^ h >> 13) * m
    return h ^ h >> 15


cdef inline void put_int32(uint8_t *data, Py_ssize_t place, int32_t value) noexcept nogil:
    memcpy(data + 4 * place, &value, 4)


def partitions_of_keys(Rows rows not None, indices, int32_t partition_count):
    cdef _View view = None if indices is None else int32s("indices", indices)
    cdef Py_ssize_t count = rows.count if view is None else view.size // 4
    cdef Py_ssize_t place, index
    cdef int32_t partition
    cdef Span key
    cdef uint8_t *out
    if partition_count <= 0:
        raise encoder_contract.partition_count(partition_count)
    made = PyByteArray_FromStringAndSize(NULL, 4 * count)
    out = <uint8_t *>PyByteArray_AsString(made)
    for place in range(count):
        index = place if view is None else int32_at(view.data, place)
        rows.check(index)
        key = checked_span(rows.keys, index)
        partition = NO_PARTITION
        if key.size != NULL_SPAN:
            partition = <int32_t>((murmur2(rows.keys.data + key.begin, key.size) & 0x7FFFFFFF) % partition_count)
        put_int32(out, place, partition)
    return made


def rows_by_partition(partitions, int32_t partition_count):
    cdef _View view
    cdef Py_ssize_t count, row, begin, end
    cdef int32_t partition
    cdef int32_t largest = NO_PARTITION
    cdef int64_t *next_of
    cdef uint8_t *out
    if partition_count <= 0:
        raise encoder_contract.partition_count(partition_count)
    view = int32s("partitions", partitions)
    count = view.size // 4
    for row in range(count):
        partition = int32_at(view.data, row)
        if not NO_PARTITION <= partition < partition_count:
            raise encoder_contract.row_partition(row, partition, partition_count)
        largest = max(largest, partition)
    # A counting sort: how many rows each has; then where its first one goes, which moves on with each row.
    table = PyByteArray_FromStringAndSize(NULL, 8 * (<Py_ssize_t>largest + 2))
    next_of = <int64_t *>PyByteArray_AsString(table) + 1  # place -1 is for NO_PARTITION
    memset(next_of - 1, 0, <size_t>(8 * (<Py_ssize_t>largest + 2)))
    for row in range(count):
        next_of[int32_at(view.data, row)] += 1
    begin = 0
    for partition in range(NO_PARTITION, largest + 1):
        end = begin + next_of[partition]
        next_of[partition] = begin
        begin = end
    order = PyByteArray_FromStringAndSize(NULL, 4 * count)
    out = <uint8_t *>PyByteArray_AsString(order)
    for row in range(count):
        partition = int32_at(view.data, row)
        put_int32(out, next_of[partition], <int32_t>row)
        next_of[partition] += 1
    places = memoryview(order).cast("i")
    found = {}
    begin = 0
    for partition in range(NO_PARTITION, largest + 1):
        end = next_of[partition]
        if end > begin:
            found[partition] = places[begin:end]
        begin = end
    return found
