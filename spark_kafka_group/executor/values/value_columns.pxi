# Columns that values are decoded into, for every compiled decoder: each includes this text behind its numbers of problems.

from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import pyarrow as pa

from spark_kafka_group.executor.values import value_columns, value_contract
from spark_kafka_group.executor.values.value_columns import assembled, without_entries


cdef extern from "Python.h":
    int PyBytes_AsStringAndSize(object data, char **start, Py_ssize_t *size) except -1


cdef enum:
    # the numbers of value_columns.ColumnKind
    NULLS = 1
    BOOLS = 2
    FIXED = 3
    BYTES = 4
    STRUCT = 5
    LIST = 6
    MAP = 7

    # of value_contract.Problem
    SHORT = 1
    OVERLONG = 2
    NEGATIVE = 3
    LARGE = 4
    EXPANDED = 5
    NO_MEMORY = 100  # not the value's fault

    FIRST_ROWS = 64
    FIRST_BYTES = 256
    FEW_KEYS = 16


def check_numbers(kind, names, *numbers):
    """Fail at import where numbers of this module are not those of Python's."""
    if tuple(kind[name] for name in names.split()) != numbers:
        raise ImportError(f"the numbers of {kind.__name__} have changed: compile the decoder again")


check_numbers(value_columns.ColumnKind, "NULLS BOOLS FIXED BYTES STRUCT LIST MAP", NULLS, BOOLS, FIXED, BYTES, STRUCT, LIST, MAP)
check_numbers(
    value_contract.Problem, "SHORT OVERLONG NEGATIVE LARGE EXPANDED", SHORT, OVERLONG, NEGATIVE, LARGE, EXPANDED
)

cdef int64_t LARGEST_BYTES = value_contract.LARGEST_BYTES
cdef int64_t LARGEST_TIMES = value_contract.LARGEST_TIMES


# --- reading ----------------------------------------------------------------------------------------------------------

include "../cursor.pxi"


cdef uint64_t read_rest(Cursor *cursor, uint64_t value, int bits) noexcept nogil:
    """The rest of a number after its first byte; bits above 64 are left out, as in Java's Avro."""
    cdef int shift = 7
    cdef uint64_t byte
    value &= 0x7F
    while True:
        byte = read_byte(cursor)
        if cursor.failed:
            return 0
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        shift += 7
        if shift >= bits:
            return <uint64_t>fail(cursor, OVERLONG)


cdef inline uint64_t little_endian(const Span span) noexcept nogil:
    cdef uint64_t value = 0
    cdef int64_t i
    for i in range(span.size):
        value |= <uint64_t>span.at[i] << (8 * i)
    return value


cdef void *allocated(size) except NULL:
    cdef void *memory = calloc(max(<Py_ssize_t>size, 1), 1)
    if memory == NULL:
        raise MemoryError
    return memory


cdef Span span_of(data) except *:
    """The bytes of an object that the program holds."""
    cdef Span span
    cdef char *start
    cdef Py_ssize_t size
    span.at = NULL
    span.size = -1
    if data is not None:
        PyBytes_AsStringAndSize(data, &start, &size)
        span.at = <const uint8_t *>start
        span.size = size
    return span


# --- columns ----------------------------------------------------------------------------------------------------------

cdef struct Col:
    int64_t *allocated  # bytes of all columns
    int kind
    int width
    const int32_t *children
    int32_t child_count
    const int32_t *inside
    int32_t inside_count
    int64_t rows
    int64_t room
    uint8_t *bits  # validity; NULL until the first null
    uint8_t *fixed  # numbers, bits of booleans, or ends
    uint8_t *data
    int64_t size
    int64_t capacity
    int64_t *dropped  # entries of maps whose keys came again, in order
    int64_t dropped_count
    int64_t dropped_room


cdef inline int64_t fixed_size(const Col *col, int64_t rows) noexcept nogil:
    if col.kind == FIXED:
        return rows * col.width
    if col.kind == BOOLS:
        return (rows + 7) // 8
    if col.kind == BYTES or col.kind == LIST or col.kind == MAP:
        return (rows + 1) * 4
    return 0


cdef int set_room(Col *col, int64_t room) noexcept nogil:
    cdef uint8_t *grown
    cdef int64_t size = fixed_size(col, room)
    if size:
        grown = <uint8_t *>realloc(col.fixed, <size_t>size)
        if grown == NULL:
            return NO_MEMORY
        if col.fixed == NULL and col.kind != FIXED:
            memset(grown, 0, 4 if col.kind != BOOLS else <size_t>size)
        elif col.kind == BOOLS:
            memset(grown + (col.room + 7) // 8, 0, <size_t>(size - (col.room + 7) // 8))
        col.fixed = grown
    if col.bits != NULL:
        grown = <uint8_t *>realloc(col.bits, <size_t>((room + 7) // 8))
        if grown == NULL:
            return NO_MEMORY
        memset(grown + (col.room + 7) // 8, 0, <size_t>((room + 7) // 8 - (col.room + 7) // 8))
        col.bits = grown
    col.allocated[0] += size - fixed_size(col, col.room)
    col.room = room
    return 0


cdef int first_null(Col *col) noexcept nogil:
    cdef int64_t size = (col.room + 7) // 8
    col.bits = <uint8_t *>malloc(<size_t>size)
    if col.bits == NULL:
        return NO_MEMORY
    memset(col.bits, 0xFF, <size_t>size)
    return 0


cdef inline int next_row(Col *col) noexcept nogil:
    """Make room for a row that is not null, and mark it; its value is set by the caller."""
    if col.rows == col.room and set_room(col, max(2 * col.room, FIRST_ROWS)):
        return NO_MEMORY
    if col.bits != NULL:
        col.bits[col.rows >> 3] |= <uint8_t>(1 << (col.rows & 7))
    col.rows += 1
    return 0


cdef int add_null_row(Col *col) noexcept nogil:
    cdef int64_t row = col.rows
    if next_row(col) or (col.bits == NULL and first_null(col)):
        return NO_MEMORY
    col.bits[row >> 3] &= <uint8_t>~(1 << (row & 7))
    if col.kind == FIXED:
        memset(col.fixed + row * col.width, 0, <size_t>col.width)
    elif col.kind == BOOLS:
        col.fixed[row >> 3] &= <uint8_t>~(1 << (row & 7))
    elif col.kind != STRUCT and col.kind != NULLS:
        (<int32_t *>col.fixed)[row + 1] = (<int32_t *>col.fixed)[row]
    return 0


cdef int add_null(Col *cols, int32_t c) noexcept nogil:
    cdef int32_t i
    cdef int problem = add_null_row(cols + c)
    for i in range(cols[c].inside_count):
        problem |= add_null_row(cols + cols[c].inside[i])
    return problem


cdef int make_data_room(Col *col, int64_t size) noexcept nogil:
    cdef int64_t capacity = max(max(2 * col.capacity, col.size + size), FIRST_BYTES)
    cdef uint8_t *grown = <uint8_t *>realloc(col.data, <size_t>capacity)
    if grown == NULL:
        return NO_MEMORY
    col.data = grown
    col.allocated[0] += capacity - col.capacity
    col.capacity = capacity
    return 0


cdef inline int add_bytes(Col *col, const Span span) noexcept nogil:
    if span.size > INT32_MAX - col.size:
        return LARGE
    if span.size > col.capacity - col.size and make_data_room(col, span.size):
        return NO_MEMORY
    if next_row(col):
        return NO_MEMORY
    if span.size:
        memcpy(col.data + col.size, span.at, <size_t>span.size)
    col.size += span.size
    (<int32_t *>col.fixed)[col.rows] = <int32_t>col.size
    return 0


cdef inline int add_int32(Col *col, int32_t value) noexcept nogil:
    if next_row(col):
        return NO_MEMORY
    (<int32_t *>col.fixed)[col.rows - 1] = value
    return 0


cdef inline int add_int64(Col *col, int64_t value) noexcept nogil:
    if next_row(col):
        return NO_MEMORY
    (<int64_t *>col.fixed)[col.rows - 1] = value
    return 0


cdef inline int add_float(Col *col, float value) noexcept nogil:
    if next_row(col):
        return NO_MEMORY
    (<float *>col.fixed)[col.rows - 1] = value
    return 0


cdef inline int add_double(Col *col, double value) noexcept nogil:
    if next_row(col):
        return NO_MEMORY
    (<double *>col.fixed)[col.rows - 1] = value
    return 0


cdef inline int add_fixed(Col *col, const Span span) noexcept nogil:
    """Bytes that are a number already; the cursor has failed if there are none."""
    if next_row(col):
        return NO_MEMORY
    if span.size:
        memcpy(col.fixed + (col.rows - 1) * col.width, span.at, <size_t>span.size)
    return 0


cdef inline int add_bool(Col *col, bint value) noexcept nogil:
    cdef int64_t row = col.rows
    if next_row(col):
        return NO_MEMORY
    if value:
        col.fixed[row >> 3] |= <uint8_t>(1 << (row & 7))
    else:
        col.fixed[row >> 3] &= <uint8_t>~(1 << (row & 7))
    return 0


# --- text -------------------------------------------------------------------------------------------------------------

cdef inline bint is_ascii(const Span span) noexcept nogil:
    cdef int64_t i = 0
    cdef uint64_t word
    while i + 8 <= span.size:
        memcpy(&word, span.at + i, 8)
        if word & <uint64_t>0x8080808080808080:
            return False
        i += 8
    while i < span.size:
        if span.at[i] & 0x80:
            return False
        i += 1
    return True


include "../utf8.pxi"


cdef int add_other_text(Col *col, const Span span) noexcept nogil:
    """Text that is not all ASCII, with a replacement character for what is no UTF-8."""
    cdef const uint8_t *at = span.at
    cdef const uint8_t *end = span.at + span.size
    cdef int size
    while at < end:
        size = character(at, end)
        if size < 0:
            break
        at += size
    if at == end:
        return add_bytes(col, span)
    # each byte becomes at most one replacement of three
    if span.size * 3 > INT32_MAX - col.size:
        return LARGE
    if span.size * 3 > col.capacity - col.size and make_data_room(col, span.size * 3):
        return NO_MEMORY
    if next_row(col):
        return NO_MEMORY
    at = span.at
    while at < end:
        size = character(at, end)
        if size > 0:
            memcpy(col.data + col.size, at, <size_t>size)
            col.size += size
        else:
            size = -size
            memcpy(col.data + col.size, b"\xEF\xBF\xBD", 3)
            col.size += 3
        at += size
    (<int32_t *>col.fixed)[col.rows] = <int32_t>col.size
    return 0


cdef inline int add_text(Col *col, const Span span) noexcept nogil:
    return add_bytes(col, span) if is_ascii(span) else add_other_text(col, span)


# --- lists and maps ---------------------------------------------------------------------------------------------------

cdef const uint8_t *FALSE_AND_TRUE = <const uint8_t *>b"\0\1"


cdef inline Span key_at(const Col *keys, int64_t entry) noexcept nogil:
    cdef const int32_t *ends = <const int32_t *>keys.fixed
    cdef Span span
    if keys.kind == BYTES:
        span.at = keys.data + ends[entry]
        span.size = ends[entry + 1] - ends[entry]
    elif keys.kind == FIXED:
        span.at = keys.fixed + entry * keys.width
        span.size = keys.width
    else:
        span.at = FALSE_AND_TRUE + (keys.fixed[entry >> 3] >> (entry & 7) & 1)
        span.size = 1
    return span


cdef inline int compared(const Col *keys, int64_t one, int64_t other) noexcept nogil:
    cdef Span a = key_at(keys, one)
    cdef Span b = key_at(keys, other)
    if a.size != b.size:
        return -1 if a.size < b.size else 1
    return memcmp(a.at, b.at, <size_t>a.size) if a.size else 0


cdef int drop(Col *col, int64_t entry) noexcept nogil:
    cdef int64_t *grown
    if col.dropped_count == col.dropped_room:
        grown = <int64_t *>realloc(col.dropped, <size_t>(max(2 * col.dropped_room, 16) * 8))
        if grown == NULL:
            return NO_MEMORY
        col.dropped = grown
        col.dropped_room = max(2 * col.dropped_room, 16)
    col.dropped[col.dropped_count] = entry
    col.dropped_count += 1
    return 0


cdef int drop_again(Col *col, const Col *keys, int64_t start, int64_t end) noexcept nogil:
    """Of entries with the same key the last stays."""
    cdef int64_t i, j
    if end - start > FEW_KEYS:
        return drop_sorted(col, keys, start, end)
    for i in range(start, end):
        for j in range(i + 1, end):
            if compared(keys, i, j) == 0:
                if drop(col, i):
                    return NO_MEMORY
                break
    return 0


cdef int drop_sorted(Col *col, const Col *keys, int64_t start, int64_t end) noexcept nogil:
    """By a merge sort: no choice of keys makes it slow."""
    cdef int64_t count = end - start
    cdef int64_t *sorted_keys = <int64_t *>malloc(<size_t>(count * 16))
    cdef uint8_t *again = <uint8_t *>calloc(<size_t>count, 1)
    cdef int64_t *one
    cdef int64_t *other
    cdef int64_t i, j, k, low, middle, high, width
    cdef int problem = 0
    if sorted_keys == NULL or again == NULL:
        free(sorted_keys)
        free(again)
        return NO_MEMORY
    one, other = sorted_keys, sorted_keys + count
    for i in range(count):
        one[i] = start + i
    width = 1
    while width < count:
        low = 0
        while low < count:
            middle, high = min(low + width, count), min(low + 2 * width, count)
            i, j = low, middle
            for k in range(low, high):
                if i < middle and (j >= high or compared(keys, one[i], one[j]) <= 0):
                    other[k] = one[i]
                    i += 1
                else:
                    other[k] = one[j]
                    j += 1
            low = high
        one, other = other, one
        width *= 2
    for i in range(count - 1):
        if compared(keys, one[i], one[i + 1]) == 0:
            again[one[i] - start] = 1
    for i in range(count):
        if again[i] and not problem:
            problem = drop(col, start + i)
    free(sorted_keys)
    free(again)
    return problem


cdef int end_list(Col *cols, int32_t c) noexcept nogil:
    """Add a list or map of the items that were added since the last."""
    cdef Col *col = cols + c
    cdef Col *inner = cols + col.children[0]
    if inner.rows > INT32_MAX:
        return LARGE
    if next_row(col):
        return NO_MEMORY
    (<int32_t *>col.fixed)[col.rows] = <int32_t>inner.rows
    if col.kind == MAP:
        return drop_again(col, inner, (<int32_t *>col.fixed)[col.rows - 1], inner.rows)
    return 0


# --- rows -------------------------------------------------------------------------------------------------------------

cdef class _Memory:
    """Memory of a column that an array has taken over."""

    cdef uint8_t *data

    def __dealloc__(self):
        free(self.data)


cdef size_t address_of(buffer) except? 0:
    cdef uint64_t address = 0 if buffer is None else buffer.address
    return <size_t>address


cdef object buffer_of(uint8_t **data, int64_t size):
    cdef _Memory memory = _Memory()
    memory.data, data[0] = data[0], NULL
    if memory.data == NULL:
        return pa.py_buffer(b"")
    return pa.foreign_buffer(<size_t>memory.data, size, memory)



cdef class ValueRows:
    """One column of values, row after row. What is malformed is in `problems`."""

    cdef object columns
    cdef object values
    cdef object held
    cdef Col *cols
    cdef int32_t count
    cdef int32_t *links
    cdef const uint8_t *valid
    cdef const int32_t *ends
    cdef const uint8_t *data
    cdef int64_t data_size
    cdef int64_t offset
    cdef int64_t length
    cdef int64_t most_bytes
    cdef int64_t allocated
    cdef public list problems

    def __cinit__(self, columns, values, int64_t most_bytes):
        cdef int32_t total = 0
        cdef int32_t c, i
        cdef int64_t width, expected
        if values.type != pa.binary():
            raise TypeError(f"values are binary, and not {values.type}")
        self.columns = columns
        self.values = values
        self.problems = []
        self.most_bytes = most_bytes
        self.count = len(columns)
        self.cols = <Col *>allocated(self.count * sizeof(Col))
        self.links = <int32_t *>allocated(4 * sum(len(column.children) + len(column.inside) for column in columns))
        for c, column in enumerate(columns):
            self.cols[c].allocated = &self.allocated
            self.cols[c].kind = column.kind
            self.cols[c].width = column.width
            self.cols[c].children = self.links + total
            self.cols[c].child_count = len(column.children)
            self.cols[c].inside = self.links + total + len(column.children)
            self.cols[c].inside_count = len(column.inside)
            for link in (*column.children, *column.inside):
                self.links[total] = link
                total += 1
        self._take(values)
        for c in range(self.count):
            if set_room(self.cols + c, 0):
                raise MemoryError
        width = self.cols.width
        for i in range(self.cols.inside_count):
            width += self.cols[self.cols.inside[i]].width
        expected = min(self.length, self.most_bytes // (2 * max(width, 1)))  # the other half is for text and lists
        if set_room(self.cols, expected):
            raise MemoryError
        for i in range(self.cols.inside_count):
            if set_room(self.cols + self.cols.inside[i], expected):
                raise MemoryError

    cdef int _take(self, values) except -1:
        cdef int64_t i
        valid, ends, data = self.held = values.buffers()
        self.length = len(values)
        self.offset = values.offset
        self.valid = <const uint8_t *>address_of(valid)
        self.ends = <const int32_t *>address_of(ends)
        self.data = <const uint8_t *>address_of(data)
        self.data_size = 0 if data is None else data.size
        if self.length == 0:
            return 0
        for i in range(self.offset, self.offset + self.length):
            if self.ends[i] < 0 or self.ends[i] > self.ends[i + 1]:
                raise ValueError("the offsets of the values are not in order")
        if self.ends[self.offset + self.length] > self.data_size:
            raise ValueError("the values end behind their data")
        return 0

    def __dealloc__(self):
        cdef int32_t c
        if self.cols != NULL:
            for c in range(self.count):
                free(self.cols[c].bits)
                free(self.cols[c].fixed)
                free(self.cols[c].data)
                free(self.cols[c].dropped)
        free(self.cols)
        free(self.links)

    cdef inline Span _value(self, int64_t row) noexcept nogil:
        cdef Span span
        row += self.offset
        if self.valid != NULL and not self.valid[row >> 3] >> (row & 7) & 1:
            span.at = NULL
            span.size = -1
        else:
            span.at = self.data + self.ends[row]
            span.size = self.ends[row + 1] - self.ends[row]
        return span

    def has_value(self, int64_t row):
        """Whether a row has a value."""
        if not 0 <= row < self.length:
            raise IndexError(row)
        return self._value(row).size >= 0

    cdef inline bint _is_full(self) noexcept nogil:
        return self.allocated > self.most_bytes and self.cols.rows > 0

    def is_full(self):
        """Whether the rows take the bytes that they may take."""
        return self._is_full()

    def null(self):
        """A row without value."""
        if add_null(self.cols, 0):
            raise MemoryError

    cdef int _cut(self, int64_t row) except -1:
        """Leave no trace of the row that failed."""
        cdef int32_t c, i
        cdef Col *col
        cdef int64_t inner
        cdef int64_t *rows = <int64_t *>allocated(self.count * 8)
        rows[0] = row
        for c in range(self.count):
            col = self.cols + c
            inner = col.rows = rows[c]
            if col.kind == BYTES or col.kind == LIST or col.kind == MAP:
                inner = (<int32_t *>col.fixed)[inner]
            if col.kind == BYTES:
                col.size = inner
            while col.dropped_count and col.dropped[col.dropped_count - 1] >= inner:
                col.dropped_count -= 1
            for i in range(col.child_count):
                rows[col.children[i]] = inner
        free(rows)
        return 0

    def finish(self):
        """The column; no more rows can be read."""
        cdef int32_t c, i
        arrays = {}
        for c in reversed(range(self.count)):
            children = [arrays[self.cols[c].children[i]] for i in range(self.cols[c].child_count)]
            arrays[c] = self._array(self.columns[c], self.cols + c, children)
        return arrays[0]

    cdef object _array(self, column, Col *col, list children):
        cdef int64_t i
        cdef int32_t *ends = <int32_t *>col.fixed
        valid = None if col.bits == NULL else buffer_of(&col.bits, (col.rows + 7) // 8)
        if col.dropped_count:
            dropped = [col.dropped[i] for i in range(col.dropped_count)]
            moved, children = without_entries(
                len(children[0]), [ends[i] for i in range(col.rows + 1)], dropped, children
            )
            for i, end in enumerate(moved):
                ends[i] = end
        buffers = []
        if fixed_size(col, 1):
            buffers.append(buffer_of(&col.fixed, fixed_size(col, col.rows)))
        if col.kind == BYTES:
            buffers.append(buffer_of(&col.data, col.size))
        return assembled(column, col.rows, valid, buffers, children)
