/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value profiles at the ends of what numbers can be.
 *
 *   large-logits   a head's keys share a part of the norm of a row of N(0,1), and their own N(0,1) is at right angles to it. A query
 *                  lies along the shared part as far as makes its logits 100 to 500, plus N(0,1): logits differ by about 1.
 *   far-below      the same, with logits of -80,000 to -160,000
 *   equal-keys     all keys of a head are one row, N(0,1): every cell that a query sees has the same logit
 *   giant-channel  N(0,1), but for one channel of K and one of V, the same in all rows of a head, 300 to 1,000 times as large.
 *                  q is so many times smaller in K's channel: logits stay as they are.
 *   subnormal      N(0,1) times 2^-130, subnormal in f32, or times 2^-20, subnormal in f16: heads take turns
 */
#include "workloads/profile_internal.h"

#include <math.h>

/* One token's rows of N(0, factor^2) of one head. */
static void normals(uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token, uint32_t h, double factor,
                    uint32_t dim, float *row)
{
    kvb_rng_normals(kvb_rng_key(kvb_token_key(seed, kind, layer, token), h), factor, dim, row);
}

/* The KV head of row h of a kind. */
static uint32_t kv_head_of(const kvb_group *group, kvb_rows kind, uint32_t h)
{
    return kind == KVB_ROWS_Q ? h / (group->heads / group->kv_heads) : h;
}

/* Channel c of n of what all keys of a head share: of norm sqrt(n), as a row of N(0,1) has. */
static double shared_part(uint64_t head_key, uint32_t c)
{
    return kvb_rng_bits(head_key, c / 64) >> c % 64 & 1 ? 1 : -1;
}

/* The product of a row and the shared part. */
static double along_shared(uint64_t head_key, uint32_t dim, const float *row)
{
    double along = 0;
    for (uint32_t c = 0; c < dim; c++)
        along += shared_part(head_key, c) * (double)row[c];
    return along;
}

/* Logits of `least` to `most`. */
static void offset_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        double least, double most, float *out)
{
    const kvb_group *g = kvb_model_group(model, layer);
    const uint32_t heads = kvb_rows_heads(g, kind), dim = kvb_rows_dim(g, kind);
    for (uint32_t h = 0; h < heads; h++, out += dim) {
        normals(seed, kind, layer, token, h, 1, dim, out);
        if (kind == KVB_ROWS_V)
            continue;
        const uint64_t head = kvb_head_key(seed, layer, kv_head_of(g, kind, h));
        const uint64_t own = kvb_rng_key(kvb_token_key(seed, kind, layer, token), h);
        const double unit = kvb_rng_unit((uint32_t)kvb_rng_bits(kvb_rng_key(own, 1), 0));
        /* in units of the shared part: what the row is to have of it */
        const double want = kind == KVB_ROWS_K ? 1 : (least + (most - least) * unit) / (g->scale * dim);
        const double add = want - along_shared(head, dim, out) / dim;
        for (uint32_t c = 0; c < dim; c++)
            out[c] = (float)((double)out[c] + add * shared_part(head, c));
    }
}

static void large_logits_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                              uint32_t pos, float *out)
{
    (void)pos;
    offset_rows(model, seed, kind, layer, token, 100, 500, out);
}

static void far_below_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                           uint32_t pos, float *out)
{
    (void)pos;
    offset_rows(model, seed, kind, layer, token, -160000, -80000, out);
}

static void equal_keys_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                            uint32_t pos, float *out)
{
    (void)pos;
    const kvb_group *g = kvb_model_group(model, layer);
    const uint32_t heads = kvb_rows_heads(g, kind), dim = kvb_rows_dim(g, kind);
    for (uint32_t h = 0; h < heads; h++, out += dim)
        normals(seed, kind, layer, kind == KVB_ROWS_K ? 0 : token, h, 1, dim, out);
}

static void giant_channel_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                               uint32_t pos, float *out)
{
    (void)pos;
    const kvb_group *g = kvb_model_group(model, layer);
    const uint32_t heads = kvb_rows_heads(g, kind), dim = kvb_rows_dim(g, kind);
    for (uint32_t h = 0; h < heads; h++, out += dim) {
        const uint64_t bits = kvb_rng_bits(kvb_head_key(seed, layer, kv_head_of(g, kind, h)), 0);
        const float factor = (float)(300 + 700 * kvb_rng_unit((uint32_t)bits));
        normals(seed, kind, layer, token, h, 1, dim, out);
        out[(bits >> 32) % dim] *= kind == KVB_ROWS_Q ? 1 / factor : factor;
    }
}

static void subnormal_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                           uint32_t pos, float *out)
{
    (void)pos;
    const kvb_group *g = kvb_model_group(model, layer);
    const uint32_t heads = kvb_rows_heads(g, kind), dim = kvb_rows_dim(g, kind);
    for (uint32_t h = 0; h < heads; h++, out += dim)
        normals(seed, kind, layer, token, h, (layer + kv_head_of(g, kind, h)) % 2 ? 0x1p-20 : 0x1p-130, dim, out);
}

const kvb_profile kvb_profile_large_logits = {
    .name = "large-logits",
    .summary = "logits are some hundred and differ by about 1: exp() of one overflows, their softmax is ordinary",
    .rows = large_logits_rows,
};

const kvb_profile kvb_profile_far_below = {
    .name = "far-below",
    .summary = "all logits are below -80,000 and differ by about 1: finite stand-ins for minus infinity win",
    .rows = far_below_rows,
};

const kvb_profile kvb_profile_equal_keys = {
    .name = "equal-keys",
    .summary = "all keys of a head are the same row: every visible cell ties",
    .rows = equal_keys_rows,
};

const kvb_profile kvb_profile_giant_channel = {
    .name = "giant-channel",
    .summary =
        "N(0,1) with one channel of K and of V 300 to 1,000 times as large: a step for a whole row loses the rest",
    .rows = giant_channel_rows,
};

const kvb_profile kvb_profile_subnormal = {
    .name = "subnormal",
    .summary = "q, K and V are subnormal, in f32 or in f16 by turns of the heads",
    .rows = subnormal_rows,
};
