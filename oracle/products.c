/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over doubles, eight at a time. */
#include "oracle/products.h"

#include <math.h>
#include <string.h>

#include "oracle/wide.h"

#define INLINE static inline __attribute__((always_inline)) /* into what is WIDE */

typedef double eight __attribute__((vector_size(64)));
typedef int64_t eight_bits __attribute__((vector_size(64)));

/* The sums of eight vectors: lane i is that of in[i]. */
#define EIGHT_SUMS(in, out)                                                                                            \
    do {                                                                                                               \
        eight two[4], four[2];                                                                                         \
        for (int p = 0; p < 4; p++)                                                                                    \
            two[p] = __builtin_shufflevector((in)[2 * p], (in)[2 * p + 1], 0, 8, 2, 10, 4, 12, 6, 14) +                \
                     __builtin_shufflevector((in)[2 * p], (in)[2 * p + 1], 1, 9, 3, 11, 5, 13, 7, 15);                 \
        for (int p = 0; p < 2; p++)                                                                                    \
            four[p] = __builtin_shufflevector(two[2 * p], two[2 * p + 1], 0, 1, 8, 9, 4, 5, 12, 13) +                  \
                      __builtin_shufflevector(two[2 * p], two[2 * p + 1], 2, 3, 10, 11, 6, 7, 14, 15);                 \
        (out) = __builtin_shufflevector(four[0], four[1], 0, 1, 2, 3, 8, 9, 10, 11) +                                  \
                __builtin_shufflevector(four[0], four[1], 4, 5, 6, 7, 12, 13, 14, 15);                                 \
    } while (0)

typedef enum product { PLAIN, MAGNITUDES, SQUARES } product; /* of q and k; |q k|; of k with itself */

/* A sum of products over channels, for each of n rows that lie one after the other: eight rows at a time, and eight sums for each,
 * so that additions need not wait for one another. */
INLINE void rows_sum(product kind, const double *restrict q, const double *restrict k, uint32_t n, uint32_t dim,
                     double *restrict sums)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const double *row[8];
        eight sum[8] = {{0}}, all, rest = {0}, of_k, of_q;
        uint32_t d = 0, some = n - i < 8 ? n - i : 8;
        for (uint32_t j = 0; j < 8; j++)
            row[j] = k + (size_t)(i + (j < some ? j : 0)) * dim;
        for (; d + 8 <= dim; d += 8) {
            memcpy(&of_q, q + d, sizeof of_q);
            for (uint32_t j = 0; j < 8; j++) {
                memcpy(&of_k, row[j] + d, sizeof of_k);
                of_k *= kind == SQUARES ? of_k : of_q;
                sum[j] += kind == MAGNITUDES ? (eight)((eight_bits)of_k & INT64_MAX) : of_k;
            }
        }
        for (; d < dim; d++)
            for (uint32_t j = 0; j < 8; j++) {
                double each = row[j][d] * (kind == SQUARES ? row[j][d] : q[d]);
                rest[j] += kind == MAGNITUDES ? fabs(each) : each;
            }
        EIGHT_SUMS(sum, all);
        all += rest;
        memcpy(sums + i, &all, some * sizeof *sums);
    }
}

WIDE void kvb_dots(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(PLAIN, q, k, n, dim, sums);
}

WIDE void kvb_masses(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(MAGNITUDES, q, k, n, dim, sums);
}

WIDE void kvb_squares(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums)
{
    rows_sum(SQUARES, q, k, n, dim, sums);
}

/* Macros, since there is no one way to pass such vectors to functions. */
#define LOAD(x, at, n)                                                                                                 \
    eight x = {0};                                                                                                     \
    memcpy(&(x), at, (n) * sizeof(double))
#define STORE(at, x, n) memcpy(at, &(x), (n) * sizeof(double))
#define MAGNITUDE(x)    ((eight)((eight_bits)(x)&INT64_MAX))

/* a becomes b where it is less; not where one of them is not a number. */
#define ENLARGE(a, b)                                                                                                  \
    do {                                                                                                               \
        eight_bits less = (eight_bits)((a) < (b));                                                                     \
        (a) = (eight)((less & (eight_bits)(b)) | (~less & (eight_bits)(a)));                                           \
    } while (0)

/* Calls `some(n, c, …)` for channels c .. c + n - 1, eight at a time: their sums stay in registers over the cells of a tile. */
#define ALL_CHANNELS(dim, some, ...)                                                                                   \
    do {                                                                                                               \
        uint32_t c = 0;                                                                                                \
        for (; c + 8 <= (dim); c += 8)                                                                                 \
            some(8, c, __VA_ARGS__);                                                                                   \
        if (c < (dim))                                                                                                 \
            some((dim)-c, c, __VA_ARGS__);                                                                             \
    } while (0)

INLINE void channels_mix(uint32_t n, uint32_t c, const kvb_tile_rows *t, double *o)
{
    LOAD(sum, o + c, n);
    for (size_t i = 0; i < t->n; i++) {
        LOAD(v, t->v + i * t->row + c, n);
        sum += t->weights[i] * v;
    }
    STORE(o + c, sum, n);
}

INLINE void channels_weigh(uint32_t n, uint32_t c, const kvb_tile_rows *t, double *mass, double *v_max)
{
    LOAD(sum, mass + c, n);
    LOAD(most, v_max + c, n);
    for (size_t i = 0; i < t->n; i++) {
        LOAD(v, t->v + i * t->row + c, n);
        LOAD(size, t->sizes + i * t->row + c, n);
        v = MAGNITUDE(v);
        ENLARGE(v, size);
        sum += t->weights[i] * v;
        ENLARGE(v, most);
        most = v;
    }
    STORE(mass + c, sum, n);
    STORE(v_max + c, most, n);
}

#define BROAD 4u /* vectors of channels: additions to one need not wait for those to another */

INLINE void channels_mix_broad(uint32_t c, const kvb_tile_rows *t, double *o)
{
    eight sum[BROAD], v;
    memcpy(sum, o + c, sizeof sum);
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t b = 0; b < BROAD; b++) {
            memcpy(&v, t->v + i * t->row + c + 8 * b, sizeof v);
            sum[b] += t->weights[i] * v;
        }
    memcpy(o + c, sum, sizeof sum);
}

/* The sums of p_i |v_ic - o_c| alone, times A_i, times Q_i, times S_i. */
INLINE void channels_spread(uint32_t n, uint32_t c, const kvb_tile_rows *t, const double *out, double *const *sums)
{
    LOAD(o, out + c, n);
    LOAD(alone, sums[0] + c, n);
    LOAD(by_a, sums[1] + c, n);
    LOAD(by_q, sums[2] + c, n);
    LOAD(by_s, sums[3] + c, n);
    for (size_t i = 0; i < t->n; i++) {
        LOAD(v, t->v + i * t->row + c, n);
        v -= o;
        v = t->weights[i] * MAGNITUDE(v);
        alone += v;
        by_a += v * t->reach[i];
        by_q += v * t->shift[i];
        by_s += v * t->size[i];
    }
    STORE(sums[0] + c, alone, n);
    STORE(sums[1] + c, by_a, n);
    STORE(sums[2] + c, by_q, n);
    STORE(sums[3] + c, by_s, n);
}

WIDE void kvb_output_sums(const kvb_tile_rows *rows, uint32_t dim, double *o)
{
    const uint32_t broad = dim / (8 * BROAD) * (8 * BROAD);
    for (uint32_t c = 0; c < broad; c += 8 * BROAD)
        channels_mix_broad(c, rows, o);
    kvb_tile_rows rest = *rows;
    rest.v += broad;
    ALL_CHANNELS(dim - broad, channels_mix, &rest, o + broad);
}

WIDE void kvb_mass_sums(const kvb_tile_rows *rows, uint32_t dim, double *mass, double *v_max)
{
    ALL_CHANNELS(dim, channels_weigh, rows, mass, v_max);
}

WIDE void kvb_spread_sums(const kvb_tile_rows *rows, uint32_t dim, const double *o, double *const sums[4])
{
    ALL_CHANNELS(dim, channels_spread, rows, o, sums);
}
