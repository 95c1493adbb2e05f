/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): the processor's instruction where it has one, tables elsewhere.
 *
 * The instruction has a latency of three cycles and a throughput of one, so long inputs are cut into three streams that
 * advance together. Joining them needs "the CRC of this prefix, moved on by n zero bytes", which is linear: tables.
 * (The method of Mark Adler's crc32c.c; see also Gopal et al., "Fast CRC computation for iSCSI polynomial", Intel 2011.)
 */
#ifndef SPARK_KAFKA_GROUP_CRC32C_H
#define SPARK_KAFKA_GROUP_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if (defined(__x86_64__) || defined(__amd64__)) && (defined(__GNUC__) || defined(__clang__))
#define CRC32C_X86 1
#include <nmmintrin.h>
#else
#define CRC32C_X86 0
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u
#define CRC32C_LONG 4096  /* bytes of one of three long streams */
#define CRC32C_SHORT 256 /* and of three short ones */

static uint32_t crc32c_table[8][256];       /* [k][b]: byte b, followed by k zero bytes */
static uint32_t crc32c_skip_long[4][256];   /* [k][b]: byte k of a CRC is b, moved on by CRC32C_LONG zero bytes */
static uint32_t crc32c_skip_short[4][256];
static int crc32c_has_instruction;

static inline uint32_t crc32c_skip(uint32_t table[4][256], uint32_t crc) {
    return table[0][crc & 0xFF] ^ table[1][(crc >> 8) & 0xFF] ^ table[2][(crc >> 16) & 0xFF] ^ table[3][crc >> 24];
}

static void crc32c_fill_skip(uint32_t table[4][256], size_t zeros) {
    for (int k = 0; k < 4; k++) {
        uint32_t bit_moved[8];
        for (int bit = 0; bit < 8; bit++) {
            uint32_t crc = (uint32_t)1 << (8 * k + bit);
            for (size_t i = 0; i < zeros; i++)
                crc = crc >> 8 ^ crc32c_table[0][crc & 0xFF];
            bit_moved[bit] = crc;
        }
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (byte >> bit & 1)
                    crc ^= bit_moved[bit];
            table[k][byte] = crc;
        }
    }
}

/* Once, before anything else here. */
static void crc32c_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC32C_POLYNOMIAL : crc >> 1;
        crc32c_table[0][byte] = crc;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            crc32c_table[k][byte] = crc32c_table[k - 1][byte] >> 8 ^ crc32c_table[0][crc32c_table[k - 1][byte] & 0xFF];
    crc32c_fill_skip(crc32c_skip_long, CRC32C_LONG);
    crc32c_fill_skip(crc32c_skip_short, CRC32C_SHORT);
#if CRC32C_X86
    __builtin_cpu_init();
    crc32c_has_instruction = __builtin_cpu_supports("sse4.2") != 0;
#else
    crc32c_has_instruction = 0;
#endif
}

/* Eight bytes at a step, by eight tables ("slicing by 8"). */
static uint32_t crc32c_by_tables(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = crc32c_table[7][crc & 0xFF] ^ crc32c_table[6][(crc >> 8) & 0xFF] ^
              crc32c_table[5][(crc >> 16) & 0xFF] ^ crc32c_table[4][crc >> 24] ^
              crc32c_table[3][data[4]] ^ crc32c_table[2][data[5]] ^ crc32c_table[1][data[6]] ^ crc32c_table[0][data[7]];
    }
    for (; size > 0; data++, size--)
        crc = crc >> 8 ^ crc32c_table[0][(crc ^ *data) & 0xFF];
    return crc;
}

#if CRC32C_X86
static inline uint64_t crc32c_load(const uint8_t *data) {
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

__attribute__((target("sse4.2")))
static const uint8_t *crc32c_three_streams(uint64_t *crc, const uint8_t *data, size_t stream, uint32_t skip[4][256]) {
    uint64_t a = *crc, b = 0, c = 0;
    for (const uint8_t *end = data + stream; data < end; data += 8) {
        a = _mm_crc32_u64(a, crc32c_load(data));
        b = _mm_crc32_u64(b, crc32c_load(data + stream));
        c = _mm_crc32_u64(c, crc32c_load(data + 2 * stream));
    }
    a = crc32c_skip(skip, (uint32_t)a) ^ b;
    *crc = crc32c_skip(skip, (uint32_t)a) ^ c;
    return data + 2 * stream;
}

__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t start, const uint8_t *data, size_t size) {
    uint64_t crc = start;
    for (; size >= 3 * CRC32C_LONG; size -= 3 * CRC32C_LONG)
        data = crc32c_three_streams(&crc, data, CRC32C_LONG, crc32c_skip_long);
    for (; size >= 3 * CRC32C_SHORT; size -= 3 * CRC32C_SHORT)
        data = crc32c_three_streams(&crc, data, CRC32C_SHORT, crc32c_skip_short);
    for (; size >= 8; data += 8, size -= 8)
        crc = _mm_crc32_u64(crc, crc32c_load(data));
    for (; size > 0; data++, size--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return (uint32_t)crc;
}
#endif

static uint32_t crc32c_of(const uint8_t *data, size_t size, int may_use_instruction) {
    uint32_t crc = 0xFFFFFFFFu;
#if CRC32C_X86
    if (may_use_instruction && crc32c_has_instruction)
        return crc32c_by_instruction(crc, data, size) ^ 0xFFFFFFFFu;
#else
    (void)may_use_instruction;
#endif
    return crc32c_by_tables(crc, data, size) ^ 0xFFFFFFFFu;
}

#endif
