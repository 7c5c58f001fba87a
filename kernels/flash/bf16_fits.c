/* SPDX-License-Identifier: Apache-2.0 */
/* Which formats products of bf16 take, and the memory that they need. */
#include "kernels/bf16/tiles.h"

#include <stdio.h>

bool kvb_bf16_fits(const kvb_format *f, uint32_t dim, char *why, size_t why_bytes)
{
    const bool fp8 = f->elem == KVB_E4M3 || f->elem == KVB_E5M2;
    const char *reason = NULL;

    if (!fp8 && f->elem != KVB_BF16)
        reason = "neither bf16 nor e4m3 nor e5m2";
    else if (f->transform)
        reason = "its rows are transformed";
    else if (f->group || f->window_cells || (f->head_scale && !fp8))
        reason = "its rows have scales beside them";
    if (reason) {
        snprintf(why, why_bytes, "%s: no products of bf16: %s", f->name, reason);
        return false;
    }
    if (!dim || dim > BF16_MAX_DIM || dim % 16) {
        snprintf(why, why_bytes, "%s: products of bf16 take rows of a multiple of 16 channels, at most %u, not %u",
                 f->name, BF16_MAX_DIM, dim);
        return false;
    }
    return true;
}

size_t kvb_bf16_scratch_bytes(uint32_t dim)
{
    return (size_t)tile_width(dim) * BLOCK / 2 * sizeof(int32_t);
}
