/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compaction: the simple masks come back and the high-water mark falls; stored rows stay what they are, in every
 * format; what cells others hold and what is yet to be turned goes with them; a full cache, and a format whose rows
 * cannot be copied, say so.
 */
#include "rig.h"

enum { TOKENS = 48 };

static kvb_cache_usage usage_of(const rig *r, uint32_t group)
{
    kvb_cache_usage usage;
    kvb_cache_usage_of(r->cache, group, &usage);
    return usage;
}

static void step(rig *r, const uint32_t *ids, uint32_t n, kvb_attend_spec *spec)
{
    assert_int_equal(rig_step(r, ids, n), 0);
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++)
        assert_int_equal(rig_fetch(r, layer, r->pos, spec), 0);
}

/* Two sequences, token by token in turns; then one is gone, and the other lies in every other cell. */
static void the_simple_masks_come_back(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    rig_open(&r, &kvb_cache_seq, 2 * TOKENS, TOKENS, 2, 4);
    for (uint32_t i = 0; i < 16; i++)
        step(&r, (const uint32_t[]){0, 1}, 2, &spec);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
    step(&r, (const uint32_t[]){1}, 1, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_RUNS);
    assert_int_equal(spec.k.cells, 32);
    const uint64_t moved = usage_of(&r, 0).cells_moved;
    assert_int_equal(kvb_cache_defrag(r.cache), 0);
    assert_int_equal(usage_of(&r, 0).cells_live, 17);
    assert_true(usage_of(&r, 0).cells_moved > moved && usage_of(&r, 0).cells_moved <= moved + 17);
    step(&r, (const uint32_t[]){1}, 1, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_NONE);
    assert_int_equal(spec.k.cells, 18);
    step(&r, (const uint32_t[]){1, 1, 1}, 3, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
    const uint64_t done = usage_of(&r, 0).cells_moved;
    assert_int_equal(kvb_cache_defrag(r.cache), 0); /* there is nothing left to do */
    assert_int_equal(usage_of(&r, 0).cells_moved, done);
    assert_int_equal(kvb_cache_defrag(r.cache), 0);
    assert_int_equal(kvb_cache_clear(r.cache), 0);
    assert_int_equal(kvb_cache_defrag(r.cache), 0); /* of nothing */
    rig_close(&r);
}

/* Rows of a sequence in the order of positions, as they are read back. */
static uint32_t rows_read(const kvb_attend_spec *spec, uint32_t n_tok, float k[TOKENS][RIG_CODED_DIM],
                          float v[TOKENS][RIG_CODED_DIM])
{
    uint32_t n = 0, cursor = 0;
    for (kvb_run run; kvb_mask_next(&spec->mask, n_tok, spec->k.cells, n_tok - 1, &cursor, &run);)
        for (uint32_t c = run.begin; c < run.end; c++, n++) {
            spec->k.format->read(&spec->k, 0, c, 1, k[n]);
            spec->v.format->read(&spec->v, 0, c, 1, v[n]);
        }
    return n;
}

static void stored_rows_stay_what_they_are(void **state)
{
    (void)state;
    static float k[2][TOKENS][RIG_CODED_DIM], v[2][TOKENS][RIG_CODED_DIM];
    uint32_t formats = 0;
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *pool = kvb_builtin_pools[p]; pool; pool = pool->rotated, formats++) {
            rig r = {.pool = pool, .n_groups = 1, .groups = {{.window = 1000}}}; /* so that runs come by position */
            kvb_attend_spec spec;
            assert_int_equal(rig_try_open(&r, &kvb_cache_seq, 2 * TOKENS, TOKENS, 3, 4), 0);
            for (uint32_t i = 0; i < 12; i++)
                step(&r, (const uint32_t[]){0, 1}, 2, &spec);
            assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 2, 9), 0);
            assert_int_equal(kvb_cache_seq_cp(r.cache, 1, 2, 0, 6), 0);
            step(&r, (const uint32_t[]){2, 1, 0, 1}, 4, &spec); /* into the holes */
            step(&r, (const uint32_t[]){1}, 1, &spec);
            const uint32_t n = rows_read(&spec, 1, k[0], v[0]);
            const int error = kvb_cache_defrag(r.cache);
            assert_int_equal(error, pool->format->residual_cells ? -ENOTSUP : 0);
            assert_int_equal(kvb_cache_length(r.cache, 1), 15);
            if (!error) {
                assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 14, KVB_POS_END), 0);
                step(&r, (const uint32_t[]){1}, 1, &spec); /* another one in the place of the last */
                assert_int_equal(rows_read(&spec, 1, k[1], v[1]), n);
                assert_memory_equal(k[0], k[1], (n - 1) * sizeof k[0][0]);
                assert_memory_equal(v[0], v[1], (n - 1) * sizeof v[0][0]);
            }
            rig_close(&r);
        }
    assert_true(formats > 40);
}

static void a_full_cache_says_so(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    rig_open(&r, &kvb_cache_seq, 8, 8, 2, 4);
    for (uint32_t i = 0; i < 4; i++)
        step(&r, (const uint32_t[]){1, 0}, 2, &spec);
    const uint64_t *feed;
    assert_int_equal(kvb_cache_defrag(r.cache), -ENOSPC);
    assert_non_null(strstr(kvb_cache_why(r.cache), "none of 8 cells is free"));
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 2); /* its plan is still in force */
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 3, KVB_POS_END), 0);
    assert_int_equal(kvb_cache_defrag(r.cache), 0); /* by the one that is free */
    step(&r, (const uint32_t[]){0}, 1, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_RUNS);
    assert_int_equal(spec.mask.row_start[1],
                     2); /* all that it had in one run, and the new token behind the other sequence */
    assert_true(spec.mask.runs[0].begin == 0 && spec.mask.runs[0].end == 4);
    rig_close(&r);
}

/* Where cells follow from positions there is nothing to move; pending nodes are in the way of any call. */
static void other_caches_have_nothing_to_move(void **state)
{
    (void)state;
    EACH_CACHE(type, 0)
    {
        rig r;
        kvb_attend_spec spec;
        rig_open(&r, type, 64, 32, 2, 4);
        for (uint32_t i = 0; i < 6; i++)
            step(&r, (const uint32_t[]){0, 0}, 2, &spec);
        const kvb_cache_usage before = usage_of(&r, 0);
        assert_int_equal(kvb_cache_defrag(r.cache), 0);
        const kvb_cache_usage after = usage_of(&r, 0);
        assert_int_equal(after.cells_moved, before.cells_moved);
        assert_int_equal(after.cells_live, before.cells_live);
        if (type->flags & KVB_CACHE_TREE) {
            assert_int_equal(kvb_cache_propose(r.cache, NULL, (const int32_t[]){-1, 0}, 2), 0);
            assert_int_equal(kvb_cache_defrag(r.cache), -EINVAL);
            assert_int_equal(kvb_cache_pending(r.cache, 0), 2);
        }
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_simple_masks_come_back),
        cmocka_unit_test(stored_rows_stay_what_they_are),
        cmocka_unit_test(a_full_cache_says_so),
        cmocka_unit_test(other_caches_have_nothing_to_move),
    };
    return cmocka_run_group_tests_name("defrag", tests, NULL, NULL);
}
