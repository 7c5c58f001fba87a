/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Query rows as integers, and their products with a block of keys. Of a group of channels with sum Q of q's integers,
 * a cell's share is d * sum (code - offset) q + m' Q, m' being m + offset * d; all of it times the step of q.
 */
#include <math.h>

#include "kernels/vector/int8.h"
#include "kernels/vector/dword_product.h"
#include "kernels/vector/int8_shape.h"

/* ---- queries ---------------------------------------------------------------------------------------------------- */

/* 64 channels as a tile of keys has their codes. */
VEC_INLINE void channels_store(kvb_elem elem, const float *whole, void *to)
{
    vf x[64 / VL];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < 64 / VL; i++)
        x[i] = vf_load(whole + i * VL);
    whole_store(x, to);
#if TILE_CODES == 4
    const __m128i even_first = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    if (elem == KVB_UINT4) /* int8_nibbles_at() */
        _mm512_store_si512(to, _mm512_shuffle_epi8(_mm512_load_si512(to), _mm512_broadcast_i32x4(even_first)));
#else
    (void)elem;
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
        x = vf_max(vf_min(x, vf_set(127)), vf_set(-127)); /* a subnormal step may be far too small */
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
        channels_store(s.elem, whole + c, (char *)encoded + int8_query_codes_at(&s) + c * sizeof(int32_t) / TILE_CODES);
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
