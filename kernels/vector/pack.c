/* SPDX-License-Identifier: Apache-2.0 */
/* A block's rows as product() takes them: keys with a channel in each row, values as they are, both f32. */
#include <string.h>

#include "kernels/vector/elem.h"
#include "kernels/vector/micro.h"

/* VL cells; `whole`: all are there. */
VEC_INLINE void cells_turn(kvb_elem elem, bool whole, const void *const *keys, uint32_t dim, float *packed)
{
    for (uint32_t d = 0; d < dim; d += VL) {
        vf v[VL];
#pragma GCC unroll 16
        for (uint32_t c = 0; c < VL; c++)
            v[c] = whole || keys[c] ? elem_load(elem, keys[c], d) : vf_set(0);
        vf_transpose(v);
#pragma GCC unroll 16
        for (uint32_t c = 0; c < VL; c++)
            vf_store(packed + (size_t)(d + c) * BLOCK, v[c]);
    }
}

VEC_INLINE void elem_pack_keys(kvb_elem elem, const void *const *keys, uint32_t n, uint32_t dim, float *packed)
{
    for (uint32_t i = 0; i < BLOCK; i += VL) {
        const void *there[VL];
        bool whole = true;
        for (uint32_t c = 0; c < VL; c++) {
            there[c] = i + c < n ? keys[i + c] : NULL;
            whole = whole && there[c];
        }
        if (whole)
            cells_turn(elem, true, there, dim, packed + i);
        else
            cells_turn(elem, false, there, dim, packed + i);
    }
}

VEC_INLINE void elem_pack_values(kvb_elem elem, const void *const *values, uint32_t n, uint32_t dim, float *packed)
{
    for (uint32_t i = 0; i < BLOCK; i++, packed += dim)
        if (i < n && values[i])
            for (uint32_t d = 0; d < dim; d += VL)
                vf_store(packed + d, elem_load(elem, values[i], d));
        else
            memset(packed, 0, dim * sizeof *packed);
}

void KVB_ISA_NAME(kvb_pack_keys)(kvb_elem elem, const void *const *keys, uint32_t n, uint32_t dim, float *packed)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        elem_pack_keys(ELEM, keys, n, dim, packed);                                                                    \
        break;
    PLAIN_CASES(elem, CASE)
#undef CASE
}

void KVB_ISA_NAME(kvb_pack_values)(kvb_elem elem, const void *const *values, uint32_t n, uint32_t dim, float *packed)
{
#define CASE(ELEM)                                                                                                     \
    case ELEM:                                                                                                         \
        elem_pack_values(ELEM, values, n, dim, packed);                                                                \
        break;
    PLAIN_CASES(elem, CASE)
#undef CASE
}
