/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's loops over channels, in double. Inside the oracle only. */
#ifndef KVB_PRODUCTS_H
#define KVB_PRODUCTS_H

#include <stddef.h>
#include <stdint.h>

/* The larger number; most, if one of them is NaN. */
static inline double kvb_larger(double most, double x)
{
    return most < x ? x : most;
}

/* V rows of a tile of cells, for the sums of one query row. */
typedef struct kvb_tile_rows {
    const double *v, *sizes;                      /* rows and their sizes; v without sizes */
    const uint32_t *at;                           /* [n] numbers of the tile's rows */
    size_t row, n;                                /* doubles of a row; rows */
    const double *weights, *reach, *shift, *size; /* [n] p_i, A_i, Q_i, S_i (oracle/bound.h) */
} kvb_tile_rows;

typedef struct kvb_products {
    /* For each of the n rows at[…] of k, a sum over channels: of q k, and of |q k| in `masses`. Either may be NULL. q NULL:
     * the sum of k k. */
    void (*row_sums)(const double *q, const double *k, const uint32_t *at, uint32_t n, uint32_t dim, double *sums,
                     double *masses);

    /* Sums over cells for each of dim channels, added to the arrays. A size below |v| counts as |v|. */
    void (*output_sums)(const kvb_tile_rows *rows, uint32_t dim, double *o); /* p v */
    void (*mass_sums)(const kvb_tile_rows *rows, uint32_t dim, double *mass,
                      double *v_max); /* p size, and the largest size */
    /* p |v - o|: alone, times A, times Q, times S. */
    void (*spread_sums)(const kvb_tile_rows *rows, uint32_t dim, const double *o, double *const sums[4]);
} kvb_products;

/* Levels 0 to 2: portable, AVX2, AVX-512. All give the same bits. NULL: this CPU, or this build, lacks the level. */
const kvb_products *kvb_products_at(unsigned level);

#endif
