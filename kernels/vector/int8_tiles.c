/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a block as the tiles of codes that the products read. */
#include "kernels/vector/int8_shape.h"
#if defined(__AVX512BW__)
#include "kernels/vector/int8_tiles_512.h"
#else
#include "kernels/vector/int8_tiles_any.h"
#endif

#define KEYS(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        keys_pack(ELEM, s, rows, i, tile);                                                                             \
        break;
#define VALUES(ELEM)                                                                                                   \
    case ELEM:                                                                                                         \
        values_pack(ELEM, s, rows, i, tile);                                                                           \
        break;

typedef void pack(const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile);

static void pack_keys(const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    switch (s->elem) {
        INT8_ELEMS(KEYS)
    default:
        break;
    }
}

static void pack_values(const int8_shape *s, const int8_rows *rows, uint32_t i, int32_t *tile)
{
    switch (s->elem) {
        INT8_ELEMS(VALUES)
    default:
        break;
    }
}

/* Tile, d and m one after the other. Some cells at a time, so that loads of factors and shuffles of codes overlap. */
static int8_block block_make(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n,
                             pack *some, kvb_ask *ask, void *scratch)
{
    float *table = (float *)(void *)((char *)scratch + int8_tile_bytes(s));
    int8_block block = {scratch, table, s->of.has_m ? table + int8_table_bytes(s) / sizeof *table : NULL};
    int8_factors d, m;
    int8_rows rows;

    KVB_ISA_NAME(kvb_int8_rows_find)(view, h, cells, n, &rows);
    KVB_ISA_NAME(kvb_int8_factors_find)(s, view, h, &rows, &d, &m);
    for (uint32_t i = 0; i < BLOCK; i += INT8_SOME) {
        KVB_ISA_NAME(kvb_int8_factors_collect)(s, &rows, i, &d);
        if (block.m)
            KVB_ISA_NAME(kvb_int8_factors_collect)(s, &rows, i, &m);
        some(s, &rows, i, block.tile);
        kvb_ask_step(ask);
    }
    kvb_ask_until(ask, 1, 2);
    KVB_ISA_NAME(kvb_int8_factors_make)(s, &rows, &d, &m, block.d, block.m);
    return block;
}

int8_block KVB_ISA_NAME(kvb_int8_keys)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                       uint32_t n, kvb_ask *ask, void *scratch)
{
    return block_make(s, view, h, cells, n, pack_keys, ask, scratch);
}

int8_block KVB_ISA_NAME(kvb_int8_values)(const int8_shape *s, const kvb_view *view, uint32_t h, const uint32_t *cells,
                                         uint32_t n, kvb_ask *ask, void *scratch)
{
    return block_make(s, view, h, cells, n, pack_values, ask, scratch);
}
