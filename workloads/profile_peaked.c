/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Value profile `peaked`: a query's own key takes more than 99 % of the mass, whatever else it sees, up to
 * 131072 cells. A key is a random direction of norm sqrt(k_dim), the query of the same token that direction
 * again, so that logits are L cos(angle between the keys) and the own one is L.
 */
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>
#include <math.h>

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
        double norm2 = 0;
        for (uint32_t c = 0; c < dim; c++)
            norm2 += (double)row[c] * row[c];
        double factor = sqrt(dim / norm2);
        if (kind == KVB_ROWS_Q) /* heads of one KV head differ in their sharpness */
            factor *= own_logit(dim) / (group->scale * dim) *
                      (1 + 0.5 * kvb_rng_unit((uint32_t)kvb_rng_bits(kvb_rng_key(own, h), 0)));
        for (uint32_t c = 0; c < dim; c++)
            row[c] = (float)(row[c] * factor);
    }
}

static bool peaked_supports(const kvb_model *model, const kvb_group *group, char *why, size_t why_bytes)
{
    (void)model;
    if (group->k_dim >= PEAKED_MIN_DIM)
        return true;
    kvb_why_set(-ENOTSUP, why, why_bytes, "profile peaked needs a k_dim of at least %u, a layer has %u", PEAKED_MIN_DIM,
                group->k_dim);
    return false;
}

const kvb_profile kvb_profile_peaked = {
    .name = "peaked",
    .summary = "each query's own key takes more than 99 % of the mass, up to 131072 visible cells",
    .rows = peaked_rows,
    .supports = peaked_supports,
};
