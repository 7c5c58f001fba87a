/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts for cache paged-prefix. */
#ifndef KVB_TEST_PROMPTS_H
#define KVB_TEST_PROMPTS_H

#include "rig.h"

/* Tokens first, first + 1, … */
static inline const int32_t *counting(int32_t first, uint32_t n)
{
    static int32_t tokens[200];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = first + (int32_t)i;
    return tokens;
}

/* The prompt is told, and what was not found of it is fed. Returns how many were found. */
static inline uint32_t prompt(rig *r, uint32_t seq, const int32_t *tokens, uint32_t n, uint64_t extra_key)
{
    uint32_t found = UINT32_MAX, ids[64];
    const uint64_t *ordinals, next = r->next;
    assert_int_equal(kvb_cache_seq_match(r->cache, seq, tokens, n, extra_key, &found, &ordinals), 0);
    assert_int_equal(kvb_cache_length(r->cache, seq), found);
    for (uint32_t i = 0; i < found; i++)
        assert_true(ordinals[i] < next && r->pos[ordinals[i]] == i);
    r->next += found; /* used up */
    for (uint32_t i = 0; i < n; i++)
        ids[i] = seq;
    r->tokens = tokens + found;
    assert_int_equal(rig_step(r, ids, n - found), 0);
    rig_store(r);
    r->tokens = NULL;
    return found;
}

static inline void end(rig *r, uint32_t seq)
{
    assert_int_equal(kvb_cache_seq_rm(r->cache, seq, 0, KVB_POS_END), 0);
}

/* Pages of 4 cells; their bytes in two groups of all layers: what a budget counts. */
static inline void opened(rig *r, uint32_t capacity, uint32_t max_seqs, uint32_t pages)
{
    *r = (rig){.page_cells = 4, .n_groups = 2, .groups = {{.window = 3}, {.latent = true}}};
    rig_model_make(r);
    const kvb_pool_type *pool = kvb_builtin_pools[0];
    double bytes = 0;
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        const kvb_group *g = kvb_model_group(&r->model, layer);
        bytes +=
            4 * g->kv_heads * (pool->row_bytes(pool, g->k_dim) + (g->latent ? 0 : pool->row_bytes(pool, g->v_dim)));
    }
    r->prefix_bytes = pages * (uint64_t)bytes;
    assert_int_equal(rig_try_open(r, &kvb_cache_paged_prefix, capacity, 64, max_seqs, 4), 0);
}

#endif
