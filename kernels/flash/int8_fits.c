/* SPDX-License-Identifier: Apache-2.0 */
/* Which formats the integer products take, and the memory that they need: the same at every level. */
#include <stdio.h>

#include "kernels/vector/int8.h"
#include "kernels/vector/int8_shape.h"

bool kvb_int8_fits(const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    const int8_elem of = f->elem < KVB_ELEM_COUNT ? int8_elem_of(f->elem) : (int8_elem){0};
    const char *reason = NULL;

    if (!of.bits)
        reason = "its elements are no evenly spaced codes";
    else if (f->transform)
        reason = "its rows are transformed";
    else if (f->window_cells || f->axis != KVB_AXIS_CHANNELS)
        reason = "its scales are shared between cells";
    else if (f->head_scale)
        reason = "it has a head scale";
    else if (of.block_bytes ? f->group != 32 : f->group != KVB_GROUP_ROW && (!f->group || f->group % 32))
        reason = "its groups are no multiples of 32 channels";
    else if (f->group == KVB_GROUP_ROW && of.bits != 8)
        reason = "a scale a row is for codes of 8 bits";
    else if (!of.block_bytes && f->scale_elem != KVB_F16 && f->scale_elem != KVB_F32)
        reason = "its scales are neither f16 nor f32";
    else if (!of.block_bytes && of.has_m && f->zero_elem != f->scale_elem)
        reason = "its zeros are of another type than its scales";
    if (reason) {
        snprintf(why, why_bytes, "%s: no integer products: %s", f->name, reason);
        return false;
    }
    if (!dim || dim > INT8_MAX_DIM || dim % 16 || (f->group != KVB_GROUP_ROW && dim % f->group)) {
        snprintf(why, why_bytes, "%s: integer products take rows of a multiple of %u channels, at most %u, not %u",
                 f->name, f->group == KVB_GROUP_ROW ? 16 : f->group, INT8_MAX_DIM, dim);
        return false;
    }
    return true;
}

size_t kvb_int8_query_bytes(const kvb_format *k, uint32_t dim)
{
    const int8_shape s = int8_shape_of(k, dim);
    return int8_query_codes_at(&s) + (size_t)2 * s.width;
}

static size_t block_bytes(const kvb_format *f, uint32_t dim)
{
    const int8_shape s = int8_shape_of(f, dim);
    return int8_tile_bytes(&s) + 2 * int8_table_bytes(&s);
}

size_t kvb_int8_scratch_bytes(const kvb_format *k, const kvb_format *v, uint32_t k_dim, uint32_t v_dim, uint32_t rows)
{
    size_t keys = block_bytes(k, k_dim), values = block_bytes(v, v_dim);
    (void)rows; /* weights are rounded a few rows at a time */
    return keys > values ? keys : values;
}
