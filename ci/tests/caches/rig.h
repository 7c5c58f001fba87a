/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache over f32 pools with rows that say whose they are: channel 0 holds the token's ordinal, channel 1
 * the layer and KV head, channel 2 K or V. What a query sees is then read back through mask and view.
 */
#ifndef KVB_TEST_RIG_H
#define KVB_TEST_RIG_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "caches/cache.h"

enum { RIG_LAYERS = 2, RIG_KV_HEADS = 2, RIG_K_DIM = 4, RIG_V_DIM = 3, RIG_MAX_STEP = 512 };

typedef struct rig {
    kvb_allocator allocator;
    kvb_cache *cache;
    char why[160];
} rig;

static inline int rig_try_open(rig *r, const kvb_cache_type *type, uint32_t capacity, uint32_t seq_capacity,
                               uint32_t max_seqs, uint32_t min_chunk)
{
    const kvb_model_facts facts = {RIG_LAYERS, 2 * RIG_KV_HEADS, RIG_KV_HEADS, RIG_K_DIM, RIG_V_DIM};
    const kvb_cache_options options = {
        .capacity = capacity,
        .seq_capacity = seq_capacity,
        .max_seqs = max_seqs,
        .min_chunk = min_chunk,
        .k_pool = kvb_builtin_pools[0],
        .v_pool = kvb_builtin_pools[0],
        .allocator = &r->allocator,
    };
    r->cache = NULL;
    return type->open(type, &facts, &options, &r->cache, r->why, sizeof r->why);
}

static inline void rig_open(rig *r, const kvb_cache_type *type, uint32_t capacity, uint32_t seq_capacity,
                            uint32_t max_seqs, uint32_t min_chunk)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(rig_try_open(r, type, capacity, seq_capacity, max_seqs, min_chunk), 0);
}

/* Every byte must have come back. */
static inline void rig_close(rig *r)
{
    r->cache->type->close(r->cache);
    assert_int_equal(r->allocator.current_bytes, 0);
}

/* Rows [n][KV heads][dim] of these ordinals. */
static inline void rig_rows(const uint64_t *ordinals, uint32_t n, uint32_t layer, uint32_t dim, float kind, float *rows)
{
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < RIG_KV_HEADS; h++) {
            float *row = rows + ((size_t)i * RIG_KV_HEADS + h) * dim;
            memset(row, 0, dim * sizeof *row);
            row[0] = (float)ordinals[i];
            row[1] = (float)(layer * 16 + h);
            row[2] = kind;
        }
    }
}

/* Store the feed in one layer; pos_of[ordinal] is each token's position. */
static inline int rig_fetch(rig *r, uint32_t layer, const uint32_t *pos_of, kvb_attend_spec *spec)
{
    static float k[RIG_MAX_STEP * RIG_KV_HEADS * RIG_K_DIM], v[RIG_MAX_STEP * RIG_KV_HEADS * RIG_V_DIM];
    static uint32_t positions[RIG_MAX_STEP];
    const uint64_t *ordinals = NULL;
    uint32_t n = kvb_cache_bytes(r->cache)->feed(r->cache, &ordinals);
    assert_true(n <= RIG_MAX_STEP);
    for (uint32_t i = 0; i < n; i++)
        positions[i] = pos_of[ordinals[i]];
    rig_rows(ordinals, n, layer, RIG_K_DIM, 1, k);
    rig_rows(ordinals, n, layer, RIG_V_DIM, 2, v);
    return kvb_cache_bytes(r->cache)->update_and_fetch(r->cache, layer, positions, k, v, n, spec);
}

static inline int rig_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Ordinals that query t of n_tok sees in one layer, ascending, from K and V of every head alike. */
static inline uint32_t rig_seen(const kvb_attend_spec *spec, uint32_t layer, uint32_t n_tok, uint32_t t, uint64_t *seen)
{
    uint32_t n = 0, cursor = 0, last_end = 0;
    kvb_run run;
    assert_int_equal(spec->k.cells, spec->v.cells);
    while (kvb_mask_next(&spec->mask, n_tok, spec->k.cells, t, &cursor, &run)) {
        assert_true(run.begin < run.end && run.end <= spec->k.cells);
        assert_true(n == 0 || run.begin > last_end); /* ascending, disjoint, joined where they touch */
        last_end = run.end;
        for (uint32_t c = run.begin; c < run.end; c++) {
            const float *first = kvb_view_row(&spec->k, 0, c);
            for (uint32_t h = 0; h < RIG_KV_HEADS; h++) {
                const float *k = kvb_view_row(&spec->k, h, c), *v = kvb_view_row(&spec->v, h, c);
                assert_true(k[0] == first[0] && v[0] == first[0]);
                assert_true(k[1] == (float)(layer * 16 + h) && v[1] == k[1]);
                assert_true(k[2] == 1 && v[2] == 2);
            }
            seen[n++] = (uint64_t)first[0];
        }
    }
    qsort(seen, n, sizeof *seen, rig_compare);
    return n;
}

/* Does query t see exactly these ordinals (ascending), in every layer? Also stores the step. */
static inline void rig_assert_sees(rig *r, const uint32_t *pos_of, uint32_t n_tok, uint32_t t, const uint64_t *want,
                                   uint32_t n_want)
{
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        uint64_t seen[4 * RIG_MAX_STEP];
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(r, layer, pos_of, &spec), 0);
        assert_int_equal(rig_seen(&spec, layer, n_tok, t, seen), n_want);
        assert_memory_equal(seen, want, n_want * sizeof *want);
    }
}

/* Store the step in every layer; the spec of the last one. */
static inline void rig_store(rig *r, const uint32_t *pos_of, kvb_attend_spec *spec)
{
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
        assert_int_equal(rig_fetch(r, layer, pos_of, spec), 0);
}

static inline kvb_cache_usage rig_usage(const rig *r)
{
    kvb_cache_usage usage;
    kvb_cache_base(r->cache)->usage(r->cache, &usage);
    return usage;
}

#endif
