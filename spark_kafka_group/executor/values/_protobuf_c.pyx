# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the Protobuf decoder; ``_protobuf_py`` does the same in plain Python, and says more of it.

Memory safety rests on four rules. 1. Bytes of a value are read through a Cursor only, and each of its reads is checked.
2. A column is written to only after it has made room for its next row or bytes. 3. What a malformed value has left in
columns is cut off before the next value is read. 4. Messages are read inside each other only as deep as the columns are:
what has no column is read over, without recursion. Programs are the decoder's own, and are not checked.
"""

from spark_kafka_group.executor.values import protobuf_program

include "value_columns.pxi"


cdef enum:
    # of value_contract.Problem, as those of value_columns.pxi
    FAR_TIME = 10
    TAG = 16
    GROUP = 17
    GROUPS = 18
    OTHER_TYPE = 19
    UNKNOWN_NUMBER = 20
    REQUIRED = 21
    NO_UTF8 = 22

    # of protobuf_program.Wire
    W_VARINT = 0
    W_FIXED64 = 1
    W_BYTES = 2
    W_GROUP = 3
    W_END_GROUP = 4
    W_FIXED32 = 5

    # of protobuf_program.FieldKind
    DO_INT32 = 1
    DO_UINT32_AS_LONG = 2
    DO_SINT32 = 3
    DO_INT64 = 4
    DO_UINT64_AS_DECIMAL = 5
    DO_SINT64 = 6
    DO_BOOL = 7
    DO_FIXED32 = 8
    DO_FIXED64 = 9
    DO_ENUM_NAME = 10
    DO_ENUM_NUMBER = 11
    DO_TEXT = 12
    DO_CHECKED_TEXT = 13
    DO_BYTES = 14
    DO_MESSAGE = 15

    # of protobuf_program.Shape
    ONE = 1
    SHAPE_LIST = 2
    SHAPE_MAP = 3

    # of protobuf_program.Absent
    ABSENT_NULL = 1
    ABSENT_DEFAULT = 2
    NULL_OR_ZERO = 3

    MOST_GROUPS = 100
    NONE = -1

cdef int64_t MOST_SECONDS = INT64_MAX // 1000000

check_numbers(
    value_contract.Problem, "FAR_TIME TAG GROUP GROUPS OTHER_TYPE UNKNOWN_NUMBER REQUIRED NO_UTF8",
    FAR_TIME, TAG, GROUP, GROUPS, OTHER_TYPE, UNKNOWN_NUMBER, REQUIRED, NO_UTF8,
)
check_numbers(
    protobuf_program.Wire, "VARINT FIXED64 BYTES GROUP END_GROUP FIXED32",
    W_VARINT, W_FIXED64, W_BYTES, W_GROUP, W_END_GROUP, W_FIXED32,
)
check_numbers(
    protobuf_program.FieldKind, "INT32 UINT32_AS_LONG SINT32 INT64 UINT64_AS_DECIMAL SINT64 BOOL FIXED32 FIXED64 ENUM_NAME "
    "ENUM_NUMBER TEXT CHECKED_TEXT BYTES MESSAGE",
    DO_INT32, DO_UINT32_AS_LONG, DO_SINT32, DO_INT64, DO_UINT64_AS_DECIMAL, DO_SINT64, DO_BOOL, DO_FIXED32, DO_FIXED64,
    DO_ENUM_NAME, DO_ENUM_NUMBER, DO_TEXT, DO_CHECKED_TEXT, DO_BYTES, DO_MESSAGE,
)
check_numbers(protobuf_program.Shape, "ONE LIST MAP", ONE, SHAPE_LIST, SHAPE_MAP)
check_numbers(protobuf_program.Absent, "NULL DEFAULT NULL_OR_ZERO", ABSENT_NULL, ABSENT_DEFAULT, NULL_OR_ZERO)
if protobuf_program.GROUPS != MOST_GROUPS:
    raise ImportError("GROUPS has changed: compile the decoder again")


# --- programs ---------------------------------------------------------------------------------------------------------

cdef struct Enum:
    const int32_t *numbers  # in order
    const Span *names
    int64_t count
    Span unknown


cdef struct Field:
    uint32_t number
    int wire
    int do
    int shape
    int32_t column
    int32_t inner
    int32_t oneof
    int absent
    bint required
    bint closed
    uint64_t default
    Span default_bytes


cdef struct Message:
    int32_t column
    int32_t time
    int32_t first_field  # of the fields of all messages
    int32_t field_count
    int32_t first_case  # of the oneofs of all messages
    bint requires
    const int32_t *quick  # indexes of fields by their numbers, below `quick_count`; NONE is none
    uint32_t quick_count
    const int32_t *order  # indexes of fields in the order of their numbers


cdef class Ready:
    """A program as ``Rows.run`` takes it."""

    cdef object program
    cdef Message *messages
    cdef Field *fields
    cdef Enum *enums
    cdef int32_t *places
    cdef int32_t *numbers
    cdef Span *names
    cdef int64_t message_count
    cdef int64_t field_count
    cdef int64_t case_count

    def __cinit__(self, program):
        cdef int64_t f = 0
        cdef int64_t p = 0
        cdef int64_t i, limit
        self.program = program
        self.message_count = len(program.messages)
        self.field_count = sum(len(message.fields) for message in program.messages)
        self.messages = <Message *>allocated(self.message_count * sizeof(Message))
        self.fields = <Field *>allocated(self.field_count * sizeof(Field))
        limits = [_quick_count(message) for message in program.messages]
        self.places = <int32_t *>allocated((sum(limits) + self.field_count) * 4)
        for i, message in enumerate(program.messages):
            self.messages[i].column, self.messages[i].time = message.column, message.time
            self.messages[i].first_field, self.messages[i].field_count = f, len(message.fields)
            self.messages[i].first_case = self.case_count
            self.case_count += message.oneofs
            self.messages[i].requires = any(field.required for field in message.fields)
            limit = limits[i]
            self.messages[i].quick, self.messages[i].quick_count = self.places + p, limit
            for number in range(limit):
                self.places[p + number] = NONE
            for at, field in enumerate(message.fields):
                if field.number < limit and field.number:
                    self.places[p + field.number] = at
                self._take(f + at, field)
            p += limit
            self.messages[i].order = self.places + p
            for at in sorted(range(len(message.fields)), key=lambda at: message.fields[at].number):
                self.places[p] = at
                p += 1
            f += len(message.fields)
        self._take_enums(program.enums)

    cdef int _take(self, int64_t at, field) except -1:
        cdef Field *made = self.fields + at
        made.number, made.wire, made.do, made.shape = field.number, field.wire, field.do, field.shape
        made.column, made.inner, made.oneof = field.column, field.inner, field.oneof
        made.absent, made.required, made.closed = field.absent, field.required, field.closed
        if isinstance(field.default, bytes):
            made.default_bytes = span_of(field.default)
        else:
            made.default = field.default
        return 0

    cdef int _take_enums(self, enums) except -1:
        cdef int64_t i, n = 0
        self.enums = <Enum *>allocated(len(enums) * sizeof(Enum))
        self.numbers = <int32_t *>allocated(sum(len(enum.names) for enum in enums) * 4)
        self.names = <Span *>allocated(sum(len(enum.names) for enum in enums) * sizeof(Span))
        for i, enum in enumerate(enums):
            self.enums[i].numbers, self.enums[i].names = self.numbers + n, self.names + n
            self.enums[i].count = len(enum.names)
            self.enums[i].unknown = span_of(enum.unknown)
            for number, name in sorted(enum.names.items()):
                self.numbers[n], self.names[n] = number, span_of(name)
                n += 1
        return 0

    def __dealloc__(self):
        free(self.messages)
        free(self.fields)
        free(self.enums)
        free(self.places)
        free(self.numbers)
        free(self.names)


def _quick_count(message):
    """Up to which number fields are found at once: few numbers are large, and a message may have only those."""
    most = max((field.number for field in message.fields), default=0)
    return min(most + 1, 4 * len(message.fields) + 64)


def prepared(program):
    """A program as ``Rows.run`` takes it."""
    return Ready(program)


# --- what is known of a value while it is read ------------------------------------------------------------------------

cdef struct Slot:
    uint64_t stamp  # of the message that has the field: others are of messages before
    uint64_t value
    Span span
    int64_t first  # runs of a list, or of a message in parts
    int64_t last


cdef struct Case:
    uint64_t stamp
    int32_t field


cdef struct Run:
    const uint8_t *at  # tags and what is behind each, next to each other
    const uint8_t *end
    int64_t next


cdef struct Machine:
    const Message *messages
    const Field *fields
    const Enum *enums
    Col *cols
    Slot *slots
    Case *cases
    uint64_t *stamps
    uint64_t stamp
    Run *runs
    int64_t run_count
    int64_t run_room
    int64_t most_allocated
    int32_t message
    int32_t field


cdef inline uint64_t read_varint(Cursor *cursor) noexcept nogil:
    cdef uint64_t value = read_byte(cursor)
    if value >= 0x80:
        if cursor.at == cursor.end or cursor.at[0] >= 0x80:
            return read_rest(cursor, value, 64)
        value = value & 0x7F | <uint64_t>cursor.at[0] << 7
        cursor.at += 1
    return value


cdef inline Span read_sized(Cursor *cursor) noexcept nogil:
    cdef uint64_t size = read_varint(cursor)
    if size > <uint64_t>left(cursor):
        fail(cursor, SHORT)
        size = 0
    return take(cursor, <int64_t>size)


cdef inline uint64_t read_fixed(Cursor *cursor, int size) noexcept nogil:
    cdef Span span = take(cursor, size)
    cdef uint64_t value = 0
    if span.size == 8:
        memcpy(&value, span.at, 8)
    elif span.size == 4:
        memcpy(&value, span.at, 4)
    return value


cdef inline Cursor inside(const Span span) noexcept nogil:
    cdef Cursor cursor
    cursor.at = span.at
    cursor.end = span.at + span.size
    cursor.failed = 0
    return cursor


cdef inline uint32_t read_tag(Cursor *cursor) noexcept nogil:
    cdef uint32_t tag = <uint32_t>read_varint(cursor)
    if tag >> 3 == 0:
        fail(cursor, TAG)
    return tag


cdef int skip_group(Cursor *cursor, uint32_t number) noexcept nogil:
    """Go behind the end of a group, whose number this is."""
    cdef uint32_t inside_of[MOST_GROUPS]
    cdef int depth = 1
    cdef uint32_t tag
    inside_of[0] = number
    while depth and not cursor.failed:
        tag = read_tag(cursor)
        if cursor.failed:
            break
        if tag & 7 == W_GROUP:
            if depth >= MOST_GROUPS:
                fail(cursor, GROUPS)
            else:
                inside_of[depth] = tag >> 3
                depth += 1
        elif tag & 7 == W_END_GROUP:
            depth -= 1
            if inside_of[depth] != tag >> 3:
                fail(cursor, GROUP)
        elif tag & 7 == W_VARINT:
            read_varint(cursor)
        elif tag & 7 == W_FIXED64:
            take(cursor, 8)
        elif tag & 7 == W_FIXED32:
            take(cursor, 4)
        elif tag & 7 == W_BYTES:
            read_sized(cursor)
        else:
            fail(cursor, TAG)
    return 0


cdef inline int32_t field_of(const Machine *m, const Message *plan, uint32_t number) noexcept nogil:
    cdef int32_t low, high, middle
    if number < plan.quick_count:
        return plan.quick[number]
    low, high = 0, plan.field_count
    while low < high:
        middle = (low + high) // 2
        if m.fields[plan.first_field + plan.order[middle]].number < number:
            low = middle + 1
        else:
            high = middle
    if low < plan.field_count and m.fields[plan.first_field + plan.order[low]].number == number:
        return plan.order[low]
    return NONE


cdef inline const Span *name_of(const Enum *enum, int32_t number) noexcept nogil:
    """The name of an enum's number; NULL if it has none."""
    cdef int64_t low = 0
    cdef int64_t high = enum.count
    cdef int64_t middle
    while low < high:
        middle = (low + high) // 2
        if enum.numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < enum.count and enum.numbers[low] == number:
        return enum.names + low
    return NULL


cdef int add_run(Machine *m, Slot *slot, uint64_t stamp, const uint8_t *at, const uint8_t *end) noexcept nogil:
    cdef Run *grown
    if slot.stamp == stamp and m.runs[slot.last].end == at:
        m.runs[slot.last].end = end
        return 0
    if m.run_count == m.run_room:
        grown = <Run *>realloc(m.runs, <size_t>(max(2 * m.run_room, 64) * <int64_t>sizeof(Run)))
        if grown == NULL:
            return NO_MEMORY
        m.runs = grown
        m.run_room = max(2 * m.run_room, 64)
    m.runs[m.run_count].at = at
    m.runs[m.run_count].end = end
    m.runs[m.run_count].next = NONE
    if slot.stamp == stamp:
        m.runs[slot.last].next = m.run_count
    else:
        slot.first = m.run_count
    slot.stamp = stamp
    slot.last = m.run_count
    m.run_count += 1
    return 0


cdef inline void begin(Machine *m, int32_t index) noexcept nogil:
    m.stamp += 1
    m.stamps[index] = m.stamp


cdef int scan(Machine *m, int32_t index, Cursor *cursor, uint32_t group) noexcept nogil:
    """Look at the bytes of a message, or at a part of it: up to the end of `group`, if it is one."""
    cdef const Message *plan = m.messages + index
    cdef const Field *field
    cdef uint64_t stamp = m.stamps[index]
    cdef const uint8_t *start
    cdef Slot *slot
    cdef Case *case
    cdef Span span
    cdef uint64_t value
    cdef uint32_t tag, number
    cdef int32_t i
    cdef int wire, problem
    while cursor.at < cursor.end:
        m.message = index
        m.field = NONE
        start = cursor.at
        tag = read_tag(cursor)
        if cursor.failed:
            return cursor.failed
        number, wire = tag >> 3, tag & 7
        if group and wire == W_END_GROUP and number == group:
            return 0
        i = m.field = field_of(m, plan, number)
        value = 0
        span.at, span.size = start, 0
        if wire == W_VARINT:
            value = read_varint(cursor)
        elif wire == W_BYTES:
            span = read_sized(cursor)
        elif wire == W_FIXED64:
            value = read_fixed(cursor, 8)
        elif wire == W_FIXED32:
            value = read_fixed(cursor, 4)
        elif wire == W_GROUP:
            skip_group(cursor, number)
        else:
            fail(cursor, GROUP if wire == W_END_GROUP else TAG)
        if cursor.failed:
            return cursor.failed
        if i < 0:
            continue
        field = m.fields + plan.first_field + i
        problem = 0
        if wire != field.wire and not (
            wire == W_BYTES and field.shape == SHAPE_LIST and field.wire != W_BYTES and field.wire != W_GROUP
        ):
            problem = OTHER_TYPE
        elif field.closed and field.shape == ONE and name_of(m.enums + field.inner, <int32_t>value) == NULL:
            problem = UNKNOWN_NUMBER
        if problem:
            if index == 0:
                return problem
            continue
        slot = m.slots + plan.first_field + i
        if field.oneof >= 0:
            case = m.cases + plan.first_case + field.oneof
            if case.stamp != stamp or case.field != i:
                slot.stamp = 0
                case.stamp, case.field = stamp, i
        if field.shape == ONE and field.do != DO_MESSAGE:
            slot.stamp = stamp
            slot.value = value
            slot.span = span
        elif add_run(m, slot, stamp, start, cursor.at):
            return NO_MEMORY
    return 0


cdef int scan_next(Machine *m, int32_t index, Cursor *cursor) noexcept nogil:
    """Look at a message behind its tag."""
    cdef uint32_t tag = read_tag(cursor)
    cdef Cursor body
    if tag & 7 == W_GROUP:
        return scan(m, index, cursor, tag >> 3)
    body = inside(read_sized(cursor))
    return scan(m, index, &body, 0)


# --- columns ----------------------------------------------------------------------------------------------------------

cdef inline int32_t unzigzag32(uint64_t value) noexcept nogil:
    cdef uint32_t low = <uint32_t>value
    return <int32_t>(low >> 1) ^ -<int32_t>(low & 1)


cdef inline int64_t unzigzag64(uint64_t value) noexcept nogil:
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)


cdef int add_name(Col *col, const Enum *enum, int32_t number) noexcept nogil:
    cdef const Span *name = name_of(enum, number)
    cdef char digits[12]
    cdef Span span
    cdef int64_t rest = number if number >= 0 else -<int64_t>number
    cdef int at = 12
    if name != NULL:
        return add_bytes(col, name[0])
    while True:
        at -= 1
        digits[at] = <char>(48 + rest % 10)
        rest //= 10
        if not rest:
            break
    if number < 0:
        at -= 1
        digits[at] = 45
    if enum.unknown.size + 12 > INT32_MAX - col.size:
        return LARGE
    if enum.unknown.size + 12 > col.capacity - col.size and make_data_room(col, enum.unknown.size + 12):
        return NO_MEMORY
    memcpy(col.data + col.size, enum.unknown.at, <size_t>enum.unknown.size)
    col.size += enum.unknown.size
    span.at, span.size = <const uint8_t *>digits + at, 12 - at
    return add_bytes(col, span)


cdef int add_checked_text(Col *col, const Span span) noexcept nogil:
    cdef const uint8_t *at = span.at
    cdef const uint8_t *end = span.at + span.size
    cdef int size
    if not is_ascii(span):
        while at < end:
            size = character(at, end)
            if size < 0:
                return NO_UTF8
            at += size
    return add_bytes(col, span)


cdef inline int add_scalar(const Machine *m, const Field *field, Col *col, uint64_t value, const Span span) noexcept nogil:
    cdef int do = field.do
    cdef uint64_t wide[2]
    cdef Span decimal
    if do == DO_INT32 or do == DO_FIXED32 or do == DO_ENUM_NUMBER:
        return add_int32(col, <int32_t>value)
    if do == DO_INT64 or do == DO_FIXED64:
        return add_int64(col, <int64_t>value)
    if do == DO_CHECKED_TEXT:
        return add_checked_text(col, span)
    if do == DO_TEXT:
        return add_text(col, span)
    if do == DO_BYTES:
        return add_bytes(col, span)
    if do == DO_BOOL:
        return add_bool(col, value != 0)
    if do == DO_ENUM_NAME:
        return add_name(col, m.enums + field.inner, <int32_t>value)
    if do == DO_SINT32:
        return add_int32(col, unzigzag32(value))
    if do == DO_SINT64:
        return add_int64(col, unzigzag64(value))
    if do == DO_UINT32_AS_LONG:
        return add_int64(col, <int64_t>(value & <uint64_t>0xFFFFFFFF))
    wide[0], wide[1] = value, 0
    decimal.at, decimal.size = <const uint8_t *>wide, 16
    return add_fixed(col, decimal)


cdef inline bint is_default(const Field *field, const Slot *slot) noexcept nogil:
    """Whether a field that is written has the value that it has without."""
    cdef int do = field.do
    if field.wire == W_BYTES:
        return slot.span.size == 0
    if do == DO_BOOL or do == DO_INT64 or do == DO_FIXED64 or do == DO_SINT64 or do == DO_UINT64_AS_DECIMAL:
        return slot.value == 0
    return <uint32_t>slot.value == 0


cdef int64_t whole_number(const Field *field, uint64_t value) noexcept nogil:
    cdef int do = field.do
    if do == DO_SINT32:
        return unzigzag32(value)
    if do == DO_SINT64:
        return unzigzag64(value)
    if do == DO_INT64 or do == DO_FIXED64 or do == DO_UINT64_AS_DECIMAL:
        return <int64_t>value
    return <int32_t>value


cdef int add_time(Machine *m, const Message *plan, uint64_t stamp) noexcept nogil:
    """Microseconds of two fields, seconds and nanoseconds."""
    cdef const Field *fields = m.fields + plan.first_field
    cdef const Slot *slots = m.slots + plan.first_field
    cdef int64_t seconds = whole_number(fields, slots[0].value if slots[0].stamp == stamp else 0)
    cdef int64_t nanos = whole_number(fields + 1, slots[1].value if slots[1].stamp == stamp else 0)
    cdef int64_t micros
    if seconds > MOST_SECONDS or seconds < -MOST_SECONDS:
        return FAR_TIME
    micros, nanos = seconds * 1000000, nanos // 1000
    if nanos > 0 and micros > INT64_MAX - nanos or nanos < 0 and micros < INT64_MIN - nanos:
        return FAR_TIME
    return add_int64(m.cols + plan.time, micros + nanos)


cdef int finish(Machine *m, int32_t index) noexcept nogil:
    """Add the message that was looked at."""
    cdef const Message *plan = m.messages + index
    cdef const Field *fields = m.fields + plan.first_field
    cdef const Slot *slots = m.slots + plan.first_field
    cdef uint64_t stamp = m.stamps[index]
    cdef const Case *cases = m.cases + plan.first_case
    cdef int32_t i
    cdef bint seen
    cdef int problem = 0
    m.message = index
    if plan.requires:
        for i in range(plan.field_count):
            if fields[i].required and slots[i].stamp != stamp:
                m.field = i
                return REQUIRED
    if plan.column >= 0 and next_row(m.cols + plan.column):
        return NO_MEMORY
    if plan.time >= 0:
        m.field = NONE
        return add_time(m, plan, stamp)
    for i in range(plan.field_count):
        if fields[i].column < 0:
            continue
        m.message, m.field = index, i
        seen = slots[i].stamp == stamp and (fields[i].oneof < 0 or cases[fields[i].oneof].field == i)
        if fields[i].shape != ONE:
            problem = add_items(m, index, i, seen)
        elif fields[i].do == DO_MESSAGE:
            problem = add_message(m, fields + i, slots + i, seen)
        elif not seen:
            if fields[i].absent == ABSENT_DEFAULT:
                problem = add_scalar(m, fields + i, m.cols + fields[i].column, fields[i].default, fields[i].default_bytes)
            else:
                problem = add_null(m.cols, fields[i].column)
        elif fields[i].absent == NULL_OR_ZERO and is_default(fields + i, slots + i):
            problem = add_null(m.cols, fields[i].column)
        else:
            problem = add_scalar(m, fields + i, m.cols + fields[i].column, slots[i].value, slots[i].span)
        if problem:
            return problem
    return 0


cdef int add_message(Machine *m, const Field *field, const Slot *slot, bint seen) noexcept nogil:
    """Add a message, whose parts are read as if they were one."""
    cdef int64_t mark = m.run_count
    cdef int64_t run
    cdef Cursor cursor
    cdef int problem
    if not seen and field.absent != ABSENT_DEFAULT:
        return add_null(m.cols, field.column)
    begin(m, field.inner)
    run = slot.first if seen else NONE
    while run != NONE:
        cursor.at, cursor.end, cursor.failed = m.runs[run].at, m.runs[run].end, 0
        while cursor.at < cursor.end:
            problem = scan_next(m, field.inner, &cursor)
            if problem:
                return problem
        run = m.runs[run].next
    problem = finish(m, field.inner)
    m.run_count = mark
    return problem


cdef int add_items(Machine *m, int32_t index, int32_t i, bint seen) noexcept nogil:
    """Add a list or a map."""
    cdef const Field *field = m.fields + m.messages[index].first_field + i
    cdef const Slot *slot = m.slots + m.messages[index].first_field + i
    cdef int64_t mark = m.run_count
    cdef int64_t run = slot.first if seen else NONE
    cdef Cursor cursor
    cdef int problem
    while run != NONE:
        cursor.at, cursor.end, cursor.failed = m.runs[run].at, m.runs[run].end, 0
        while cursor.at < cursor.end:
            if field.do == DO_MESSAGE:
                begin(m, field.inner)
                problem = scan_next(m, field.inner, &cursor)
                if not problem:
                    problem = finish(m, field.inner)
                m.run_count = mark
            else:
                problem = add_next(m, index == 0, field, &cursor)
            if problem:
                return problem
            m.message, m.field = index, i
            if m.cols.allocated[0] > m.most_allocated:
                return EXPANDED
        run = m.runs[run].next
    return end_list(m.cols, field.column)


cdef int add_next(Machine *m, bint is_root, const Field *field, Cursor *cursor) noexcept nogil:
    """Add the item behind the next tag, or those that are packed there."""
    cdef uint32_t tag = read_tag(cursor)
    cdef Cursor packed
    cdef int problem = 0
    if tag & 7 == W_BYTES and field.wire != W_BYTES:
        packed = inside(read_sized(cursor))
        while packed.at < packed.end and not problem:
            problem = add_item(m, is_root, field, &packed)
        return problem
    return add_item(m, is_root, field, cursor)


cdef inline int add_item(Machine *m, bint is_root, const Field *field, Cursor *cursor) noexcept nogil:
    cdef Col *col = m.cols + m.cols[field.column].children[0]
    cdef uint64_t value = 0
    cdef Span span
    span.at, span.size = cursor.at, 0
    if field.wire == W_VARINT:
        value = read_varint(cursor)
    elif field.wire == W_BYTES:
        span = read_sized(cursor)
    else:
        value = read_fixed(cursor, 8 if field.wire == W_FIXED64 else 4)
    if cursor.failed:
        return cursor.failed
    if field.closed and name_of(m.enums + field.inner, <int32_t>value) == NULL:
        return UNKNOWN_NUMBER if is_root else 0
    return add_scalar(m, field, col, value, span)


# --- rows -------------------------------------------------------------------------------------------------------------

cdef class Rows(ValueRows):
    """One column of values, row after row. A problem is a row, a message, a field, and a ``Problem``."""

    def run(self, Ready ready not None, list prefixes not None, int64_t row, int64_t end):
        """Read the rows from `row` to `end`, up to one that begins with none of `prefixes` or until the columns are
        full."""
        cdef Machine m
        cdef int problem
        cdef int64_t i
        cdef int64_t count = len(prefixes)
        if not 0 <= row <= end <= self.length:
            raise IndexError(row)
        memset(&m, 0, sizeof(Machine))
        cdef Span *starts = <Span *>allocated(count * sizeof(Span))
        try:
            for i, prefix in enumerate(prefixes):
                starts[i] = span_of(prefix)
            m.messages, m.fields, m.enums, m.cols = ready.messages, ready.fields, ready.enums, self.cols
            m.slots = <Slot *>allocated(ready.field_count * sizeof(Slot))
            m.cases = <Case *>allocated(ready.case_count * sizeof(Case))
            m.stamps = <uint64_t *>allocated(ready.message_count * 8)
            while row < end and not self._is_full():
                problem = 0
                with nogil:
                    while row < end and not problem and not self._is_full():
                        row, problem = self._next(&m, row, starts, count)
                if problem == NO_MEMORY:
                    raise MemoryError
                if problem < 0:
                    break
                if problem:
                    self.problems.append((row - 1, m.message, m.field, problem))
                    self._cut(row - 1)
                    self.null()
        finally:
            free(starts)
            free(m.slots)
            free(m.cases)
            free(m.stamps)
            free(m.runs)
        return row

    cdef (int64_t, int) _next(self, Machine *m, int64_t row, Span *starts, int64_t count) noexcept nogil:
        """Read a row: the next one, and the problem of this; -1 if it begins with none of `starts`."""
        cdef Span span = self._value(row)
        cdef Span start = starts[0] if count else span
        cdef Cursor cursor
        cdef int64_t i = 0
        cdef int problem
        if span.size < 0:
            return row + 1, add_null(self.cols, 0)
        while i < count and (
            span.size < starts[i].size
            or (starts[i].size and memcmp(span.at, starts[i].at, <size_t>starts[i].size))
        ):
            i += 1
        if i == count:
            return row, -1
        start = starts[i]
        starts[i], starts[0] = starts[0], start  # the next row has the same
        span.at += start.size
        span.size -= start.size
        m.run_count = 0
        m.most_allocated = self.allocated + LARGEST_BYTES + LARGEST_TIMES * span.size
        cursor = inside(span)
        begin(m, 0)
        problem = scan(m, 0, &cursor, 0)
        if not problem:
            problem = finish(m, 0)
        return row + 1, problem
