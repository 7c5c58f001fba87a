/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's loops over channels, in double. Inside the oracle only. */
#ifndef KVB_PRODUCTS_H
#define KVB_PRODUCTS_H

#include <stddef.h>
#include <stdint.h>

/* A sum over channels for each of n rows of k, one after the other: of q k, of |q k|, of k k. */
void kvb_dots(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums);
void kvb_masses(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums);
void kvb_squares(const double *q, const double *k, uint32_t n, uint32_t dim, double *sums);

/* V rows of a tile, one after the other, with what a row has of each: weights, A, Q, S. */
typedef struct kvb_tile_rows {
    const double *v, *sizes; /* sizes: the rows themselves where they have none */
    size_t row, n;           /* doubles of a row; rows */
    const double *weights, *reach, *shift, *size;
} kvb_tile_rows;

/* Sums over cells for each of dim channels, added to what is there. |v| stands for a size that is less. */
void kvb_output_sums(const kvb_tile_rows *rows, uint32_t dim, double *o); /* p v */
void kvb_mass_sums(const kvb_tile_rows *rows, uint32_t dim, double *mass,
                   double *v_max); /* p size, and the largest size */
/* p |v - o|: alone, times A, times Q, times S. */
void kvb_spread_sums(const kvb_tile_rows *rows, uint32_t dim, const double *o, double *const sums[4]);

#endif
