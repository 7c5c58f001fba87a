/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few query rows and stored rows where they lie, by products and short sums of f16 (AVX-512 FP16). `elem` is a constant
 * wherever a function takes it.
 */
#include "kernels/vector/vector.h"

#if defined(__AVX512F__) && defined(__AVX512FP16__)
#include "kernels/vector/stored_floats.h"

#include <math.h>

/* ---- vectors of 32 f16 ------------------------------------------------------------------------------------------- */

#define COMMON_DIM 128u /* the commonest size of rows: loops are also compiled with it as a constant */
#define HL         32u
typedef __m512h vh;

#define F16_ELEMS(X) X(KVB_F16) X(KVB_E4M3) X(KVB_Q8_0) X(KVB_UINT8)

/* Where the scales and zeros of a row of UINT8 lie: one of each for 2^shift channels. Empty for other elements. */
typedef struct row_beside {
    const uint8_t *scales, *zeros;
    uint32_t shift;
} row_beside;

VEC_INLINE row_beside row_beside_of(kvb_elem elem, const kvb_stored_rows *rows, uint32_t i)
{
    if (elem != KVB_UINT8)
        return (row_beside){0};
    const kvb_view *v = rows->view;
    const size_t at = rows->cells[i], h = rows->kv_head;
    return (row_beside){(const uint8_t *)v->scales + h * v->scale_head_stride + at * v->scale_cell_stride,
                        (const uint8_t *)v->zeros + h * v->zero_head_stride + at * v->zero_cell_stride,
                        (uint32_t)__builtin_ctz(v->format->group)};
}

/* The f16 at p, aligned or not, in all lanes. */
VEC_INLINE vh f16_set(const void *p)
{
    short bits;
    memcpy(&bits, p, sizeof bits);
    return _mm512_castsi512_ph(_mm512_set1_epi16(bits));
}

/*
 * Elements i .. i+31 of a row; 0 past dim. e4m3 becomes f16 with 2^-8 of its value, its NaNs anything. Codes of 8 bits
 * become elements with one rounding.
 */
VEC_INLINE vh f16_load(kvb_elem elem, const void *row, row_beside beside, uint32_t i, uint32_t dim)
{
    const uint8_t *p = (const uint8_t *)row + (elem == KVB_F16 ? 2 * i : elem == KVB_Q8_0 ? i / 32 * 34 : i);
    if (elem == KVB_E4M3) {
        __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
        return _mm512_castsi512_ph(_mm512_and_si512(_mm512_slli_epi16(code, 7), _mm512_set1_epi32((int)0xbfffbfff)));
    }
    if (elem == KVB_Q8_0) { /* ggml's block: f16 d, 32 codes */
        __m512i code = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(p + 2)));
        return _mm512_mul_ph(_mm512_cvtepi16_ph(code), f16_set(p));
    }
    if (elem == KVB_UINT8) {
        const size_t group = (i >> beside.shift) * sizeof(uint16_t);
        __m512i code = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
        return _mm512_fmadd_ph(_mm512_cvtepu16_ph(code), f16_set(beside.scales + group), f16_set(beside.zeros + group));
    }
    if (dim - i >= HL)
        return _mm512_castsi512_ph(_mm512_loadu_si512(p));
    return _mm512_castsi512_ph(_mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p)));
}

/* elem_prefetch() in steps of 32 channels. For q8_0 one line for two blocks, and one for a last single block. */
VEC_INLINE void f16_prefetch(kvb_elem elem, uint32_t dim, const void *row, kvb_row_ahead ahead, uint32_t i)
{
    const kvb_elem as = elem == KVB_F16 ? KVB_F16 : KVB_E4M3;
    if (elem == KVB_Q8_0 && i % 64 && dim - i <= 32)
        i += 32;
    ahead.again = false;
    elem_prefetch(as, line_way_of(ahead), line_ahead_of(as, 1, ahead), row, i);
}

/* Keeps the largest e4m3 magnitude seen in each byte; 127 is NaN. Does nothing for other elements. */
VEC_INLINE __m512i codes_largest(kvb_elem elem, __m512i largest, const void *row, uint32_t i)
{
    if (elem != KVB_E4M3 || i % 64)
        return largest;
    __m512i code = _mm512_loadu_si512(elem_at(elem, row, i));
    return _mm512_max_epu8(largest, _mm512_and_si512(code, _mm512_set1_epi8(127)));
}
VEC_INLINE bool codes_finite(__m512i largest)
{
    return !_mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(127));
}

VEC_INLINE bool vf_finite(vf x)
{
    return !_mm512_fpclass_ps_mask(x, 0x99); /* quiet and signalling NaN, both infinities */
}

/* Lanes 0-15 and 16-31 as floats. */
VEC_INLINE vf f16_lower(vh x)
{
    return _mm512_cvtxph_ps(_mm512_castph512_ph256(x));
}
VEC_INLINE vf f16_upper(vh x)
{
    return _mm512_cvtxph_ps(_mm256_castsi256_ph(_mm512_extracti64x4_epi64(_mm512_castph_si512(x), 1)));
}

/* ---- query rows -------------------------------------------------------------------------------------------------- */

static void f16_query(const kvb_format *k, uint32_t dim, const float *q, void *to)
{
    const kvb_elem elem = k->elem;
    _Float16 *half = (_Float16 *)to + 32;
    vf most = vf_set(0);
    int exponent = 0;

    for (uint32_t c = 0; c < dim; c += VL)
        most = vf_max(_mm512_abs_ps(vf_load(q + c)), most);
    const float largest = vf_largest(most);
    if (largest > 0 && isfinite(largest))
        frexpf(largest, &exponent); /* largest = [0.5, 1) 2^exponent */
    exponent = (elem == KVB_E4M3 ? 12 : 4) - exponent;
    const float first = ldexpf(1, exponent / 2),
                second = ldexpf(1, exponent - exponent / 2); /* a single factor may exceed f32's range */
    memset(to, 0, kvb_f16_query_bytes(dim));
    for (uint32_t c = 0; c < dim; c += VL) {
        vf scaled = vf_load(q + c) * vf_set(first) * vf_set(second);
        _mm256_storeu_si256((__m256i *)(void *)(half + c), _mm512_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
    }
    *(float *)to = ldexpf(1, (elem == KVB_E4M3 ? 8 : 0) - exponent);
}

/* ---- dot products ------------------------------------------------------------------------------------------------ */

/*
 * A vector holds `part` channels of each of 32 / part query rows, one row after the other. It is multiplied by the same
 * channels of a cell, repeated to fill a vector. In the end a vector holds `part` lanes to add up for each row; a tree
 * of additions joins such vectors of `part` cells into one.
 */
#define GROUPS 2u /* most groups of 32 / part rows that meet a cell while it is in a register */

VEC_INLINE const _Float16 *query_row(const void *q)
{
    return (const _Float16 *)q + 32;
}

/* This and the next two add up neighbouring lanes of two vectors. Of four lanes of 32 bits the lower two get x's sums,
 * the upper two y's. */
VEC_INLINE vh lanes_far(vh x, vh y)
{
    __m512 a = _mm512_castph_ps(x), b = _mm512_castph_ps(y);
    return _mm512_add_ph(_mm512_castps_ph(_mm512_mask_blend_ps(0xcccc, a, b)),
                         _mm512_castps_ph(_mm512_shuffle_ps(a, b, 0x4e)));
}
/* Even lanes of 32 bits get x's sums, odd ones y's. */
VEC_INLINE vh lanes_near(vh x, vh y)
{
    const __m512i other = _mm512_setr_epi32(1, 16, 3, 18, 5, 20, 7, 22, 9, 24, 11, 26, 13, 28, 15, 30);
    __m512 a = _mm512_castph_ps(x), b = _mm512_castph_ps(y);
    return _mm512_add_ph(_mm512_castps_ph(_mm512_mask_blend_ps(0xaaaa, a, b)),
                         _mm512_castps_ph(_mm512_permutex2var_ps(a, other, b)));
}
/* Even lanes of 16 bits get x's sums, odd ones y's. */
VEC_INLINE vh lanes_next(vh x, vh y)
{
    __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    __m512i other = _mm512_or_si512(_mm512_srli_epi32(a, 16), _mm512_slli_epi32(b, 16));
    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_mask_blend_epi16(0xaaaaaaaa, a, b)), _mm512_castsi512_ph(other));
}

/* Lane j of each 128 bits: the sum of those 128 bits of v[j]. */
VEC_INLINE vh eight_total(const vh v[8])
{
    return lanes_next(lanes_near(lanes_far(v[0], v[4]), lanes_far(v[2], v[6])),
                      lanes_near(lanes_far(v[1], v[5]), lanes_far(v[3], v[7])));
}
/* Parts of 128 bits: x's 0 + 1, y's 0 + 1, x's 2 + 3, y's 2 + 3. */
VEC_INLINE vh pairs_total(vh x, vh y)
{
    const __m512i other = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
    __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_mask_blend_epi64(0xcc, a, b)),
                         _mm512_castsi512_ph(_mm512_permutex2var_epi64(a, other, b)));
}
/* Parts of 128 bits: x's 0 + 2, x's 1 + 3, y's 0 + 2, y's 1 + 3. */
VEC_INLINE vh fours_total(vh x, vh y)
{
    __m512i a = _mm512_castph_si512(x), b = _mm512_castph_si512(y);
    return _mm512_add_ph(_mm512_castsi512_ph(_mm512_shuffle_i64x2(a, b, 0x44)),
                         _mm512_castsi512_ph(_mm512_shuffle_i64x2(a, b, 0xee)));
}

/* Channels d .. d + part - 1 of a row of f16, repeated to fill the vector. */
VEC_INLINE vh part_load(uint32_t part, const void *row, uint32_t d, uint32_t dim)
{
    const void *p = elem_at(KVB_F16, row, d);
    if (part == HL)
        return f16_load(KVB_F16, row, (row_beside){0}, d, dim);
    return _mm512_castsi512_ph(part == 16 ? _mm512_broadcast_i64x4(_mm256_loadu_si256(p))
                                          : _mm512_broadcast_i32x4(_mm_loadu_si128(p)));
}

/* Eight cells times the query vectors q [group][steps]. */
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

/* totals[group], lane r * part + c: row r of the group times cell c. With more than one group, part is 8. */
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

/* Query rows as vectors to[d / part]. Rows that are missing repeat the last one. */
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

/* Stores the scores of a group of `rows` rows and `part` cells. back: the factors that undo the rows' scaling. */
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

/* The last cell is repeated to fill the last tile. */
VEC_INLINE bool rows_dot(kvb_elem elem, uint32_t part, uint32_t groups, const void *const *q, uint32_t n_rows,
                         const kvb_stored_rows *keys, uint32_t dim, float *scores)
{
    const uint32_t n = keys->n, in_group = HL / part, steps = (dim + HL - 1) / HL * in_group;
    vh packed[GROUPS * F16_MAX_DIM / 8], row[8][elem == KVB_F16 ? 1 : F16_MAX_DIM / HL], totals[GROUPS];
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
            const row_beside beside = row_beside_of(elem, keys, cell);
            tile[c] = keys->at[cell];
            for (uint32_t d = 0; d < dim; d += HL) {
                f16_prefetch(elem, dim, tile[c], keys->ahead, d);
                if (elem != KVB_F16) {
                    codes = codes_largest(elem, codes, tile[c], d);
                    row[c][d / HL] = f16_load(elem, tile[c], beside, d, dim);
                }
            }
            if (elem != KVB_F16)
                tile[c] = row[c];
        }
        part_dot(part, groups, packed, steps, tile, dim, totals);
#pragma GCC unroll 2
        for (uint32_t g = 0; g < groups; g++) {
            vf lower = f16_lower(totals[g]), upper = f16_upper(totals[g]);
            infinite = vf_fma(lower, vf_set(0), vf_fma(upper, vf_set(0), infinite)); /* NaN once one is not finite */
            totals_store(part, lower, upper, back + g * in_group, n_rows - g * in_group,
                         scores + g * in_group * BLOCK + i);
        }
    }
    return vf_finite(infinite) && codes_finite(codes);
}

#define DOTS(ELEM, PART, GROUPS)                                                                                       \
    static __attribute__((noinline)) bool dots_##ELEM##_##PART##_##GROUPS(                                             \
        const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores)                             \
    {                                                                                                                  \
        return keys->dim == COMMON_DIM ? rows_dot(ELEM, PART, GROUPS, q, n_rows, keys, COMMON_DIM, scores)             \
                                       : rows_dot(ELEM, PART, GROUPS, q, n_rows, keys, keys->dim, scores);             \
    }
#define DOTS_OF(ELEM) DOTS(ELEM, 8, 1) DOTS(ELEM, 8, 2)
F16_ELEMS(DOTS_OF)
DOTS(KVB_F16, 32, 1)
DOTS(KVB_F16, 16, 1)

static kvb_dots_fn *const dots[KVB_ELEM_COUNT][GROUPS] = {
#define LINE(ELEM) [ELEM] = {dots_##ELEM##_8_1, dots_##ELEM##_8_2},
    F16_ELEMS(LINE)
#undef LINE
};

/* Elements other than f16 are unpacked before they are broadcast: parts of 16 or 32 channels gain nothing. */
static bool f16_dots(const kvb_stored_rows *keys, const void *const *q, uint32_t n_rows, float *scores)
{
    if (n_rows == 1 && keys->elem == KVB_F16)
        return dots_KVB_F16_32_1(keys, q, n_rows, scores);
    if (n_rows == 2 && keys->elem == KVB_F16)
        return dots_KVB_F16_16_1(keys, q, n_rows, scores);
    return dots[keys->elem][n_rows > 4](keys, q, n_rows, scores);
}

/* ---- weighted sums ----------------------------------------------------------------------------------------------- */

/*
 * Sums of a strip of channels, for all rows, stay in registers for F16_CELLS cells. Those sums are then added up in f16
 * as well, and become floats at the end of the block.
 */
#define STRIP 20u /* vectors of sums of a strip, at most: they share the registers with values and a weight */

/* Scaled weights of a row as f16, each twice in 32 bits: one broadcast fills a vector. */
VEC_INLINE void weights_round(const float *weights, uint32_t n, float scale, uint32_t *to)
{
    for (uint32_t i = 0; i < n; i += VL) {
        __m256i half = _mm512_cvtps_ph(vf_load(weights + i) * vf_set(scale), _MM_FROUND_TO_NEAREST_INT);
        __m512i one = _mm512_cvtepu16_epi32(half);
        _mm512_storeu_si512(to + i, _mm512_or_si512(one, _mm512_slli_epi32(one, 16)));
    }
}

VEC_INLINE vh weight_of(const uint32_t *weight)
{
    return _mm512_castsi512_ph(_mm512_set1_epi32((int)*weight));
}

/* Adds the weighted sum of stored rows first .. end-1 to parts [rows][width]. */
VEC_INLINE void strip_sum(kvb_elem elem, uint32_t rows, uint32_t vecs, const uint32_t *weights,
                          const kvb_stored_rows *values, uint32_t first, uint32_t end, uint32_t dim, uint32_t at,
                          vh *parts, uint32_t width, __m512i *codes)
{
    vh sum[STRIP];
#pragma GCC unroll 32
    for (uint32_t s = 0; s < rows * vecs; s++)
        sum[s] = _mm512_setzero_ph();
    for (uint32_t i = first; i < end; i++) {
        const row_beside beside = row_beside_of(elem, values, i);
        const void *row = values->at[i];
        vh value[4];
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            value[v] = f16_load(elem, row, beside, at + v * HL, dim);
            *codes = codes_largest(elem, *codes, row, at + v * HL);
            f16_prefetch(elem, dim, row, values->ahead, at + v * HL);
        }
#pragma GCC unroll 8
        for (uint32_t r = 0; r < rows; r++) {
            vh weight = weight_of(weights + r * BLOCK + i);
#pragma GCC unroll 4
            for (uint32_t v = 0; v < vecs; v++)
                sum[r * vecs + v] = _mm512_fmadd_ph(weight, value[v], sum[r * vecs + v]);
        }
    }
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (uint32_t v = 0; v < vecs; v++) {
            vh *to = parts + r * width + at / HL + v;
            *to = _mm512_add_ph(*to, sum[r * vecs + v]);
        }
}

/* The widest strips that fit the registers, then narrower ones for the channels left over. */
VEC_INLINE void some_sum(kvb_elem elem, uint32_t rows, const uint32_t *weights, const kvb_stored_rows *values,
                         uint32_t first, uint32_t end, uint32_t dim, vh *parts, uint32_t width, __m512i *codes)
{
    uint32_t at = 0;
#define STRIPS(VECS)                                                                                                   \
    if (rows * VECS <= STRIP)                                                                                          \
        for (; width * HL - at >= VECS * HL; at += VECS * HL)                                                          \
            strip_sum(elem, rows, VECS, weights, values, first, end, dim, at, parts, width, codes);
    STRIPS(4)
    STRIPS(2)
    STRIPS(1)
#undef STRIPS
}

VEC_INLINE bool rows_sum(kvb_elem elem, uint32_t rows, const float *weights, const kvb_stored_rows *values,
                         uint32_t dim, float *const *sums)
{
    const float units = elem == KVB_E4M3 ? (float)F16_WEIGHTS_E4M3 : (float)F16_WEIGHTS;
    const float scale = elem == KVB_E4M3 ? 256 * units : units, back = 1 / units;
    const uint32_t n = values->n, width = (dim + HL - 1) / HL; /* vectors of a row */
    _Alignas(64) uint32_t rounded[DOTS_ROWS * BLOCK];
    vh parts[DOTS_ROWS * F16_MAX_DIM / HL], infinite = _mm512_setzero_ph();
    __m512i codes = _mm512_setzero_si512();

    memset(parts, 0, rows * width * sizeof *parts);
    for (uint32_t r = 0; r < rows; r++)
        weights_round(weights + r * BLOCK, n, scale, rounded + r * BLOCK);
    for (uint32_t i = 0; i < n; i += F16_CELLS)
        some_sum(elem, rows, rounded, values, i, n - i < F16_CELLS ? n : i + F16_CELLS, dim, parts, width, &codes);
    for (uint32_t i = 0; i < rows * width; i++)
        infinite = _mm512_fmadd_ph(parts[i], _mm512_setzero_ph(), infinite);
    if (!vf_finite(f16_lower(infinite) + f16_upper(infinite)) || !codes_finite(codes))
        return false;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < dim; c += VL) {
            vh part = parts[r * width + c / HL];
            vf more = c % HL ? f16_upper(part) : f16_lower(part);
            vf_store(sums[r] + c, vf_fma(more, vf_set(back), vf_load(sums[r] + c)));
        }
    return true;
}

typedef bool sums_fn(const kvb_stored_rows *values, const float *weights, float *const *sums);

#define SUMS(ELEM, N)                                                                                                  \
    static __attribute__((noinline)) bool sums_##ELEM##_##N(const kvb_stored_rows *values, const float *weights,       \
                                                            float *const *sums)                                        \
    {                                                                                                                  \
        return values->dim == COMMON_DIM ? rows_sum(ELEM, N, weights, values, COMMON_DIM, sums)                        \
                                         : rows_sum(ELEM, N, weights, values, values->dim, sums);                      \
    }
#define SUMS_OF(ELEM) EACH_ROWS(SUMS, ELEM)
F16_ELEMS(SUMS_OF)

static sums_fn *const sums_of[KVB_ELEM_COUNT][DOTS_ROWS] = {
#define ROW(ELEM, N) sums_##ELEM##_##N,
#define LINE(ELEM)   [ELEM] = {EACH_ROWS(ROW, ELEM)},
    F16_ELEMS(LINE)
#undef ROW
#undef LINE
};

static bool f16_sums(const kvb_stored_rows *values, const float *weights, uint32_t n_rows, float *const *sums)
{
    return sums_of[values->elem][n_rows - 1](values, weights, sums);
}

const kvb_f16_loops kvb_f16_avx512fp16 = {.query = f16_query, .dots = f16_dots, .sums = f16_sums};
#endif
