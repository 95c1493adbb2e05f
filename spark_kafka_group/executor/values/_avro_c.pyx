# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the Avro decoder; ``_avro_py`` does the same in plain Python, and says more of it.

Memory safety rests on three rules. 1. Bytes of a value are read through a Cursor only, and each of its reads is checked.
2. A column is written to only after it has made room for its next row or bytes. 3. What a malformed value has left in
columns is cut off before the next value is read. Programs are the decoder's own, and are not checked.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import pyarrow as pa

from spark_kafka_group.executor.values import avro_columns, avro_instructions, value_contract
from spark_kafka_group.executor.values.avro_columns import assembled, without_entries


cdef extern from "Python.h":
    int PyBytes_AsStringAndSize(object data, char **start, Py_ssize_t *size) except -1


cdef enum:
    # the numbers of avro_columns.ColumnKind
    NULLS = 1
    BOOLS = 2
    FIXED = 3
    BYTES = 4
    STRUCT = 5
    LIST = 6
    MAP = 7

    # of avro_instructions.Problem
    SHORT = 1
    OVERLONG = 2
    NEGATIVE = 3
    BRANCH = 4
    SYMBOL = 5
    UNKNOWN_SYMBOL = 6
    ITEMS = 7
    FAR_TIME = 8
    NO_TIME = 9
    DIGITS = 10
    EMPTY_DECIMAL = 11
    DEPTH = 12
    LARGE = 13
    NOT_READ = 14
    EXPANDED = 15
    NO_MEMORY = 100  # not the value's fault

    # of avro_instructions.Do
    DO_END = 1
    DO_NULL = 2
    DO_STRUCT = 3
    DO_BOOLEAN = 4
    DO_INT = 5
    DO_INT_AS_LONG = 6
    DO_INT_AS_FLOAT = 7
    DO_INT_AS_DOUBLE = 8
    DO_INT_AS_FLOAT_AS_DOUBLE = 9
    DO_INT_TIMES_1000 = 10
    DO_LONG = 11
    DO_LONG_AS_FLOAT = 12
    DO_LONG_AS_DOUBLE = 13
    DO_LONG_AS_FLOAT_AS_DOUBLE = 14
    DO_LONG_TIMES_1000 = 15
    DO_FLOAT = 16
    DO_FLOAT_AS_DOUBLE = 17
    DO_DOUBLE = 18
    DO_STRING = 19
    DO_BYTES = 20
    DO_FIXED = 21
    DO_DECIMAL = 22
    DO_DECIMAL_FIXED = 23
    DO_ENUM = 24
    DO_LIST = 25
    DO_LIST_NEXT = 26
    DO_MAP = 27
    DO_MAP_NEXT = 28
    DO_UNION = 29
    DO_JUMP = 30
    DO_FAIL = 31
    DO_DEFAULT = 32
    DO_DEFAULT_END = 33
    DO_SKIP_INT = 34
    DO_SKIP_LONG = 35
    DO_SKIP_FIXED = 36
    DO_SKIP_BYTES = 37
    DO_SKIP_LIST = 38
    DO_SKIP_NEXT = 39
    DO_SKIP_UNION = 40
    DO_CALL = 41
    DO_RETURN = 42

    MOST_FRAMES = 1000
    FRAME_SIZE = 5
    NULL_VALUE = -2
    NO_FRAME = -1
    FIRST_ROWS = 64
    FIRST_BYTES = 256
    FEW_KEYS = 16

cdef int64_t FREE_ITEMS = avro_instructions.FREE_ITEMS
cdef int64_t LARGEST_BYTES = value_contract.LARGEST_BYTES
cdef int64_t LARGEST_TIMES = value_contract.LARGEST_TIMES
cdef int64_t DAY_MICROS = avro_instructions.DAY_MICROS


def _check_numbers():
    """Fail at import where the numbers above are not those of Python's."""
    here = {
        avro_instructions.Do: (DO_END, DO_LONG_TIMES_1000, DO_STRING, DO_ENUM, DO_MAP_NEXT, DO_FAIL, DO_SKIP_INT, DO_RETURN),
        avro_instructions.Problem: (SHORT, ITEMS, NOT_READ, EXPANDED),
        avro_columns.ColumnKind: (NULLS, BYTES, MAP),
    }
    for kind, numbers in here.items():
        names = {
            avro_instructions.Do: "END LONG_TIMES_1000 STRING ENUM MAP_NEXT FAIL SKIP_INT RETURN",
            avro_instructions.Problem: "SHORT ITEMS NOT_READ EXPANDED",
            avro_columns.ColumnKind: "NULLS BYTES MAP",
        }[kind]
        if tuple(kind[name] for name in names.split()) != numbers:
            raise ImportError(f"the numbers of {kind.__name__} have changed: compile the decoder again")
    if avro_instructions.FRAMES != MOST_FRAMES:
        raise ImportError("FRAMES has changed: compile the decoder again")


_check_numbers()


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


cdef inline int64_t read_long(Cursor *cursor) noexcept nogil:
    """A zig-zag number of at most ten bytes; most have one or two, which are read in place."""
    cdef uint64_t value = read_byte(cursor)
    if value >= 0x80:
        if cursor.at == cursor.end or cursor.at[0] >= 0x80:
            value = read_rest(cursor, value, 64)
        else:
            value = value & 0x7F | <uint64_t>cursor.at[0] << 7
            cursor.at += 1
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)


cdef inline int32_t read_int(Cursor *cursor) noexcept nogil:
    """A zig-zag number of at most five bytes."""
    cdef uint64_t value = read_byte(cursor)
    cdef uint32_t low
    if value >= 0x80:
        if cursor.at == cursor.end or cursor.at[0] >= 0x80:
            value = read_rest(cursor, value, 32)
        else:
            value = value & 0x7F | <uint64_t>cursor.at[0] << 7
            cursor.at += 1
    low = <uint32_t>value
    return <int32_t>(low >> 1) ^ -<int32_t>(low & 1)


cdef inline uint64_t little_endian(const Span span) noexcept nogil:
    cdef uint64_t value = 0
    cdef int64_t i
    for i in range(span.size):
        value |= <uint64_t>span.at[i] << (8 * i)
    return value


cdef inline float read_float(Cursor *cursor) noexcept nogil:
    cdef uint32_t bits = <uint32_t>little_endian(take(cursor, 4))
    cdef float value
    memcpy(&value, &bits, 4)
    return value


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


# --- decimals ---------------------------------------------------------------------------------------------------------

cdef uint64_t POWERS[20]
cdef int _power
POWERS[0] = 1
for _power in range(1, 20):
    POWERS[_power] = POWERS[_power - 1] * 10


cdef extern from *:
    """
    __extension__ typedef __int128 spark_kafka_group_int128;
    """
    ctypedef long long int128 "spark_kafka_group_int128"


cdef int add_decimal(Col *col, const Span span, int digits) noexcept nogil:
    """A big-endian number of at most `digits` digits."""
    cdef int64_t i, first
    cdef uint8_t sign
    cdef uint64_t low = 0
    cdef uint64_t high = 0
    cdef int64_t small
    cdef int128 value, limit
    if span.size == 0:
        return EMPTY_DECIMAL
    sign = 0xFF if span.at[0] & 0x80 else 0
    if sign:
        low = high = <uint64_t>-1
    first = max(span.size - 16, 0)
    if digits > 18:
        for i in range(first):
            if span.at[i] != sign:
                return DIGITS
        if (span.at[first] ^ sign) & 0x80:
            return DIGITS
    for i in range(first, span.size):
        high = high << 8 | low >> 56
        low = low << 8 | span.at[i]
    if digits <= 18:  # as Spark, which takes the lowest 64 bits
        small = <int64_t>low
        if small >= <int64_t>POWERS[digits] or small <= -<int64_t>POWERS[digits]:
            return DIGITS
        high = <uint64_t>(small >> 63)
    else:
        value = <int128>(<int64_t>high) * (<int128>1 << 64) + <int128>low
        limit = <int128>POWERS[19] * <int128>POWERS[digits - 19]
        if value >= limit or value <= -limit:
            return DIGITS
    if next_row(col):
        return NO_MEMORY
    memcpy(col.fixed + (col.rows - 1) * 16, &low, 8)
    memcpy(col.fixed + (col.rows - 1) * 16 + 8, &high, 8)
    return 0


# --- maps -------------------------------------------------------------------------------------------------------------

cdef inline Span key_at(const Col *keys, int64_t entry) noexcept nogil:
    cdef const int32_t *ends = <const int32_t *>keys.fixed
    cdef Span span
    span.at = keys.data + ends[entry]
    span.size = ends[entry + 1] - ends[entry]
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


# --- programs ---------------------------------------------------------------------------------------------------------

cdef struct Step:
    int32_t do
    int32_t c
    int64_t a
    int64_t b


cdef struct Table:
    const int32_t *places
    int64_t count


cdef struct Symbols:
    const Span *symbols  # size -1: the reader does not have it
    int64_t count


cdef struct Plan:
    int64_t schema_id
    const Step *steps
    const Table *tables
    const Symbols *symbols
    const Span *constants


cdef class Ready:
    """A program as ``Rows.run`` takes it."""

    cdef object program
    cdef Plan plan
    cdef Step *steps
    cdef Table *tables
    cdef int32_t *places
    cdef Symbols *symbol_tables
    cdef Span *symbols
    cdef Span *constants

    def __cinit__(self, program):
        cdef Py_ssize_t i, j, total
        self.program = program
        self.steps = <Step *>allocated(len(program.instructions) * sizeof(Step))
        self.tables = <Table *>allocated(len(program.places) * sizeof(Table))
        self.places = <int32_t *>allocated(sum(map(len, program.places)) * 4)
        self.symbol_tables = <Symbols *>allocated(len(program.symbols) * sizeof(Symbols))
        self.symbols = <Span *>allocated(sum(map(len, program.symbols)) * sizeof(Span))
        self.constants = <Span *>allocated(len(program.constants) * sizeof(Span))
        for i, step in enumerate(program.instructions):
            self.steps[i].do, self.steps[i].c, self.steps[i].a, self.steps[i].b = step
        total = 0
        for i, table in enumerate(program.places):
            self.tables[i].places = self.places + total
            self.tables[i].count = len(table)
            for place in table:
                self.places[total] = place
                total += 1
        total = 0
        for i, table in enumerate(program.symbols):
            self.symbol_tables[i].symbols = self.symbols + total
            self.symbol_tables[i].count = len(table)
            for symbol in table:
                self.symbols[total] = span_of(symbol)
                total += 1
        for j, constant in enumerate(program.constants):
            self.constants[j] = span_of(constant)
        self.plan.schema_id = NO_FRAME
        self.plan.steps = self.steps
        self.plan.tables = self.tables
        self.plan.symbols = self.symbol_tables
        self.plan.constants = self.constants

    def __dealloc__(self):
        free(self.steps)
        free(self.tables)
        free(self.places)
        free(self.symbol_tables)
        free(self.symbols)
        free(self.constants)


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


def prepared(program):
    """A program as ``Rows.run`` takes it."""
    return Ready(program)


cdef struct Frame:
    int32_t c
    int64_t left
    int64_t back
    Cursor cursor


cdef struct Machine:
    Plan plan
    Col *cols
    Frame *frames
    int64_t frame_count
    int64_t free_items
    int64_t most_allocated
    int64_t place
    Cursor cursor


cdef inline Frame *begin(Machine *m) noexcept nogil:
    if m.frame_count >= MOST_FRAMES:
        fail(&m.cursor, DEPTH)
        return NULL
    m.frame_count += 1
    return m.frames + m.frame_count - 1


cdef inline int64_t read_items(Machine *m, bint empty, bint first) noexcept nogil:
    """How many items a block has; 0 ends the array or map."""
    cdef int64_t count = read_long(&m.cursor)
    if count < 0:
        read_long(&m.cursor)
        if count == INT64_MIN:
            return 0 if first else fail(&m.cursor, NEGATIVE)
        count = -count
    if m.cursor.failed:
        return 0
    if empty:
        if count > m.free_items:
            return fail(&m.cursor, ITEMS)
        m.free_items -= count
    elif count > left(&m.cursor):
        return fail(&m.cursor, SHORT)
    return count


cdef int end_list(Machine *m, int32_t c) noexcept nogil:
    cdef Col *col = m.cols + c
    cdef Col *inner = m.cols + col.children[0]
    if inner.rows > INT32_MAX:
        return LARGE
    if next_row(col):
        return NO_MEMORY
    (<int32_t *>col.fixed)[col.rows] = <int32_t>inner.rows
    if col.kind == MAP:
        return drop_again(col, inner, (<int32_t *>col.fixed)[col.rows - 1], inner.rows)
    return 0


cdef inline void skip(Cursor *cursor, int64_t size) noexcept nogil:
    if size > 0:
        take(cursor, size)


cdef int64_t skip_items(Machine *m, bint empty) noexcept nogil:
    cdef int64_t count = read_long(&m.cursor)
    while count < 0:
        skip(&m.cursor, read_long(&m.cursor))
        count = read_long(&m.cursor)
    if not empty and count > left(&m.cursor):
        return fail(&m.cursor, SHORT)
    return count


cdef int read_symbol(Machine *m, Col *col, const Symbols *table) noexcept nogil:
    cdef int32_t i = read_int(&m.cursor)
    cdef Span symbol
    if m.cursor.failed:
        return 0
    if i < 0 or i >= table.count:
        return SYMBOL
    symbol = table.symbols[i]
    return UNKNOWN_SYMBOL if symbol.size < 0 else add_bytes(col, symbol)


cdef int add_thousandfold(Col *col, int64_t value, bint of_a_day) noexcept nogil:
    if of_a_day and not 0 <= value < DAY_MICROS:
        return NO_TIME
    if value > INT64_MAX // 1000 or value < -(INT64_MAX // 1000):
        return FAR_TIME
    return add_int64(col, value * 1000)


cdef int run_value(Machine *m) noexcept nogil:
    """Read one value; the problem, or 0. `place` is the instruction where it failed."""
    cdef const Step *step
    cdef Col *col
    cdef Frame *frame
    cdef Cursor *cursor = &m.cursor
    cdef Span span
    cdef int64_t count, following = 0
    cdef int32_t do
    cdef int problem
    while True:
        m.place = following
        following += 1
        step = m.plan.steps + m.place
        do = step.do
        col = m.cols + (step.c if step.c >= 0 else 0)
        problem = 0
        if do == DO_END:
            return 0
        elif do == DO_STRUCT:
            problem = next_row(col)
        elif do == DO_LONG:
            problem = add_int64(col, read_long(cursor))
        elif do == DO_INT:
            problem = add_int32(col, read_int(cursor))
        elif do == DO_STRING:
            span = take(cursor, read_long(cursor))
            problem = add_text(col, span)
        elif do == DO_DOUBLE or do == DO_FLOAT:
            span = take(cursor, col.width)
            problem = add_fixed(col, span)
        elif do == DO_UNION or do == DO_SKIP_UNION:
            count = read_int(cursor)
            if cursor.failed:
                pass
            elif count < 0 or count >= m.plan.tables[step.a].count:
                problem = BRANCH
            else:
                following = m.plan.tables[step.a].places[count]
        elif do == DO_JUMP:
            following = step.a
        elif do == DO_NULL:
            problem = add_null(m.cols, step.c)
        elif do == DO_BOOLEAN:
            problem = add_bool(col, read_byte(cursor) == 1)
        elif do == DO_BYTES:
            span = take(cursor, read_long(cursor))
            problem = add_bytes(col, span)
        elif do == DO_FIXED:
            span = take(cursor, step.a)
            problem = add_bytes(col, span)
        elif do == DO_INT_AS_LONG:
            problem = add_int64(col, read_int(cursor))
        elif do == DO_INT_AS_FLOAT:
            problem = add_float(col, <float>read_int(cursor))
        elif do == DO_INT_AS_DOUBLE:
            problem = add_double(col, <double>read_int(cursor))
        elif do == DO_INT_AS_FLOAT_AS_DOUBLE:
            problem = add_double(col, <double>(<float>read_int(cursor)))
        elif do == DO_INT_TIMES_1000:
            problem = add_thousandfold(col, read_int(cursor), step.b != 0)
        elif do == DO_LONG_AS_FLOAT:
            problem = add_float(col, <float>read_long(cursor))
        elif do == DO_LONG_AS_DOUBLE:
            problem = add_double(col, <double>read_long(cursor))
        elif do == DO_LONG_AS_FLOAT_AS_DOUBLE:
            problem = add_double(col, <double>(<float>read_long(cursor)))
        elif do == DO_LONG_TIMES_1000:
            problem = add_thousandfold(col, read_long(cursor), step.b != 0)
        elif do == DO_FLOAT_AS_DOUBLE:
            problem = add_double(col, <double>read_float(cursor))
        elif do == DO_DECIMAL or do == DO_DECIMAL_FIXED:
            span = take(cursor, step.b if do == DO_DECIMAL_FIXED else read_long(cursor))
            if not cursor.failed:
                problem = add_decimal(col, span, <int>step.a)
        elif do == DO_ENUM:
            problem = read_symbol(m, col, m.plan.symbols + step.a)
        elif do == DO_LIST or do == DO_MAP:
            count = read_items(m, step.b != 0, True)
            if cursor.failed:
                pass
            elif count == 0:
                problem = end_list(m, step.c)
                following = step.a
            else:
                frame = begin(m)
                if frame != NULL:
                    frame.left = count
        elif do == DO_LIST_NEXT or do == DO_MAP_NEXT:
            frame = m.frames + m.frame_count - 1
            frame.left -= 1
            if frame.left == 0:
                frame.left = read_items(m, step.b != 0, False)
            if cursor.failed:
                pass
            elif col.allocated[0] > m.most_allocated:
                problem = EXPANDED
            elif frame.left:
                following = step.a
            else:
                m.frame_count -= 1
                problem = end_list(m, step.c)
        elif do == DO_FAIL:
            problem = NOT_READ
        elif do == DO_DEFAULT:
            frame = begin(m)
            if frame != NULL:
                frame.cursor = m.cursor
                cursor.at = m.plan.constants[step.a].at
                cursor.end = cursor.at + m.plan.constants[step.a].size
        elif do == DO_DEFAULT_END:
            m.frame_count -= 1
            m.cursor = m.frames[m.frame_count].cursor
        elif do == DO_SKIP_INT:
            read_int(cursor)
        elif do == DO_SKIP_LONG:
            read_long(cursor)
        elif do == DO_SKIP_FIXED:
            skip(cursor, step.a)
        elif do == DO_SKIP_BYTES:
            skip(cursor, read_long(cursor))
        elif do == DO_SKIP_LIST:
            count = skip_items(m, step.b != 0)
            while step.b and count:
                count = skip_items(m, True)
            if cursor.failed:
                pass
            elif count == 0:
                following = step.a
            else:
                frame = begin(m)
                if frame != NULL:
                    frame.left = count
        elif do == DO_SKIP_NEXT:
            frame = m.frames + m.frame_count - 1
            frame.left -= 1
            if frame.left == 0:
                frame.left = skip_items(m, step.b != 0)
            if frame.left:
                following = step.a
            else:
                m.frame_count -= 1
        elif do == DO_CALL:
            frame = begin(m)
            if frame != NULL:
                frame.back = following
                following = step.a
        elif do == DO_RETURN:
            m.frame_count -= 1
            following = m.frames[m.frame_count].back
        if cursor.failed:
            return cursor.failed
        if problem:
            return problem


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


cdef class Rows:
    """One column of values, row after row."""

    cdef object columns
    cdef object values
    cdef object held
    cdef Col *cols
    cdef int32_t count
    cdef int32_t *links
    cdef Frame *frames
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
        self.frames = <Frame *>allocated(MOST_FRAMES * sizeof(Frame))
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
        free(self.frames)
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

    cdef inline int64_t _frame_id(self, const Span span) noexcept nogil:
        if span.size < 0:
            return NULL_VALUE
        if span.size < FRAME_SIZE or span.at[0]:
            return NO_FRAME
        return <int64_t>span.at[1] << 24 | <int64_t>span.at[2] << 16 | <int64_t>span.at[3] << 8 | span.at[4]

    def frame_id(self, int64_t row):
        """The id of a row's schema, behind a zero byte."""
        if not 0 <= row < self.length:
            raise IndexError(row)
        return self._frame_id(self._value(row))

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

    def run(self, dict known not None, int64_t row, int64_t end, bint framed):
        """Read the rows from `row` to `end`, up to one whose id is not `known` or until the columns are full; not
        `framed`, all by the one known."""
        cdef Machine m
        cdef int problem
        cdef Ready ready
        cdef int64_t count = len(known)
        if not 0 <= row <= end <= self.length:
            raise IndexError(row)
        cdef Plan *plans = <Plan *>allocated(count * sizeof(Plan))
        try:
            for i, (schema_id, ready) in enumerate(known.items()):
                plans[i] = ready.plan
                plans[i].schema_id = schema_id if framed else NO_FRAME
            m.plan = plans[0]
            m.cols = self.cols
            m.frames = self.frames
            m.place = 0
            while row < end and not self._is_full():
                problem = 0
                with nogil:
                    while row < end and not problem and not self._is_full():
                        row, problem = self._next(&m, row, framed, plans, count)
                if problem == NO_MEMORY:
                    raise MemoryError
                if problem < 0:
                    break
                if problem:
                    self.problems.append((row - 1, m.plan.schema_id if framed else None, m.place, problem))
                    self._cut(row - 1)
                    if add_null(self.cols, 0):
                        raise MemoryError
        finally:
            free(plans)
        return row

    cdef (int64_t, int) _next(
        self, Machine *m, int64_t row, bint framed, const Plan *plans, int64_t count
    ) noexcept nogil:
        """Read a row: the next one, and the problem of this; -1 if its id is not known."""
        cdef Span span = self._value(row)
        cdef int64_t schema_id, i
        if span.size < 0:
            return row + 1, add_null(self.cols, 0)
        if framed:
            schema_id = self._frame_id(span)
            if schema_id != m.plan.schema_id:
                i = 0
                while i < count and plans[i].schema_id != schema_id:
                    i += 1
                if i == count:
                    return row, -1
                m.plan = plans[i]
            span.at += FRAME_SIZE
            span.size -= FRAME_SIZE
        m.frame_count = 0
        m.free_items = span.size + FREE_ITEMS
        m.most_allocated = self.allocated + LARGEST_BYTES + LARGEST_TIMES * span.size
        m.cursor.at = span.at
        m.cursor.end = span.at + span.size
        m.cursor.failed = 0
        return row + 1, run_value(m)

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
