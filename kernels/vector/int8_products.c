/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Query rows as integers; scores and weighted sums by products of integers. m' is m + offset * d.
 *
 * Scores. A group of channels adds d * sum((code - offset) * q) + m' * Q to a cell's score, Q being the sum of q's
 * integers in the group. All of it is multiplied by the step of q.
 *
 * Sums. A cell's weight times the d of a group is rounded to a whole number of steps, at most 127. Sums of whole
 * numbers times codes are exact in 32 bits: 127 * 255 * 64 < 2^21. weight * m' is the same for all channels of a group
 * and is summed as floats.
 */
#include "kernels/vector/int8.h"
#include "kernels/vector/vec.h"

#include <math.h>

/* Stores the whole numbers nearest to 64 floats side by side, in the size that codes are multiplied with, or as bytes.
 * Returns their sum if the codes still contain their offset, else 0. */
VEC_INLINE int32_t whole_store(const vf *x, bool bytes, void *to)
{
#if !TILE_SIGNED || defined(OWN_BYTES)
    if (bytes || !TILE_SIGNED) {
        vi sum = vi_set(0);
#pragma GCC unroll 2
        for (uint32_t i = 0; i < 64 / VL; i += 4)
            sum = vf_store_i8((int8_t *)to + i * VL, x + i, sum);
        return vi_total(sum);
    }
#else
    (void)bytes;
#endif
#if TILE_SIGNED && TILE_CODES == 4
    vf_store_i8(to, x);
#elif TILE_SIGNED
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 64 / VL; i += 2)
        vf_store_i16((int16_t *)to + i * VL, x[i], x[i + 1]);
#endif
    return 0;
}

VEC_INLINE float float_of_bits(int32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* ---- queries ---------------------------------------------------------------------------------------------------- */

/* Stores 64 channels in the order in which a tile of keys has their codes. */
VEC_INLINE void channels_store(kvb_elem elem, const float *whole, void *to)
{
    vf x[64 / VL];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 64 / VL; i++)
        x[i] = vf_load(whole + i * VL);
    whole_store(x, KEYS_OF_BYTES(elem), to);
#if defined(__AVX512VNNI__)
    const __m128i even_first = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    if (EVEN_FIRST(elem))
        _mm512_store_si512(to, _mm512_shuffle_epi8(_mm512_load_si512(to), _mm512_broadcast_i32x4(even_first)));
#elif defined(OWN_BYTES)
    __m256i *pairs = to;
    for (uint32_t i = 0; EVEN_PAIRS(elem) && i < 64 / 16; i++)
        pairs[i] = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pairs[i], 0xd8), 0xd8);
#endif
}

void KVB_ISA_NAME(kvb_int8_query)(const kvb_format *k, uint32_t dim, const float *q, void *encoded)
{
    const int8_shape s = int8_shape_of(k, dim);
    _Alignas(64) float whole[INT8_MAX_DIM];
    int8_query *to = encoded;
    vi most = vi_set(0);

    for (uint32_t c = 0; c < dim; c += VL)
        most = vi_size_max(most, vf_load(q + c));
    const int32_t bits = vi_largest(most);
    const bool finite = bits < 0x7f800000;
    const float step = float_of_bits(bits) / 127.0f;
    const vf steps = vf_set(finite && step > 0 ? step : INFINITY);
    for (uint32_t c = 0; c < s.width; c += VL) {
        vf x = c < dim ? (vf)(vf_load(q + c) / steps) : vf_set(0);
        x = vf_max(vf_min(x, vf_set(127)), vf_set(-127)); /* a subnormal step may be inexact, and x too large */
        vf_store(whole + c, vf_round(x));
    }
    to->step = finite ? step : float_of_bits(0x7fc00000);
    for (uint32_t g = 0, c = 0; g < s.groups; g++) {
        vf sum = vf_set(0);
        for (; c < (g + 1) * s.group; c += VL)
            sum = sum + vf_load(whole + c);
        to->sums[g] = (int32_t)vf_total(sum);
    }
    for (uint32_t c = 0; c < s.width; c += 64)
        channels_store(s.elem, whole + c,
                       (char *)encoded + int8_query_codes_at(&s) + c * sizeof(int32_t) / KEY_CODES(s.elem));
}

void KVB_ISA_NAME(kvb_int8_decoded)(const kvb_format *k, uint32_t dim, const void *encoded, double *q)
{
    static const uint8_t plain[8] = {0, 1, 2, 3, 4, 5, 6, 7}, even_first[8] = {0, 2, 4, 6, 1, 3, 5, 7},
                         even_pairs[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    const int8_shape s = int8_shape_of(k, dim);
    const uint8_t *order = EVEN_FIRST(s.elem) ? even_first : EVEN_PAIRS(s.elem) ? even_pairs : plain;
    const char *codes = (const char *)encoded + int8_query_codes_at(&s);
    const double step = (double)((const int8_query *)encoded)->step;
    for (uint32_t i = 0; i < dim; i++) {
        const int code =
            KEY_CODES(s.elem) == 4 ? ((const int8_t *)codes)[i] : ((const int16_t *)(const void *)codes)[i];
        q[i / 8 * 8 + order[i % 8]] = code * step;
    }
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

typedef struct keys {
    const int8_shape *shape;
    const int32_t *tile;
    const float *d, *m;
    kvb_lookahead *next;
} keys;

/* Adds a group of channels to a row's scores of VL cells, in steps of q; the first group begins them, and after the last
 * they are scores. sum: their sums of products; d, m: the cells' factors; m NULL: none. */
VEC_INLINE void score_add(const int8_query *q, uint32_t g, bool first, bool last, vi sum, const float *d,
                          const float *m, float *scores)
{
    vf x = vf_fma(vi_to_vf(sum), vf_load(d), first ? vf_set(0) : vf_load(scores));
    if (m)
        x = vf_fma(vf_set((float)q->sums[g]), vf_load(m), x);
    vf_store(scores, last ? (vf)(x * vf_set(q->step)) : x);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

#define STEPS 127.0f

typedef struct values {
    const int8_shape *shape;
    const int32_t *tile;
    const float *d, *m;
    const float *most; /* the largest |d| of each cell; NULL: some d or m is not finite, and 0 times it must be 0 */
    uint32_t cells;    /* INT8_SOME or BLOCK */
    uint32_t depth;    /* dwords of cells */
    kvb_lookahead *next;
} values;

/* A row's weights times d are rounded to multiples of `step`; per = 1 / step. Both are NaN if such a product is
 * infinite or NaN, and so are then the sums. */
typedef struct row_step {
    float step, per;
} row_step;

/* A row's weights for one group. */
typedef struct whole_weights {
    _Alignas(64) int32_t of[BLOCK / TILE_CODES]; /* the whole numbers of TILE_CODES cells in each */
    int32_t sum;                                 /* of these numbers */
    float step;
    float rest; /* sum of weight * m' */
} whole_weights;

VEC_INLINE vf product_of(vf p, const float *x, bool finite)
{
    return finite ? (vf)(p * vf_load(x)) : vf_weighted(p, vf_load(x));
}

/* The step: the largest weight * d is STEPS of it. */
VEC_INLINE row_step step_find(uint32_t cells, const float *weights, const float *d, bool finite)
{
    vi most = vi_set(0);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < cells; i += VL)
        most = vi_size_max(most, product_of(vf_load(weights + i), d + i, finite));
    int32_t bits = vi_largest(most);
    float largest = float_of_bits(bits < 0x7f800000 ? bits : 0x7fc00000);
    largest = largest < INT8_LEAST_PRODUCT ? INT8_LEAST_PRODUCT : largest;
    return (row_step){largest * (1.0f / STEPS), STEPS / largest};
}

VEC_INLINE void weights_round(uint32_t cells, const float *weights, const float *d, const float *m, bool finite,
                              row_step step, bool bytes, whole_weights *to)
{
    const vf per = vf_set(step.per);
    vf product[BLOCK / VL], rest = vf_set(0);
#pragma GCC unroll 16
    for (uint32_t i = cells / VL; i < BLOCK / VL; i++)
        product[i] = vf_set(0);
#pragma GCC unroll 16
    for (uint32_t i = 0; i < cells / VL; i++) {
        vf p = vf_load(weights + i * VL);
        product[i] = product_of(p, d + i * VL, finite) * per;
        if (m)
            rest = rest + product_of(p, m + i * VL, finite);
    }
    to->sum = whole_store(product, bytes, to->of);
    to->step = step.step;
    to->rest = m ? vf_total(rest) : 0;
}

/* As step_find(), over the largest factors of each cell. */
VEC_INLINE row_step step_of_row(const values *v, const float *weights)
{
    return v->cells == BLOCK ? step_find(BLOCK, weights, v->most, true) : step_find(INT8_SOME, weights, v->most, true);
}

VEC_INLINE void weights_find(uint32_t cells, const values *v, uint32_t g, const float *weights, row_step step,
                             bool bytes, whole_weights *to)
{
    const float *d = v->d + g * BLOCK, *m = v->m ? v->m + g * BLOCK : NULL;
    if (v->most)
        weights_round(cells, weights, d, m, true, step, bytes, to);
    else
        weights_round(cells, weights, d, m, false, step_find(cells, weights, d, false), bytes, to);
}

/* Functions of their own: inlined, they would be compiled for each number of rows. */
#define WEIGHTS(NAME, CELLS, BYTES)                                                                                    \
    static __attribute__((noinline)) void NAME(const values *v, uint32_t g, uint32_t parts, const float *weights,      \
                                               const row_step *steps, uint32_t rows, whole_weights *to)                \
    {                                                                                                                  \
        for (uint32_t r = 0; r < rows; r++)                                                                            \
            for (uint32_t i = 0; i < parts; i++, to++)                                                                 \
                weights_find(CELLS, v, g + i, weights + r * BLOCK, steps[r], BYTES, to);                               \
    }
WEIGHTS(weights_of_block, BLOCK, false)
WEIGHTS(weights_of_few, INT8_SOME, false)
WEIGHTS(bytes_of_block, BLOCK, true)
WEIGHTS(bytes_of_few, INT8_SOME, true)

/* Rounds the weights of rows for groups g .. g + parts - 1: to [rows][parts]. steps: the rows', if all factors are finite. */
VEC_INLINE void weights_of_groups(const values *v, uint32_t g, uint32_t parts, const float *weights,
                                  const row_step *steps, uint32_t rows, bool bytes, whole_weights *to)
{
    if (v->cells == BLOCK)
        (bytes ? bytes_of_block : weights_of_block)(v, g, parts, weights, steps, rows, to);
    else
        (bytes ? bytes_of_few : weights_of_few)(v, g, parts, weights, steps, rows, to);
}

/* Adds a block to VL of a row's sums. m: as in values; sum: their sums of products. */
VEC_INLINE void sum_add(const float *m, const whole_weights *w, vi sum, float *sums)
{
    vf x = vf_load(sums);
    if (m)
        x = x + vf_set(w->rest);
    vf_store(sums, vf_fma(vi_to_vf(sum), vf_set(w->step), x));
}

/* Sets most[i] to the largest magnitude of x[group][i]. Is all of x finite? */
static bool largest_find(const float *x, uint32_t groups, uint32_t cells, float *most)
{
    vi all = vi_set(0);
    for (uint32_t i = 0; i < cells; i += VL) {
        vi size = vi_set(0);
        for (uint32_t g = 0; g < groups; g++)
            size = vi_size_max(size, vf_load(x + g * BLOCK + i));
        vf_store(most + i, (vf)size);
        all = vi_size_max(all, (vf)size);
    }
    return vi_largest(all) < 0x7f800000;
}

/* Sets most[i] to the largest |d| of each cell. Are all d and m finite? */
static bool factors_finite(const int8_shape *s, const int8_block *block, uint32_t cells, float *most)
{
    _Alignas(64) float of_m[BLOCK];
    return largest_find(block->d, s->groups, cells, most) &&
           (!block->m || largest_find(block->m, s->groups, cells, of_m));
}

/* A packed block of n cells. */
static values values_of(const int8_shape *s, const int8_block *block, uint32_t n, float *most, kvb_lookahead *next)
{
    return (values){.shape = s,
                    .tile = block->tile,
                    .d = block->d,
                    .m = block->m,
                    .most = factors_finite(s, block, int8_cells(n), most) ? most : NULL,
                    .cells = int8_cells(n),
                    .depth = (n + TOGETHER - 1) / TOGETHER * TILE_DWORDS,
                    .next = next};
}

#if defined(INT8_TILES)
#include "kernels/vector/int8_tiles.h"
#else

/* c plus the products of the TILE_CODES codes of a dword of a tile and as many whole numbers. */
VEC_INLINE vi vi_dot_codes(vi c, vi codes, vi whole)
{
#if TILE_CODES == 4
    return vi_dot4(c, codes, whole);
#else
    return vi_dot2(c, codes, whole);
#endif
}

/* As dword_product(), for a tile of codes; `dwords` of each list are taken. With I8MM each 128 bits of a vector hold
 * the sums of two rows with two cells, which are separated in the end. */
VEC_INLINE void codes_product(uint32_t rows, uint32_t vecs, uint32_t parts, uint32_t dwords, const void *const *a,
                              const int32_t *tile, size_t stride, vi *acc)
{
#if TILE_DWORDS == 2
    const uint32_t pairs = (rows + 1) / 2;                   /* of rows; a last one alone is taken twice */
    vi sums[PRODUCT_ROWS * PRODUCT_VECS + 2 * PRODUCT_VECS]; /* [2 * vecs][pairs] */
#pragma GCC unroll 32
    for (uint32_t j = 0; j < 2 * vecs * pairs; j++)
        sums[j] = vi_set(0);
    for (uint32_t k = 0; k < dwords; k += 2, tile += 2 * stride)
#pragma GCC unroll 32
        for (uint32_t j = 0; j < 2 * vecs * pairs; j++) {
            const uint32_t v = j / pairs, r = j % pairs * 2, part = v * parts / (2 * vecs);
            const void *one = a[r * parts + part], *other = r + 1 < rows ? a[(r + 1) * parts + part] : one;
            sums[j] = vi_mmla(sums[j], vi_halves((const char *)one + 4 * k, (const char *)other + 4 * k),
                              vi_load(tile + v * VL));
        }
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++) {
        const vi *of = sums + j % vecs * 2 * pairs + j / vecs / 2;
        acc[j] += vi_halves_of(of[0], of[pairs], j / vecs % 2);
    }
#else
    dword_product(vi_dot_codes, rows, vecs, parts, dwords, a, tile, stride, acc);
#endif
}

#ifdef OWN_BYTES
/* As codes_product(), for a tile of keys of bytes. 16 bits hold the sums of 8 dwords of codes of 4 bits (8 * 2 * 15 *
 * 127), of 4 dwords of codes of 5 bits. */
VEC_INLINE void bytes_product(uint32_t rows, uint32_t vecs, bool five, uint32_t dwords, const void *const *a,
                              const int32_t *tile, vi *acc)
{
    for (uint32_t k = 0; k < dwords;) {
        __m256i pairs[PRODUCT_ROWS * PRODUCT_VECS];
#pragma GCC unroll 32
        for (uint32_t j = 0; j < rows * vecs; j++)
            pairs[j] = _mm256_setzero_si256();
#pragma GCC unroll 1
        for (const uint32_t end = k + (five ? 4 : 8); k < end; k++, tile += BLOCK) {
            __m256i b[PRODUCT_VECS];
#pragma GCC unroll 8
            for (uint32_t v = 0; v < vecs; v++)
                b[v] = (__m256i)vi_load(tile + v * VL);
#pragma GCC unroll 32
            for (uint32_t j = 0; j < rows * vecs; j++) {
                const __m256i x = _mm256_maddubs_epi16(b[j % vecs], (__m256i)vi_set(dword_at(a[j / vecs], k)));
                __asm__("vpaddw %1, %0, %0" : "+x"(pairs[j]) : "x"(x)); /* gcc 12 keeps sums twice, and in memory */
            }
        }
#pragma GCC unroll 32
        for (uint32_t j = 0; j < rows * vecs; j++)
            acc[j] = vi_dot2(acc[j], (vi)pairs[j], vi_set(0x00010001));
    }
}
#endif

/* Adds a group of channels to the scores of vecs * VL cells from i on. */
VEC_INLINE void group_scores(bool bytes, bool has_m, uint32_t rows, uint32_t vecs, const keys *k, uint32_t g,
                             uint32_t i, const int8_query *const *q, float *scores)
{
    const int8_shape *s = k->shape;
    const size_t codes_at = int8_query_codes_at(s);
    const uint32_t dwords = s->group / (bytes ? 4 : TILE_CODES);
    const int32_t offset = TILE_SIGNED && !bytes ? 0 : s->of.offset; /* signed codes have it taken off already */
    const float *d = k->d + g * BLOCK + i, *m = k->m + g * BLOCK + i;
    const void *a[PRODUCT_ROWS];
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];

#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        a[r] = (const char *)q[r] + codes_at + (size_t)g * dwords * sizeof(int32_t);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = vi_set(-offset * q[j / vecs]->sums[g]);
    const int32_t *tile = k->tile + (size_t)g * dwords * BLOCK + i * TILE_DWORDS;
#ifdef OWN_BYTES
    if (bytes)
        bytes_product(rows, vecs, s->of.offset == 16, dwords, a, tile, acc);
    else
#endif
        codes_product(rows, vecs, 1, dwords, a, tile, BLOCK, acc);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++) {
        const uint32_t at = j % vecs * VL;
        score_add(q[j / vecs], g, false, false, acc[j], d + at, has_m ? m + at : NULL,
                  scores + j / vecs * BLOCK + i + at);
    }
}

/* Scores of a panel of rows, for so many cells. */
VEC_INLINE void panel_scores(bool bytes, bool has_m, uint32_t rows, uint32_t cells, const keys *k,
                             const int8_query *const *q, float *scores)
{
    const uint32_t vecs = cells < PRODUCT_VECS * VL ? cells / VL : PRODUCT_VECS;
    for (uint32_t r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < cells; i += VL) /* not memset(): with AVX2 gcc 12 makes a slow instruction of it */
            vf_store(scores + r * BLOCK + i, vf_set(0));
    for (uint32_t i = 0; i < cells; i += vecs * VL)
        for (uint32_t g = 0; g < k->shape->groups; g++) {
            group_scores(bytes, has_m, rows, vecs, k, g, i, q, scores);
            kvb_lookahead_step(k->next);
        }
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < cells; i += VL)
            vf_store(scores + r * BLOCK + i, vf_load(scores + r * BLOCK + i) * vf_set(q[r]->step));
}

VEC_INLINE void scores_panel(uint32_t rows, uint32_t cells, const keys *k, const void *const *queries, float *scores)
{
    const bool bytes = KEYS_OF_BYTES(k->shape->elem);
    const int8_query *q[PRODUCT_ROWS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        q[r] = queries[r];
    if (bytes && k->m)
        panel_scores(true, true, rows, cells, k, q, scores);
    else if (bytes)
        panel_scores(true, false, rows, cells, k, q, scores);
    else if (k->m)
        panel_scores(false, true, rows, cells, k, q, scores);
    else
        panel_scores(false, false, rows, cells, k, q, scores);
}

/* Sums `vecs` vectors of channels from c on, in `parts` groups. whole: [rows][parts]. */
VEC_INLINE void channels_sum(uint32_t rows, uint32_t vecs, uint32_t parts, const values *v, const whole_weights *whole,
                             uint32_t c, float *const *sums)
{
    const int32_t offset = TILE_SIGNED ? 0 : v->shape->of.offset; /* signed codes have it taken off already */
    const void *a[PRODUCT_ROWS * 2];
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];
    kvb_lookahead_step(v->next);
#pragma GCC unroll 12
    for (uint32_t j = 0; j < rows * parts; j++)
        a[j] = whole[j].of;
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = vi_set(-offset * whole[j * parts / vecs].sum);
    codes_product(rows, vecs, parts, v->depth, a, v->tile + c * TILE_DWORDS, v->shape->width, acc);
    /* From here on steps and rests are read from memory: gcc 12 kept them in registers all along and spilled the tile.
     */
    __asm__ volatile("" : : "r"(whole) : "memory");
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        sum_add(v->m, &whole[j * parts / vecs], acc[j], sums[j / vecs] + c + j % vecs * VL);
}

/* Sums groups g .. g + parts - 1. Either two groups fill one product, or a single group takes one or more. */
VEC_INLINE void groups_sum(uint32_t rows, uint32_t parts, const values *v, uint32_t g, const float *weights,
                           const row_step *steps, float *const *sums)
{
    const uint32_t span = PRODUCT_VECS * VL;
    whole_weights whole[PRODUCT_ROWS * 2];
    uint32_t c = g * v->shape->group, end = c + parts * v->shape->group;

    weights_of_groups(v, g, parts, weights, steps, rows, false, whole);
    for (; c + span <= end; c += span)
        channels_sum(rows, PRODUCT_VECS, parts, v, whole, c, sums);
    if (parts > 1)
        return;
    for (; c + 2 * VL <= end; c += 2 * VL)
        channels_sum(rows, 2, 1, v, whole, c, sums);
    for (; c < end; c += VL)
        channels_sum(rows, 1, 1, v, whole, c, sums);
}

VEC_INLINE void sums_panel(uint32_t rows, const values *v, const float *weights, float *const *sums)
{
    const int8_shape *s = v->shape;
    const uint32_t half = PRODUCT_VECS * VL / 2;
    row_step steps[PRODUCT_ROWS] = {0};
    uint32_t g = 0;
    for (uint32_t r = 0; r < rows && v->most; r++)
        steps[r] = step_of_row(v, weights + r * BLOCK);
    if (half >= 16 && s->group == half) /* no group is smaller: gcc leaves this out where vectors are short */
        for (; g + 2 <= s->groups; g += 2)
            groups_sum(rows, 2, v, g, weights, steps, sums);
    for (; g < s->groups; g++)
        groups_sum(rows, 1, v, g, weights, steps, sums);
}

#if defined(__AVX2__) && !defined(__AVX512BW__)
#include "kernels/vector/int8_in_place_avx2.h"
#endif

/* ---- any number of rows ------------------------------------------------------------------------------------------ */

/* Panels: of scores for a whole block, and for few cells. */
enum { CELLS_block = BLOCK, CELLS_few = INT8_SOME };
#define SCORES(NAME, ROWS)                                                                                             \
    static __attribute__((noinline)) void scores_##NAME##_##ROWS(const keys *k, const void *const *queries,            \
                                                                 float *scores)                                        \
    {                                                                                                                  \
        scores_panel(ROWS, CELLS_##NAME, k, queries, scores);                                                          \
    }
EACH_PANEL(SCORES, block)
EACH_PANEL(SCORES, few)
#define PANEL(NAME, ROWS)                                                                                              \
    static __attribute__((noinline)) void NAME##_##ROWS(const values *v, const float *weights, float *const *sums)     \
    {                                                                                                                  \
        sums_panel(ROWS, v, weights, sums);                                                                            \
    }
EACH_PANEL(PANEL, sums)

#define ROW(NAME, ROWS) NAME##_##ROWS,
typedef void scores_fn(const keys *k, const void *const *queries, float *scores);
typedef void sums_fn(const values *v, const float *weights, float *const *sums);
static scores_fn *const scores_of[2][PRODUCT_ROWS] = {{EACH_PANEL(ROW, scores_block)}, {EACH_PANEL(ROW, scores_few)}};
static sums_fn *const sums_of[PRODUCT_ROWS] = {EACH_PANEL(ROW, sums)};

void KVB_ISA_NAME(kvb_int8_scores)(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n,
                                   const void *const *queries, uint32_t n_rows, float *scores, kvb_lookahead *next,
                                   void *scratch)
{
    const int8_shape s = int8_shape_of(k->format, k->dim);
#ifdef IN_PLACE
    if (takes_few(&s, n_rows)) {
        few_scores_all(&s, k, h, cells, n, queries, n_rows, scores, next, scratch);
        return;
    }
#endif
    const int8_block block = KVB_ISA_NAME(kvb_int8_keys)(&s, k, h, cells, n, next, scratch);
    const keys all = {&s, block.tile, block.d, block.m, next};

    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        scores_of[int8_cells(n) < BLOCK][take - 1](&all, queries + r, scores + (size_t)r * BLOCK);
    }
    kvb_lookahead_until(next, 2, 2);
}

void KVB_ISA_NAME(kvb_int8_sums)(const kvb_view *v, uint32_t h, const uint32_t *cells, uint32_t n, const float *weights,
                                 uint32_t n_rows, float *const *sums, kvb_lookahead *next, void *scratch)
{
    const int8_shape s = int8_shape_of(v->format, v->dim);
#ifdef IN_PLACE
    if (takes_few(&s, n_rows)) {
        few_sums_all(&s, v, h, cells, n, weights, n_rows, sums, next, scratch);
        return;
    }
#endif
    const int8_block block = KVB_ISA_NAME(kvb_int8_values)(&s, v, h, cells, n, next, scratch);
    _Alignas(64) float most[BLOCK];
    const values all = values_of(&s, &block, n, most, next);

    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        sums_of[take - 1](&all, weights + (size_t)r * BLOCK, sums + r);
    }
    kvb_lookahead_until(next, 2, 2);
}
#endif
