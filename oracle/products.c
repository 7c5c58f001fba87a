/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over doubles, compiled for each level of instruction sets. Products and sums are never contracted: the bits are
 * the same. */
#include "oracle/products.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* The CPU's own vector length: gcc keeps larger vectors, and copies of several, in memory. */
#if defined __AVX512F__
#define LANES 8
#elif defined __AVX__
#define LANES 4
#else
#define LANES 2
#endif
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t lane_bits __attribute__((vector_size(LANES * sizeof(double))));

/* ---- sums over channels ---------------------------------------------------------------------------------------- */

#define SUMS  8u             /* of a row: channel d is part of sum d % 8, so the bits do not depend on LANES */
#define PARTS (SUMS / LANES) /* vectors of a row's sums */

/* All sums of each of LANES rows: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). */
#if LANES == 8
INLINE lanes sums_add(lanes in[LANES][PARTS])
{
    lanes two[4], four[2];
    for (int p = 0; p < 4; p++)
        two[p] = __builtin_shufflevector(in[2 * p][0], in[2 * p + 1][0], 0, 8, 2, 10, 4, 12, 6, 14) +
                 __builtin_shufflevector(in[2 * p][0], in[2 * p + 1][0], 1, 9, 3, 11, 5, 13, 7, 15);
    for (int p = 0; p < 2; p++)
        four[p] = __builtin_shufflevector(two[2 * p], two[2 * p + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
                  __builtin_shufflevector(two[2 * p], two[2 * p + 1], 2, 3, 10, 11, 6, 7, 14, 15);
    return __builtin_shufflevector(four[0], four[1], 0, 1, 2, 3, 8, 9, 10, 11) +
           __builtin_shufflevector(four[0], four[1], 4, 5, 6, 7, 12, 13, 14, 15);
}
#elif LANES == 4
INLINE lanes sums_add(lanes in[LANES][PARTS])
{
    lanes two[2], four[2];
    for (int half = 0; half < 2; half++) {
        for (int p = 0; p < 2; p++)
            two[p] = __builtin_shufflevector(in[2 * p][half], in[2 * p + 1][half], 0, 4, 2, 6) +
                     __builtin_shufflevector(in[2 * p][half], in[2 * p + 1][half], 1, 5, 3, 7);
        four[half] =
            __builtin_shufflevector(two[0], two[1], 0, 1, 4, 5) + __builtin_shufflevector(two[0], two[1], 2, 3, 6, 7);
    }
    return four[0] + four[1];
}
#else
INLINE lanes sums_add(lanes in[LANES][PARTS])
{
    lanes two[4];
    for (int p = 0; p < 4; p++)
        two[p] = __builtin_shufflevector(in[0][p], in[1][p], 0, 2) + __builtin_shufflevector(in[0][p], in[1][p], 1, 3);
    return (two[0] + two[1]) + (two[2] + two[3]);
}
#endif

#define MAGNITUDE(x) ((lanes)((lane_bits)(x)&INT64_MAX))

INLINE lanes lanes_load(const double *from)
{
    lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* Stores the sums of the first `some` of LANES rows. rest: the sums of channels past the last whole SUMS. */
INLINE void sums_store(lanes sum[LANES][PARTS], lanes rest, uint32_t some, double *out)
{
    const lanes all = sums_add(sum) + rest;
    memcpy(out, &all, some * sizeof *out);
}

/* For LANES rows at a time: the sum over channels of q k, or with `squares` of k k. `sums` gets the sums of the
 * products, `masses` those of their magnitudes. Either may be NULL. */
INLINE void rows_sum(bool squares, const double *restrict q, const double *restrict k, const uint32_t *at, uint32_t n,
                     uint32_t dim, double *restrict sums, double *restrict masses)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        const double *row[LANES];
        lanes sum[LANES][PARTS] = {{{0}}}, mass[LANES][PARTS] = {{{0}}}, rest = {0}, rest_mass = {0};
        uint32_t d = 0, some = n - i < LANES ? n - i : LANES;
        for (uint32_t j = 0; j < LANES; j++)
            row[j] = k + (size_t)at[i + (j < some ? j : 0)] * dim;
        for (; d + SUMS <= dim; d += SUMS)
            for (uint32_t p = 0; p < PARTS; p++) {
                const lanes of_q = lanes_load(q + d + p * LANES);
                for (uint32_t j = 0; j < LANES; j++) {
                    lanes each = lanes_load(row[j] + d + p * LANES);
                    each *= squares ? each : of_q;
                    if (sums)
                        sum[j][p] += each;
                    if (masses)
                        mass[j][p] += MAGNITUDE(each);
                }
            }
        for (; d < dim; d++)
            for (uint32_t j = 0; j < LANES; j++) {
                double each = row[j][d] * (squares ? row[j][d] : q[d]);
                rest[j] += each;
                rest_mass[j] += fabs(each);
            }
        if (sums)
            sums_store(sum, rest, some, sums + i);
        if (masses)
            sums_store(mass, rest_mass, some, masses + i);
    }
}

/* Each case is a loop of its own. */
static void row_sums(const double *q, const double *k, const uint32_t *at, uint32_t n, uint32_t dim, double *sums,
                     double *masses)
{
    if (!q)
        rows_sum(true, k, k, at, n, dim, sums, NULL);
    else if (!masses)
        rows_sum(false, q, k, at, n, dim, sums, NULL);
    else if (!sums)
        rows_sum(false, q, k, at, n, dim, NULL, masses);
    else
        rows_sum(false, q, k, at, n, dim, sums, masses);
}

/* ---- sums over cells --------------------------------------------------------------------------------------------- */

/*
 * Calls `some(c, vectors, n, …)` for the channels c .. c + vectors n - 1. Their sums stay in registers over the cells of
 * a tile. It takes `broad` vectors at a time if it can, then two, then one: additions to different vectors do not
 * wait for each other.
 */
#define ALL_CHANNELS(dim, broad, some, ...)                                                                            \
    do {                                                                                                               \
        uint32_t c = 0;                                                                                                \
        for (; c + (broad)*LANES <= (dim); c += (broad)*LANES)                                                         \
            some(c, broad, LANES, __VA_ARGS__);                                                                        \
        for (; c + 2 * LANES <= (dim); c += 2 * LANES)                                                                 \
            some(c, 2, LANES, __VA_ARGS__);                                                                            \
        for (; c + LANES <= (dim); c += LANES)                                                                         \
            some(c, 1, LANES, __VA_ARGS__);                                                                            \
        if (c < (dim))                                                                                                 \
            some(c, 1, (dim)-c, __VA_ARGS__);                                                                          \
    } while (0)

/* Copies some vectors of n channels each, one by one: gcc copies several at once through memory. */
#define LOAD(x, from, vectors, n)                                                                                      \
    for (uint32_t b = 0; b < (vectors); b++)                                                                           \
    memcpy(&(x)[b], (from) + b * LANES, (n) * sizeof(double))
#define STORE(to, x, vectors, n)                                                                                       \
    for (uint32_t b = 0; b < (vectors); b++)                                                                           \
    memcpy((to) + b * LANES, &(x)[b], (n) * sizeof(double))

/* b if a < b, else a (also if one of them is NaN): one instruction of x86. */
INLINE lanes larger(lanes a, lanes b)
{
#if LANES == 8
    return _mm512_max_pd(b, a);
#elif LANES == 4
    return _mm256_max_pd(b, a);
#elif defined __SSE2__
    return _mm_max_pd(b, a);
#else
    const lane_bits less = (lane_bits)(a < b);
    return (lanes)((less & (lane_bits)b) | (~less & (lane_bits)a));
#endif
}

#define MIX_BROAD 8u

INLINE void channels_mix(uint32_t c, uint32_t vectors, uint32_t n, const kvb_tile_rows *t, double *o)
{
    lanes sum[MIX_BROAD] = {{0}}, v = {0};
    LOAD(sum, o + c, vectors, n);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < vectors; b++) {
            memcpy(&v, t->v + t->at[i] * t->row + c + b * LANES, n * sizeof(double));
            sum[b] += t->weights[i] * v;
        }
    STORE(o + c, sum, vectors, n);
}

#define WEIGH_BROAD 4u

INLINE void channels_weigh(uint32_t c, uint32_t vectors, uint32_t n, const kvb_tile_rows *t, bool sized, double *mass,
                           double *v_max)
{
    lanes sum[WEIGH_BROAD] = {{0}}, most[WEIGH_BROAD] = {{0}}, v = {0}, size = {0};
    LOAD(sum, mass + c, vectors, n);
    LOAD(most, v_max + c, vectors, n);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < vectors; b++) {
            const size_t at = t->at[i] * t->row + c + b * LANES;
            memcpy(&v, t->v + at, n * sizeof(double));
            v = MAGNITUDE(v);
            if (sized) {
                memcpy(&size, t->sizes + at, n * sizeof(double));
                v = larger(v, size);
            }
            sum[b] += t->weights[i] * v;
            most[b] = larger(v, most[b]);
        }
    STORE(mass + c, sum, vectors, n);
    STORE(v_max + c, most, vectors, n);
}

#define SPREAD_BROAD (LANES == 8 ? 4u : 2u) /* there are 32 registers, or 16 */

/* The sums of p_i |v_ic - o_c| alone, times A_i, times Q_i, times S_i. */
INLINE void channels_spread(uint32_t c, uint32_t vectors, uint32_t n, const kvb_tile_rows *t, const double *out,
                            double *const *sums)
{
    lanes o[SPREAD_BROAD] = {{0}}, sum[4][SPREAD_BROAD] = {{{0}}}, v = {0};
    LOAD(o, out + c, vectors, n);
    for (uint32_t s = 0; s < 4; s++)
        LOAD(sum[s], sums[s] + c, vectors, n);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < vectors; b++) {
            memcpy(&v, t->v + t->at[i] * t->row + c + b * LANES, n * sizeof(double));
            v -= o[b];
            v = t->weights[i] * MAGNITUDE(v);
            sum[0][b] += v;
            sum[1][b] += v * t->reach[i];
            sum[2][b] += v * t->shift[i];
            sum[3][b] += v * t->size[i];
        }
    for (uint32_t s = 0; s < 4; s++)
        STORE(sums[s] + c, sum[s], vectors, n);
}

static void output_sums(const kvb_tile_rows *rows, uint32_t dim, double *o)
{
    ALL_CHANNELS(dim, MIX_BROAD, channels_mix, rows, o);
}

static void mass_sums(const kvb_tile_rows *rows, uint32_t dim, double *mass, double *v_max)
{
    if (rows->sizes == rows->v)
        ALL_CHANNELS(dim, WEIGH_BROAD, channels_weigh, rows, false, mass, v_max);
    else
        ALL_CHANNELS(dim, WEIGH_BROAD, channels_weigh, rows, true, mass, v_max);
}

static void spread_sums(const kvb_tile_rows *rows, uint32_t dim, const double *o, double *const sums[4])
{
    ALL_CHANNELS(dim, SPREAD_BROAD, channels_spread, rows, o, sums);
}

#define NAME_OF(isa) kvb_products_##isa
#define NAME(isa)    NAME_OF(isa)
const kvb_products NAME(KVB_ISA) = {row_sums, output_sums, mass_sums, spread_sums};
