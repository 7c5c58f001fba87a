/* SPDX-License-Identifier: Apache-2.0 */
/* Which formats products of halves take. */
#include "kernels/flash/rows.h"
#include "kernels/half/half.h"

#include <stdio.h>

bool kvb_half_codes(const kvb_format *f)
{
    return f->elem == KVB_Q8_0 || (f->elem == KVB_UINT8 && f->axis == KVB_AXIS_CHANNELS && f->scale_elem == KVB_F16 &&
                                   f->zero_elem == KVB_F16 && (f->group == 32 || f->group == 64 || f->group == 128));
}

bool kvb_half_fits(const kvb_format *f, uint32_t dim, uint32_t values, char *why, size_t why_bytes)
{
    const bool codes = kvb_half_codes(f);
    const uint32_t step = codes ? f->group : f->elem == KVB_E4M3 ? FP8_DIM : 16;
    const char *reason = NULL;

    if (!codes && f->elem != KVB_F16 && f->elem != KVB_E4M3)
        reason = "neither f16 nor e4m3 nor 8 bits with f16 scales";
    else if (f->transform)
        reason = "its rows are transformed";
    else if (codes ? f->window_cells || f->head_scale
                   : !kvb_side_in_place(f, kvb_vector_at(kvb_cpu()), dim - dim % step, values - values % step))
        reason = "its rows have scales of another kind";
    else if (codes && values != dim)
        reason = "V lies in K's rows";
    if (reason) {
        snprintf(why, why_bytes, "%s: no products of f16: %s", f->name, reason);
        return false;
    }
    if (!dim || dim > HALF_MAX_DIM || dim % step || values % step) {
        snprintf(why, why_bytes, "%s: products of f16 take rows of a multiple of %u channels, at most %u, not %u",
                 f->name, step, HALF_MAX_DIM, dim % step || dim > HALF_MAX_DIM ? dim : values);
        return false;
    }
    return true;
}
