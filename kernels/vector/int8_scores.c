/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Query rows as integers, and their products with a block of keys. Of a group of channels with sum Q of q's integers,
 * a cell's share is d * sum (code - offset) q + m' Q, m' being m + offset * d; all of it times the step of q.
 */
#include <string.h>

#include "kernels/vector/int8.h"
#include "kernels/vector/dword_product.h"
#include "kernels/vector/int8_shape.h"

/* ---- queries ---------------------------------------------------------------------------------------------------- */

void KVB_ISA_NAME(kvb_int8_query)(const kvb_format *k, uint32_t dim, const float *q, void *encoded)
{
    const int8_shape s = int8_shape_of(k, dim);
    int8_query *to = encoded;
    int8_t *bytes = (int8_t *)encoded + int8_query_codes_at(&s);
    int16_t *words = (int16_t *)(void *)bytes;
    int32_t most = 0;
    float step;

    for (uint32_t c = 0; c < dim; c++) {
        int32_t size;
        memcpy(&size, &q[c], sizeof size);
        size &= 0x7fffffff;
        most = size > most ? size : most;
    }
    bool finite = most < 0x7f800000;
    step = float_of_bits(most) / 127.0f;
    to->step = finite ? step : float_of_bits(0x7fc00000);
    memset(to->sums, 0, s.groups * sizeof *to->sums);
    for (uint32_t c = 0; c < dim; c++) {
        float x = finite && step > 0 ? q[c] / step : 0, magic = 0x1.8p23f;
        x = x > 127 ? 127 : x < -127 ? -127 : x; /* a subnormal step may be far too small */
        int32_t whole = (int32_t)((x + magic) - magic);
        to->sums[c / s.group] += whole;
        if (TILE_CODES == 4)
            bytes[int8_key_at(s.elem, c)] = (int8_t)whole;
        else
            words[c] = (int16_t)whole;
    }
}

/* ---- scores ----------------------------------------------------------------------------------------------------- */

/* A block of keys, and the rows of one panel. */
typedef struct keys {
    const int8_shape *shape;
    const int32_t *tile;
    const float *d, *m;
    kvb_ask *ask;
} keys;

/* What a group of channels adds to the scores of PRODUCT_VECS * VL cells from i on. */
VEC_INLINE void group_multiply(uint32_t rows, const keys *k, uint32_t g, uint32_t i, const int8_query *const *q,
                               float *scores)
{
    const int8_shape *s = k->shape;
    const size_t codes_at = int8_query_codes_at(s);
    const uint32_t steps = s->group / TILE_CODES, vecs = PRODUCT_VECS;
    const int32_t offset = TILE_CODES == 4 ? s->of.offset : 0; /* of 16 bits, it is taken off already */
    const bool last = g + 1 == s->groups;
    const float *d = k->d + g * BLOCK + i, *m = k->m ? k->m + g * BLOCK + i : NULL;
    const void *a[PRODUCT_ROWS];
    vi acc[PRODUCT_ROWS * PRODUCT_VECS];

#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        a[r] = (const char *)q[r] + codes_at + (size_t)g * steps * sizeof(int32_t);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++)
        acc[j] = vi_set(-offset * q[j / vecs]->sums[g]);
    dword_product(vi_dot_codes, rows, vecs, 1, steps, a, k->tile + (size_t)g * steps * BLOCK + i, BLOCK, acc);
#pragma GCC unroll 32
    for (uint32_t j = 0; j < rows * vecs; j++) {
        const int8_query *of = q[j / vecs];
        const uint32_t at = j % vecs * VL;
        float *to = scores + j / vecs * BLOCK + i + at;
        vf x = vf_fma(vi_to_vf(acc[j]), vf_load(d + at), g ? vf_load(to) : vf_set(0));
        if (m)
            x = vf_fma(vf_set((float)of->sums[g]), vf_load(m + at), x);
        vf_store(to, x * vf_set(last ? of->step : 1.0f));
    }
}

/* Scores of all BLOCK cells. */
VEC_INLINE void panel_multiply(uint32_t rows, const keys *k, const void *const *queries, float *scores)
{
    const int8_query *q[PRODUCT_ROWS];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; r++)
        q[r] = queries[r];
    for (uint32_t i = 0; i < BLOCK; i += PRODUCT_VECS * VL)
        for (uint32_t g = 0; g < k->shape->groups; g++) {
            group_multiply(rows, k, g, i, q, scores);
            kvb_ask_step(k->ask);
        }
}

#define PANEL(ROWS)                                                                                                    \
    static __attribute__((noinline)) void panel_##ROWS(const keys *k, const void *const *queries, float *scores)       \
    {                                                                                                                  \
        panel_multiply(ROWS, k, queries, scores);                                                                      \
    }
PANEL(1)
PANEL(2)
PANEL(3)
PANEL(4)
#if PRODUCT_ROWS > 4
PANEL(5)
PANEL(6)
#endif

typedef void panel(const keys *k, const void *const *queries, float *scores);
static panel *const panels[PRODUCT_ROWS] = {
    panel_1, panel_2, panel_3, panel_4,
#if PRODUCT_ROWS > 4
    panel_5, panel_6,
#endif
};

void KVB_ISA_NAME(kvb_int8_scores)(const kvb_view *k, uint32_t h, const uint32_t *cells, uint32_t n,
                                   const void *const *queries, uint32_t n_rows, float *scores, kvb_ask *ask,
                                   void *scratch)
{
    const int8_shape s = int8_shape_of(k->format, k->dim);
    const int8_block block = KVB_ISA_NAME(kvb_int8_keys)(&s, k, h, cells, n, ask, scratch);
    const keys all = {&s, block.tile, block.d, block.m, ask};

    for (uint32_t r = 0, take; r < n_rows; r += take) {
        take = product_panel_rows(n_rows - r);
        panels[take - 1](&all, queries + r, scores + (size_t)r * BLOCK);
    }
    kvb_ask_until(ask, 2, 2);
}
