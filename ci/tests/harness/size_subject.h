/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of predicted sizes share: subjects, and a proof that names what differs. */
#ifndef KVB_TESTS_SIZE_SUBJECT_H
#define KVB_TESTS_SIZE_SUBJECT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "harness/size/engine_kvbench.h"
#include "harness/size/prove.h"

static kvb_proof_rows proof_rows;

static inline const kvb_pool_type *f16(void)
{
    return kvb_size_pool_find("f16");
}

static inline kvb_group rows_of(uint32_t heads, uint32_t kv_heads, uint32_t k_dim, uint32_t v_dim)
{
    return (kvb_group){.heads = heads, .kv_heads = kv_heads, .k_dim = k_dim, .v_dim = v_dim, .scale = 1};
}

/* One group; its layers. */
static inline kvb_model alike(uint32_t layers, kvb_group group)
{
    return (kvb_model){.n_layers = layers, .n_groups = 1, .groups = {group}};
}

/* All that can be of K's rows is turned when positions move. */
static inline kvb_group turned(kvb_group group)
{
    group.rope = (kvb_rope){.known = true, .dims = group.k_dim / 2 * 2, .base = 10000};
    return group;
}

static inline kvb_size_subject subject_make(const kvb_cache_type *cache, const kvb_pool_type *pool, kvb_growth growth,
                                            uint32_t sequences, uint32_t context)
{
    return (kvb_size_subject){
        .cache = cache,
        .model = alike(1, turned(rows_of(2, 1, 128, 128))),
        .options = {.capacity = sequences * context,
                    .seq_capacity = context,
                    .seq_ids = sequences,
                    .max_seqs = sequences,
                    .min_chunk = 16,
                    .growth = growth,
                    .k_pool = pool,
                    .v_pool = pool},
    };
}

static inline bool has(const kvb_cache_type *cache, uint32_t flag)
{
    return cache->flags & flag;
}

static inline void prove(const kvb_size_subject *s, const kvb_size_step *steps, size_t n, kvb_size_proof *proof)
{
    char why[200] = "";
    int error = kvb_size_prove(s, steps, n, &proof_rows, proof, why, sizeof why);
    if (error)
        fail_msg("%s k=%s v=%s %s: %s", s->cache->name, s->options.k_pool->name, s->options.v_pool->name,
                 kvb_growth_names[s->options.growth], why);
    if (proof->allocated == proof->predicted)
        return;
    for (uint32_t i = 0; i < s->model.n_groups; i++) {
        const kvb_group *g = &s->model.groups[i];
        print_message("# group %u: %u heads, %u and %u channels%s, window %u, sinks %u, chunk %u\n", i, g->kv_heads,
                      g->k_dim, g->v_dim, g->latent ? " in one row" : "", g->window, g->sinks, g->chunk);
    }
    for (size_t i = 0, at = 1; i < n; i++) {
        print_message("# %s%u sequences from %u on, %u tokens, %u drafts, %u times, call %u\n",
                      proof->lengths > at ? "" : "not reached: ", steps[i].n_seqs, steps[i].first, steps[i].tokens,
                      steps[i].drafts, steps[i].times, steps[i].call);
        at += 2 * steps[i].times;
    }
    fail_msg("%s k=%s v=%s %s: %u sequences, capacity %u, step %u, rollback %u, chunk %u: after %lu cells %lu bytes, "
             "predicted %lu",
             s->cache->name, s->options.k_pool->name, s->options.v_pool->name, kvb_growth_names[s->options.growth],
             s->options.max_seqs, s->options.capacity, s->options.step, s->options.rollback, s->options.min_chunk,
             proof->cells, proof->allocated, proof->predicted);
}

static inline uint32_t n_caches(void)
{
    uint32_t n = 0;
    while (kvb_builtin_caches[n])
        n++;
    return n;
}

static inline int rows_free(void **state)
{
    (void)state;
    kvb_proof_rows_free(&proof_rows);
    return 0;
}

#endif
