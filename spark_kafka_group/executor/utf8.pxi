# Characters of UTF-8, as Java's decoder tells them apart. Who includes it has uint8_t.

cdef inline bint follows(const uint8_t *at, const uint8_t *end, int low, int high) noexcept nogil:
    return at < end and low <= at[0] <= high


cdef int character(const uint8_t *at, const uint8_t *end) noexcept nogil:
    """How many bytes the character at `at` has; negative: so many are none, and one replacement stands for them."""
    cdef int first = at[0]
    cdef int low = 0x80
    cdef int high = 0xBF
    cdef int more, i
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    if first < 0xE0:
        more = 1
    elif first < 0xF0:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            if follows(at + 1, end, 0xA0, 0xBF):
                return -3 if follows(at + 2, end, 0x80, 0xBF) else -2
            high = 0x9F
    else:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    for i in range(1, more + 1):
        if not follows(at + i, end, low, high):
            return -i
        low, high = 0x80, 0xBF
    return more + 1
