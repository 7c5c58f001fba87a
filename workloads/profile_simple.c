/* SPDX-License-Identifier: Apache-2.0 */
/* Value profiles without structure along the sequence: gaussian and flat. */
#include "workloads/profile_internal.h"

/* Rows of N(0, factor^2). */
static void normal_rows(const kvb_trace_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        double factor, float *out)
{
    uint64_t key = kvb_token_key(seed, kind, layer, token);
    uint32_t dim = kvb_rows_dim(model, kind);
    for (uint32_t h = 0; h < kvb_rows_heads(model, kind); h++)
        kvb_rng_normals(kvb_rng_key(key, h), factor, dim, out + (size_t)h * dim);
}

static void gaussian_rows(const kvb_trace_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                          uint32_t pos, float *out)
{
    (void)pos;
    normal_rows(model, seed, kind, layer, token, 1, out);
}

const kvb_profile kvb_profile_gaussian = {
    .name = "gaussian",
    .summary = "q, K and V are N(0,1): logits are N(0,1) with the default scale",
    .rows = gaussian_rows,
};

/* K of flat: so small that the weights are equal within a percent, yet not zero in 16-bit formats. */
#define FLAT_K 0x1p-12

static void flat_rows(const kvb_trace_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                      uint32_t pos, float *out)
{
    (void)pos;
    normal_rows(model, seed, kind, layer, token, kind == KVB_ROWS_K ? FLAT_K : 1, out);
}

const kvb_profile kvb_profile_flat = {
    .name = "flat",
    .summary = "K is tiny: every visible cell has the same weight; sums over cells are as long as they get",
    .rows = flat_rows,
};
