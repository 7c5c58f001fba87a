/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dot products of query rows with stored rows in halves. A vector holds PART channels of each of 32 / PART query rows, one
 * after the other, and meets the same channels of a cell, broadcast. So the lanes that are left to add up are PART for each
 * row, in one vector for all of them, and a tree of additions takes PART such vectors, of as many cells, to one.
 */
#include "kernels/half/half.h"

#if defined(__AVX512FP16__)
#include "kernels/half/lanes.h"

#include <string.h>

#define GROUPS 2u /* of 32 / PART rows that meet a cell while it is in a register, at most */

VEC_INLINE const _Float16 *query_row(const void *q)
{
    return (const _Float16 *)q + 32;
}

/* Two vectors to one: of each four lanes of 32 bits, x's in the lower two and y's in the upper. */
VEC_INLINE vh halves_far(vh x, vh y)
{
    __m512 a = _mm512_castph_ps(x), b = _mm512_castph_ps(y);
    return _mm512_add_ph(_mm512_castps_ph(_mm512_mask_blend_ps(0xcccc, a, b)),
                         _mm512_castps_ph(_mm512_shuffle_ps(a, b, 0x4e)));
}
/* Lanes of 32 bits: x's in the even ones, y's in the odd ones. */
VEC_INLINE vh halves_near(vh x, vh y)
{
    const __m512i other = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    __m512 a = _mm512_castph_ps(x), b = _mm512_castph_ps(y);
    return _mm512_add_ph(_mm512_castps_ph(_mm512_mask_blend_ps(0xaaaa, a, b)),
                         _mm512_castps_ph(_mm512_permutex2var_ps(a, other, b)));
}
/* Lanes of 16 bits: x's in the even ones, y's in the odd ones. */
VEC_INLINE vh halves_next(vh x, vh y)
{
    __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    __m512i other = _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_slli_epi32(b, 16));
    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_mask_blend_epi16(0xaaaaaaaa, a, b)), _mm512_castsi512_ph(other));
}

/* Words of each 128 bits: the sums of those of vectors 0 .. 7. */
VEC_INLINE vh eight_total(const vh v[8])
{
    return halves_next(halves_near(halves_far(v[0], v[4]), halves_far(v[2], v[6])),
                       halves_near(halves_far(v[1], v[5]), halves_far(v[3], v[7])));
}
/* Of 128 bits: x's 0 + 1, y's 0 + 1, x's 2 + 3, y's 2 + 3. */
VEC_INLINE vh pairs_total(vh x, vh y)
{
    const __m512i other = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
    __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_mask_blend_epi64(0xcc, a, b)),
                         _mm512_castsi512_ph(_mm512_permutex2var_epi64(a, other, b)));
}
/* x's 0 + 2, 1 + 3, y's 0 + 2, 1 + 3. */
VEC_INLINE vh fours_total(vh x, vh y)
{
    __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_shuffle_i64x2(a, b, 0x44)),
                         _mm512_castsi512_ph(_mm512_shuffle_i64x2(a, b, 0xee)));
}

/* Channels d .. d + part - 1 of a row of f16, as often as they fit. */
VEC_INLINE vh part_load(uint32_t part, const void *row, uint32_t d, uint32_t dim)
{
    const void *p = elem_at(KVB_F16, row, d);
    if (part == HL)
        return half_load(KVB_F16, row, (half_beside){0}, d, dim);
    return _mm512_castsi512_ph(part == 16 ? _mm512_broadcast_i64x4(_mm256_loadu_si256(p))
                                          : _mm512_broadcast_i32x4(_mm_loadu_si128(p)));
}

/* Eight cells and the query vectors [group][steps]. */
VEC_INLINE void eight_dot(uint32_t part, uint32_t groups, const vh *q, uint32_t steps, const void *const *keys,
                          uint32_t dim, vh *totals)
{
    vh sum[GROUPS][8];
#pragma GCC unroll 16
    for (uint32_t s = 0; s < 8 * groups; s++)
        sum[s / 8][s % 8] = _mm512_setzero_ph();
    for (uint32_t d = 0; d < dim; d += part)
#pragma GCC unroll 8
        for (uint32_t c = 0; c < 8; c++) {
            vh key = part_load(part, keys[c], d, dim);
#pragma GCC unroll 2
            for (uint32_t g = 0; g < groups; g++)
                sum[g][c] = _mm512_fmadd_ph(q[g * steps + d / part], key, sum[g][c]);
        }
#pragma GCC unroll 2
    for (uint32_t g = 0; g < groups; g++)
        totals[g] = eight_total(sum[g]);
}

/* totals[group], lane r * part + c: row r of the group and cell c. More than one group: part is 8. */
VEC_INLINE void part_dot(uint32_t part, uint32_t groups, const vh *q, uint32_t steps, const void *const *keys,
                         uint32_t dim, vh *totals)
{
    vh eight[4];
    if (part == 8) {
        eight_dot(part, groups, q, steps, keys, dim, totals);
        return;
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < part / 8; i++)
        eight_dot(part, 1, q, steps, keys + 8 * i, dim, &eight[i]);
    *totals = pairs_total(eight[0], eight[1]);
    if (part == HL)
        *totals = fours_total(*totals, pairs_total(eight[2], eight[3]));
}

/* Query rows as vectors: to[d / part]. Rows that are not there are the last one again. */
VEC_INLINE void queries_pack(uint32_t part, const void *const *q, uint32_t rows, uint32_t dim, vh *to)
{
    __m512i *packed = (__m512i *)(void *)to;
    for (uint32_t d = 0; d < dim; d += HL, packed += HL / part) {
        __m512i x[4];
        for (uint32_t r = 0; r < HL / part; r++)
            x[r] = _mm512_load_si512(query_row(q[r < rows ? r : rows - 1]) + d);
        if (part == HL) {
            packed[0] = x[0];
        } else if (part == 16) {
            packed[0] = _mm512_shuffle_i64x2(x[0], x[1], 0x44);
            packed[1] = _mm512_shuffle_i64x2(x[0], x[1], 0xee);
        } else { /* 128 bits each: a transposition of 4 x 4 */
            __m512i low = _mm512_shuffle_i64x2(x[0], x[1], 0x44), low2 = _mm512_shuffle_i64x2(x[2], x[3], 0x44);
            __m512i high = _mm512_shuffle_i64x2(x[0], x[1], 0xee), high2 = _mm512_shuffle_i64x2(x[2], x[3], 0xee);
            packed[0] = _mm512_shuffle_i64x2(low, low2, 0x88);
            packed[1] = _mm512_shuffle_i64x2(low, low2, 0xdd);
            packed[2] = _mm512_shuffle_i64x2(high, high2, 0x88);
            packed[3] = _mm512_shuffle_i64x2(high, high2, 0xdd);
        }
    }
}

/* The scores of a group of `rows` rows and `part` cells; back: what undoes the rows' scaling. */
VEC_INLINE void totals_store(uint32_t part, vf lower, vf upper, const float *back, uint32_t rows, float *scores)
{
    if (part >= 16) {
        float *second = part == HL ? scores + VL : scores + BLOCK;
        vf_store(scores, lower * vf_set(back[0]));
        vf_store(second, upper * vf_set(back[HL / part - 1]));
        return;
    }
    const __m256 row[4] = {_mm512_castps512_ps256(lower), _mm512_extractf32x8_ps(lower, 1),
                           _mm512_castps512_ps256(upper), _mm512_extractf32x8_ps(upper, 1)};
#pragma GCC unroll 4
    for (uint32_t r = 0; r < 4; r++)
        if (r < rows)
            _mm256_storeu_ps(scores + r * BLOCK, _mm256_mul_ps(row[r], _mm256_set1_ps(back[r])));
}

/* Past the last cell, a tile repeats it. */
VEC_INLINE bool rows_dot(kvb_elem elem, uint32_t part, uint32_t groups, const void *const *q, uint32_t n_rows,
                         const kvb_half_rows *keys, uint32_t dim, float *scores)
{
    const uint32_t n = keys->n, in_group = HL / part, steps = (dim + HL - 1) / HL * in_group;
    vh packed[GROUPS * HALF_MAX_DIM / 8], row[8][elem == KVB_F16 ? 1 : HALF_MAX_DIM / HL], totals[GROUPS];
    float back[DOTS_ROWS];
    __m512i codes = _mm512_setzero_si512();
    vf infinite = _mm512_setzero_ps();

#pragma GCC unroll 2
    for (uint32_t g = 0; g < groups; g++)
        queries_pack(part, q + g * in_group, n_rows - g * in_group, dim, packed + g * steps);
    for (uint32_t r = 0; r < n_rows; r++)
        memcpy(&back[r], q[r], sizeof *back);
    for (uint32_t i = 0; i < n; i += part) {
        const void *tile[HL];
#pragma GCC unroll 32
        for (uint32_t c = 0; c < part; c++) {
            const uint32_t cell = i + c < n ? i + c : n - 1;
            const half_beside beside = half_beside_of(elem, keys, cell);
            tile[c] = keys->at[cell];
            for (uint32_t d = 0; d < dim; d += HL) {
                half_prefetch(elem, dim, n_rows, tile[c], keys->ahead, d);
                if (elem != KVB_F16) {
                    codes = half_codes(elem, codes, tile[c], d);
                    row[c][d / HL] = half_load(elem, tile[c], beside, d, dim);
                }
            }
            if (elem != KVB_F16)
                tile[c] = row[c];
        }
        part_dot(part, groups, packed, steps, tile, dim, totals);
#pragma GCC unroll 2
        for (uint32_t g = 0; g < groups; g++) {
            vf lower = half_lower(totals[g]), upper = half_upper(totals[g]);
            infinite = vf_fma(lower, vf_set(0), vf_fma(upper, vf_set(0), infinite)); /* NaN from the first on */
            totals_store(part, lower, upper, back + g * in_group, n_rows - g * in_group,
                         scores + g * in_group * BLOCK + i);
        }
    }
    return half_finite(infinite) && half_codes_finite(codes);
}

/* Others than f16 are unpacked before they are broadcast: for two cells of 32 lanes, or four, that does not pay. */
VEC_INLINE bool elem_dot(kvb_elem elem, const void *const *q, uint32_t n_rows, const kvb_half_rows *keys, uint32_t dim,
                         float *scores)
{
    if (n_rows == 1 && elem == KVB_F16)
        return rows_dot(elem, 32, 1, q, 1, keys, dim, scores);
    if (n_rows == 2 && elem == KVB_F16)
        return rows_dot(elem, 16, 1, q, 2, keys, dim, scores);
    if (n_rows <= 4)
        return rows_dot(elem, 8, 1, q, n_rows, keys, dim, scores);
    return rows_dot(elem, 8, 2, q, n_rows, keys, dim, scores);
}

bool kvb_half_dots(const kvb_half_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        return keys->dim == 128 ? elem_dot(ELEM, q, n_rows, keys, 128, scores)                                         \
                                : elem_dot(ELEM, q, n_rows, keys, keys->dim, scores);
    HALF_CASES(keys->elem, CASE)
#undef CASE
}
#endif
