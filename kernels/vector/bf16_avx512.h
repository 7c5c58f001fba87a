/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that bf16.h lists, with AVX-512 BF16 (and VBMI). */
#if !defined(KVB_BF16_LEVEL_H) && defined(__AVX512BF16__)
#define KVB_BF16_LEVEL_H

typedef __m512i pairs;
#define ROW_VECS 2u

#define E5M2_BF16(C)                                                                                                   \
    ((C) == 0     ? 0                                                                                                  \
     : (C) == 1   ? 0x3780                                                                                             \
     : (C) < 4    ? 0x3780 + (C)*64                                                                                    \
     : (C) < 0x7c ? 0x3800 + (C)*32                                                                                    \
     : (C) > 0x7c ? 0x7fc0                                                                                             \
                  : 0x7f80)
#define E5M2_LOW(C)  (uint8_t)(E5M2_BF16(C) & 255),
#define E5M2_HIGH(C) (uint8_t)(E5M2_BF16(C) >> 8),
static const _Alignas(64) uint8_t e5m2_low[128] = {FP8_ALL(E5M2_LOW)}, e5m2_high[128] = {FP8_ALL(E5M2_HIGH)};

/* The low and the high byte of the bf16 of each FP8 magnitude. */
typedef struct fp8_table {
    const uint8_t *low, *high;
} fp8_table;

static inline fp8_table fp8_table_of(kvb_elem elem)
{
    return elem == KVB_E5M2 ? (fp8_table){e5m2_low, e5m2_high} : (fp8_table){e4m3_low, e4m3_high};
}

VEC_INLINE void row_load(bool fp8, fp8_table table, const uint8_t *row, uint32_t c, uint32_t dim, pairs x[ROW_VECS])
{
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7); /* fp8_bf16() separates each 16 codes */
    const uint32_t n = dim - c < 64 ? dim - c : 64;
    const __mmask64 there = n < 64 ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
    if (!fp8) {
        x[0] = _mm512_maskz_loadu_epi16((__mmask32)there, row + 2 * c);
        x[1] = n > 32 ? _mm512_maskz_loadu_epi16((__mmask32)(there >> 32), row + 2 * c + 64) : _mm512_setzero_si512();
        return;
    }
    __m512i code = _mm512_permutexvar_epi64(order, _mm512_maskz_loadu_epi8(there, row + c));
    fp8_bf16(table.low, table.high, code, x);
}

VEC_INLINE pairs pairs_low(pairs a, pairs b)
{
    const __m512i order = _mm512_setr_epi32(0x00200000, 0x00210001, 0x00220002, 0x00230003, 0x00240004, 0x00250005,
                                            0x00260006, 0x00270007, 0x00280008, 0x00290009, 0x002a000a, 0x002b000b,
                                            0x002c000c, 0x002d000d, 0x002e000e, 0x002f000f);
    return _mm512_permutex2var_epi16(a, order, b);
}
VEC_INLINE pairs pairs_high(pairs a, pairs b)
{
    const __m512i order = _mm512_setr_epi32(0x00300010, 0x00310011, 0x00320012, 0x00330013, 0x00340014, 0x00350015,
                                            0x00360016, 0x00370017, 0x00380018, 0x00390019, 0x003a001a, 0x003b001b,
                                            0x003c001c, 0x003d001d, 0x003e001e, 0x003f001f);
    return _mm512_permutex2var_epi16(a, order, b);
}

VEC_INLINE void pairs_store(void *to, vf a, vf b)
{
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

/* Not by _mm512_dpbf16_ps(): its sums have another type than vi, and gcc 12 keeps each twice. */
VEC_INLINE vi pairs_dot(vi c, vi tile, vi row)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(tile), "v"(row));
    return c;
}
/* With the row in memory. */
VEC_INLINE vi pairs_dot_at(vi c, vi tile, const void *row)
{
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"(tile), "m"(*(const vi *)row));
    return c;
}

VEC_INLINE vf query_within(vf x, float most)
{
    const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), vf_set(INFINITY), _CMP_LT_OQ);
    return _mm512_mask_range_ps(x, finite, x, vf_set(most), 2); /* the smaller magnitude, with x's sign */
}

VEC_INLINE void keys_pack(bool fp8, fp8_table table, uint32_t dim, const uint8_t *const *rows, uint32_t n, uint32_t i,
                          packing tile)
{
    _Alignas(64) uint8_t copy[SOME][2 * 64];
    const uint8_t *row[SOME];
    pairs x[4];
    if (i >= n)
        return;
    for (uint32_t j = 0; j < SOME; j++)
        row[j] = rows[i + j < n ? i + j : i];
    int32_t *to = packing_at(tile, i);
    for (uint32_t c = 0; c < dim; c += 64) {
        const uint32_t bytes = 2 * (dim - c < 64 ? dim - c : 64);
        const uint8_t *at[SOME];
        for (uint32_t j = 0; j < SOME; j++)
            at[j] = row[j] + 2 * c;
        for (uint32_t j = 0; j < SOME && fp8; j++) {
            row_load(true, table, row[j], c, dim, x);
            _mm512_store_si512(copy[j], x[0]);
            _mm512_store_si512(copy[j] + 64, x[1]);
            at[j] = copy[j];
        }
        for (uint32_t byte = 0; byte < bytes; byte += 16) {
            dwords_transpose(at, byte, x);
            for (uint32_t d = 0; d < 4; d++)
                _mm512_store_si512(to + ((2 * c + byte) / 4 + d) * tile.row, x[d]);
        }
    }
}

#endif
