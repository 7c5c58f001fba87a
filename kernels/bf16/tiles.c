/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/bf16/tiles.h"

#if defined(__AVX512BF16__)
#include "kernels/bf16/rows.h"
#include "kernels/vector/turn_512.h"

#define SOME 16u /* cells that are made ready at a time */

/* 16 rows of keys from i on. */
VEC_INLINE void keys_pack(kvb_elem elem, uint32_t dim, const uint8_t *const *rows, uint32_t n, uint32_t i, int32_t *to)
{
    _Alignas(64) uint8_t copy[SOME][2 * 64];
    const uint8_t *row[SOME];
    __m512i x[4];
    if (i >= n)
        return;
    for (uint32_t j = 0; j < SOME; j++)
        row[j] = rows[i + j < n ? i + j : i];
    to += i;
    for (uint32_t c = 0; c < dim; c += 64) {
        const uint32_t bytes = 2 * (dim - c < 64 ? dim - c : 64);
        const uint8_t *at[SOME];
        for (uint32_t j = 0; j < SOME; j++)
            at[j] = row[j] + 2 * c;
        for (uint32_t j = 0; j < SOME && elem != KVB_BF16; j++) {
            row_load(elem, row[j], c, dim, x);
            _mm512_store_si512(copy[j], x[0]);
            _mm512_store_si512(copy[j] + 64, x[1]);
            at[j] = copy[j];
        }
        for (uint32_t byte = 0; byte < bytes; byte += 16) {
            dwords_turn(at, byte, x);
            for (uint32_t d = 0; d < 4; d++)
                _mm512_store_si512(to + ((2 * c + byte) / 4 + d) * BLOCK, x[d]);
        }
    }
}

/* 16 rows of values from i on. */
VEC_INLINE void values_pack(kvb_elem elem, uint32_t dim, const uint8_t *const *rows, uint32_t n, uint32_t i,
                            int32_t *to)
{
    const uint32_t width = tile_width(dim), end = i + SOME < n ? i + SOME : n;
    for (to += i / 2 * width; i < end; i += 2, to += width)
        for (uint32_t c = 0; c < dim; c += 64) {
            __m512i a[2], b[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
            row_load(elem, rows[i], c, dim, a);
            if (i + 1 < n)
                row_load(elem, rows[i + 1], c, dim, b);
            for (uint32_t j = 0; j < 2; j++) {
                _mm512_store_si512(to + c + 32 * j, pairs_low(a[j], b[j]));
                _mm512_store_si512(to + c + 32 * j + 16, pairs_high(a[j], b[j]));
            }
        }
}

typedef void pack(uint32_t dim, const uint8_t *const *rows, uint32_t n, uint32_t i, int32_t *to);

#define PACK(SIDE, NAME, ELEM)                                                                                         \
    static __attribute__((noinline)) void SIDE##_of_##NAME(uint32_t dim, const uint8_t *const *rows, uint32_t n,       \
                                                           uint32_t i, int32_t *to)                                    \
    {                                                                                                                  \
        if (dim == 128)                                                                                                \
            SIDE##_pack(ELEM, 128, rows, n, i, to);                                                                    \
        else                                                                                                           \
            SIDE##_pack(ELEM, dim, rows, n, i, to);                                                                    \
    }
#define PACKS(NAME, ELEM) PACK(keys, NAME, ELEM) PACK(values, NAME, ELEM)
PACKS(bf16, KVB_BF16)
PACKS(e4m3, KVB_E4M3)
PACKS(e5m2, KVB_E5M2)

static void block_pack(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, pack *some, kvb_ask *ask,
                       int32_t *to)
{
    const uint8_t *rows[BLOCK];
    for (uint32_t i = 0; i < n; i++)
        rows[i] = kvb_view_row(view, h, cells[i]);
    for (uint32_t i = 0; i < BLOCK; i += SOME) {
        some(view->dim, rows, n, i, to);
        kvb_ask_step(ask);
    }
    kvb_ask_until(ask, 1, 2);
}

#define SIDE_OF(SIDE, elem) ((elem) == KVB_BF16 ? SIDE##_of_bf16 : (elem) == KVB_E4M3 ? SIDE##_of_e4m3 : SIDE##_of_e5m2)

void kvb_bf16_keys(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, kvb_ask *ask, int32_t *to)
{
    block_pack(view, h, cells, n, SIDE_OF(keys, view->format->elem), ask, to);
}

void kvb_bf16_values(const kvb_view *view, uint32_t h, const uint32_t *cells, uint32_t n, kvb_ask *ask, int32_t *to)
{
    block_pack(view, h, cells, n, SIDE_OF(values, view->format->elem), ask, to);
}
#endif
