/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value profiles `peaked` and `needle`: one key takes more than 99 % of the mass, whatever else a query sees, up to
 * 131072 cells. A key is a direction of norm sqrt(k_dim), a query the direction of one key, so that logits are L
 * cos(angle between the keys) and that key's is L.
 *
 * peaked: the token's own key. needle: each cell in turn, so that a mistake in any one cell decides some query. Of the
 * query heads of a KV head one, in turn, looks at its own token; the others look at positions spread evenly over all
 * that the query may see. What a query can look at is a position, since it does not know what tokens its sequence has:
 * keys of one position have nearly one direction.
 */
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* Below this, 131072 directions lie too close together. */
#define PEAKED_MIN_DIM 16u

/*
 * The own logit L. Of N = 131072 random directions in d dimensions the closest pair has a cosine above c
 * with a probability of at most N^2 (1 - c^2)^((d-1)/2) / 4; c here makes that 5e-4. All other keys
 * together then weigh e^-17 N at the very worst of angles and in practice far less: (1 - c) L = 17.
 */
static double own_logit(uint32_t dim)
{
    double c2 = 1 - pow(1.16e-13, 2.0 / (dim - 1));
    return 17 / (1 - sqrt(c2));
}

/* A direction of norm sqrt(dim); for a query times what makes its logit L, heads differing in their sharpness. */
static void row_scale(const kvb_group *group, kvb_rows kind, uint64_t head_key, uint32_t dim, float *row)
{
    double norm2 = 0;
    for (uint32_t c = 0; c < dim; c++)
        norm2 += (double)row[c] * row[c];
    double factor = sqrt(dim / norm2);
    if (kind == KVB_ROWS_Q)
        factor *= own_logit(dim) / (group->scale * dim) * (1 + 0.5 * kvb_rng_unit((uint32_t)kvb_rng_bits(head_key, 0)));
    for (uint32_t c = 0; c < dim; c++)
        row[c] = (float)(row[c] * factor);
}

static void peaked_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        uint32_t pos, float *out)
{
    (void)pos;
    const kvb_group *group = kvb_model_group(model, layer);
    uint32_t heads = kvb_rows_heads(group, kind), dim = kvb_rows_dim(group, kind);
    uint32_t each = group->heads / group->kv_heads; /* query heads of a KV head */
    uint64_t own = kvb_token_key(seed, kind, layer, token), keys = kvb_token_key(seed, KVB_ROWS_K, layer, token);
    for (uint32_t h = 0; h < heads; h++) {
        float *row = out + (size_t)h * dim;
        if (kind == KVB_ROWS_V) {
            kvb_rng_normals(kvb_rng_key(own, h), 1, dim, row);
            continue;
        }
        kvb_rng_normals(kvb_rng_key(keys, kind == KVB_ROWS_Q ? h / each : h), 1, dim, row);
        row_scale(group, kind, kvb_rng_key(own, h), dim, row);
    }
}

#define NEEDLE_OWN                                                                                                     \
    0.0625f /* how much of a key's direction is its token's own: the same position in another branch differs */

/* The position that a query head looks at: its own, or the next of a sequence that is spread evenly (Weyl: multiples of
 * the golden ratio, modulo 1) over those that the group lets it see. */
static uint32_t needle_target(const kvb_group *g, uint64_t seed, uint32_t layer, uint32_t pos, uint32_t h)
{
    uint32_t each = g->heads / g->kv_heads;
    if (each > 1 ? h % each == pos % each : pos % 4 == 0)
        return pos;
    uint32_t first = g->chunk ? pos / g->chunk * g->chunk : g->window && pos >= g->window ? pos + 1 - g->window : 0;
    uint32_t sinks = g->window ? g->sinks < first ? g->sinks : first : 0;
    double start = kvb_rng_unit((uint32_t)kvb_rng_bits(kvb_head_key(seed, layer, h), 1)), whole;
    double part = modf((start + 1) + ((double)pos * g->heads + h) * 0.6180339887498949, &whole);
    uint32_t place = (uint32_t)(part * (pos - first + 1 + sinks));
    return place < sinks ? place : first + place - sinks;
}

static void needle_rows(const kvb_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                        uint32_t pos, float *out)
{
    const kvb_group *group = kvb_model_group(model, layer);
    uint32_t heads = kvb_rows_heads(group, kind), dim = kvb_rows_dim(group, kind);
    uint32_t each = group->heads / group->kv_heads;
    uint64_t own = kvb_token_key(seed, kind, layer, token);
    for (uint32_t h = 0; h < heads; h++) {
        float *row = out + (size_t)h * dim, mine[KVB_MODEL_WIDTH];
        kvb_rng_normals(kvb_rng_key(own, h), 1, dim, mine);
        if (kind == KVB_ROWS_V) {
            memcpy(row, mine, dim * sizeof *row);
            continue;
        }
        uint32_t at = kind == KVB_ROWS_Q ? needle_target(group, seed, layer, pos, h) : pos;
        kvb_rng_normals(kvb_rng_key(kvb_head_key(seed, layer, kind == KVB_ROWS_Q ? h / each : h), (uint64_t)at + 1), 1,
                        dim, row);
        for (uint32_t c = 0; c < dim && kind == KVB_ROWS_K; c++)
            row[c] += NEEDLE_OWN * mine[c];
        row_scale(group, kind, kvb_rng_key(own, h), dim, row);
    }
}

static bool dim_suffices(const char *profile, const kvb_group *group, char *why, size_t why_bytes)
{
    if (group->k_dim >= PEAKED_MIN_DIM)
        return true;
    kvb_why_set(-ENOTSUP, why, why_bytes, "profile %s needs a k_dim of at least %u, a layer has %u", profile,
                PEAKED_MIN_DIM, group->k_dim);
    return false;
}

static bool peaked_supports(const kvb_model *model, const kvb_group *group, char *why, size_t why_bytes)
{
    (void)model;
    return dim_suffices("peaked", group, why, why_bytes);
}

static bool needle_supports(const kvb_model *model, const kvb_group *group, char *why, size_t why_bytes)
{
    (void)model;
    return dim_suffices("needle", group, why, why_bytes);
}

const kvb_profile kvb_profile_peaked = {
    .name = "peaked",
    .summary = "each query's own key takes more than 99 % of the mass, up to 131072 visible cells",
    .rows = peaked_rows,
    .supports = peaked_supports,
};

const kvb_profile kvb_profile_needle = {
    .name = "needle",
    .summary =
        "each cell in turn takes more than 99 % of the mass of some query: a mistake in any one decides that query",
    .rows = needle_rows,
    .supports = needle_supports,
};
