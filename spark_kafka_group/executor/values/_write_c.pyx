# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the encoder of values; ``_write_py`` does the same in plain Python, and says more of it.

Memory safety rests on three rules. 1. ``write_plan.bound()`` has checked the arrays: buffers are as large as their rows
need, and offsets are in order. 2. Nothing is written before need() has made room for it. 3. Plans are the package's own.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from datetime import UTC

import pyarrow as pa

from spark_kafka_group.executor.values import java_texts, write_plan
from spark_kafka_group.executor.values.java_times import zone_of


cdef extern from "Python.h":
    char *PyOS_double_to_string(double value, char format, int precision, int flags, int *type)
    double PyOS_string_to_double(const char *text, char **end, object overflow) except? -1
    void PyMem_Free(void *memory)
    int PyBytes_AsStringAndSize(object data, char **start, Py_ssize_t *size) except -1


cdef extern from *:
    """
    __extension__ typedef __int128 spark_kafka_group_int128;
    """
    ctypedef long long int128 "spark_kafka_group_int128"


cdef enum:
    # of write_plan.Put
    DO_CONSTANT = 1
    DO_NULL = 2
    DO_OBJECT = 3
    DO_ARRAY = 4
    DO_DICT = 5
    DO_TRUE_OR_FALSE = 6
    DO_NUMBER = 7
    DO_FLOAT_TEXT = 8
    DO_DOUBLE_TEXT = 9
    DO_DECIMAL_TEXT = 10
    DO_TEXT = 11
    DO_BASE64 = 12
    DO_DATE = 13
    DO_TIMESTAMP = 14
    DO_LOCAL_TIMESTAMP = 15
    DO_TIME = 16
    DO_RECORD = 17
    DO_UNION = 18
    DO_LIST = 19
    DO_MAP = 20
    DO_BOOLEAN = 21
    DO_INTEGER = 22
    DO_THOUSANDTH = 23
    DO_FLOAT = 24
    DO_DOUBLE = 25
    DO_FLOAT_AS_DOUBLE = 26
    DO_BYTES = 27
    DO_FIXED = 28
    DO_DECIMAL = 29
    DO_DECIMAL_FIXED = 30
    DO_ENUM = 31
    DO_MESSAGE = 32
    DO_WRAPPER = 33
    DO_PACKED = 34
    DO_REPEATED = 35
    DO_ENTRIES = 36
    DO_WHOLE = 37
    DO_SECONDS = 38
    DO_NANOS = 39
    DO_UTF8 = 40
    DO_BLOB = 41
    DO_SYMBOL = 42
    DO_NUMBERED = 43

    # of write_plan.Form
    VARINT = 0
    ZIGZAG = 1
    UNSIGNED = 2
    FOUR_BYTES = 3
    EIGHT_BYTES = 4

    # of write_plan.Misfit
    NULL_VALUE = 1
    RANGE = 2
    SIZE = 3
    DIGITS = 4
    SYMBOL = 5
    NO_BRANCH = 6
    BRANCHES = 7
    LARGE = 8

    FIRST_BYTES = 4096
    SHORT_TEXT = 64  # most bytes of a number or a time
    DAYS_KEPT = 4096


def _check_numbers():
    """Fail at import where the numbers above are not those of Python's."""
    here = (
        DO_CONSTANT, DO_NUMBER, DO_TEXT, DO_TIME, DO_RECORD, DO_INTEGER, DO_BYTES, DO_ENUM, DO_MESSAGE, DO_NUMBERED
    )
    names = "CONSTANT NUMBER TEXT TIME RECORD INTEGER BYTES ENUM MESSAGE NUMBERED"
    if tuple(write_plan.Put[name] for name in names.split()) != here:
        raise ImportError("the numbers of Put have changed: compile the encoder again")
    if tuple(write_plan.Misfit[name] for name in ("NULL", "SYMBOL", "LARGE")) != (NULL_VALUE, SYMBOL, LARGE):
        raise ImportError("the numbers of Misfit have changed: compile the encoder again")


_check_numbers()

cdef int64_t MOST_BYTES = write_plan.MOST_BYTES
cdef int64_t DAY_S = 86_400
cdef int64_t MICROS = 1_000_000
cdef int64_t NO_DAY = -(<int64_t>1 << 62)

cdef double TENS[9]
cdef int _power
for _power in range(9):
    TENS[_power] = float(10**_power)

cdef int128 LEAST[8]
cdef int128 ENDS[8]
cdef int _range
for _range in range(1, len(write_plan.RANGES)):
    LEAST[_range] = <int64_t>write_plan.RANGES[_range][0]
    ENDS[_range] = <int128><uint64_t>(write_plan.RANGES[_range][1] - 1) + 1

cdef int128 POWERS[39]
POWERS[0] = 1
for _power in range(1, 39):
    POWERS[_power] = POWERS[_power - 1] * 10

cdef const char *HEX = b"0123456789ABCDEF"
cdef const char *SIX_BITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef struct Node:
    int do
    bint has_null
    const uint8_t *before
    int64_t before_size
    const uint8_t *null
    int64_t null_size
    const int32_t *children
    int32_t child_count
    int64_t a
    int64_t b
    int64_t c
    const uint8_t **symbols
    int64_t *symbol_sizes
    int32_t symbol_count
    bint implicit
    # of the array
    bint all_null
    const uint8_t *bits  # NULL: no value is null
    const uint8_t *fixed  # numbers, bits of booleans, or ends
    const uint8_t *data
    int64_t offset


# --- output -----------------------------------------------------------------------------------------------------------

cdef struct Out:
    uint8_t *data
    int64_t size
    int64_t capacity


cdef int grow(Out *out, int64_t more) except -1:
    cdef int64_t capacity = max(max(2 * out.capacity, out.size + more), <int64_t>FIRST_BYTES)
    cdef uint8_t *grown = <uint8_t *>realloc(out.data, <size_t>capacity)
    if grown == NULL:
        raise MemoryError
    out.data = grown
    out.capacity = capacity
    return 0


cdef inline int need(Out *out, int64_t more) except -1:
    """Make room for `more` bytes."""
    if more > out.capacity - out.size:
        grow(out, more)
    return 0


cdef inline void put_byte(Out *out, uint8_t byte) noexcept:
    out.data[out.size] = byte
    out.size += 1


cdef inline void put_known(Out *out, const uint8_t *data, int64_t size) noexcept:
    """Bytes that there is room for."""
    memcpy(out.data + out.size, data, <size_t>size)
    out.size += size


cdef inline int put_bytes(Out *out, const uint8_t *data, int64_t size) except -1:
    if size:
        need(out, size)
        put_known(out, data, size)
    return 0


cdef inline void put_varint(Out *out, uint64_t left) noexcept:
    while left >= 0x80:
        put_byte(out, <uint8_t>(left | 0x80))
        left >>= 7
    put_byte(out, <uint8_t>left)


cdef inline void put_zigzag(Out *out, int64_t value) noexcept:
    put_varint(out, <uint64_t>value << 1 ^ <uint64_t>(value >> 63))


cdef inline int put_form(Out *out, int64_t value, int64_t form) except -1:
    """A whole number as a ``Form``."""
    need(out, 10)
    if form == VARINT:
        put_varint(out, <uint64_t>value)
    elif form == ZIGZAG:
        put_zigzag(out, value)
    elif form == UNSIGNED:
        put_varint(out, <uint32_t>value)
    else:
        put_known(out, <const uint8_t *>&value, 4 if form == FOUR_BYTES else 8)
    return 0


cdef int put_length(Out *out, int64_t start) except -1:
    """The length of what is behind `start`, into the byte before it and into as many more as it needs."""
    cdef int64_t size = out.size - start
    cdef int64_t more = 0
    while size >> 7 * (more + 1):
        more += 1
    if more:
        need(out, more)
        memmove(out.data + start + more, out.data + start, <size_t>size)
    out.size = start - 1
    put_varint(out, <uint64_t>size)
    out.size += size
    return 0


cdef inline bint is_zero(const Out *out, int64_t start) noexcept:
    while start < out.size and out.data[start] == 0:
        start += 1
    return start == out.size


# --- numbers as text --------------------------------------------------------------------------------------------------

cdef int put_digits(Out *out, uint64_t value) noexcept:
    """A number of at most 20 digits."""
    cdef uint8_t digits[20]
    cdef int first = 20
    while True:
        first -= 1
        digits[first] = <uint8_t>(48 + value % 10)
        value //= 10
        if value == 0:
            break
    put_known(out, digits + first, 20 - first)
    return 20 - first


cdef inline void put_integer(Out *out, int64_t value) noexcept:
    if value < 0:
        put_byte(out, 45)
        put_digits(out, 0 - <uint64_t>value)
    else:
        put_digits(out, <uint64_t>value)


cdef inline void put_padded(Out *out, int64_t value, int width) noexcept:
    """A number that has at most `width` digits, with zeros before them."""
    cdef int i
    for i in range(width - 1, -1, -1):
        out.data[out.size + i] = <uint8_t>(48 + value % 10)
        value //= 10
    out.size += width


cdef void put_java(Out *out, double absolute, const uint8_t *digits, int count, int point) noexcept:
    """Digits, the point behind so many of them, as Java writes a float: what ``java_numbers.text_of_digits`` says."""
    cdef int i
    while count > 1 and digits[count - 1] == 48:
        count -= 1
    if 1e-3 <= absolute < 1e7:
        if point <= 0:
            put_known(out, b"0.", 2)
            for i in range(-point):
                put_byte(out, 48)
            put_known(out, digits, count)
        else:
            for i in range(point):
                put_byte(out, digits[i] if i < count else 48)
            put_byte(out, 46)
            if count > point:
                put_known(out, digits + point, count - point)
            else:
                put_byte(out, 48)
        return
    put_byte(out, digits[0])
    put_byte(out, 46)
    if count > 1:
        put_known(out, digits + 1, count - 1)
    else:
        put_byte(out, 48)
    put_byte(out, 69)
    put_integer(out, point - 1)


cdef int put_parsed(Out *out, double absolute, const char *text) noexcept:
    """A number of Python's text of it: digits, a point, an exponent. Returns how many digits count."""
    cdef uint8_t digits[SHORT_TEXT]
    cdef int count = 0
    cdef int point = -1
    cdef int exponent = 0
    cdef int sign = 1
    cdef int zeros = 0
    while text[0] and text[0] != 101:
        if text[0] == 46:
            point = count + zeros
        elif count == 0 and text[0] == 48:
            zeros += 1  # before the first digit
        elif count < SHORT_TEXT:
            digits[count] = <uint8_t>text[0]
            count += 1
        text += 1
    if point < 0:
        point = count + zeros
    if text[0]:
        text += 1
        if text[0] == 45:
            sign = -1
        if text[0] == 45 or text[0] == 43:
            text += 1
        while text[0]:
            exponent = exponent * 10 + (text[0] - 48)
            text += 1
    put_java(out, absolute, digits, count, point - zeros + sign * exponent)
    return count


cdef bint put_few(Out *out, double absolute, double most, bint is_float) noexcept:
    """A number that few digits tell, in an exact way: one between 0.001 and ten million. False if more are needed."""
    cdef int64_t whole
    cdef double scaled
    cdef double back
    cdef int digits, point
    if not 1e-3 <= absolute < 1e7:
        return False
    for digits in range(9):
        scaled = absolute * TENS[digits]
        if scaled >= most:
            return False
        whole = <int64_t>(scaled + 0.5)
        back = <double>whole / TENS[digits]
        if (<double><float>back if is_float else back) == absolute:
            put_digits(out, <uint64_t>(whole // <int64_t>TENS[digits]))
            put_byte(out, 46)
            if digits:
                put_padded(out, whole % <int64_t>TENS[digits], digits)
            else:
                put_byte(out, 48)
            return True
    return False


cdef int put_double(Out *out, double value) except -1:
    """What ``java_numbers.double_as_text`` says of a finite number that is not 0."""
    cdef double absolute = -value if value < 0 else value
    cdef char *text
    cdef int64_t began
    if value < 0:
        put_byte(out, 45)
    if put_few(out, absolute, 1e15, False):
        return 0
    began = out.size
    text = PyOS_double_to_string(absolute, 114, 0, 0, NULL)
    if text == NULL:
        raise MemoryError
    count = put_parsed(out, absolute, text)
    PyMem_Free(text)
    if count == 1:  # Java has two digits, the nearest
        out.size = began
        text = PyOS_double_to_string(absolute, 101, 1, 0, NULL)
        if text == NULL:
            raise MemoryError
        put_parsed(out, absolute, text)
        PyMem_Free(text)
    return 0


cdef int put_float(Out *out, float value) except -1:
    """What ``java_texts.float_as_text`` says of a finite number that is not 0."""
    cdef double absolute = -value if value < 0 else value
    cdef double back
    cdef float single = <float>absolute
    cdef uint32_t bits
    cdef uint64_t long_bits
    cdef char *text
    cdef int more
    cdef bint odd, found
    if value < 0:
        put_byte(out, 45)
    if put_few(out, absolute, 1e6, True):
        return 0
    memcpy(&bits, &single, 4)
    odd = (bits & 0x7FFFFF) == 0  # a power of two, whose neighbours are not equally far away
    for more in range(1, 9):
        if odd:
            break
        text = PyOS_double_to_string(absolute, 101, more, 0, NULL)
        if text == NULL:
            raise MemoryError
        back = PyOS_string_to_double(text, NULL, None)
        memcpy(&long_bits, &back, 8)
        odd = (long_bits & 0x1FFFFFFF) == 0x10000000  # half way between two floats, perhaps by rounding
        found = not odd and <float>back == single
        if found:
            put_parsed(out, absolute, text)
        PyMem_Free(text)
        if found:
            return 0
    made = java_texts.float_as_text(absolute).encode()
    put_bytes(out, made, len(made))
    return 0


cdef int put_floating(Out *out, double value, bint is_float, bint as_name) except -1:
    cdef bint finite = value - value == 0
    cdef bint quoted = as_name or not finite
    need(out, SHORT_TEXT)
    if quoted:
        put_byte(out, 34)
    if value != value:
        put_known(out, b"NaN", 3)
    elif not finite:
        if value < 0:
            put_byte(out, 45)
        put_known(out, b"Infinity", 8)
    elif value == 0:
        if is_negative(value):
            put_byte(out, 45)
        put_known(out, b"0.0", 3)
    elif is_float:
        put_float(out, <float>value)
    else:
        put_double(out, value)
    if quoted:
        put_byte(out, 34)
    return 0


cdef inline bint is_negative(double value) noexcept:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    return bits >> 63


cdef int put_decimal_text(Out *out, int128 value, int64_t scale) except -1:
    """What ``java_texts.decimal_as_text`` says."""
    cdef uint8_t digits[40]
    cdef int first = 40
    cdef int64_t count, exponent, i
    need(out, 2 * SHORT_TEXT)
    if value < 0:
        put_byte(out, 45)
    while True:
        first -= 1
        digits[first] = <uint8_t>(48 + <int>(value % 10 if value >= 0 else -(value % 10)))
        value //= 10
        if value == 0:
            break
    count = 40 - first
    exponent = count - 1 - scale
    if scale == 0:
        put_known(out, digits + first, count)
    elif scale > 0 and exponent >= -6:
        if count <= scale:
            put_known(out, b"0.", 2)
            for i in range(scale - count):
                put_byte(out, 48)
            put_known(out, digits + first, count)
        else:
            put_known(out, digits + first, count - scale)
            put_byte(out, 46)
            put_known(out, digits + 40 - scale, scale)
    else:
        put_byte(out, digits[first])
        if count > 1:
            put_byte(out, 46)
            put_known(out, digits + first + 1, count - 1)
        put_byte(out, 69)
        if exponent >= 0:
            put_byte(out, 43)
        put_integer(out, exponent)
    return 0


# --- text -------------------------------------------------------------------------------------------------------------

include "../utf8.pxi"


cdef inline const uint8_t *plain_end(const uint8_t *at, const uint8_t *end) noexcept:
    """Where ASCII ends that is written as it is."""
    cdef uint64_t word, quote, slash
    cdef uint64_t ones = 0x0101010101010101
    cdef uint64_t tops = 0x8080808080808080
    while end - at >= 8:
        memcpy(&word, at, 8)
        quote = word ^ ones * 34
        slash = word ^ ones * 92
        if (word | (word - ones * 32) | (quote - ones) | (slash - ones)) & tops:
            break
        at += 8
    while at < end and 32 <= at[0] < 128 and at[0] != 34 and at[0] != 92:
        at += 1
    return at


cdef int put_text(Out *out, const uint8_t *at, int64_t size) except -1:
    """A string of JSON: escaped, and with a replacement character for what is no UTF-8."""
    cdef const uint8_t *end = at + size
    cdef const uint8_t *plain
    cdef int found
    need(out, size + 2)
    put_byte(out, 34)
    while at < end:
        plain = plain_end(at, end)
        put_bytes(out, at, plain - at)
        at = plain
        if at == end:
            break
        need(out, 6)
        if at[0] >= 128:
            found = character(at, end)
            if found > 0:
                put_known(out, at, found)
                at += found
            else:
                put_known(out, b"\xEF\xBF\xBD", 3)
                at -= found
            continue
        put_byte(out, 92)
        if at[0] == 34 or at[0] == 92:
            put_byte(out, at[0])
        elif at[0] == 8:
            put_byte(out, 98)
        elif at[0] == 9:
            put_byte(out, 116)
        elif at[0] == 10:
            put_byte(out, 110)
        elif at[0] == 12:
            put_byte(out, 102)
        elif at[0] == 13:
            put_byte(out, 114)
        else:
            put_known(out, b"u00", 3)
            put_byte(out, <uint8_t>HEX[at[0] >> 4])
            put_byte(out, <uint8_t>HEX[at[0] & 15])
        at += 1
    need(out, 1)
    put_byte(out, 34)
    return 0


cdef int put_utf8(Out *out, const uint8_t *at, int64_t size) except -1:
    """Text behind its length, with a replacement character for what is no UTF-8."""
    cdef const uint8_t *end = at + size
    cdef const uint8_t *good = at
    cdef int64_t start
    cdef int found = 1
    while good < end and found > 0:
        found = character(good, end)
        good += max(found, 0)
    need(out, 10)
    if good == end:
        put_varint(out, <uint64_t>size)
        return put_bytes(out, at, size)
    put_byte(out, 0)
    start = out.size
    while at < end:
        put_bytes(out, at, good - at)
        at = good
        if at < end:
            put_bytes(out, b"\xEF\xBF\xBD", 3)
            at -= character(at, end)
        good = at
        while good < end and character(good, end) > 0:
            good += character(good, end)
    return put_length(out, start)


cdef int put_base64(Out *out, const uint8_t *at, int64_t size) except -1:
    cdef uint32_t word
    need(out, (size + 2) // 3 * 4 + 2)
    put_byte(out, 34)
    while size > 0:
        word = <uint32_t>at[0] << 16
        if size > 1:
            word |= <uint32_t>at[1] << 8
        if size > 2:
            word |= at[2]
        put_byte(out, <uint8_t>SIX_BITS[word >> 18])
        put_byte(out, <uint8_t>SIX_BITS[word >> 12 & 63])
        put_byte(out, <uint8_t>SIX_BITS[word >> 6 & 63] if size > 1 else 61)
        put_byte(out, <uint8_t>SIX_BITS[word & 63] if size > 2 else 61)
        at += 3
        size -= 3
    put_byte(out, 34)
    return 0


# --- times ------------------------------------------------------------------------------------------------------------

cdef inline int64_t floor_div(int64_t value, int64_t by) noexcept:
    cdef int64_t found = value // by
    return found - 1 if value % by < 0 else found


cdef inline int64_t floor_mod(int64_t value, int64_t by) noexcept:
    """What `floor_div` leaves; multiplied again, the floor may be below the smallest integer."""
    cdef int64_t found = value % by
    return found + by if found < 0 else found


cdef void put_date(Out *out, int64_t days) noexcept:
    """What ``java_texts.date_as_text`` says: a year of 400 has 146097 days, and begins in March here."""
    cdef int64_t since = days + 719_468
    cdef int64_t cycle = floor_div(since, 146_097)
    cdef int64_t of_cycle = since - cycle * 146_097
    cdef int64_t year = (of_cycle - of_cycle // 1460 + of_cycle // 36_524 - of_cycle // 146_096) // 365
    cdef int64_t of_year = of_cycle - (365 * year + year // 4 - year // 100)
    cdef int64_t month = (5 * of_year + 2) // 153
    cdef int64_t day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += cycle * 400 + (1 if month <= 2 else 0)
    if year < 0:
        put_byte(out, 45)
        year = -year
    elif year > 9999:
        put_byte(out, 43)
    if year > 9999:
        put_digits(out, <uint64_t>year)
    else:
        put_padded(out, year, 4)
    put_byte(out, 45)
    put_padded(out, month, 2)
    put_byte(out, 45)
    put_padded(out, day, 2)


cdef void put_clock(Out *out, int64_t second) noexcept:
    put_padded(out, second // 3600, 2)
    put_byte(out, 58)
    put_padded(out, second // 60 % 60, 2)
    put_byte(out, 58)
    put_padded(out, second % 60, 2)


cdef void put_local(Out *out, int64_t seconds, int64_t micros) noexcept:
    cdef int64_t days = floor_div(seconds, DAY_S)
    put_date(out, days)
    put_byte(out, 84)
    put_clock(out, seconds - days * DAY_S)
    put_byte(out, 46)
    put_padded(out, micros // 1000, 3)


cdef int put_time(Out *out, int64_t nanos) except -1:
    cdef int64_t second = floor_mod(floor_div(nanos, 1_000_000_000), DAY_S)
    cdef int64_t rest = floor_mod(nanos, 1_000_000_000)
    need(out, SHORT_TEXT)
    put_byte(out, 34)
    put_clock(out, second)
    if rest:
        put_byte(out, 46)
        put_padded(out, rest, 9)
        while out.data[out.size - 1] == 48:
            out.size -= 1
    put_byte(out, 34)
    return 0


# --- decimals ---------------------------------------------------------------------------------------------------------

cdef int put_decimal(Out *out, int128 value, const Node *node) except -1:
    """Big-endian bytes, behind their number or as many as there have to be; returns a problem, or 0."""
    cdef uint8_t data[16]
    cdef int i
    cdef int64_t first = 0
    cdef uint8_t sign = 0xFF if value < 0 else 0
    cdef int128 limit
    limit = POWERS[node.a - node.b] if node.a >= node.b else 1
    if value >= limit or value <= -limit:
        return DIGITS
    value *= POWERS[node.b]
    for i in range(15, -1, -1):
        data[i] = <uint8_t>(<uint64_t>value & 0xFF)
        value >>= 8
    if node.c:
        need(out, node.c)
        first = 16 - node.c
        while first < 0:
            put_byte(out, sign)
            first += 1
        put_known(out, data + first, 16 - first)
        return 0
    while first < 15 and data[first] == sign and (data[first + 1] ^ sign) < 0x80:
        first += 1
    need(out, 17)
    put_zigzag(out, 16 - first)
    put_known(out, data + first, 16 - first)
    return 0


# --- plans ------------------------------------------------------------------------------------------------------------

cdef struct Day:
    int64_t first
    int64_t end
    int64_t offset


cdef inline bint is_null(const Node *node, int64_t place) noexcept:
    place += node.offset
    return node.all_null or (node.bits != NULL and not node.bits[place >> 3] >> (place & 7) & 1)


cdef inline int32_t end_at(const Node *node, int64_t place) noexcept:
    cdef int32_t value
    memcpy(&value, node.fixed + 4 * (node.offset + place), 4)
    return value


cdef inline int64_t integer_at(const Node *node, int64_t place, int64_t width) noexcept:
    cdef int64_t value = 0
    cdef int32_t four
    cdef int16_t two
    place += node.offset
    if width == 8:
        memcpy(&value, node.fixed + 8 * place, 8)
    elif width == 4:
        memcpy(&four, node.fixed + 4 * place, 4)
        value = four
    elif width == 2:
        memcpy(&two, node.fixed + 2 * place, 2)
        value = two
    else:
        value = <int8_t>node.fixed[place]
    return value


cdef inline int128 decimal_at(const Node *node, int64_t place) noexcept:
    cdef int128 value
    memcpy(&value, node.fixed + 16 * (node.offset + place), 16)
    return value


cdef inline float float_at(const Node *node, int64_t place) noexcept:
    cdef float value
    memcpy(&value, node.fixed + 4 * (node.offset + place), 4)
    return value


cdef inline double double_at(const Node *node, int64_t place) noexcept:
    cdef double value
    memcpy(&value, node.fixed + 8 * (node.offset + place), 8)
    return value


cdef class _Memory:
    """Memory that an array has taken over."""

    cdef uint8_t *data

    def __dealloc__(self):
        free(self.data)


cdef object buffer_of(uint8_t *data, int64_t size):
    cdef _Memory memory = _Memory()
    memory.data = data
    return pa.foreign_buffer(<size_t>data, size, memory)


cdef size_t address_of(buffer) except? 0:
    cdef uint64_t address = 0 if buffer is None else buffer.address
    return <size_t>address


cdef void *zeroed(size_t size) except NULL:
    cdef void *found = calloc(max(size, <size_t>1), 1)
    if found == NULL:
        raise MemoryError
    return found


cdef const uint8_t *start_of(bytes data) except NULL:
    cdef char *start
    cdef Py_ssize_t size
    PyBytes_AsStringAndSize(data, &start, &size)
    return <const uint8_t *>start


@cython.final
cdef class ColumnEncoder:
    cdef object plan  # holds the bytes that nodes point to
    cdef object zone
    cdef Node *nodes
    cdef int32_t count
    cdef int32_t *links
    cdef const uint8_t **symbols
    cdef int64_t *symbol_sizes
    cdef Day *days
    cdef Out out
    cdef int64_t expected  # bytes of a row
    cdef int failed_step
    cdef int64_t failed_place

    def __cinit__(self, plan):
        cdef int32_t i, links = 0
        cdef int64_t symbols = 0
        cdef Node *node
        self.plan = plan
        self.zone = zone_of(plan.zone) or UTC
        self.count = len(plan.steps)
        self.nodes = <Node *>zeroed(self.count * sizeof(Node))
        self.links = <int32_t *>zeroed(sum(len(step.children) for step in plan.steps) * 4)
        total = sum(len(step.symbols) for step in plan.steps)
        self.symbols = <const uint8_t **>zeroed(total * sizeof(uint8_t *))
        self.symbol_sizes = <int64_t *>zeroed(total * 8)
        self.days = <Day *>zeroed(DAYS_KEPT * sizeof(Day))
        for i in range(DAYS_KEPT):
            self.days[i].first = self.days[i].end = NO_DAY
        for i, step in enumerate(plan.steps):
            node = self.nodes + i
            node.do, node.a, node.b, node.c, node.implicit = step.do, step.a, step.b, step.c, step.implicit
            node.before, node.before_size = start_of(step.before), len(step.before)
            node.has_null = step.null is not None
            if node.has_null:
                node.null, node.null_size = start_of(step.null), len(step.null)
            node.children, node.child_count = self.links + links, len(step.children)
            for child in step.children:
                self.links[links] = child
                links += 1
            node.symbols, node.symbol_sizes = self.symbols + symbols, self.symbol_sizes + symbols
            node.symbol_count = len(step.symbols)
            for symbol in step.symbols:
                self.symbols[symbols], self.symbol_sizes[symbols] = start_of(symbol), len(symbol)
                symbols += 1

    def __dealloc__(self):
        free(self.nodes)
        free(self.links)
        free(self.symbols)
        free(self.symbol_sizes)
        free(self.days)
        free(self.out.data)

    def encode(self, list arrays not None, int64_t rows, bytes prefix not None):
        """What ``_write_py.ColumnEncoder.encode`` says."""
        cdef int64_t row
        cdef int problem
        cdef int64_t prefix_size = len(prefix)
        cdef Node *first = self.nodes
        held = self._hold(arrays)
        cdef int32_t *ends = <int32_t *>zeroed(<size_t>(4 * (rows + 1)))
        ends_buffer = buffer_of(<uint8_t *>ends, 4 * (rows + 1))
        cdef uint8_t *bits = <uint8_t *>zeroed(<size_t>((rows + 7) // 8))
        bits_buffer = buffer_of(bits, (rows + 7) // 8)
        free(self.out.data)
        memset(&self.out, 0, sizeof(Out))
        grow(&self.out, min(self.expected * rows, <int64_t>1 << 26))
        for row in range(rows):
            if not is_null(first, row):
                put_bytes(&self.out, start_of(prefix), prefix_size)
                put_bytes(&self.out, first.before, first.before_size)
                problem = self.put(0, row)
                if not problem and self.out.size > MOST_BYTES:
                    problem, self.failed_step, self.failed_place = LARGE, 0, row
                if problem:
                    return None, write_plan.Unfit(row, self.failed_step, self.failed_place, problem)
                bits[row >> 3] |= <uint8_t>(1 << (row & 7))
            ends[row + 1] = <int32_t>self.out.size
        if rows:
            self.expected = self.out.size // rows + 1
        data_buffer = buffer_of(self.out.data, self.out.size)
        memset(&self.out, 0, sizeof(Out))
        del held
        return pa.Array.from_buffers(pa.binary(), rows, [bits_buffer, ends_buffer, data_buffer]), None

    cdef object _hold(self, list arrays):
        """Point the nodes to the arrays; returns what keeps their memory."""
        cdef int32_t i
        cdef Node *node
        held = []
        if len(arrays) != self.count:
            raise ValueError("these are not the plan's arrays")
        for i in range(self.count):
            node = self.nodes + i
            node.all_null = False
            node.bits = node.fixed = node.data = NULL
            array = arrays[i]
            if array is None:
                if node.do != DO_CONSTANT:
                    raise ValueError("a step has no array")
                continue
            if node.do == DO_NULL:
                node.all_null = True
                continue
            buffers = array.buffers()
            held.append(buffers)
            node.offset = array.offset
            node.bits = <const uint8_t *>address_of(buffers[0])
            if len(buffers) > 1:
                node.fixed = <const uint8_t *>address_of(buffers[1])
            if len(buffers) > 2 and (node.do == DO_TEXT or node.do == DO_BASE64 or node.do >= DO_BYTES):
                node.data = <const uint8_t *>address_of(buffers[2])
        return held

    cdef inline int item(self, int number, int64_t place) except -1:
        """A value with what is before it, or what stands for null; returns a problem, or 0."""
        cdef Node *node = self.nodes + number
        cdef int64_t start
        cdef int problem
        if node.do == DO_CONSTANT:
            put_bytes(&self.out, node.before, node.before_size)
            return 0
        if is_null(node, place):
            if not node.has_null:
                self.failed_step, self.failed_place = number, place
                return NULL_VALUE
            put_bytes(&self.out, node.null, node.null_size)
            return 0
        start = self.out.size
        put_bytes(&self.out, node.before, node.before_size)
        problem = self.put(number, place)
        if node.implicit and not problem and is_zero(&self.out, start + node.before_size):
            self.out.size = start
        return problem

    cdef int fail(self, int problem, int number, int64_t place) noexcept:
        self.failed_step, self.failed_place = number, place
        return problem

    cdef int put(self, int number, int64_t place) except -1:
        """A value that is not null, without what is before it; returns a problem, or 0."""
        cdef Node *node = self.nodes + number
        cdef Out *out = &self.out
        cdef int do = node.do
        cdef int problem = 0
        cdef int32_t i
        cdef int64_t at, end, value
        cdef double real
        cdef float single
        if out.size > MOST_BYTES:
            return self.fail(LARGE, 0, place)
        if do == DO_INTEGER:
            value = integer_at(node, place, node.a)
            if node.b and not INT32_MIN <= value <= INT32_MAX:
                return self.fail(RANGE, number, place)
            need(out, 10)
            put_zigzag(out, value)
        elif do == DO_BYTES or do == DO_FIXED:
            at = end_at(node, place)
            value = end_at(node, place + 1) - at
            if do == DO_FIXED:
                if value != node.a:
                    return self.fail(SIZE, number, place)
            else:
                need(out, 10)
                put_zigzag(out, value)
            put_bytes(out, node.data + at, value)
        elif do == DO_RECORD:
            for i in range(node.child_count):
                problem = self.item(node.children[i], place)
                if problem:
                    return problem
        elif do == DO_DOUBLE:
            real = double_at(node, place)
            put_bytes(out, <const uint8_t *>&real, 8)
        elif do == DO_FLOAT:
            single = float_at(node, place)
            put_bytes(out, <const uint8_t *>&single, 4)
        elif do == DO_FLOAT_AS_DOUBLE:
            real = float_at(node, place)
            put_bytes(out, <const uint8_t *>&real, 8)
        elif do == DO_BOOLEAN:
            need(out, 1)
            put_byte(out, self.is_true(node, place))
        elif do == DO_THOUSANDTH:
            need(out, 10)
            put_zigzag(out, floor_div(integer_at(node, place, 8), 1000))
        elif do == DO_WHOLE:
            return self.whole(node, number, place)
        elif do == DO_BLOB:
            at = end_at(node, place)
            value = end_at(node, place + 1) - at
            need(out, 10)
            put_varint(out, <uint64_t>value)
            put_bytes(out, node.data + at, value)
        elif do == DO_UTF8:
            at = end_at(node, place)
            put_utf8(out, node.data + at, end_at(node, place + 1) - at)
        elif do == DO_MESSAGE or do == DO_WRAPPER:
            return self.message(node, place)
        elif do == DO_SECONDS:
            value = integer_at(node, place, 8)
            put_form(out, value // MICROS if node.b else floor_div(value, MICROS), node.c)
        elif do == DO_NANOS:
            value = integer_at(node, place, 8)
            put_form(out, 1000 * (value % MICROS + (MICROS if value % MICROS < 0 and not node.b else 0)), node.c)
        elif do == DO_REPEATED or do == DO_PACKED:
            return self.repeated(node, place, do == DO_PACKED)
        elif do == DO_ENTRIES:
            return self.entries(node, place)
        elif do == DO_SYMBOL:
            at = end_at(node, place)
            value = end_at(node, place + 1) - at
            for i in range(0, node.symbol_count, 2):
                if node.symbol_sizes[i] == value and not memcmp(node.symbols[i], node.data + at, <size_t>value):
                    put_bytes(out, node.symbols[i + 1], node.symbol_sizes[i + 1])
                    return 0
            return self.fail(SYMBOL, number, place)
        elif do == DO_NUMBERED:
            value = integer_at(node, place, node.a)
            for i in range(node.symbol_count):
                if not memcmp(node.symbols[i], &value, 8):
                    return put_form(out, value, VARINT)
            return self.fail(SYMBOL, number, place)
        elif do == DO_OBJECT:
            return self.object_(node, place)
        elif do == DO_NUMBER:
            need(out, SHORT_TEXT)
            if node.b:
                put_byte(out, 34)
            put_integer(out, integer_at(node, place, node.a))
            if node.b:
                put_byte(out, 34)
        elif do == DO_TEXT:
            at = end_at(node, place)
            put_text(out, node.data + at, end_at(node, place + 1) - at)
        elif do == DO_DOUBLE_TEXT:
            put_floating(out, double_at(node, place), False, node.b != 0)
        elif do == DO_FLOAT_TEXT:
            put_floating(out, float_at(node, place), True, node.b != 0)
        elif do == DO_TIMESTAMP:
            self.timestamp(integer_at(node, place, 8))
        elif do == DO_LOCAL_TIMESTAMP:
            need(out, SHORT_TEXT)
            value = integer_at(node, place, 8)
            put_byte(out, 34)
            put_local(out, floor_div(value, MICROS), floor_mod(value, MICROS))
            put_byte(out, 34)
        elif do == DO_DATE:
            need(out, SHORT_TEXT)
            put_byte(out, 34)
            put_date(out, integer_at(node, place, 4))
            put_byte(out, 34)
        elif do == DO_TRUE_OR_FALSE:
            need(out, 7)
            if node.b:
                put_byte(out, 34)
            if self.is_true(node, place):
                put_known(out, b"true", 4)
            else:
                put_known(out, b"false", 5)
            if node.b:
                put_byte(out, 34)
        elif do == DO_DECIMAL_TEXT:
            if node.b:
                put_bytes(out, b'"', 1)
            put_decimal_text(out, decimal_at(node, place), node.a)
            if node.b:
                put_bytes(out, b'"', 1)
        elif do == DO_DECIMAL or do == DO_DECIMAL_FIXED:
            problem = put_decimal(out, decimal_at(node, place), node)
            if problem:
                return self.fail(problem, number, place)
        elif do == DO_ENUM:
            at = end_at(node, place)
            value = end_at(node, place + 1) - at
            for i in range(node.symbol_count):
                if node.symbol_sizes[i] == value and not memcmp(node.symbols[i], node.data + at, <size_t>value):
                    need(out, 10)
                    put_zigzag(out, i)
                    return 0
            return self.fail(SYMBOL, number, place)
        elif do == DO_BASE64:
            at = end_at(node, place)
            put_base64(out, node.data + at, end_at(node, place + 1) - at)
        elif do == DO_TIME:
            put_time(out, integer_at(node, place, 8))
        elif do == DO_ARRAY or do == DO_DICT:
            return self.items(node, place, do == DO_DICT)
        elif do == DO_LIST or do == DO_MAP:
            return self.blocks(node, place)
        elif do == DO_UNION:
            return self.union_(node, number, place)
        return 0

    cdef inline bint is_true(self, const Node *node, int64_t place) noexcept:
        place += node.offset
        return node.fixed[place >> 3] >> (place & 7) & 1

    cdef int whole(self, Node *node, int number, int64_t place) except -1:
        cdef int128 value
        if node.a == 16:
            value = decimal_at(node, place)
        else:
            value = integer_at(node, place, node.a)
        if node.b and not LEAST[node.b] <= value < ENDS[node.b]:
            return self.fail(RANGE, number, place)
        return put_form(&self.out, <int64_t>value, node.c)

    cdef int message(self, Node *node, int64_t place) except -1:
        cdef Out *out = &self.out
        cdef int64_t start
        cdef int32_t i
        cdef int problem
        need(out, 1)
        if not node.a:
            put_byte(out, 0)
        start = out.size
        for i in range(node.child_count):
            problem = self.item(node.children[i], place)
            if problem:
                return problem
        return put_form(out, node.a, VARINT) if node.a else put_length(out, start)

    cdef int repeated(self, Node *node, int64_t place, bint packed) except -1:
        cdef Out *out = &self.out
        cdef int64_t start, at
        cdef int problem
        if packed:
            need(out, 1)
            put_byte(out, 0)
        start = out.size
        for at in range(end_at(node, place), end_at(node, place + 1)):
            problem = self.item(node.children[0], at)
            if problem:
                return problem
        return put_length(out, start) if packed else 0

    cdef int entries(self, Node *node, int64_t place) except -1:
        cdef Out *out = &self.out
        cdef int64_t start, at
        cdef int32_t i
        cdef int problem
        for at in range(end_at(node, place), end_at(node, place + 1)):
            put_form(out, node.a, VARINT)
            need(out, 1)
            put_byte(out, 0)
            start = out.size
            for i in range(2):
                problem = self.item(node.children[i], at)
                if problem:
                    return problem
            put_length(out, start)
        return 0

    cdef int object_(self, Node *node, int64_t place) except -1:
        cdef Out *out = &self.out
        cdef Node *child
        cdef int32_t i
        cdef int first = 1  # the first name has no comma before it
        cdef int problem
        need(out, 1)
        put_byte(out, 123)
        for i in range(node.child_count):
            child = self.nodes + node.children[i]
            if not is_null(child, place):
                put_bytes(out, child.before + first, child.before_size - first)
                first = 0
                problem = self.put(node.children[i], place)
                if problem:
                    return problem
        need(out, 1)
        put_byte(out, 125)
        return 0

    cdef int items(self, Node *node, int64_t place, bint named) except -1:
        cdef Out *out = &self.out
        cdef int64_t begin = end_at(node, place)
        cdef int64_t at
        cdef int problem
        need(out, 1)
        put_byte(out, 123 if named else 91)
        for at in range(begin, end_at(node, place + 1)):
            if at > begin:
                put_bytes(out, b",", 1)
            problem = self.item(node.children[0], at)
            if not problem and named:
                put_bytes(out, b":", 1)
                problem = self.item(node.children[1], at)
            if problem:
                return problem
        need(out, 1)
        put_byte(out, 125 if named else 93)
        return 0

    cdef int blocks(self, Node *node, int64_t place) except -1:
        cdef Out *out = &self.out
        cdef int64_t begin = end_at(node, place)
        cdef int64_t end = end_at(node, place + 1)
        cdef int64_t at
        cdef int32_t i
        cdef int problem
        if end > begin:
            need(out, 10)
            put_zigzag(out, end - begin)
        for at in range(begin, end):
            for i in range(node.child_count):
                problem = self.item(node.children[i], at)
                if problem:
                    return problem
        put_bytes(out, b"\0", 1)
        return 0

    cdef int union_(self, Node *node, int number, int64_t place) except -1:
        cdef int32_t i
        cdef int32_t found = -1
        for i in range(node.child_count):
            if not is_null(self.nodes + node.children[i], place):
                if found >= 0:
                    return self.fail(BRANCHES, number, place)
                found = node.children[i]
        if found >= 0:
            return self.item(found, place)
        if not node.has_null:
            return self.fail(NO_BRANCH, number, place)
        put_bytes(&self.out, node.null, node.null_size)
        return 0

    cdef int timestamp(self, int64_t micros) except -1:
        cdef int64_t second = floor_div(micros, MICROS)
        cdef int64_t day = floor_div(second, DAY_S)
        cdef Day *kept = self.days + (day & (DAYS_KEPT - 1))
        cdef int64_t ahead
        cdef Out *out = &self.out
        if not kept.first <= second < kept.end:
            kept.offset, kept.first, kept.end = java_texts.utc_offset(self.zone, second)
        need(out, SHORT_TEXT)
        put_byte(out, 34)
        put_local(out, second + kept.offset, floor_mod(micros, MICROS))
        if kept.offset == 0:
            put_byte(out, 90)
        else:
            put_byte(out, 45 if kept.offset < 0 else 43)
            ahead = -kept.offset if kept.offset < 0 else kept.offset
            put_padded(out, ahead // 3600, 2)
            put_byte(out, 58)
            put_padded(out, ahead // 60 % 60, 2)
            if ahead % 60:
                put_byte(out, 58)
                put_padded(out, ahead % 60, 2)
        put_byte(out, 34)
        return 0
