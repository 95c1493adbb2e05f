# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The quick twin of the JSON decoder: what is plain and certain, straight from bytes into columns.

A field whose value is of another type for certain, as a word where a number is wanted, is null here, and malformed. A
document with anything else, as an odd escape, a name that comes twice or bytes that are no UTF-8, is handed whole to
``_json_py``, which has the rules. Where both decode a document they have to agree.

Memory safety rests on three rules. 1. Bytes are read at a cursor only, after a comparison with its end. 2. Columns are
written behind a call that makes room. 3. A document that is given up leaves its columns as they were (truncate).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import pyarrow as pa

from pyspark.sql import types as spark_types

from spark_kafka_group.executor.values import _json_py, json_types
from spark_kafka_group.executor.values.value_contract import EXPANDED, LARGEST_BYTES, LARGEST_TIMES, NO_LIMIT, Malformed
from spark_kafka_group.executor.values.java_times import steady_offset, zone_of

cdef extern from "Python.h":
    double PyOS_string_to_double(const char *s, char **endptr, void *overflow_exception) except? -1.0

cdef extern from *:
    """
    typedef __int128 groupkafka_int128;
    typedef unsigned __int128 groupkafka_uint128;
    """
    ctypedef long long int128 "groupkafka_int128"
    ctypedef unsigned long long uint128 "groupkafka_uint128"
    int __builtin_clzll(unsigned long long value) noexcept

cdef enum:
    OK = 0
    GIVEN_UP = 1
    NO_MEMORY = 2
    TOO_LARGE = 3

    BOOLEAN = 1
    INT8 = 2
    INT16 = 3
    INT32 = 4
    INT64 = 5
    FLOAT32 = 6
    FLOAT64 = 7
    DECIMAL = 8
    STRING = 9
    BINARY = 10
    DATE = 11
    TIMESTAMP = 12
    LOCAL_TIMESTAMP = 13
    STRUCT = 14
    LIST = 15
    MAP = 16

    FRAME_SIZE = 5
    FIRST_ROWS = 64
    FIRST_CHARS = 256
    MOST_DEPTH = 900  # of what is skipped or copied: Jackson's limit is a little higher
    MOST_NAME = 16384
    MOST_NUMBER = 64
    LINEAR = 8  # fields that are compared one by one
    MOST_POWER = 64  # of ten, that a number is multiplied by without Python's help

KINDS = {
    spark_types.BooleanType: (BOOLEAN, 1),
    spark_types.ByteType: (INT8, 1),
    spark_types.ShortType: (INT16, 2),
    spark_types.IntegerType: (INT32, 4),
    spark_types.LongType: (INT64, 8),
    spark_types.FloatType: (FLOAT32, 4),
    spark_types.DoubleType: (FLOAT64, 8),
    spark_types.DecimalType: (DECIMAL, 16),
    spark_types.StringType: (STRING, 0),
    spark_types.BinaryType: (BINARY, 0),
    spark_types.DateType: (DATE, 4),
    spark_types.TimestampType: (TIMESTAMP, 8),
    spark_types.TimestampNTZType: (LOCAL_TIMESTAMP, 8),
    spark_types.StructType: (STRUCT, 0),
    spark_types.ArrayType: (LIST, 0),
    spark_types.MapType: (MAP, 0),
}

cdef int64_t NO_DAY = -1 << 62
cdef int64_t MOST_BYTES = LARGEST_BYTES
cdef int64_t MOST_TIMES = LARGEST_TIMES

cdef int128 POWERS[39]
cdef double EXACT_POWERS[23]
cdef uint64_t FIVES[2 * MOST_POWER + 1][2]
cdef int8_t SIX_BITS[256]


cdef void _fill_tables() noexcept:
    cdef int at
    POWERS[0] = 1
    for at in range(1, 39):
        POWERS[at] = POWERS[at - 1] * 10
    EXACT_POWERS[0] = 1.0
    for at in range(1, 23):
        EXACT_POWERS[at] = EXACT_POWERS[at - 1] * 10.0
    memset(SIX_BITS, -1, 256)
    for at in range(26):
        SIX_BITS[65 + at] = at
        SIX_BITS[97 + at] = 26 + at
    for at in range(10):
        SIX_BITS[48 + at] = 52 + at
    SIX_BITS[43] = 62
    SIX_BITS[47] = 63


def _first_bits_of_powers():
    """The first 128 bits of powers of five; of 1/5 to 1/5**27 they are rounded up, so that halves are seen."""
    for power in range(-MOST_POWER, MOST_POWER + 1):
        five = 5 ** abs(power)
        bits = five << 128 if power >= 0 else (1 << 256 + five.bit_length()) // five
        bits = (bits >> bits.bit_length() - 128) + (-27 <= power < 0)
        FIVES[power + MOST_POWER][0] = bits >> 64
        FIVES[power + MOST_POWER][1] = bits & (1 << 64) - 1


_fill_tables()
_first_bits_of_powers()


# --- columns ----------------------------------------------------------------------------------------------------------

cdef struct Node:
    Py_ssize_t *allocated  # bytes of all columns
    int kind
    int width  # bytes of a value; 0 where there are offsets or fields
    int precision
    int scale
    int32_t first  # the number of the first child; others follow it
    int32_t children
    Py_ssize_t count
    Py_ssize_t room
    uint8_t *valid  # a byte a row
    uint8_t *data
    int32_t *offsets
    uint8_t *chars
    Py_ssize_t chars_size
    Py_ssize_t chars_room
    const uint8_t *name  # of a field; NULL for one that no document has
    Py_ssize_t name_size
    uint32_t *table  # of a struct's names: 1 + the field's place, at the name's hash
    uint32_t mask


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end


cdef struct Number:
    int negative
    int is_float
    int digits  # significant ones
    int exponent  # of ten, for all digits as an integer
    uint64_t low  # the digits as an integer, if there are at most 19
    const uint8_t *start
    const uint8_t *end


cdef inline int make_room(Node *node) noexcept:
    """For one row more."""
    cdef Py_ssize_t room
    cdef void *grown
    if node.count < node.room:
        return OK
    if node.count >= INT32_MAX // 2:
        return NO_MEMORY
    room = node.room * 2 if node.room else FIRST_ROWS
    grown = realloc(node.valid, room)
    if grown == NULL:
        return NO_MEMORY
    node.valid = <uint8_t *> grown
    if node.width:
        grown = realloc(node.data, room * node.width)
        if grown == NULL:
            return NO_MEMORY
        node.data = <uint8_t *> grown
    if node.kind in (STRING, BINARY, LIST, MAP):
        grown = realloc(node.offsets, (room + 1) * sizeof(int32_t))
        if grown == NULL:
            return NO_MEMORY
        node.offsets = <int32_t *> grown
        if not node.room:
            node.offsets[0] = 0
    node.allocated[0] += (room - node.room) * (1 + (node.width or 4))
    node.room = room
    return OK


cdef inline int make_chars(Node *node, Py_ssize_t size) noexcept:
    """For `size` bytes more; there is memory afterwards, also for none."""
    cdef Py_ssize_t room = node.chars_room
    cdef void *grown
    if size <= room - node.chars_size and room:
        return OK
    if size > INT32_MAX - node.chars_size:
        return NO_MEMORY
    if not room:
        room = FIRST_CHARS
    while room - node.chars_size < size:
        room *= 2
    grown = realloc(node.chars, room)
    if grown == NULL:
        return NO_MEMORY
    node.chars = <uint8_t *> grown
    node.allocated[0] += room - node.chars_room
    node.chars_room = room
    return OK


cdef int add_null(Node *nodes, Node *node) noexcept:
    cdef int32_t at
    cdef int failed = make_room(node)
    if failed:
        return failed
    node.valid[node.count] = 0
    if node.width:
        memset(node.data + node.count * node.width, 0, node.width)
    elif node.kind == STRUCT:
        for at in range(node.first, node.first + node.children):
            failed = add_null(nodes, &nodes[at])
            if failed:
                return failed
    else:
        node.offsets[node.count + 1] = node.offsets[node.count]
    node.count += 1
    return OK


cdef void truncate(Node *nodes, Node *node, Py_ssize_t count) noexcept:
    """Back to `count` rows; a column with fewer stays."""
    cdef int32_t at
    if node.count < count or not node.room:
        return
    node.count = count
    if node.kind == STRUCT:
        for at in range(node.first, node.first + node.children):
            truncate(nodes, &nodes[at], count)
    elif node.kind in (STRING, BINARY):
        node.chars_size = node.offsets[count]
    elif node.kind in (LIST, MAP):
        for at in range(node.first, node.first + node.children):
            truncate(nodes, &nodes[at], node.offsets[count])


cdef inline void end_chars(Node *node) noexcept:
    """The bytes behind the last row's are one more row; there is room for it."""
    node.valid[node.count] = 1
    node.offsets[node.count + 1] = <int32_t> node.chars_size
    node.count += 1


# --- JSON -------------------------------------------------------------------------------------------------------------


cdef inline void skip_space(Cursor *cursor) noexcept:
    while cursor.at < cursor.end and (
        cursor.at[0] == 0x20 or cursor.at[0] == 0x0A or cursor.at[0] == 0x0D or cursor.at[0] == 0x09
    ):
        cursor.at += 1


cdef inline int peek(Cursor *cursor) noexcept:
    """The next byte that is no space, or -1."""
    if cursor.at < cursor.end and cursor.at[0] > 0x20:
        return cursor.at[0]
    skip_space(cursor)
    return cursor.at[0] if cursor.at < cursor.end else -1


cdef inline int is_behind_value(Cursor *cursor) noexcept:
    """Whether the next byte ends a word for certain."""
    cdef uint8_t byte
    if cursor.at >= cursor.end:
        return 0
    byte = cursor.at[0]
    return byte == 0x2C or byte == 0x7D or byte == 0x5D or byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09


cdef inline const uint8_t *plain_end(const uint8_t *at, const uint8_t *end) noexcept:
    """The first byte that is a quote, a backslash, a control character or not ASCII."""
    cdef uint64_t word, quotes, slashes
    while end - at >= 8:
        memcpy(&word, at, 8)
        quotes = word ^ <uint64_t> 0x2222222222222222
        slashes = word ^ <uint64_t> 0x5C5C5C5C5C5C5C5C
        if (
            (
                word
                | (word - <uint64_t> 0x2020202020202020)
                | (quotes - <uint64_t> 0x0101010101010101)
                | (slashes - <uint64_t> 0x0101010101010101)
            )
            & <uint64_t> 0x8080808080808080
        ):
            break
        at += 8
    while at < end and at[0] != 0x22 and at[0] != 0x5C and 0x20 <= at[0] < 0x80:
        at += 1
    return at


cdef inline int utf8_size(const uint8_t *at, const uint8_t *end) noexcept:
    """Bytes of the character of several bytes that is here; 0 if there is none."""
    cdef uint8_t first = at[0]
    cdef Py_ssize_t left = end - at
    if first < 0xC2 or first > 0xF4 or left < 2 or at[1] & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if left < 3 or at[2] & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        if (first == 0xE0 and at[1] < 0xA0) or (first == 0xED and at[1] >= 0xA0):
            return 0
        return 3
    if left < 4 or at[3] & 0xC0 != 0x80:
        return 0
    if (first == 0xF0 and at[1] < 0x90) or (first == 0xF4 and at[1] >= 0x90):
        return 0
    return 4


cdef inline int hex_digit(uint8_t byte) noexcept:
    if 0x30 <= byte <= 0x39:
        return byte - 0x30
    byte |= 0x20
    if 0x61 <= byte <= 0x66:
        return byte - 0x61 + 10
    return -1


cdef int four_digits(Cursor *cursor) noexcept:
    """Of an escape; -1 if they are not there."""
    cdef int value = 0, digit, at
    if cursor.end - cursor.at < 4:
        return -1
    for at in range(4):
        digit = hex_digit(cursor.at[at])
        if digit < 0:
            return -1
        value = value << 4 | digit
    cursor.at += 4
    return value


cdef int add_escaped(Node *node, Cursor *cursor) noexcept:
    """The character of an escape, behind its backslash, as UTF-8; single surrogates are given up."""
    cdef int code, low
    cdef uint8_t byte
    cdef uint8_t *to
    if cursor.at >= cursor.end:
        return GIVEN_UP
    byte = cursor.at[0]
    cursor.at += 1
    if make_chars(node, 4):
        return NO_MEMORY
    to = node.chars + node.chars_size
    if byte == 0x75:
        code = four_digits(cursor)
        if code < 0:
            return GIVEN_UP
        if code < 0x80:
            to[0] = <uint8_t> code
            node.chars_size += 1
            return OK
        if code < 0x800:
            to[0] = <uint8_t> (0xC0 | code >> 6)
            to[1] = <uint8_t> (0x80 | (code & 0x3F))
            node.chars_size += 2
            return OK
        if code < 0xD800 or code > 0xDFFF:
            to[0] = <uint8_t> (0xE0 | code >> 12)
            to[1] = <uint8_t> (0x80 | (code >> 6 & 0x3F))
            to[2] = <uint8_t> (0x80 | (code & 0x3F))
            node.chars_size += 3
            return OK
        if code > 0xDBFF or cursor.end - cursor.at < 6 or cursor.at[0] != 0x5C or cursor.at[1] != 0x75:
            return GIVEN_UP
        cursor.at += 2
        low = four_digits(cursor)
        if low < 0xDC00 or low > 0xDFFF:
            return GIVEN_UP
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        to[0] = <uint8_t> (0xF0 | code >> 18)
        to[1] = <uint8_t> (0x80 | (code >> 12 & 0x3F))
        to[2] = <uint8_t> (0x80 | (code >> 6 & 0x3F))
        to[3] = <uint8_t> (0x80 | (code & 0x3F))
        node.chars_size += 4
        return OK
    if byte == 0x6E:
        byte = 0x0A
    elif byte == 0x74:
        byte = 0x09
    elif byte == 0x72:
        byte = 0x0D
    elif byte == 0x62:
        byte = 0x08
    elif byte == 0x66:
        byte = 0x0C
    elif byte != 0x22 and byte != 0x5C and byte != 0x2F:
        return GIVEN_UP
    to[0] = byte
    node.chars_size += 1
    return OK


cdef int add_text(Node *node, Cursor *cursor) noexcept:
    """A string's characters, behind its opening quote, to the chars of `node`; the closing quote is read."""
    cdef const uint8_t *start
    cdef int size, failed
    cdef uint8_t byte
    while True:
        start = cursor.at
        cursor.at = plain_end(start, cursor.end)
        while cursor.at < cursor.end and cursor.at[0] >= 0x80:
            size = utf8_size(cursor.at, cursor.end)
            if not size:
                return GIVEN_UP
            cursor.at = plain_end(cursor.at + size, cursor.end)
        if cursor.at >= cursor.end:
            return GIVEN_UP
        if make_chars(node, cursor.at - start):
            return NO_MEMORY
        memcpy(node.chars + node.chars_size, start, cursor.at - start)
        node.chars_size += cursor.at - start
        byte = cursor.at[0]
        cursor.at += 1
        if byte == 0x22:
            return OK
        if byte != 0x5C:
            return GIVEN_UP
        failed = add_escaped(node, cursor)
        if failed:
            return failed


cdef inline int plain_text(Cursor *cursor, Cursor *text) noexcept:
    """What is between a string's quotes, if that is ASCII without escapes; the closing quote is read."""
    text.at = cursor.at
    text.end = plain_end(cursor.at, cursor.end)
    if text.end >= cursor.end or text.end[0] != 0x22:
        return GIVEN_UP
    cursor.at = text.end + 1
    return OK


cdef int skip_text(Cursor *cursor) noexcept:
    """A string that nobody wants: escapes are checked, bytes that are no UTF-8 do not matter."""
    cdef uint8_t byte
    cdef int digits
    while True:
        cursor.at = plain_end(cursor.at, cursor.end)
        if cursor.at >= cursor.end:
            return GIVEN_UP
        byte = cursor.at[0]
        cursor.at += 1
        if byte == 0x22:
            return OK
        if byte >= 0x80:
            continue
        if byte != 0x5C or cursor.at >= cursor.end:
            return GIVEN_UP
        byte = cursor.at[0]
        cursor.at += 1
        if byte == 0x75:
            digits = four_digits(cursor)
            if digits < 0:
                return GIVEN_UP
        elif not (byte == 0x22 or byte == 0x5C or byte == 0x2F or byte == 0x62 or byte == 0x66
                  or byte == 0x6E or byte == 0x72 or byte == 0x74):
            return GIVEN_UP


cdef int copy_text(Node *node, Cursor *cursor) noexcept:
    """A string within a value that is kept as text, behind its opening quote, as Jackson writes it."""
    cdef const uint8_t *start = cursor.at - 1
    cdef int size
    cdef uint8_t byte
    while True:
        cursor.at = plain_end(cursor.at, cursor.end)
        if cursor.at >= cursor.end:
            return GIVEN_UP
        byte = cursor.at[0]
        if byte == 0x22:
            cursor.at += 1
            break
        if byte >= 0x80:
            size = utf8_size(cursor.at, cursor.end)
            if size != 2 and size != 3:
                return GIVEN_UP
            cursor.at += size
            continue
        if byte != 0x5C or cursor.end - cursor.at < 2:
            return GIVEN_UP
        byte = cursor.at[1]
        if not (byte == 0x22 or byte == 0x5C or byte == 0x62 or byte == 0x66
                or byte == 0x6E or byte == 0x72 or byte == 0x74):
            return GIVEN_UP
        cursor.at += 2
    if make_chars(node, cursor.at - start):
        return NO_MEMORY
    memcpy(node.chars + node.chars_size, start, cursor.at - start)
    node.chars_size += cursor.at - start
    return OK


cdef inline int match_word(Cursor *cursor, const char *word, Py_ssize_t size) noexcept:
    if cursor.end - cursor.at <= size or memcmp(cursor.at, word, size):
        return GIVEN_UP
    cursor.at += size
    return OK if is_behind_value(cursor) else GIVEN_UP


cdef int read_number(Cursor *cursor, Number *number) noexcept:
    """A number by JSON's grammar. What follows it is looked at by others."""
    cdef const uint8_t *at = cursor.at
    cdef const uint8_t *end = cursor.end
    cdef uint64_t low = 0
    cdef int digits = 0, fraction = 0, exponent = 0, exponent_digits = 0, minus = 0
    number.start = at
    number.negative = at < end and at[0] == 0x2D
    number.is_float = 0
    at += number.negative
    if at >= end or at[0] < 0x30 or at[0] > 0x39:
        return GIVEN_UP
    if at[0] == 0x30:
        at += 1
        if at < end and 0x30 <= at[0] <= 0x39:
            return GIVEN_UP
    else:
        while at < end and 0x30 <= at[0] <= 0x39:
            if digits < 19:
                low = low * 10 + (at[0] - 0x30)
            digits += 1
            at += 1
            if digits > MOST_NUMBER:
                return GIVEN_UP
    if at < end and at[0] == 0x2E:
        number.is_float = 1
        at += 1
        if at >= end or at[0] < 0x30 or at[0] > 0x39:
            return GIVEN_UP
        while at < end and 0x30 <= at[0] <= 0x39:
            if digits < 19:
                low = low * 10 + (at[0] - 0x30)
            if digits or at[0] != 0x30:
                digits += 1
            fraction += 1
            at += 1
            if fraction > MOST_NUMBER:
                return GIVEN_UP
    if at < end and at[0] | 0x20 == 0x65:
        number.is_float = 1
        at += 1
        if at < end and (at[0] == 0x2D or at[0] == 0x2B):
            minus = at[0] == 0x2D
            at += 1
        while at < end and 0x30 <= at[0] <= 0x39:
            exponent = exponent * 10 + (at[0] - 0x30)
            exponent_digits += 1
            at += 1
            if exponent_digits > 4:
                return GIVEN_UP
        if not exponent_digits:
            return GIVEN_UP
    number.digits = digits
    number.exponent = (-exponent if minus else exponent) - fraction
    number.low = low
    number.end = at
    if at - number.start > MOST_NUMBER:
        return GIVEN_UP
    cursor.at = at
    return OK


cdef int shorten(Number *number) noexcept:
    """Ends the number where Java's text of the double does: that has the same few digits, and no zeros at the end."""
    cdef const uint8_t *start = number.start + number.negative
    cdef const uint8_t *point = start
    cdef Py_ssize_t at
    while point < number.end and point[0] != 0x2E:
        point += 1
    if number.digits > 15 or point - start > 7 or number.end - point < 2:
        return GIVEN_UP  # digits may be lost, or Java writes an exponent
    for at in range(1, number.end - point):
        if point[at] < 0x30 or point[at] > 0x39:
            return GIVEN_UP
    if number.digits and start[0] == 0x30 and number.end - point > 3:
        if point[1] == 0x30 and point[2] == 0x30 and point[3] == 0x30:
            return GIVEN_UP
    while number.end - point > 2 and (number.end - 1)[0] == 0x30:
        number.end -= 1
    return OK


cdef int walk(Node *node, Cursor *cursor, int depth) noexcept:
    """Past a value. Where `node` is one of strings, the value's text goes to it, without spaces."""
    cdef uint8_t open_[MOST_DEPTH]
    cdef int top = 0, failed, byte, is_name
    cdef Number number
    cdef const uint8_t *start
    cdef Py_ssize_t size
    while True:
        # a value begins here
        byte = peek(cursor)
        start = cursor.at
        if byte == 0x7B or byte == 0x5B:
            if depth + top >= MOST_DEPTH:
                return GIVEN_UP
            open_[top] = <uint8_t> byte
            top += 1
            cursor.at += 1
            if node != NULL:
                failed = add_byte(node, <uint8_t> byte)
                if failed:
                    return failed
            if peek(cursor) != byte + 2:
                if byte == 0x7B:
                    failed = walk_name(node, cursor)
                    if failed:
                        return failed
                continue
        elif byte == 0x22:
            cursor.at += 1
            failed = skip_text(cursor) if node == NULL else copy_text(node, cursor)
            if failed:
                return failed
        elif byte == 0x74:
            if match_word(cursor, b"true", 4):
                return GIVEN_UP
        elif byte == 0x66:
            if match_word(cursor, b"false", 5):
                return GIVEN_UP
        elif byte == 0x6E:
            if match_word(cursor, b"null", 4):
                return GIVEN_UP
        else:
            if read_number(cursor, &number):
                return GIVEN_UP
            if node != NULL:
                if number.is_float:
                    failed = shorten(&number)
                else:
                    failed = GIVEN_UP if number.negative and not number.digits else OK
                if failed:
                    return failed
        if node != NULL and byte != 0x22 and byte != 0x7B and byte != 0x5B:
            size = (cursor.at if byte == 0x74 or byte == 0x66 or byte == 0x6E else number.end) - start
            if make_chars(node, size):
                return NO_MEMORY
            memcpy(node.chars + node.chars_size, start, size)
            node.chars_size += size
        # and has ended
        while top:
            byte = peek(cursor)
            if byte != open_[top - 1] + 2:
                break
            cursor.at += 1
            top -= 1
            if node != NULL:
                failed = add_byte(node, <uint8_t> byte)
                if failed:
                    return failed
        if not top:
            return OK
        if byte != 0x2C:
            return GIVEN_UP
        cursor.at += 1
        if node != NULL:
            failed = add_byte(node, 0x2C)
            if failed:
                return failed
        if open_[top - 1] == 0x7B:
            failed = walk_name(node, cursor)
            if failed:
                return failed


cdef inline int add_byte(Node *node, uint8_t byte) noexcept:
    if make_chars(node, 1):
        return NO_MEMORY
    node.chars[node.chars_size] = byte
    node.chars_size += 1
    return OK


cdef inline bint has_digit(Cursor *text) noexcept:
    cdef const uint8_t *at = text.at
    while at < text.end:
        if 0x30 <= at[0] <= 0x39:
            return True
        at += 1
    return False


cdef int walk_name(Node *node, Cursor *cursor) noexcept:
    cdef int failed
    cdef const uint8_t *start
    if peek(cursor) != 0x22:
        return GIVEN_UP
    cursor.at += 1
    start = cursor.at
    failed = skip_text(cursor) if node == NULL else copy_text(node, cursor)
    if failed:
        return failed
    if cursor.at - start > MOST_NAME or peek(cursor) != 0x3A:
        return GIVEN_UP
    cursor.at += 1
    return OK if node == NULL else add_byte(node, 0x3A)


# --- values -----------------------------------------------------------------------------------------------------------


cdef inline int two_digits(const uint8_t *at) noexcept:
    """-1 or less if they are none."""
    cdef uint8_t tens = at[0] - 0x30, ones = at[1] - 0x30
    return tens * 10 + ones if tens <= 9 and ones <= 9 else -1


cdef int read_day(const uint8_t *at, int64_t *days) noexcept:
    """Days since 1970-01-01 of the ten characters yyyy-mm-dd that are here."""
    cdef int century = two_digits(at), of_century = two_digits(at + 2), month = two_digits(at + 5), day = two_digits(at + 8)
    cdef int year = century * 100 + of_century, last
    cdef int64_t era, of_era, of_year
    if century < 0 or of_century < 0 or at[4] != 0x2D or at[7] != 0x2D or month < 1 or month > 12 or day < 1:
        return GIVEN_UP
    last = 30 + ((month + (month > 7)) & 1)
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if day > last or year < 1:
        return GIVEN_UP
    # years that begin in March, in eras of 400
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    days[0] = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    return OK


cdef int read_time(const uint8_t *at, int64_t *seconds) noexcept:
    """Of the eight characters hh:mm:ss that are here."""
    cdef int hour = two_digits(at), minute = two_digits(at + 3), second = two_digits(at + 6)
    if at[2] != 0x3A or at[5] != 0x3A or hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return GIVEN_UP
    seconds[0] = hour * 3600 + minute * 60 + second
    return OK


cdef int decimal_of(Number *number, int precision, int scale, int128 *found) noexcept:
    """Rounded half up to `scale`; at most 19 digits go in."""
    cdef int128 value
    cdef uint64_t divisor
    cdef int shift = number.exponent + scale
    if number.digits > 19:
        return GIVEN_UP
    value = <int128> number.low
    if not number.digits:
        shift = 0
    if shift >= 0:
        if shift + number.digits > 38:
            return GIVEN_UP
        value = value * POWERS[shift]
    elif shift < -18:
        return GIVEN_UP
    else:
        divisor = <uint64_t> POWERS[-shift]
        value = <int128> (number.low // divisor + (number.low % divisor >= divisor - divisor // 2))
    if value >= POWERS[precision]:
        return GIVEN_UP
    found[0] = -value if number.negative else value
    return OK


cdef bint nearest(uint64_t digits, int exponent, double *found) noexcept:
    """The double that is nearest to `digits` times a power of ten; False where 128 bits do not tell it.

    Eisel and Lemire's algorithm (Number Parsing at a Gigabyte per Second, 2021).
    """
    cdef int zeros = __builtin_clzll(digits)
    cdef uint64_t high, low, more, bits
    cdef uint128 product
    cdef int upper, power
    if not -MOST_POWER <= exponent <= MOST_POWER:
        return False
    digits <<= zeros
    product = <uint128> digits * <uint128> FIVES[exponent + MOST_POWER][0]
    high, low = <uint64_t> (product >> 64), <uint64_t> product
    if high & 0x1FF == 0x1FF:
        more = <uint64_t> (<uint128> digits * <uint128> FIVES[exponent + MOST_POWER][1] >> 64)
        low += more
        high += low < more
    if low == <uint64_t> -1 and not -27 <= exponent <= 55:
        return False
    upper = <int> (high >> 63)
    bits = high >> (upper + 9)
    power = ((217706 * exponent) >> 16) + 63 + 1023 + upper - zeros
    if low <= 1 and -4 <= exponent <= 23 and bits & 3 == 1 and bits << (upper + 9) == high:
        bits -= 1  # half way between two doubles: the even one
    bits = (bits + (bits & 1)) >> 1
    if bits >> 53:
        bits >>= 1
        power += 1
    bits = bits & ((<uint64_t> 1 << 52) - 1) | <uint64_t> power << 52
    memcpy(found, &bits, 8)
    return True


cdef int double_of(Number *number, double *found) noexcept:
    """The nearest double. An integer is one that is rounded; its sign of zero is lost."""
    cdef char text[MOST_NUMBER + 1]
    cdef Py_ssize_t size = number.end - number.start
    cdef double value
    if not number.is_float and not number.digits:
        found[0] = 0.0
        return OK
    if number.digits <= 15 and -22 <= number.exponent <= 22:
        value = <double> number.low
        if number.exponent < 0:
            value /= EXACT_POWERS[-number.exponent]
        else:
            value *= EXACT_POWERS[number.exponent]
        found[0] = -value if number.negative else value
        return OK
    if number.digits <= 19 and number.low and nearest(number.low, number.exponent, found):
        if number.negative:
            found[0] = -found[0]
        return OK
    memcpy(text, number.start, size)
    text[size] = 0
    try:
        found[0] = PyOS_string_to_double(text, NULL, NULL)
    except ValueError:
        return GIVEN_UP
    return OK


cdef class JsonDecoder:
    """As ``_json_py.JsonDecoder``."""

    cdef readonly object type
    cdef readonly object spark_type
    cdef object exact
    cdef object zone
    cdef dict offsets_of_days
    cdef list names
    cdef list places  # the dotted name of each node's field, and its type's name
    cdef object misfit  # the place of the first field of the document that does not fit, and the reason
    cdef bint keeps_text  # a field gets the text of malformed documents
    cdef Node *nodes
    cdef int32_t size
    cdef Py_ssize_t allocated
    cdef Py_ssize_t most_allocated
    cdef bint framed
    cdef int64_t last_day
    cdef int64_t last_offset
    cdef readonly int given_up
    """Documents of the last column that the exact twin decoded."""

    def __cinit__(self, spark_type, wanted=None, framed=False, time_zone="UTC"):
        self.exact = _json_py.JsonDecoder(spark_type, wanted, framed, time_zone)
        self.spark_type = self.exact.spark_type
        self.type = self.exact.type
        self.zone = zone_of(time_zone)
        self.framed = framed
        self.offsets_of_days = {}
        self.last_day = NO_DAY
        kinds = [(self.spark_type, None)]
        self.places = [("", "")]
        firsts = []
        at = 0
        while at < len(kinds):
            firsts.append(len(kinds))
            for part, name in _parts(kinds[at][0], at == 0):
                kinds.append((part, name))
                place = self.places[at][0]
                if isinstance(kinds[at][0], spark_types.StructType):
                    self.keeps_text |= name is None
                    place = f"{place}.{(name or b'').decode()}".lstrip(".") if place else (name or b"").decode()
                self.places.append((place, _named(part)))
            at += 1
        self.size = <int32_t> len(kinds)
        self.names = [name for _, name in kinds]
        self.nodes = <Node *> calloc(self.size, sizeof(Node))
        if self.nodes == NULL:
            raise MemoryError
        for at, (spark, _) in enumerate(kinds):
            self.describe(at, spark, firsts[at], (firsts[at + 1] if at + 1 < len(kinds) else len(kinds)) - firsts[at])

    cdef describe(self, int32_t at, spark, int32_t first, int32_t children):
        cdef Node *node = &self.nodes[at]
        cdef uint32_t slots = 4, place
        cdef int32_t child
        cdef const uint8_t *name
        node.allocated = &self.allocated
        node.kind, node.width = KINDS[type(spark)]
        node.first = first
        node.children = children
        if node.kind == DECIMAL:
            node.precision, node.scale = spark.precision, spark.scale
        if self.names[at] is not None:
            node.name = <const uint8_t *> <const char *> self.names[at]
            node.name_size = len(self.names[at])
        if node.kind != STRUCT or children <= LINEAR:
            return
        while slots < 2 * <uint32_t> children:
            slots *= 2
        node.table = <uint32_t *> calloc(slots, sizeof(uint32_t))
        if node.table == NULL:
            raise MemoryError
        node.mask = slots - 1
        for child in range(children):
            if self.names[first + child] is None:
                continue
            name = <const uint8_t *> <const char *> self.names[first + child]
            place = hash_of(name, len(self.names[first + child])) & node.mask
            while node.table[place]:
                place = (place + 1) & node.mask
            node.table[place] = child + 1

    def __dealloc__(self):
        cdef int32_t at
        if self.nodes == NULL:
            return
        for at in range(self.size):
            self.drop(&self.nodes[at])
            free(self.nodes[at].table)
        free(self.nodes)

    cdef void drop(self, Node *node) noexcept:
        """The node's memory, as it is not kept between columns."""
        free(node.valid)
        free(node.data)
        free(node.offsets)
        free(node.chars)
        node.valid = node.data = node.chars = NULL
        node.offsets = NULL
        node.count = node.room = node.chars_size = node.chars_room = 0

    def decode(self, values, ids=None, int64_t most_bytes=NO_LIMIT):
        cdef Cursor cursor
        cdef const uint8_t *data = NULL
        cdef const int32_t *offsets = NULL
        cdef const uint8_t *valid = NULL
        cdef Py_ssize_t row, rows = len(values), start = values.offset, at
        cdef int failed
        cdef list given_up = [], malformed = []
        buffers = values.buffers()
        if rows:
            if buffers[0] is not None:
                valid = <const uint8_t *> <size_t> buffers[0].address
            offsets = <const int32_t *> <size_t> buffers[1].address
            if buffers[2] is not None:
                data = <const uint8_t *> <size_t> buffers[2].address
        self.allocated = 0
        try:
            for row in range(rows):
                if self.allocated > most_bytes and row:
                    break
                at = start + row
                if valid != NULL and not valid[at >> 3] >> (at & 7) & 1:
                    failed = add_null(self.nodes, self.nodes)
                else:
                    cursor.at = data + offsets[at]
                    cursor.end = data + offsets[at + 1]
                    self.misfit = None
                    self.most_allocated = self.allocated + MOST_BYTES + MOST_TIMES * (cursor.end - cursor.at)
                    failed = self.document(&cursor)
                    if failed == OK and self.misfit is not None:
                        if self.keeps_text:
                            failed = GIVEN_UP
                        else:
                            malformed.append(self.told(row, data + offsets[at], ids))
                    if failed == TOO_LARGE:
                        truncate(self.nodes, self.nodes, row)
                        self.misfit = "", EXPANDED
                        malformed.append(self.told(row, data + offsets[at], ids))
                        failed = add_null(self.nodes, self.nodes)
                    if failed == GIVEN_UP:
                        truncate(self.nodes, self.nodes, row)
                        given_up.append(row)
                        failed = add_null(self.nodes, self.nodes)
                if failed:
                    raise MemoryError(f"no memory for the fields of JSON documents, at row {row} of {rows}")
            column = self.finished(0, self.type)
        finally:
            for at in range(self.size):
                self.drop(&self.nodes[at])
        self.given_up = <int> len(given_up)
        return self.completed(column, values, ids, given_up, malformed, most_bytes) if given_up else (column, malformed)

    cdef told(self, Py_ssize_t row, const uint8_t *data, ids):
        field, reason = self.misfit
        schema_id = ids[row] if ids and isinstance(ids[row], int) else None
        if self.framed:
            schema_id = <int64_t> data[1] << 24 | <int64_t> data[2] << 16 | <int64_t> data[3] << 8 | <int64_t> data[4]
        return Malformed(row, schema_id, field, reason)

    def completed(self, column, values, ids, given_up, malformed, most_bytes):
        """The column with what the exact twin makes of the documents that were given up, up to what it leaves out."""
        ids_of = [ids[row] for row in given_up] if ids else None
        found, unfit = self.exact.decode(values.take(pa.array(given_up, pa.int64())), ids_of, most_bytes)
        if len(found) < len(given_up):
            column = column.slice(0, given_up[len(found)])
            malformed = [one for one in malformed if one.row < len(column)]
        malformed += [Malformed(given_up[one.row], one.schema_id, one.field, one.reason) for one in unfit]
        malformed.sort(key=_row_of)
        if len(found) == len(column):
            return found, malformed
        places = list(range(len(column)))
        for at, row in enumerate(given_up[: len(found)]):
            places[row] = len(column) + at
        return pa.concat_arrays([column, found]).take(pa.array(places, pa.int64())), malformed

    cdef int document(self, Cursor *cursor) noexcept:
        if self.framed:
            if cursor.end - cursor.at < FRAME_SIZE or cursor.at[0]:
                return GIVEN_UP
            cursor.at += FRAME_SIZE
        if peek(cursor) == 0x6E:
            return GIVEN_UP
        return self.value(self.nodes, cursor, 1)

    cdef int value(self, Node *node, Cursor *cursor, int depth) noexcept:
        """Adds one row to `node`, or fails."""
        cdef int kind = node.kind
        cdef int byte = peek(cursor)
        cdef Number number
        cdef Py_ssize_t row = node.count
        cdef int64_t integer
        cdef double floating
        cdef float narrow
        cdef int128 decimal
        cdef uint64_t bits
        cdef Cursor text
        cdef int failed
        if make_room(node):
            return NO_MEMORY
        if byte == 0x6E:
            if match_word(cursor, b"null", 4):
                return GIVEN_UP
            return add_null(self.nodes, node)
        if kind == STRING:
            if byte == 0x22:
                cursor.at += 1
                failed = add_text(node, cursor)
            else:
                failed = walk(node, cursor, depth)
            if failed:
                return failed
            end_chars(node)
            return OK
        if kind == STRUCT:
            return self.struct_(node, cursor, depth) if byte == 0x7B else GIVEN_UP
        if kind == LIST:
            return self.list_(node, cursor, depth) if byte == 0x5B else GIVEN_UP
        if kind == MAP:
            return self.map_(node, cursor, depth) if byte == 0x7B else GIVEN_UP
        if kind == BOOLEAN:
            if byte == 0x74:
                failed = match_word(cursor, b"true", 4)
            else:
                failed = match_word(cursor, b"false", 5)
            if failed:
                return GIVEN_UP
            node.data[row] = byte == 0x74
        elif byte == 0x22:
            cursor.at += 1
            if kind == BINARY:
                return self.binary(node, cursor)
            if plain_text(cursor, &text):
                return GIVEN_UP
            if kind == DECIMAL:
                if read_number(&text, &number) or text.at != text.end:
                    return GIVEN_UP
                if decimal_of(&number, node.precision, node.scale, &decimal):
                    return GIVEN_UP
                memcpy(node.data + row * 16, &decimal, 16)
            elif kind == DATE:
                if text.end - text.at < 10 or read_day(text.at, &integer):
                    return GIVEN_UP
                if text.end - text.at > 10 and text.at[10] != 0x54 and text.at[10] != 0x20:
                    return GIVEN_UP
                (<int32_t *> node.data)[row] = <int32_t> integer
            elif kind == TIMESTAMP or kind == LOCAL_TIMESTAMP:
                if self.timestamp(&text, kind, &integer):
                    return GIVEN_UP
                (<int64_t *> node.data)[row] = integer
            else:
                return GIVEN_UP
        else:
            if kind == BINARY or kind == DATE or kind == LOCAL_TIMESTAMP or read_number(cursor, &number):
                return GIVEN_UP
            if kind == FLOAT64:
                if double_of(&number, &floating):
                    return GIVEN_UP
                (<double *> node.data)[row] = floating
            elif kind == FLOAT32:
                if double_of(&number, &floating):
                    return GIVEN_UP
                memcpy(&bits, &floating, 8)
                if (bits & 0x1FFFFFFF) == 0x10000000 or not -3.4e38 < floating < 3.4e38:
                    return GIVEN_UP  # half way between two floats, or near the largest one
                if -1.2e-38 < floating < 1.2e-38 and floating != 0.0:
                    return GIVEN_UP
                narrow = <float> floating
                (<float *> node.data)[row] = narrow
            elif kind == DECIMAL:
                if decimal_of(&number, node.precision, node.scale, &decimal):
                    return GIVEN_UP
                memcpy(node.data + row * 16, &decimal, 16)
            else:
                if number.is_float or number.digits > 19 or number.low > <uint64_t> INT64_MAX:
                    return GIVEN_UP
                integer = -(<int64_t> number.low) if number.negative else <int64_t> number.low
                if kind == INT64:
                    (<int64_t *> node.data)[row] = integer
                elif kind == INT32:
                    if integer != <int32_t> integer:
                        return GIVEN_UP
                    (<int32_t *> node.data)[row] = <int32_t> integer
                elif kind == INT16:
                    if integer != <int16_t> integer:
                        return GIVEN_UP
                    (<int16_t *> node.data)[row] = <int16_t> integer
                elif kind == INT8:
                    if integer != <int8_t> integer:
                        return GIVEN_UP
                    (<int8_t *> node.data)[row] = <int8_t> integer
                else:
                    if integer > 9000000000000 or integer < -9000000000000:
                        return GIVEN_UP
                    (<int64_t *> node.data)[row] = integer * 1000000
        node.valid[row] = 1
        node.count += 1
        return OK

    cdef int struct_(self, Node *node, Cursor *cursor, int depth) noexcept:
        cdef Py_ssize_t row = node.count
        cdef int32_t expected = 0, child, at
        cdef Cursor name
        cdef Node *field
        cdef int failed, byte, wide
        cursor.at += 1
        node.valid[row] = 1
        node.count += 1
        if peek(cursor) == 0x7D:
            cursor.at += 1
        else:
            while True:
                if peek(cursor) != 0x22:
                    return GIVEN_UP
                cursor.at += 1
                name.at = cursor.at
                name.end = plain_end(cursor.at, cursor.end)
                while name.end < cursor.end and name.end[0] >= 0x80:
                    wide = utf8_size(name.end, cursor.end)
                    if not wide:
                        return GIVEN_UP
                    name.end = plain_end(name.end + wide, cursor.end)
                if name.end >= cursor.end or name.end[0] != 0x22 or name.end - name.at > MOST_NAME:
                    return GIVEN_UP
                cursor.at = name.end + 1
                if peek(cursor) != 0x3A:
                    return GIVEN_UP
                cursor.at += 1
                child = self.found(node, &name, expected)
                if child < 0:
                    failed = walk(NULL, cursor, depth)
                else:
                    field = &self.nodes[node.first + child]
                    if field.count != row:
                        return GIVEN_UP  # a name that comes twice
                    name.at = cursor.at
                    failed = self.value(field, cursor, depth + 1)
                    if failed == GIVEN_UP:
                        cursor.at = name.at
                        truncate(self.nodes, field, row)
                        failed = self.pass_misfit(node.first + child, cursor, depth)
                    expected = child + 1
                if failed:
                    return failed
                byte = peek(cursor)
                cursor.at += 1
                if byte == 0x7D:
                    break
                if byte != 0x2C:
                    return GIVEN_UP
        for at in range(node.first, node.first + node.children):
            if self.nodes[at].count == row:
                failed = add_null(self.nodes, &self.nodes[at])
                if failed:
                    return failed
        return OK

    cdef int pass_misfit(self, int32_t at, Cursor *cursor, int depth) noexcept:
        """Past a value that the field cannot have for certain, which is null then, and the document malformed."""
        cdef Node *field = &self.nodes[at]
        cdef int kind = field.kind, byte = peek(cursor)
        cdef bint is_integer = INT8 <= kind <= INT64
        cdef Cursor text
        cdef Number number
        if kind == STRING:
            return GIVEN_UP
        text.at = text.end = cursor.at
        if byte == 0x22:
            cursor.at += 1
            if kind == BINARY or plain_text(cursor, &text):
                return GIVEN_UP
            if kind == FLOAT32 or kind == FLOAT64:
                if text.at < text.end and text.at[0] in (0x2B, 0x2D, 0x49, 0x4E):
                    return GIVEN_UP  # as "NaN", or "-Infinity"
            elif kind in (DECIMAL, DATE, TIMESTAMP, LOCAL_TIMESTAMP) and has_digit(&text):
                return GIVEN_UP
        elif byte == 0x7B or byte == 0x5B:
            if (kind == LIST) == (byte == 0x5B) and kind in (STRUCT, LIST, MAP):
                return GIVEN_UP
            if walk(NULL, cursor, depth):
                return GIVEN_UP
        elif byte == 0x74 or byte == 0x66:
            if kind == BOOLEAN or match_word(cursor, b"true" if byte == 0x74 else b"false", 4 + (byte == 0x66)):
                return GIVEN_UP
        else:
            if kind == FLOAT32 or kind == FLOAT64 or kind == DECIMAL or read_number(cursor, &number):
                return GIVEN_UP
            if not number.is_float:
                if kind == TIMESTAMP or is_integer and number.digits == 19 and number.negative:
                    return GIVEN_UP
                if kind == INT8 and number.digits <= 3 and number.low <= 255:
                    return GIVEN_UP  # Jackson takes a byte without sign, too
            text.end = number.end
        return self.keep_misfit(at, byte, &text)

    cdef int keep_misfit(self, int32_t at, int byte, Cursor *text) noexcept:
        try:
            if self.misfit is None:
                place, name = self.places[at]
                given = PyBytes_FromStringAndSize(<const char *> text.at, text.end - text.at).decode()
                self.misfit = place, _json_py.why_not(chr(byte), given, name)
        except (MemoryError, UnicodeError):
            return GIVEN_UP
        return add_null(self.nodes, &self.nodes[at])

    cdef int32_t found(self, Node *node, Cursor *name, int32_t expected) noexcept:
        """The place of the field with this name, or -1. Most documents have the order of the schema."""
        cdef Node *fields = &self.nodes[node.first]
        cdef Py_ssize_t size = name.end - name.at
        cdef int32_t at
        cdef uint32_t place
        if expected < node.children and is_named(&fields[expected], name.at, size):
            return expected
        if node.table == NULL:
            for at in range(node.children):
                if is_named(&fields[at], name.at, size):
                    return at
            return -1
        place = hash_of(name.at, size) & node.mask
        while node.table[place]:
            at = <int32_t> node.table[place] - 1
            if is_named(&fields[at], name.at, size):
                return at
            place = (place + 1) & node.mask
        return -1

    cdef int list_(self, Node *node, Cursor *cursor, int depth) noexcept:
        cdef Node *element = &self.nodes[node.first]
        cdef int failed, byte
        cursor.at += 1
        if peek(cursor) == 0x5D:
            cursor.at += 1
        else:
            while True:
                failed = self.value(element, cursor, depth + 1)
                if failed:
                    return failed
                if self.allocated > self.most_allocated:
                    return TOO_LARGE
                byte = peek(cursor)
                cursor.at += 1
                if byte == 0x5D:
                    break
                if byte != 0x2C:
                    return GIVEN_UP
        node.valid[node.count] = 1
        node.offsets[node.count + 1] = <int32_t> element.count
        node.count += 1
        return OK

    cdef int map_(self, Node *node, Cursor *cursor, int depth) noexcept:
        cdef Node *key = &self.nodes[node.first]
        cdef int failed, byte
        cursor.at += 1
        if peek(cursor) == 0x7D:
            cursor.at += 1
        else:
            while True:
                if peek(cursor) != 0x22:
                    return GIVEN_UP
                cursor.at += 1
                if make_room(key):
                    return NO_MEMORY
                failed = add_text(key, cursor)
                if failed:
                    return failed
                if key.chars_size - key.offsets[key.count] > MOST_NAME:
                    return GIVEN_UP
                end_chars(key)
                if peek(cursor) != 0x3A:
                    return GIVEN_UP
                cursor.at += 1
                failed = self.value(key + 1, cursor, depth + 1)
                if failed:
                    return failed
                if self.allocated > self.most_allocated:
                    return TOO_LARGE
                byte = peek(cursor)
                cursor.at += 1
                if byte == 0x7D:
                    break
                if byte != 0x2C:
                    return GIVEN_UP
        node.valid[node.count] = 1
        node.offsets[node.count + 1] = <int32_t> key.count
        node.count += 1
        return OK

    cdef int binary(self, Node *node, Cursor *cursor) noexcept:
        """Base64 in groups of four, of which the last may be padded."""
        cdef Cursor text
        cdef Py_ssize_t size, at
        cdef int first, second, third, fourth
        cdef uint8_t *to
        if plain_text(cursor, &text):
            return GIVEN_UP
        size = text.end - text.at
        if size & 3:
            return GIVEN_UP
        if make_chars(node, size // 4 * 3):
            return NO_MEMORY
        to = node.chars + node.chars_size
        for at in range(0, size, 4):
            first = SIX_BITS[text.at[at]]
            second = SIX_BITS[text.at[at + 1]]
            third = SIX_BITS[text.at[at + 2]]
            fourth = SIX_BITS[text.at[at + 3]]
            if first < 0 or second < 0:
                return GIVEN_UP
            to[0] = <uint8_t> (first << 2 | second >> 4)
            if third < 0 or fourth < 0:
                if at + 4 != size or text.at[at + 3] != 0x3D:
                    return GIVEN_UP
                if third < 0:
                    if text.at[at + 2] != 0x3D:
                        return GIVEN_UP
                    to += 1
                else:
                    to[1] = <uint8_t> (second << 4 | third >> 2)
                    to += 2
            else:
                to[1] = <uint8_t> (second << 4 | third >> 2)
                to[2] = <uint8_t> (third << 6 | fourth)
                to += 3
        node.chars_size = to - node.chars
        end_chars(node)
        return OK

    cdef int timestamp(self, Cursor *text, int kind, int64_t *found) noexcept:
        """yyyy-mm-dd[T ]hh:mm:ss[.f...][Z or +-hh:mm or +-hhmm]; a date alone, too."""
        cdef const uint8_t *at = text.at
        cdef int64_t days, seconds = 0, micros = 0, offset = 0
        cdef int digits = 0, hours, minutes, has_zone = 0
        if text.end - at < 10 or read_day(at, &days):
            return GIVEN_UP
        at += 10
        if at < text.end:
            if text.end - at < 9 or (at[0] != 0x54 and at[0] != 0x20) or read_time(at + 1, &seconds):
                return GIVEN_UP
            at += 9
            if at < text.end and at[0] == 0x2E:
                at += 1
                while at < text.end and 0x30 <= at[0] <= 0x39:
                    if digits < 6:
                        micros = micros * 10 + (at[0] - 0x30)
                        digits += 1
                    at += 1
                while digits < 6:
                    micros *= 10
                    digits += 1
            if at < text.end:
                has_zone = 1
                if at[0] == 0x5A and text.end - at == 1:
                    at += 1
                elif (at[0] == 0x2B or at[0] == 0x2D) and (
                    text.end - at == 5 or (text.end - at == 6 and at[3] == 0x3A)
                ):
                    hours = two_digits(at + 1)
                    minutes = two_digits(text.end - 2)
                    if hours < 0 or hours > 17 or minutes < 0 or minutes > 59:
                        return GIVEN_UP
                    offset = hours * 3600 + minutes * 60
                    if at[0] == 0x2D:
                        offset = -offset
                else:
                    return GIVEN_UP
        if kind == LOCAL_TIMESTAMP:
            if has_zone:
                return GIVEN_UP
        elif not has_zone:
            if days != self.last_day and self.find_offset(days, seconds):
                return GIVEN_UP
            offset = self.last_offset
        found[0] = (days * 86400 + seconds - offset) * 1000000 + micros
        return OK

    cdef int find_offset(self, int64_t day, int64_t second) noexcept:
        """The zone's offset, if it is the same all day, or all the hour."""
        try:
            if len(self.offsets_of_days) > 10000:
                self.offsets_of_days.clear()
            if day not in self.offsets_of_days:
                self.offsets_of_days[day] = steady_offset(self.zone, day, range(0, 25 * 3600, 3600))
            offset = self.offsets_of_days[day]
            if offset is not None:
                self.last_day = day
            else:
                hour = (day, second // 3600)
                if hour not in self.offsets_of_days:
                    start = second // 3600 * 3600
                    self.offsets_of_days[hour] = steady_offset(self.zone, day, range(start, start + 3660, 60))
                offset = self.offsets_of_days[hour]
                if offset is None:
                    return GIVEN_UP
                self.last_day = NO_DAY
            self.last_offset = offset
        except (ValueError, OverflowError):
            return GIVEN_UP
        return OK

    cdef finished(self, int32_t at, type):
        """The column of a node."""
        cdef Node *node = &self.nodes[at]
        cdef Py_ssize_t nulls = 0, row
        cdef int32_t child
        for row in range(node.count):
            nulls += not node.valid[row]
        valid = bits_of(node.valid, node.count) if nulls else None
        if node.kind == STRUCT:
            children = [self.finished(node.first + child, type.field(child).type) for child in range(node.children)]
            return pa.Array.from_buffers(type, node.count, [valid], nulls, children=children)
        if node.kind == BOOLEAN:
            return pa.Array.from_buffers(type, node.count, [valid, bits_of(node.data, node.count)], nulls)
        if node.width:
            return pa.Array.from_buffers(
                type, node.count, [valid, copied(node.data, node.count * node.width)], nulls
            )
        offsets = copied(<uint8_t *> node.offsets, (node.count + 1) * sizeof(int32_t)) if node.room else pa.py_buffer(bytes(4))
        if node.kind in (STRING, BINARY):
            return pa.Array.from_buffers(type, node.count, [valid, offsets, copied(node.chars, node.chars_size)], nulls)
        if node.kind == LIST:
            child_arrays = [self.finished(node.first, type.value_type)]
        else:
            entries = pa.struct([type.key_field, type.item_field])
            parts = [self.finished(node.first, type.key_type), self.finished(node.first + 1, type.item_type)]
            child_arrays = [pa.Array.from_buffers(entries, self.nodes[node.first].count, [None], 0, children=parts)]
        return pa.Array.from_buffers(type, node.count, [valid, offsets], nulls, children=child_arrays)


def _row_of(malformed):
    return malformed.row


def _named(spark):
    for kind, name in ((spark_types.StructType, "struct"), (spark_types.ArrayType, "array"), (spark_types.MapType, "map")):
        if isinstance(spark, kind):
            return name
    return spark.simpleString()


def _parts(spark, is_root):
    """The types within one, and the names of fields; a field that gets malformed documents is in none."""
    if isinstance(spark, spark_types.StructType):
        return [
            (field.dataType, None if is_root and field.name == json_types.CORRUPT else field.name.encode())
            for field in spark.fields
        ]
    if isinstance(spark, spark_types.ArrayType):
        return [(spark.elementType, None)]
    if isinstance(spark, spark_types.MapType):
        return [(spark.keyType, None), (spark.valueType, None)]
    return []


cdef inline int is_named(Node *field, const uint8_t *name, Py_ssize_t size) noexcept:
    return field.name_size == size and field.name != NULL and memcmp(field.name, name, size) == 0


cdef inline uint32_t hash_of(const uint8_t *name, Py_ssize_t size) noexcept:
    cdef uint32_t found = 2166136261
    cdef Py_ssize_t at
    for at in range(size):
        found = (found ^ name[at]) * 16777619
    return found


cdef copied(const uint8_t *data, Py_ssize_t size):
    if not size:
        return pa.py_buffer(b"")
    return pa.py_buffer(PyBytes_FromStringAndSize(<const char *> data, size))


cdef bits_of(const uint8_t *rows, Py_ssize_t count):
    """A bit a row, of a byte a row."""
    cdef Py_ssize_t size = (count + 7) // 8, row
    cdef uint8_t *bits = <uint8_t *> calloc(size + 1, 1)
    if bits == NULL:
        raise MemoryError
    for row in range(count):
        bits[row >> 3] |= (rows[row] & 1) << (row & 7)
    try:
        return copied(bits, size)
    finally:
        free(bits)
