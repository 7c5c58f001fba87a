/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of int8_products.c for few query rows with vectors of AVX2: rows of codes are used where they lie, as packing
 * a block costs more than it saves. Scores and sums have the bits of a packed block's.
 */
#if !defined(KVB_INT8_IN_PLACE_AVX2_H) && defined(__AVX2__)
#define KVB_INT8_IN_PLACE_AVX2_H

#include "kernels/vector/int8_codes_avx2.h"

/* Codes of 8 bits, and those of at most 5. */
#define WIDE_ELEMS(X)   X(KVB_INT8) X(KVB_UINT8) X(KVB_Q8_0) X(KVB_IQ4_NL)
#define NARROW_ELEMS(X) X(KVB_UINT4) X(KVB_UINT2) X(KVB_Q5_1) X(KVB_Q5_0) X(KVB_Q4_1) X(KVB_Q4_0)

#if TILE_CODES == 2
#define BYTE_ELEMS(X) NARROW_ELEMS(X)
#else
#define BYTE_ELEMS(X) INT8_ELEMS(X)
#endif

#define IN_PLACE
#define FEW_ROWS 4u /* more would not stay in registers */

typedef struct coded_rows {
    const int8_shape *shape;
    int8_rows at;
    int8_block factors; /* without a tile */
} coded_rows;

/* ---- scores ------------------------------------------------------------------------------------------------------ */

typedef struct few_queries {
    const int32_t *codes[FEW_ROWS];
    int32_t less[INT8_MAX_DIM / 32][FEW_ROWS]; /* what the codes' offset adds to each group, negative */
    float total[INT8_MAX_DIM / 32][FEW_ROWS];  /* of each group */
    float step[FEW_ROWS];
} few_queries;

static void queries_read(const int8_shape *s, const void *const *queries, uint32_t n, few_queries *to)
{
    const int32_t offset = TILE_SIGNED && !KEYS_OF_BYTES(s->elem) ? 0 : s->of.offset;
    for (uint32_t r = 0; r < n; r++) {
        const int8_query *of = queries[r];
        to->codes[r] = (const int32_t *)(const void *)((const char *)of + int8_query_codes_at(s));
        to->step[r] = of->step;
        for (uint32_t g = 0; g < s->groups; g++) {
            to->less[g][r] = -offset * of->sums[g];
            to->total[g][r] = (float)of->sums[g];
        }
    }
}

/* Adds the products of 32 channels of eight cells. x: nibbles_of_eight() where nibbles_alone(), else dwords_of_eight();
 * q: these channels of each row. */
VEC_INLINE void eight_dot(kvb_elem elem, uint32_t rows, const __m256i *x, const int32_t *const *q, vi *acc)
{
#if TILE_CODES == 2
    const uint32_t most = int8_elem_of(elem).offset == 16 ? 4 : 8; /* as in bytes_product() */
    __m256i pairs[FEW_ROWS];
#pragma GCC unroll 8
    for (uint32_t k = 0; k < 8; k++) {
        const __m256i codes = nibbles_alone(elem) ? nibbles_dword(x, k) : x[k];
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(codes, 8), 8), odd = _mm256_srai_epi16(codes, 8);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++) {
            if (!KEYS_OF_BYTES(elem)) {
                acc[r] = vi_dot2(acc[r], (vi)even, vi_set(q[r][2 * k]));
                acc[r] = vi_dot2(acc[r], (vi)odd, vi_set(q[r][2 * k + 1]));
                __asm__ volatile("" : "+x"(acc[r]));
                continue;
            }
            const __m256i two = _mm256_maddubs_epi16(codes, (__m256i)vi_set(q[r][k]));
            pairs[r] = k % most ? _mm256_add_epi16(pairs[r], two) : two;
            __asm__ volatile("" : "+x"(pairs[r])); /* in this order: else gcc 12 keeps products in memory */
            if (k % most == most - 1)
                acc[r] = vi_dot2(acc[r], (vi)pairs[r], vi_set(0x00010001));
        }
    }
#else
#pragma GCC unroll 8
    for (uint32_t k = 0; k < 8; k++) {
        const __m256i codes = nibbles_alone(elem) ? nibbles_dword(x, k) : x[k];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++) {
            acc[r] = vi_dot4(acc[r], (vi)codes, vi_set(q[r][k]));
            __asm__ volatile("" : "+x"(acc[r]));
        }
    }
#endif
}

/* d of a group of eight cells from cell i on; *m: theirs, if the format has m. Those of a block are read beside the
 * products of earlier cells, which do not wait for them. */
VEC_INLINE vf eight_factors(kvb_elem elem, const coded_rows *k, uint32_t g, uint32_t i, vf *m)
{
    const int8_elem of = int8_elem_of(elem);
    const uint8_t *const *row = k->at.row + i;
    if (of.block_bytes) {
        const vf d = f16_of_rows(row, g * of.block_bytes);
        if (of.has_m)
            *m = vf_fma(d, vf_set(of.offset), f16_of_rows(row, g * of.block_bytes + sizeof(uint16_t)));
        return d;
    }
    if (of.has_m)
        *m = vf_load(k->factors.m + g * BLOCK + i);
    return vf_load(k->factors.d + g * BLOCK + i);
}

/* Scores of eight cells. */
VEC_INLINE void eight_scores(kvb_elem elem, uint32_t rows, const coded_rows *k, const few_queries *q, uint32_t i,
                             float *scores)
{
    const int8_elem of = int8_elem_of(elem);
    const uint32_t groups = k->shape->groups, group = of.block_bytes ? 32 : k->shape->group;
    const uint8_t *const *row = k->at.row + i;
    const int32_t *codes[FEW_ROWS];
    const size_t last = (size_t)(groups - 1) * of.block_bytes;
    size_t at = 0;
    __m256i next[4]; /* codes of the next group, if nibbles_alone(): they are transposed beside products */
    vf score[FEW_ROWS];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) {
        codes[r] = q->codes[r];
        score[r] = vf_set(0);
    }
    if (nibbles_alone(elem))
        nibbles_of_eight(row, of.codes_at, next);
    for (uint32_t g = 0, c = 0; g < groups; g++) {
        vf m = vf_set(0);
        const vf d = eight_factors(elem, k, g, i, &m);
        vi acc[FEW_ROWS];
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++)
            acc[r] = vi_set(q->less[g][r]);
        const uint32_t end = c + group;
        do { /* once, if groups are blocks */
            __m256i x[8];
            if (nibbles_alone(elem)) {
                memcpy(x, next, sizeof next);
                at = at < last ? at + of.block_bytes : at;
                nibbles_of_eight(row, at + of.codes_at, next);
            } else {
                dwords_of_eight(elem, row, c, x);
            }
            eight_dot(elem, rows, x, codes, acc);
#pragma GCC unroll 4
            for (uint32_t r = 0; r < rows; r++)
                codes[r] += 32 / KEY_CODES(elem);
            c += 32;
        } while (!of.block_bytes && c < end);
#pragma GCC unroll 4
        for (uint32_t r = 0; r < rows; r++) {
            score[r] = vf_fma(vi_to_vf(acc[r]), d, score[r]);
            if (of.has_m)
                score[r] = vf_fma(vf_set(q->total[g][r]), m, score[r]);
        }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++)
        vf_store(scores + r * BLOCK + i, score[r] * vf_set(q->step[r]));
}

typedef void few_dots_fn(const coded_rows *k, const few_queries *q, float *scores, kvb_lookahead *next);

#define DOTS(ELEM, N)                                                                                                  \
    static __attribute__((noinline)) void few_dots_##ELEM##_##N(const coded_rows *k, const few_queries *q,             \
                                                                float *scores, kvb_lookahead *next)                    \
    {                                                                                                                  \
        for (uint32_t i = 0; i < k->at.n; i += VL) {                                                                   \
            eight_scores(ELEM, N, k, q, i, scores);                                                                    \
            kvb_lookahead_until(next, i + VL, 2 * BLOCK);                                                              \
        }                                                                                                              \
    }
#define DOTS_OF(ELEM)   DOTS(ELEM, 1) DOTS(ELEM, 2) DOTS(ELEM, 3) DOTS(ELEM, 4)
#define DOTS_LINE(ELEM) [ELEM] = {few_dots_##ELEM##_1, few_dots_##ELEM##_2, few_dots_##ELEM##_3, few_dots_##ELEM##_4},
INT8_ELEMS(DOTS_OF)
static few_dots_fn *const few_dots[KVB_ELEM_COUNT][FEW_ROWS] = {INT8_ELEMS(DOTS_LINE)};

/* Groups of 32 channels and multiples. */
static bool takes_few(const int8_shape *s, uint32_t n_rows)
{
    return n_rows <= FEW_ROWS && s->group % 32 == 0;
}

static void few_scores_all(const int8_shape *s, const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n,
                           const void *const *queries, uint32_t n_rows, float *scores, kvb_lookahead *next,
                           void *scratch)
{
    coded_rows rows;
    few_queries q;
    rows.shape = s;
    if (s->of.block_bytes)
        int8_rows_find(k, h, cells, n, &rows.at);
    else
        rows.factors = KVB_ISA_NAME(kvb_int8_factors)(s, k, h, cells, n, &rows.at, scratch);
    queries_read(s, queries, n_rows, &q);
    few_dots[s->elem][n_rows - 1](&rows, &q, scores, next);
    for (uint32_t r = 0; n < int8_cells(n) && r < n_rows; r++) /* sums take all of these cells */
        memset(scores + (size_t)r * BLOCK + n, 0, (int8_cells(n) - n) * sizeof *scores);
    kvb_lookahead_until(next, 2, 2);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

#if TILE_CODES == 2

/* Wide codes: channels c .. c + 15, two cells at a time. whole: [rows], of their group. */
VEC_INLINE void few_sum(kvb_elem elem, uint32_t rows, const coded_rows *v, const whole_weights *whole, uint32_t c,
                        float *const *sums)
{
    vi acc[FEW_ROWS * 2];
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 2 * rows; j++)
        acc[j] = vi_set(0);
    for (uint32_t k = 0; 2 * k < v->at.n; k++) {
        const __m128i x = codes16_of(elem, v->at.row[2 * k], c), y = codes16_of(elem, v->at.row[2 * k + 1], c);
        const vi pairs[2] = {(vi)_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(x, y)),
                             (vi)_mm256_cvtepi8_epi16(_mm_unpackhi_epi8(x, y))};
#pragma GCC unroll 8
        for (uint32_t j = 0; j < 2 * rows; j++)
            acc[j] = vi_dot2(acc[j], pairs[j % 2], vi_set(whole[j / 2].of[k]));
    }
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 2 * rows; j++)
        sum_add(v->factors.m, &whole[j / 2], acc[j], sums[j / 2] + c + j % 2 * VL);
}

typedef void few_sums_fn(const coded_rows *v, const whole_weights *whole, uint32_t c, uint32_t end, float *const *sums,
                         kvb_lookahead *next);

#define SUMS(ELEM, N)                                                                                                  \
    static __attribute__((noinline)) void few_sums_##ELEM##_##N(const coded_rows *v, const whole_weights *whole,       \
                                                                uint32_t c, uint32_t end, float *const *sums,          \
                                                                kvb_lookahead *next)                                   \
    {                                                                                                                  \
        for (; c < end; c += 16) {                                                                                     \
            few_sum(ELEM, N, v, whole, c, sums);                                                                       \
            kvb_lookahead_until(next, c + 16, v->shape->dim);                                                          \
        }                                                                                                              \
    }
#define SUMS_OF(ELEM) SUMS(ELEM, 1) SUMS(ELEM, 2) SUMS(ELEM, 3) SUMS(ELEM, 4)
WIDE_ELEMS(SUMS_OF)

#define SUMS_LINE(ELEM) [ELEM] = {few_sums_##ELEM##_1, few_sums_##ELEM##_2, few_sums_##ELEM##_3, few_sums_##ELEM##_4},
static few_sums_fn *const few_sums[KVB_ELEM_COUNT][FEW_ROWS] = {WIDE_ELEMS(SUMS_LINE)};

#endif

/*
 * Codes that are multiplied as bytes, with their offset: 32 channels of a block, four cells at a time. Vector j has
 * channels 4 * j .. 4 * j + 3, then those 16 further on. vpmaddubsw adds pairs in 16 bits, which hold the sums of 32 cells with codes
 * of 4 bits (16 * 15 * 127), of 16 cells with codes of 5 bits.
 */
typedef __m256i strip[BLOCK / 4][4];

VEC_INLINE void strip_pack(kvb_elem elem, const coded_rows *v, uint32_t c, __m256i (*to)[4])
{
    for (uint32_t i = 0; i < (v->at.n + 15) / 16 * 16; i += 4, to++) { /* past the last weights are 0 */
        __m256i x[4];
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++)
            x[j] = KEYS_OF_BYTES(elem) ? bytes32_of(elem, v->at.row[i + j], c) : codes32_of(elem, v->at.row[i + j], c);
        const __m256i low = _mm256_unpacklo_epi8(x[0], x[1]), high = _mm256_unpackhi_epi8(x[0], x[1]),
                      other_low = _mm256_unpacklo_epi8(x[2], x[3]), other_high = _mm256_unpackhi_epi8(x[2], x[3]);
        (*to)[0] = _mm256_unpacklo_epi16(low, other_low);
        (*to)[1] = _mm256_unpackhi_epi16(low, other_low);
        (*to)[2] = _mm256_unpacklo_epi16(high, other_high);
        (*to)[3] = _mm256_unpackhi_epi16(high, other_high);
    }
}

/* Sums of a strip, of half of its channels. whole: [rows], of its group. */
VEC_INLINE void strip_sum(uint32_t rows, uint32_t half, const coded_rows *v, const __m256i (*four)[4],
                          const whole_weights *whole, uint32_t c, float *const *sums)
{
    const uint32_t dwords = (v->at.n + 15) / 16 * 4;
    vi acc[4 * 2];
#pragma GCC unroll 8
    for (uint32_t j = 0; j < 2 * rows; j++)
        acc[j] = vi_set(-v->shape->of.offset * whole[j / 2].sum);
#if TILE_CODES == 4
#pragma GCC unroll 1
    for (uint32_t k = 0; k < dwords; k++)
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            const vi w = vi_set(whole[r].of[k]);
            acc[2 * r] = vi_dot4(acc[2 * r], (vi)four[k][2 * half], w);
            acc[2 * r + 1] = vi_dot4(acc[2 * r + 1], (vi)four[k][2 * half + 1], w);
        }
#else
    const uint32_t most = v->shape->of.offset == 16 ? 4 : 8;
    for (uint32_t i = 0, end; i < dwords; i = end) {
        __m256i pairs[4 * 2];
        end = i + most < dwords ? i + most : dwords;
#pragma GCC unroll 8
        for (uint32_t j = 0; j < 2 * rows; j++)
            pairs[j] = _mm256_setzero_si256();
#pragma GCC unroll 1
        for (uint32_t k = i; k < end; k++) {
            const __m256i a = four[k][2 * half], b = four[k][2 * half + 1];
#pragma GCC unroll 8
            for (uint32_t r = 0; r < rows; r++) {
                const __m256i w = (__m256i)vi_set(whole[r].of[k]);
                const __m256i of_a = _mm256_maddubs_epi16(a, w), of_b = _mm256_maddubs_epi16(b, w);
                /* row by row: otherwise gcc 12 keeps sums twice, or in memory */
                __asm__ volatile("vpaddw %2, %0, %0\n\tvpaddw %3, %1, %1"
                                 : "+x"(pairs[2 * r]), "+x"(pairs[2 * r + 1])
                                 : "x"(of_a), "x"(of_b));
            }
        }
#pragma GCC unroll 8
        for (uint32_t j = 0; j < 2 * rows; j++)
            acc[j] = vi_dot2(acc[j], (vi)pairs[j], vi_set(0x00010001));
    }
#endif
#pragma GCC unroll 4
    for (uint32_t r = 0; r < rows; r++) { /* 8 channels are in the lower halves, 8 in the upper ones */
        const __m256i a = (__m256i)acc[2 * r], b = (__m256i)acc[2 * r + 1];
#pragma GCC unroll 2
        for (uint32_t upper = 0; upper < 2; upper++) {
            const vi eight =
                (vi)(upper ? _mm256_permute2x128_si256(a, b, 0x31) : _mm256_permute2x128_si256(a, b, 0x20));
            sum_add(v->factors.m, &whole[r], eight, sums[r] + c + half * VL + upper * 16);
        }
    }
}

typedef void strip_pack_fn(const coded_rows *v, uint32_t c, __m256i (*to)[4]);
typedef void strip_sum_fn(const coded_rows *v, const __m256i (*four)[4], const whole_weights *whole, uint32_t c,
                          float *const *sums);

#define STRIP_PACK(ELEM)                                                                                               \
    static __attribute__((noinline)) void strip_pack_##ELEM(const coded_rows *v, uint32_t c, __m256i(*to)[4])          \
    {                                                                                                                  \
        strip_pack(ELEM, v, c, to);                                                                                    \
    }
#define STRIP_SUM(ROWS)                                                                                                \
    static __attribute__((noinline)) void strip_sum_##ROWS(const coded_rows *v, const __m256i(*four)[4],               \
                                                           const whole_weights *whole, uint32_t c, float *const *sums) \
    {                                                                                                                  \
        strip_sum(ROWS, 0, v, four, whole, c, sums);                                                                   \
        strip_sum(ROWS, 1, v, four, whole, c, sums);                                                                   \
    }
BYTE_ELEMS(STRIP_PACK)
STRIP_SUM(1)
STRIP_SUM(2)
STRIP_SUM(3)
STRIP_SUM(4)

#define PACK_LINE(ELEM) [ELEM] = strip_pack_##ELEM,
static strip_pack_fn *const strip_packs[KVB_ELEM_COUNT] = {BYTE_ELEMS(PACK_LINE)};
static strip_sum_fn *const strip_sums[FEW_ROWS] = {strip_sum_1, strip_sum_2, strip_sum_3, strip_sum_4};

/* Channels c .. end - 1, of one group. */
static void strips_sum(const coded_rows *v, const whole_weights *whole, uint32_t rows, uint32_t c, uint32_t end,
                       float *const *sums, kvb_lookahead *next)
{
    strip codes;
    for (; c < end; c += 32) {
        strip_packs[v->shape->elem](v, c, codes);
        strip_sums[rows - 1](v, (const __m256i(*)[4])codes, whole, c, sums);
        kvb_lookahead_until(next, c + 32, v->shape->dim);
    }
}

static void few_sums_all(const int8_shape *s, const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n,
                         const float *weights, uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch)
{
    coded_rows rows;
    _Alignas(64) float most[BLOCK];
    row_step steps[FEW_ROWS];
    whole_weights whole[FEW_ROWS];
    rows.shape = s;
    rows.factors = KVB_ISA_NAME(kvb_int8_factors)(s, v, h, cells, n, &rows.at, scratch);
    const values all = values_of(s, &rows.factors, n, most, next);
    const bool bytes = strip_packs[s->elem];
    for (uint32_t r = 0; all.most && r < n_rows; r++)
        steps[r] = step_of_row(&all, weights + (size_t)r * BLOCK);
    for (uint32_t g = 0, c = 0; g < s->groups; g++, c += s->group) {
        weights_of_groups(&all, g, 1, weights, steps, n_rows, bytes, whole);
        if (bytes)
            strips_sum(&rows, whole, n_rows, c, c + s->group, sums, next);
#if TILE_CODES == 2
        else
            few_sums[s->elem][n_rows - 1](&rows, whole, c, c + s->group, sums, next);
#endif
    }
    kvb_lookahead_until(next, 2, 2);
}

#endif
