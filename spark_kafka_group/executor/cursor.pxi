# How bytes of others are read: the includer's SHORT and NEGATIVE are the problems.

cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end
    int failed  # the first problem; reads after it give zeros


cdef struct Span:
    const uint8_t *at
    Py_ssize_t size  # -1: null


cdef inline Py_ssize_t left(const Cursor *cursor) noexcept nogil:
    return cursor.end - cursor.at


cdef inline int64_t fail(Cursor *cursor, int problem) noexcept nogil:
    if not cursor.failed:
        cursor.failed = problem
    cursor.at = cursor.end
    return 0


cdef inline Span take(Cursor *cursor, Py_ssize_t size) noexcept nogil:
    """The next `size` bytes. If there are fewer, or `size` is negative: none, and the cursor has failed."""
    cdef Span span
    if size < 0:
        fail(cursor, NEGATIVE)
        size = 0
    elif size > left(cursor):
        fail(cursor, SHORT)
        size = 0
    span.at = cursor.at
    span.size = size
    cursor.at += size
    return span


cdef inline uint8_t read_byte(Cursor *cursor) noexcept nogil:
    cdef uint8_t value
    if cursor.at >= cursor.end:
        fail(cursor, SHORT)
        return 0
    value = cursor.at[0]
    cursor.at += 1
    return value
