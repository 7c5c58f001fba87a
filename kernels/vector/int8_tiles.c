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
        keys_pack(ELEM, s, rows, tile);                                                                                \
        break;
#define VALUES(ELEM)                                                                                                   \
    case ELEM:                                                                                                         \
        values_pack(ELEM, s, rows, tile);                                                                              \
        break;

void KVB_ISA_NAME(kvb_int8_pack_keys)(const int8_shape *s, const int8_rows *rows, int32_t *tile)
{
    switch (s->elem) {
        INT8_ELEMS(KEYS)
    default:
        break;
    }
}

void KVB_ISA_NAME(kvb_int8_pack_values)(const int8_shape *s, const int8_rows *rows, int32_t *tile)
{
    switch (s->elem) {
        INT8_ELEMS(VALUES)
    default:
        break;
    }
}
