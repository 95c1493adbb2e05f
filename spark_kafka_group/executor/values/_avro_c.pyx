# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the Avro decoder; ``_avro_py`` does the same in plain Python, and says more of it.

Memory safety rests on three rules. 1. Bytes of a value are read through a Cursor only, and each of its reads is checked.
2. A column is written to only after it has made room for its next row or bytes. 3. What a malformed value has left in
columns is cut off before the next value is read. Programs are the decoder's own, and are not checked.
"""

from spark_kafka_group.executor.values import avro_instructions

include "value_columns.pxi"


cdef enum:
    # of value_contract.Problem, as those of value_columns.pxi
    BRANCH = 6
    SYMBOL = 7
    UNKNOWN_SYMBOL = 8
    ITEMS = 9
    FAR_TIME = 10
    NO_TIME = 11
    DIGITS = 12
    EMPTY_DECIMAL = 13
    DEPTH = 14
    NOT_READ = 15

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

cdef int64_t FREE_ITEMS = avro_instructions.FREE_ITEMS
cdef int64_t DAY_MICROS = avro_instructions.DAY_MICROS


check_numbers(
    avro_instructions.Do, "END LONG_TIMES_1000 STRING ENUM MAP_NEXT FAIL SKIP_INT RETURN",
    DO_END, DO_LONG_TIMES_1000, DO_STRING, DO_ENUM, DO_MAP_NEXT, DO_FAIL, DO_SKIP_INT, DO_RETURN,
)
check_numbers(value_contract.Problem, "BRANCH ITEMS FAR_TIME DEPTH NOT_READ", BRANCH, ITEMS, FAR_TIME, DEPTH, NOT_READ)
if avro_instructions.FRAMES != MOST_FRAMES:
    raise ImportError("FRAMES has changed: compile the decoder again")


# --- reading ----------------------------------------------------------------------------------------------------------

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


cdef inline float read_float(Cursor *cursor) noexcept nogil:
    cdef uint32_t bits = <uint32_t>little_endian(take(cursor, 4))
    cdef float value
    memcpy(&value, &bits, 4)
    return value


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
                problem = end_list(m.cols, step.c)
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
                problem = end_list(m.cols, step.c)
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


cdef class Rows(ValueRows):
    """One column of values, row after row."""

    cdef Frame *frames

    def __cinit__(self, columns, values, int64_t most_bytes):
        self.frames = <Frame *>allocated(MOST_FRAMES * sizeof(Frame))

    def __dealloc__(self):
        free(self.frames)

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
