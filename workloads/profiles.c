/* SPDX-License-Identifier: Apache-2.0 */
/* The list of value profiles; those without structure along the sequence, gaussian, flat and grid; and tags (see
 * values.h). */
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- gaussian, flat ------------------------------------------------------------------------------------ */

/* Rows of N(0, factor^2). */
static void normal_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        double factor, float *out)
{
    uint64_t key = kvb_token_key(seed, kind, layer, token);
    uint32_t dim = kvb_rows_dim(kvb_model_group(model, layer), kind);
    for (uint32_t h = 0; h < kvb_rows_heads(kvb_model_group(model, layer), kind); h++)
        kvb_rng_normals(kvb_rng_key(key, h), factor, dim, out + (size_t)h * dim);
}

static void gaussian_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
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

static void flat_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
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

/* ---- grid ---------------------------------------------------------------------------------------------- */

#define GRID_STEP    0x1p-6f
#define GRID_LARGEST 64000u /* steps: 1000 */
#define GRID_GROUP                                                                                                     \
    16u                /* channels of which the first has the row's largest magnitude: no format's groups are smaller  \
                        */
#define GRID_LOGIT 2.0 /* the standard deviation of a logit, among the rows with the largest K */

/*
 * What a row's largest magnitude is, in steps of the row's own, a power of two times GRID_STEP: twice the largest code
 * of a format. Scales are then powers of two, or nearly, and odd multiples of the step lie half-way between two codes.
 */
static const uint32_t grid_tops[] = {
    GRID_LARGEST, 2 * 127, /* int8, q8_0 */
    2 * 8,                 /* q4_0 */
    2 * 6,                 /* e2m1 */
    2 * 448,               /* e4m3 */
};
enum { GRID_TOPS = sizeof grid_tops / sizeof *grid_tops };

/* One row: multiples of its step, each eighth element a zero of either sign. */
static void grid_row(uint64_t key, uint32_t dim, float *row)
{
    const uint64_t kind = kvb_rng_bits(key, 0);
    const uint32_t top = grid_tops[kind % GRID_TOPS];
    uint32_t doublings = 0;
    while (top << (doublings + 1) <= GRID_LARGEST)
        doublings++;
    const float step = GRID_STEP * (float)(1u << (kind >> 32) % (doublings + 1));
    for (uint32_t c = 0; c < dim; c++) {
        const uint64_t bits = kvb_rng_bits(key, c + 1);
        uint32_t steps = (uint32_t)((bits >> 32) % (top + 1));
        if (c % GRID_GROUP == 0)
            steps = top;
        else if (bits >> 1 & 7)
            steps = steps ? steps : 1;
        else
            steps = 0;
        row[c] = (float)steps * (bits & 1 ? -step : step); /* 0 * -step is -0 */
    }
}

static void grid_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                      uint32_t pos, float *out)
{
    (void)pos;
    const kvb_group *group = kvb_model_group(model, layer);
    const uint64_t key = kvb_token_key(seed, kind, layer, token);
    const uint32_t dim = kvb_rows_dim(group, kind);
    const double largest = GRID_STEP * GRID_LARGEST / sqrt(3); /* root mean square of a uniform row */
    if (kind == KVB_ROWS_Q)
        normal_rows(model, seed, kind, layer, token, GRID_LOGIT / (group->scale * sqrt(dim) * largest), out);
    for (uint32_t h = 0; h < kvb_rows_heads(group, kind) && kind != KVB_ROWS_Q; h++)
        grid_row(kvb_rng_key(key, h), dim, out + (size_t)h * dim);
}

const kvb_profile kvb_profile_grid = {
    .name = "grid",
    .summary = "K and V are multiples of 1/64 up to 1000, which tie and saturate as codes, and zeros of both signs",
    .rows = grid_rows,
};

/* ---- tags ---------------------------------------------------------------------------------------------- */

#define TAG_SYMBOLS 16u /* of 2 bits each; in rows of twice as many channels, 32 of 1 bit */

/* Bits of numbers 0 .. n-1. */
static uint32_t bits_of(uint32_t n)
{
    uint32_t bits = 0;
    while (bits < 31 && n > 1u << bits)
        bits++;
    return bits;
}

kvb_tag kvb_tag_of(const kvb_model *model)
{
    uint32_t heads = 1;
    for (uint32_t g = 0; g < model->n_groups; g++)
        if (!kvb_group_scans(&model->groups[g]) && model->groups[g].kv_heads > heads)
            heads = model->groups[g].kv_heads;
    const uint32_t layer_bits = bits_of(model->n_layers + 1), beside = 1 + layer_bits + bits_of(heads);
    return (kvb_tag){beside < 32 ? 32 - beside : 0, layer_bits};
}

uint32_t kvb_tag_code(kvb_tag tag, uint64_t token, uint32_t layer, uint32_t kv_head, bool is_v)
{
    return (uint32_t)token | layer << tag.token_bits | kv_head << (tag.token_bits + tag.layer_bits) |
           (uint32_t)is_v << 31;
}

static void tags_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                      uint32_t pos, float *out)
{
    (void)pos;
    uint32_t heads = kvb_rows_heads(kvb_model_group(model, layer), kind),
             dim = kvb_rows_dim(kvb_model_group(model, layer), kind);
    const kvb_tag tag = kvb_tag_of(model);
    for (uint32_t h = 0; h < heads; h++) {
        float *row = out + (size_t)h * dim;
        if (kind == KVB_ROWS_Q) {
            kvb_rng_normals(kvb_rng_key(kvb_token_key(seed, kind, layer, token), h), 1, dim, row);
            continue;
        }
        uint32_t code = kvb_tag_code(tag, token, layer, h, kind == KVB_ROWS_V);
        for (uint32_t c = 0; c < dim; c++)
            row[c] = dim < 2 * TAG_SYMBOLS ? (float)(code >> 2 * (c % TAG_SYMBOLS) & 3) * 2 - 3
                                           : (float)(code >> c % (2 * TAG_SYMBOLS) & 1) * 2 - 1;
    }
}

static bool tags_supports(const kvb_model *model, const kvb_group *group, char *why, size_t why_bytes)
{
    bool whole =
        !group->latent || group->v_dim >= 2 * TAG_SYMBOLS || group->k_dim < 2 * TAG_SYMBOLS; /* V's part of a K row */
    if (whole && group->k_dim >= TAG_SYMBOLS && group->v_dim >= TAG_SYMBOLS && kvb_tag_of(model).token_bits)
        return true;
    kvb_why_set(-ENOTSUP, why, why_bytes,
                "profile tags needs k_dim and v_dim of at least %u, and layers and heads that leave bits for tokens",
                TAG_SYMBOLS);
    return false;
}

const kvb_profile kvb_profile_tags = {
    .name = "tags",
    .summary = "every K and V row spells out its token, layer and head, bit by bit",
    .rows = tags_rows,
    .supports = tags_supports,
};

/* ---- the list ------------------------------------------------------------------------------------------ */

const kvb_profile *const kvb_profiles[] = {
    &kvb_profile_gaussian,     &kvb_profile_llama,
    &kvb_profile_qwen,         &kvb_profile_peaked,
    &kvb_profile_needle,       &kvb_profile_flat,
    &kvb_profile_grid,         &kvb_profile_tags,
    &kvb_profile_large_logits, &kvb_profile_far_below,
    &kvb_profile_equal_keys,   &kvb_profile_giant_channel,
    &kvb_profile_subnormal,    NULL,
};

const kvb_profile *kvb_profile_find(const char *name)
{
    for (size_t i = 0; kvb_profiles[i]; i++)
        if (strcmp(kvb_profiles[i]->name, name) == 0)
            return kvb_profiles[i];
    return NULL;
}

int kvb_profile_choose(const char *name, const kvb_profile **profile, char *why, size_t why_bytes)
{
    *profile = kvb_profile_find(name);
    if (*profile)
        return 0;
    char list[160];
    size_t at = 0;
    for (size_t i = 0; kvb_profiles[i] && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", kvb_profiles[i]->name);
    return kvb_why_set(-EINVAL, why, why_bytes, "unknown profile \"%.40s\", known: %s", name, list);
}
