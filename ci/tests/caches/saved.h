/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of save and load: paths of files, a cache with three unlike groups, and tokens to fill it. */
#ifndef KVB_TEST_SAVED_H
#define KVB_TEST_SAVED_H

#include "pools.h"
#include "rig.h"

static char path[300], other[300];

static int paths_make(void **state)
{
    snprintf(path, sizeof path, "%s", tests_path("a"));
    snprintf(other, sizeof other, "%s", tests_path("b"));
    return 0;
}

static CMFixtureFunction tests_setup = paths_make;

/* ---- a cache, and what it holds ---------------------------------------------------------------------------------- */

static inline void begin_as(rig *r, const kvb_cache_type *type, const kvb_pool_type *pool, uint32_t capacity,
                            uint32_t seq_capacity, uint32_t max_seqs)
{
    *r = (rig){.pool = pool,
               .n_groups = 3,
               .groups = {{.latent = true}, {.window = 9, .sinks = 2}, {.chunk = 12}},
               .rollback = 3,
               .page_cells = 4};
    assert_int_equal(rig_try_open(r, type, capacity, seq_capacity, max_seqs, 2), 0);
}

static inline void begin(rig *r, const kvb_cache_type *type, const kvb_pool_type *pool)
{
    begin_as(r, type, pool, 400, 120, 4);
}

static inline bool has_seqs(const kvb_cache_type *type)
{
    return type->flags & KVB_CACHE_SEQ;
}

static inline void grow(rig *r, uint32_t seq, uint32_t n)
{
    uint32_t ids[64];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = seq;
    assert_int_equal(rig_step(r, ids, n), 0);
    rig_store(r);
}

/* Fills two sequences that share a beginning (one, if the cache has one) and leaves a hole behind closed blocks. */
static inline void fill(rig *r)
{
    const bool seqs = has_seqs(kvb_cache_type_of(r->cache));
    grow(r, 0, 40);
    if (seqs)
        assert_int_equal(kvb_cache_seq_cp(r->cache, 0, 1, 0, KVB_POS_END), 0);
    for (uint32_t i = 0; i < 3; i++) {
        grow(r, 0, 5);
        if (seqs)
            grow(r, 1, 9);
    }
    if (seqs) {
        assert_int_equal(kvb_cache_seq_rm(r->cache, 1, 66, KVB_POS_END), 0);
        grow(r, 1, 2); /* has the highest ordinal: another instance goes on from the same one */
    }
}

/* Hash of the cell's K and V rows. */
static inline uint64_t cell_hash(const kvb_attend_spec *spec, uint32_t c)
{
    uint64_t sum = 0;
    for (uint32_t h = 0; h < spec->group->kv_heads; h++) {
        float row[RIG_CODED_DIM];
        spec->k.format->read(&spec->k, h, c, 1, row);
        const uint64_t both = rig_digest(h + 7, row, spec->k.dim * sizeof *row);
        spec->v.format->read(&spec->v, h, c, 1, row);
        sum += rig_digest(both, row, spec->v.dim * sizeof *row);
    }
    return sum;
}

/* Makes a step of these sequences and hashes the rows that each query sees in each layer; cells do not matter. */
static inline uint64_t step_hash(rig *r, const uint32_t *ids, uint32_t n)
{
    static uint64_t hashes[RIG_CODED_TOKENS]; /* by cell, once a query saw it; otherwise 0 */
    uint64_t all = 1;
    assert_int_equal(rig_step(r, ids, n), 0);
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        const uint64_t *feed;
        const uint32_t fed = kvb_cache_feed(r->cache, &feed);
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(r, layer, r->pos, &spec), 0);
        assert_true(spec.k.cells <= N(hashes));
        memset(hashes, 0, sizeof hashes);
        for (uint32_t q = 0; q < fed; q++) {
            uint32_t cursor = 0;
            uint64_t sum = 0, rows = 0;
            kvb_run run;
            while (kvb_mask_next(&spec.mask, fed, spec.k.cells, q, &cursor, &run))
                for (uint32_t c = run.begin; c < run.end; c++, rows++) {
                    hashes[c] = hashes[c] ? hashes[c] : cell_hash(&spec, c);
                    sum += hashes[c];
                }
            const uint64_t found[] = {sum, rows, r->pos[feed[q]]};
            all = rig_digest(all, found, sizeof found);
        }
    }
    return all;
}

/* Makes six more steps; their hash. */
static inline uint64_t going_on(rig *r, uint32_t seq)
{
    const uint32_t ids[] = {seq, seq, seq, seq, seq, seq, seq};
    uint64_t all = 0;
    for (uint32_t i = 0; i < 6; i++)
        all = all * 31 + step_hash(r, ids, 1 + i);
    return all;
}

/* Hash of all that a refused call must not change. */
static inline uint64_t state_hash(const rig *r)
{
    uint64_t h = 1;
    for (uint32_t s = 0; s < KVB_SEQ_IDS; s++) {
        const uint32_t length = kvb_cache_length(r->cache, s);
        h = rig_digest(h, &length, sizeof length);
    }
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        const kvb_cache_usage u = rig_usage_of(r, g);
        const uint64_t counts[] = {u.cells_live, u.cells_peak, u.high_water, u.cells_written, u.cells_moved};
        h = rig_digest(h, counts, sizeof counts);
    }
    return h;
}

/* Copies which token has which position to a rig over another cache. */
static inline void account_copy(rig *to, const rig *from)
{
    to->next = from->next;
    to->n_ordinals = from->n_ordinals;
    memcpy(to->pos, from->pos, sizeof to->pos);
}

static inline void refused(rig *r, uint32_t seq, const char *name, int error, const char *words)
{
    const uint64_t before = state_hash(r);
    rig_refused(r, kvb_cache_load(r->cache, seq, name), error, words);
    assert_null(strchr(kvb_cache_why(r->cache), '\n'));
    assert_true(state_hash(r) == before);
}

#endif
