/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache over pools of one kind, with rows that say whose they are, so that what a query sees can be read back
 * through mask and view. In f32: channel 0 holds the token's ordinal, channel 1 the layer and KV head, channel 2 K or
 * V. In any other format: the signs of a row are a hash of all these, its magnitudes lie between 1/2 and 1, and a row is
 * the token's whose signs it has, but for a quarter of them.
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
enum { RIG_CODED_DIM = 128, RIG_CODED_TOKENS = 1024 }; /* what every format can store; ordinals below */

typedef struct rig {
    kvb_allocator allocator;
    kvb_cache *cache;
    char why[160];
    const kvb_pool_type *pool; /* of K and V; NULL: f32 */
    kvb_growth growth;
    kvb_group limits; /* window, sinks and chunk of layer 1, which is then a group of its own */
    uint32_t rollback;
    kvb_model model;
    uint64_t n_ordinals; /* of rows handed in so far */
} rig;

static inline uint32_t rig_dim(const rig *r, float kind)
{
    return r->pool ? RIG_CODED_DIM : kind == 1 ? RIG_K_DIM : RIG_V_DIM;
}

static inline int rig_try_open(rig *r, const kvb_cache_type *type, uint32_t capacity, uint32_t seq_capacity,
                               uint32_t max_seqs, uint32_t min_chunk)
{
    const kvb_group all = {.heads = 2 * RIG_KV_HEADS,
                           .kv_heads = RIG_KV_HEADS,
                           .k_dim = rig_dim(r, 1),
                           .v_dim = rig_dim(r, 2),
                           .scale = 1};
    r->model = (kvb_model){.n_layers = RIG_LAYERS, .n_groups = 1, .groups = {all, all}};
    if (kvb_group_limits(&r->limits)) {
        r->model.n_groups = 2;
        r->model.group_of[1] = 1;
        r->model.groups[1].window = r->limits.window;
        r->model.groups[1].sinks = r->limits.sinks;
        r->model.groups[1].chunk = r->limits.chunk;
    }
    const kvb_cache_options options = {
        .capacity = capacity,
        .seq_capacity = seq_capacity,
        .max_seqs = max_seqs,
        .rollback = r->rollback,
        .min_chunk = min_chunk,
        .growth = r->growth,
        .k_pool = r->pool ? r->pool : kvb_builtin_pools[0],
        .v_pool = r->pool ? r->pool : kvb_builtin_pools[0],
        .allocator = &r->allocator,
    };
    r->cache = NULL;
    return kvb_cache_open(type, &r->model, &options, &r->cache, r->why, sizeof r->why);
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
    kvb_cache_close(r->cache);
    assert_int_equal(r->allocator.current_bytes, 0);
}

/* ---- rows ------------------------------------------------------------------------------------------------- */

static inline uint64_t rig_hash(uint64_t ordinal, uint32_t layer, uint32_t h, float kind, uint32_t word)
{
    uint64_t z = ordinal * 0x9e3779b97f4a7c15u + (uint64_t)(layer * 16 + h + 1) * 0xd1342543de82ef95u +
                 (uint64_t)(kind * 1000 + (float)word) * 0x2545f4914f6cdd1du;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void rig_coded_make(uint64_t ordinal, uint32_t layer, uint32_t h, float kind, float *row)
{
    for (uint32_t c = 0; c < RIG_CODED_DIM; c += 8) {
        uint64_t signs = rig_hash(ordinal, layer, h, kind, c / 64) >> c % 64;
        uint64_t sizes = rig_hash(ordinal, layer, h, kind, 64 + c / 8);
        for (uint32_t i = 0; i < 8; i++) {
            float size = 0.5f + (float)(sizes >> i * 8 & 255) / 510.0f;
            row[c + i] = signs >> i & 1 ? -size : size;
        }
    }
}

/* Made once: tests hand in the same rows many times. */
static inline const float *rig_coded_row(uint64_t ordinal, uint32_t layer, uint32_t h, float kind)
{
    static float made[RIG_CODED_TOKENS][RIG_LAYERS][RIG_KV_HEADS][2][RIG_CODED_DIM];
    assert_true(ordinal < RIG_CODED_TOKENS && layer < RIG_LAYERS && h < RIG_KV_HEADS);
    float *row = made[ordinal][layer][h][kind == 2];
    if (row[0] == 0) /* no element of a coded row is */
        rig_coded_make(ordinal, layer, h, kind, row);
    return row;
}

/* The token, of those below n, that a coded row is of; UINT64_MAX: of none. */
static inline uint64_t rig_row_owner(const float *row, uint64_t n, uint32_t layer, uint32_t h, float kind)
{
    static uint64_t last; /* where to begin: the next row is often the same token's, or its neighbour's */
    uint64_t signs[RIG_CODED_DIM / 64] = {0};
    for (uint32_t c = 0; c < RIG_CODED_DIM; c++)
        signs[c / 64] |= (uint64_t)(row[c] < 0) << c % 64;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t o = (last + i) % n;
        int wrong = 0;
        for (uint32_t w = 0; w < RIG_CODED_DIM / 64; w++)
            wrong += __builtin_popcountll(signs[w] ^ rig_hash(o, layer, h, kind, w));
        if (wrong < RIG_CODED_DIM / 4) /* of another token: half, give or take a twelfth */
            return last = o;
    }
    return UINT64_MAX;
}

/* Rows [n][KV heads][dim] of these ordinals. */
static inline void rig_rows(const rig *r, const uint64_t *ordinals, uint32_t n, uint32_t layer, float kind, float *rows)
{
    uint32_t dim = rig_dim(r, kind);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t h = 0; h < RIG_KV_HEADS; h++) {
            float *row = rows + ((size_t)i * RIG_KV_HEADS + h) * dim;
            if (r->pool) {
                memcpy(row, rig_coded_row(ordinals[i], layer, h, kind), dim * sizeof *row);
                continue;
            }
            memset(row, 0, dim * sizeof *row);
            row[0] = (float)ordinals[i];
            row[1] = (float)(layer * 16 + h);
            row[2] = kind;
        }
    }
}

/* The token whose row lies there. */
static inline uint64_t rig_owner(const rig *r, const kvb_view *view, uint32_t layer, uint32_t h, uint32_t c, float kind)
{
    float coded[RIG_CODED_DIM];
    if (r->pool) {
        view->format->read(view, h, c, 1, coded);
        return rig_row_owner(coded, r->n_ordinals, layer, h, kind);
    }
    const float *row = kvb_view_row(view, h, c);
    assert_true(row[1] == (float)(layer * 16 + h) && row[2] == kind);
    return (uint64_t)row[0];
}

/* Store the feed in one layer; pos_of[ordinal] is each token's position. */
static inline int rig_fetch(rig *r, uint32_t layer, const uint32_t *pos_of, kvb_attend_spec *spec)
{
    static float k[RIG_MAX_STEP * RIG_KV_HEADS * RIG_CODED_DIM], v[RIG_MAX_STEP * RIG_KV_HEADS * RIG_CODED_DIM];
    static uint32_t positions[RIG_MAX_STEP];
    const uint64_t *ordinals = NULL;
    uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    assert_true(n <= RIG_MAX_STEP);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = pos_of[ordinals[i]];
        if (r->n_ordinals <= ordinals[i])
            r->n_ordinals = ordinals[i] + 1;
    }
    rig_rows(r, ordinals, n, layer, 1, k);
    rig_rows(r, ordinals, n, layer, 2, v);
    return kvb_cache_update_and_fetch(r->cache, layer, positions, k, v, n, spec);
}

/* ---- what queries see --------------------------------------------------------------------------------------- */

static inline int rig_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Ordinals that query t of n_tok sees in one layer, ascending, from K and V of every head alike. */
static inline uint32_t rig_seen(const rig *r, const kvb_attend_spec *spec, uint32_t layer, uint32_t n_tok, uint32_t t,
                                uint64_t *seen)
{
    uint32_t n = 0, cursor = 0, last_end = 0;
    bool limited = kvb_group_limits(spec->group); /* then in the order of positions, else ascending */
    kvb_run run;
    assert_int_equal(spec->k.cells, spec->v.cells);
    while (kvb_mask_next(&spec->mask, n_tok, spec->k.cells, t, &cursor, &run)) {
        assert_true(run.begin < run.end && run.end <= spec->k.cells);
        assert_true(n == 0 || (limited ? run.begin != last_end : run.begin > last_end)); /* joined where they touch */
        last_end = run.end;
        for (uint32_t c = run.begin; c < run.end; c++) {
            seen[n] = rig_owner(r, &spec->k, layer, 0, c, 1);
            for (uint32_t h = 0; h < RIG_KV_HEADS; h++) {
                assert_int_equal(rig_owner(r, &spec->k, layer, h, c, 1), seen[n]);
                assert_int_equal(rig_owner(r, &spec->v, layer, h, c, 2), seen[n]);
            }
            n++;
        }
    }
    if (n > 0)
        qsort(seen, n, sizeof *seen, rig_compare);
    for (uint32_t i = 1; i < n; i++)
        assert_true(seen[i] != seen[i - 1]);
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
        assert_int_equal(rig_seen(r, &spec, layer, n_tok, t, seen), n_want);
        assert_memory_equal(seen, want, n_want * sizeof *want);
    }
}

/* Store the step in every layer; the spec of the last one. */
static inline void rig_store(rig *r, const uint32_t *pos_of, kvb_attend_spec *spec)
{
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
        assert_int_equal(rig_fetch(r, layer, pos_of, spec), 0);
}

static inline kvb_cache_usage rig_usage_of(const rig *r, uint32_t group)
{
    kvb_cache_usage usage;
    kvb_cache_usage_of(r->cache, group, &usage);
    return usage;
}

static inline kvb_cache_usage rig_usage(const rig *r)
{
    return rig_usage_of(r, 0);
}

#endif
