/* SPDX-License-Identifier: Apache-2.0 */
/* A block of stored rows packed as pairs of bf16, which products of vectors and of AMX's tiles multiply. */
#ifndef KVB_VECTOR_BF16_PACK_H
#define KVB_VECTOR_BF16_PACK_H

#include "kernels/vector/bf16.h"

#ifdef BF16_HERE

/*
 * Keys: dim / 2 rows of BLOCK dwords, each two channels of one cell; cells from n on are anything.
 * Values: BLOCK / 2 rows of kvb_bf16_width(dim) dwords, each one channel of two cells, for n cells. If n is odd, the last
 * cell's partner is 0.
 */
#define COMMON_DIM 128u /* the commonest size of rows: packing is also compiled with it as a constant */

/* Packs SOME rows of values from i on, as far as there are any. */
VEC_INLINE void values_pack(bool fp8, fp8_table table, uint32_t dim, const uint8_t *const *rows, uint32_t n, uint32_t i,
                            packing tile)
{
    const uint32_t end = i + SOME < n ? i + SOME : n;
    for (tile.to += i / 2 * tile.row; i < end; i += 2, tile.to += tile.row)
        for (uint32_t c = 0; c < dim; c += STEP) {
            pairs a[ROW_VECS], b[ROW_VECS];
            row_load(fp8, table, rows[i], c, dim, a);
            for (uint32_t j = 0; j < ROW_VECS; j++)
                b[j] = (pairs)vi_set(0);
            if (i + 1 < n)
                row_load(fp8, table, rows[i + 1], c, dim, b);
            for (uint32_t j = 0; j < ROW_VECS; j++) {
                float *at = (float *)(void *)packing_at(tile, c + 2 * VL * j);
                vf_store(at, (vf)pairs_low(a[j], b[j]));
                vf_store(at + VL, (vf)pairs_high(a[j], b[j]));
            }
        }
}

typedef void pack(fp8_table table, uint32_t dim, const uint8_t *const *rows, uint32_t n, uint32_t i, packing tile);

#define PACK(SIDE, NAME, FP8)                                                                                          \
    static __attribute__((noinline)) void SIDE##_of_##NAME(fp8_table table, uint32_t dim, const uint8_t *const *rows,  \
                                                           uint32_t n, uint32_t i, packing tile)                       \
    {                                                                                                                  \
        if (dim == COMMON_DIM)                                                                                         \
            SIDE##_pack(FP8, table, COMMON_DIM, rows, n, i, tile);                                                     \
        else                                                                                                           \
            SIDE##_pack(FP8, table, dim, rows, n, i, tile);                                                            \
    }
PACK(keys, bf16, false)
PACK(keys, fp8, true)
PACK(values, bf16, false)
PACK(values, fp8, true)

static inline void block_pack(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, pack *of_bf16,
                              pack *of_fp8, kvb_lookahead *next, packing tile)
{
    const kvb_elem elem = view->format->elem;
    const uint8_t *rows[BLOCK];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = kvb_view_row(view, h, cells[i]);
    for (uint32_t i = 0; i < BLOCK; i += SOME) {
        (elem == KVB_BF16 ? of_bf16 : of_fp8)(fp8_table_of(elem), view->dim, rows, n, i, tile);
        kvb_lookahead_step(next);
    }
    kvb_lookahead_until(next, 1, 2);
}

#endif
#endif
