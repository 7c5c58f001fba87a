/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over doubles, compiled for each level of instruction sets. Products and sums are never contracted: the bits are the same. */
#include "oracle/products.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Vectors that the CPU has: gcc keeps larger ones, and copies of several, in memory. */
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

typedef enum product { PLAIN, MAGNITUDES, SQUARES } product; /* of q and k; |q k|; of k with itself */

/* A sum of products over channels, LANES rows at a time. */
INLINE void rows_sum(product kind, const double *restrict q, const double *restrict k, const uint32_t *at, uint32_t n,
                     uint32_t dim, double *restrict out)
{
    for (uint32_t i = 0; i < n; i += LANES) {
        const double *row[LANES];
        lanes sum[LANES][PARTS] = {{{0}}}, all, rest = {0}, of_k, of_q[PARTS];
        uint32_t d = 0, some = n - i < LANES ? n - i : LANES;
        for (uint32_t j = 0; j < LANES; j++)
            row[j] = k + (size_t)at[i + (j < some ? j : 0)] * dim;
        for (; d + SUMS <= dim; d += SUMS) {
            for (uint32_t p = 0; p < PARTS; p++)
                memcpy(&of_q[p], q + d + p * LANES, sizeof of_q[p]);
            for (uint32_t j = 0; j < LANES; j++)
                for (uint32_t p = 0; p < PARTS; p++) {
                    memcpy(&of_k, row[j] + d + p * LANES, sizeof of_k);
                    of_k *= kind == SQUARES ? of_k : of_q[p];
                    sum[j][p] += kind == MAGNITUDES ? MAGNITUDE(of_k) : of_k;
                }
        }
        for (; d < dim; d++)
            for (uint32_t j = 0; j < LANES; j++) {
                double each = row[j][d] * (kind == SQUARES ? row[j][d] : q[d]);
                rest[j] += kind == MAGNITUDES ? fabs(each) : each;
            }
        all = sums_add(sum) + rest;
        memcpy(out + i, &all, some * sizeof *out);
    }
}

static void dots(const double *q, const double *k, const uint32_t *at, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(PLAIN, q, k, at, n, dim, sums);
}

static void masses(const double *q, const double *k, const uint32_t *at, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(MAGNITUDES, q, k, at, n, dim, sums);
}

static void squares(const double *q, const double *k, const uint32_t *at, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(SQUARES, q, k, at, n, dim, sums);
}

/* ---- sums over cells ---------------------------------------------------------------------------------------------- */

/*
 * Calls `some(c, vectors, n, …)` for the channels c .. c + vectors n - 1, whose sums stay in registers over the cells of a tile.
 * It takes `broad` vectors at a time where it can: an addition waits for the last one to the same vector, not to another.
 */
#define ALL_CHANNELS(dim, broad, some, ...)                                                                            \
    do {                                                                                                               \
        uint32_t c = 0;                                                                                                \
        for (; c + (broad)*LANES <= (dim); c += (broad)*LANES)                                                         \
            some(c, broad, LANES, __VA_ARGS__);                                                                        \
        for (; c + LANES <= (dim); c += LANES)                                                                         \
            some(c, 1, LANES, __VA_ARGS__);                                                                            \
        if (c < (dim))                                                                                                 \
            some(c, 1, (dim)-c, __VA_ARGS__);                                                                          \
    } while (0)

#define LOAD(x, at, n)  memcpy(x, at, (n) * sizeof(double))
#define STORE(at, x, n) memcpy(at, x, (n) * sizeof(double))

/* a becomes b where it is less; not where one of them is not a number. */
#define ENLARGE(a, b)                                                                                                  \
    do {                                                                                                               \
        lane_bits less = (lane_bits)((a) < (b));                                                                       \
        (a) = (lanes)((less & (lane_bits)(b)) | (~less & (lane_bits)(a)));                                             \
    } while (0)

#define MIX_BROAD 8u

INLINE void channels_mix(uint32_t c, uint32_t vectors, uint32_t n, const kvb_tile_rows *t, double *o)
{
    lanes sum[MIX_BROAD] = {{0}}, v = {0};
    LOAD(sum, o + c, vectors * n);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < vectors; b++) {
            LOAD(&v, t->v + t->at[i] * t->row + c + b * LANES, n);
            sum[b] += t->weights[i] * v;
        }
    STORE(o + c, sum, vectors * n);
}

#define WEIGH_BROAD 4u

INLINE void channels_weigh(uint32_t c, uint32_t vectors, uint32_t n, const kvb_tile_rows *t, bool sized, double *mass,
                           double *v_max)
{
    lanes sum[WEIGH_BROAD] = {{0}}, most[WEIGH_BROAD] = {{0}}, v = {0}, size = {0};
    LOAD(sum, mass + c, vectors * n);
    LOAD(most, v_max + c, vectors * n);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < vectors; b++) {
            const size_t at = t->at[i] * t->row + c + b * LANES;
            LOAD(&v, t->v + at, n);
            v = MAGNITUDE(v);
            if (sized) {
                LOAD(&size, t->sizes + at, n);
                ENLARGE(v, size);
            }
            sum[b] += t->weights[i] * v;
            ENLARGE(v, most[b]);
            most[b] = v;
        }
    STORE(mass + c, sum, vectors * n);
    STORE(v_max + c, most, vectors * n);
}

#define SPREAD_BROAD 2u

/* The sums of p_i |v_ic - o_c| alone, times A_i, times Q_i, times S_i. */
INLINE void channels_spread(uint32_t c, uint32_t vectors, uint32_t n, const kvb_tile_rows *t, const double *out,
                            double *const *sums)
{
    lanes o[SPREAD_BROAD] = {{0}}, sum[4][SPREAD_BROAD] = {{{0}}}, v = {0};
    LOAD(o, out + c, vectors * n);
    for (uint32_t s = 0; s < 4; s++)
        LOAD(sum[s], sums[s] + c, vectors * n);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < vectors; b++) {
            LOAD(&v, t->v + t->at[i] * t->row + c + b * LANES, n);
            v -= o[b];
            v = t->weights[i] * MAGNITUDE(v);
            sum[0][b] += v;
            sum[1][b] += v * t->reach[i];
            sum[2][b] += v * t->shift[i];
            sum[3][b] += v * t->size[i];
        }
    for (uint32_t s = 0; s < 4; s++)
        STORE(sums[s] + c, sum[s], vectors * n);
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
const kvb_products NAME(KVB_ISA) = {dots, masses, squares, output_sums, mass_sums, spread_sums};
