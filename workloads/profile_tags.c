/* SPDX-License-Identifier: Apache-2.0 */
/* Value profile `tags`: every K and V row spells out its token, layer and head (see values.h). */
#include "workloads/profile_internal.h"
#include "workloads/why.h"

#include <errno.h>

#define TAG_SYMBOLS 16u /* of 2 bits each; in rows of twice as many channels, 32 of 1 bit */

uint32_t kvb_tag_code(uint64_t token, uint32_t layer, uint32_t kv_head, bool is_v)
{
    return (uint32_t)token | layer << 19 | kv_head << 25 | (uint32_t)is_v << 31;
}

static void tags_rows(const kvb_trace_model *model, uint64_t seed, kvb_rows kind, uint32_t layer, uint64_t token,
                      uint32_t pos, float *out)
{
    (void)pos;
    uint32_t heads = kvb_rows_heads(model, kind), dim = kvb_rows_dim(model, kind);
    for (uint32_t h = 0; h < heads; h++) {
        float *row = out + (size_t)h * dim;
        if (kind == KVB_ROWS_Q) {
            kvb_rng_normals(kvb_rng_key(kvb_token_key(seed, kind, layer, token), h), 1, dim, row);
            continue;
        }
        uint32_t code = kvb_tag_code(token, layer, h, kind == KVB_ROWS_V);
        for (uint32_t c = 0; c < dim; c++)
            row[c] = dim < 2 * TAG_SYMBOLS ? (float)(code >> 2 * (c % TAG_SYMBOLS) & 3) * 2 - 3
                                           : (float)(code >> c % (2 * TAG_SYMBOLS) & 1) * 2 - 1;
    }
}

static bool tags_supports(const kvb_trace_model *model, char *why, size_t why_bytes)
{
    if (model->k_dim >= TAG_SYMBOLS && model->v_dim >= TAG_SYMBOLS && model->layers < KVB_TAG_LAYERS &&
        model->kv_heads < KVB_TAG_HEADS)
        return true;
    kvb_why_set(-ENOTSUP, why, why_bytes,
                "profile tags needs k_dim and v_dim of at least %u, fewer than %u layers and fewer than %u KV heads",
                TAG_SYMBOLS, KVB_TAG_LAYERS, KVB_TAG_HEADS);
    return false;
}

const kvb_profile kvb_profile_tags = {
    .name = "tags",
    .summary = "every K and V row spells out its token, layer and head, bit by bit",
    .rows = tags_rows,
    .supports = tags_supports,
};
