/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the rules of caches/cache.h one by one, by hand-made cases; test_random shows them at large. */
#include "rig.h"

#define N(array) (uint32_t)(sizeof(array) / sizeof *(array))

static uint32_t pos_of[256]; /* by ordinal; each test fills what it needs */

static void positions_set(uint32_t first_ordinal, uint32_t n, uint32_t first_pos)
{
    for (uint32_t i = 0; i < n; i++)
        pos_of[first_ordinal + i] = first_pos + i;
}

static int extend(rig *r, uint32_t n)
{
    return kvb_cache_begin_step(r->cache, NULL, n);
}

static int step(rig *r, const uint32_t *ids, uint32_t n)
{
    return kvb_cache_begin_step(r->cache, ids, n);
}

static void usage_assert_same(const kvb_cache_usage *a, const kvb_cache_usage *b)
{
    assert_int_equal(a->cells_live, b->cells_live);
    assert_int_equal(a->cells_peak, b->cells_peak);
    assert_int_equal(a->high_water, b->high_water);
    assert_int_equal(a->cells_written, b->cells_written);
    assert_int_equal(a->cells_moved, b->cells_moved);
    assert_int_equal(a->reserved_bytes, b->reserved_bytes);
}

/* Faces: a cache has those of its table and no others. */
static void test_faces(void **state)
{
    (void)state;
    const struct {
        const kvb_cache_type *type;
        const char *name;
        int seq, tree, contiguous;
    } want[] = {
        {&kvb_cache_recompute, "recompute", 1, 1, 1},
        {&kvb_cache_slab, "slab", 1, 0, 0},
        {&kvb_cache_contiguous, "contiguous", 0, 0, 1},
        {&kvb_cache_seq, "seq", 1, 0, 0},
        {&kvb_cache_tree, "tree", 0, 1, 0},
    };
    for (size_t i = 0; i < N(want); i++) {
        assert_ptr_equal(kvb_builtin_caches[i], want[i].type);
        assert_string_equal(want[i].type->name, want[i].name);
        assert_true(want[i].type->base && want[i].type->bytes && want[i].type->summary);
        assert_int_equal(want[i].type->seq != NULL, want[i].seq);
        assert_int_equal(want[i].type->tree != NULL, want[i].tree);
        assert_int_equal(want[i].type->contiguous != NULL, want[i].contiguous);
    }
    assert_null(kvb_builtin_caches[N(want)]);
}

/* Rule 1: one plan for all layers, in any order and again; its arrays stay where they are. */
static void test_rule_1_one_plan(void **state)
{
    (void)state;
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        rig r;
        kvb_attend_spec a, b;
        const uint64_t *before, *after;
        rig_open(&r, *type, 32, 32, 4, 4);
        positions_set(0, 5, 0);
        assert_int_equal(extend(&r, 5), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &before), 5);
        assert_int_equal(rig_fetch(&r, 1, pos_of, &a), 0);
        assert_int_equal(rig_fetch(&r, 0, pos_of, &b), 0);
        assert_int_equal(rig_fetch(&r, 1, pos_of, &b), 0);
        assert_int_equal(kvb_cache_feed(r.cache, &after), 5);
        assert_ptr_equal(before, after);
        assert_ptr_equal(a.k.base, b.k.base);
        assert_true(a.mask.kind == b.mask.kind && a.mask.row_start == b.mask.row_start && a.mask.runs == b.mask.runs);
        assert_int_equal(rig_usage(&r).cells_written, 5);
        rig_close(&r);
    }
}

/* The byte face refuses a call that is not the plan's. */
static void test_rule_1_plan_is_checked(void **state)
{
    (void)state;
    static const float rows[RIG_KV_HEADS * RIG_K_DIM * 4];
    const uint32_t good[] = {0, 1}, bad[] = {0, 2};
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        rig r;
        kvb_attend_spec spec;
        rig_open(&r, *type, 32, 32, 4, 4);
        const kvb_byte_face *bytes = kvb_cache_bytes(r.cache);
        assert_int_equal(extend(&r, 2), 0);
        assert_int_equal(bytes->update_and_fetch(r.cache, RIG_LAYERS, good, rows, rows, 2, &spec), -EINVAL);
        assert_non_null(strstr(r.cache->why, "layer 2"));
        assert_int_equal(bytes->update_and_fetch(r.cache, 0, good, rows, rows, 1, &spec), -EINVAL);
        assert_int_equal(bytes->update_and_fetch(r.cache, 0, bad, rows, rows, 2, &spec), -EINVAL);
        assert_non_null(strstr(r.cache->why, "position 2"));
        assert_int_equal(bytes->update_and_fetch(r.cache, 0, NULL, rows, rows, 2, &spec), -EINVAL);
        assert_int_equal(bytes->update_and_fetch(r.cache, 0, good, rows, rows, 2, &spec), 0);
        rig_close(&r);
    }
}

/* Rules 2 and 3: a fork sees the trunk and its own, not the other's; it moves no bytes and takes no cells. */
static void test_rule_2_3_fork(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint32_t trunk[4] = {0}, both[] = {0, 1, 1};
    const uint64_t first[] = {0, 1, 2, 3, 4}, second[] = {0, 1, 2, 5}, third[] = {0, 1, 2, 5, 6};
    rig_open(&r, &kvb_cache_seq, 32, 32, 4, 4);
    positions_set(0, 5, 0);
    positions_set(5, 2, 3);
    assert_int_equal(step(&r, trunk, 4), 0);
    rig_store(&r, pos_of, &spec);
    kvb_cache_usage before = rig_usage(&r);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 3), 0);
    kvb_cache_usage after = rig_usage(&r);
    usage_assert_same(&before, &after);
    assert_int_equal(after.cells_moved, 0);
    assert_int_equal(step(&r, both, 3), 0);
    rig_assert_sees(&r, pos_of, 3, 0, first, N(first));
    rig_assert_sees(&r, pos_of, 3, 1, second, N(second));
    rig_assert_sees(&r, pos_of, 3, 2, third, N(third));
    rig_close(&r);
}

/* Rule 3: a cell is freed by the last to leave, and only then written again. */
static void test_rule_3_last_leaves(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint32_t trunk[4] = {0}, other[3] = {2, 2, 2}, one[] = {1};
    const uint64_t want[] = {0, 1, 2, 3, 7};
    rig_open(&r, &kvb_cache_seq, 32, 32, 4, 4);
    const kvb_seq_face *seq = kvb_cache_seq(r.cache);
    positions_set(0, 4, 0);
    positions_set(4, 3, 0);
    positions_set(7, 1, 4);
    assert_int_equal(step(&r, trunk, 4), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(seq->seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0);
    assert_int_equal(seq->seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
    assert_int_equal(rig_usage(&r).cells_live, 4);
    assert_int_equal(step(&r, other, 3), 0); /* must not take the trunk's cells */
    rig_store(&r, pos_of, &spec);
    assert_int_equal(step(&r, one, 1), 0);
    rig_assert_sees(&r, pos_of, 1, 0, want, N(want));
    assert_int_equal(seq->seq_rm(r.cache, 1, 0, KVB_POS_END), 0);
    assert_int_equal(rig_usage(&r).cells_live, 3);
    rig_close(&r);
}

/* Rule 3, slab: a fork copies by definition, and says so. */
static void test_rule_3_slab_copies(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint32_t trunk[4] = {0}, one[] = {1};
    const uint64_t want[] = {0, 1, 2, 3, 4};
    rig_open(&r, &kvb_cache_slab, 32, 8, 4, 4);
    const kvb_seq_face *seq = kvb_cache_seq(r.cache);
    positions_set(0, 5, 0);
    assert_int_equal(step(&r, trunk, 4), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
    assert_int_equal(spec.k.cells, 4);
    assert_int_equal(seq->seq_cp(r.cache, 0, 1, 0, KVB_POS_END), 0);
    assert_int_equal(rig_usage(&r).cells_moved, 4);
    assert_int_equal(rig_usage(&r).cells_live, 8);
    assert_int_equal(rig_usage(&r).high_water, 12);
    assert_int_equal(seq->seq_rm(r.cache, 0, 0, KVB_POS_END), 0);
    assert_int_equal(step(&r, one, 1), 0);
    rig_assert_sees(&r, pos_of, 1, 0, want, N(want));
    assert_int_equal(seq->seq_rm(r.cache, 1, 1, 3), -ENOTSUP);
    assert_non_null(strstr(r.cache->why, "end of a sequence"));
    assert_int_equal(seq->seq_cp(r.cache, 1, 2, 1, 3), -ENOTSUP);
    assert_int_equal(seq->seq_len(r.cache, 1), 5);
    rig_close(&r);
}

/* Rule 4: the window ends with what is occupied, and shrinks with it. */
static void test_rule_4_occupancy(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint32_t a[10] = {0}, b[6] = {1, 1, 1, 1, 1, 1}, both[] = {0, 1};
    rig_open(&r, &kvb_cache_seq, 1000, 1000, 4, 64);
    const kvb_seq_face *seq = kvb_cache_seq(r.cache);
    positions_set(0, 10, 0);
    positions_set(10, 6, 0);
    assert_int_equal(step(&r, a, 10), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.k.cells, 10);
    assert_int_equal(step(&r, b, 6), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.k.cells, 16);
    assert_int_equal(seq->seq_rm(r.cache, 1, 2, KVB_POS_END), 0);
    pos_of[16] = 10, pos_of[17] = 2;
    assert_int_equal(step(&r, both, 2), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.k.cells, 14);
    assert_int_equal(rig_usage(&r).high_water, 16);
    assert_int_equal(rig_usage(&r).cells_peak, 16);
    rig_close(&r);
}

/* Rule 5: can_extend is the admission test; what does not fit fails whole. */
static void test_rule_5_capacity(void **state)
{
    (void)state;
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        rig r;
        kvb_attend_spec spec;
        const uint64_t *ordinals;
        const uint64_t want[] = {0, 1, 2, 3, 4, 5};
        rig_open(&r, *type, 8, 8, 2, 4);
        const kvb_base_face *base = kvb_cache_base(r.cache);
        positions_set(0, 8, 0);
        assert_int_equal(base->capacity(r.cache), 8);
        assert_int_equal(extend(&r, 6), 0);
        rig_store(&r, pos_of, &spec);
        kvb_cache_usage before = rig_usage(&r);
        assert_true(base->can_extend(r.cache, 2));
        assert_false(base->can_extend(r.cache, 3));
        assert_false(base->can_extend(r.cache, UINT32_MAX));
        assert_int_equal(extend(&r, 3), -ENOSPC);
        assert_int_equal(extend(&r, UINT32_MAX), -ENOSPC);
        assert_true(r.cache->why[0] != 0);
        assert_int_equal(extend(&r, 0), -EINVAL);
        kvb_cache_usage after = rig_usage(&r);
        usage_assert_same(&before, &after);
        assert_int_equal(base->length(r.cache), 6);
        assert_int_equal(kvb_cache_feed(r.cache, &ordinals), 6); /* the plan before stands */
        rig_assert_sees(&r, pos_of, 6, 5, want, N(want));
        assert_int_equal(extend(&r, 2), 0);
        assert_false(base->can_extend(r.cache, 1));
        assert_int_equal(base->clear(r.cache), 0);
        assert_true(base->can_extend(r.cache, 8));
        assert_int_equal(base->length(r.cache), 0);
        rig_close(&r);
    }
}

/* Rule 5: sequences are bounded too, in number and in length. */
static void test_rule_5_sequences(void **state)
{
    (void)state;
    const kvb_cache_type *const types[] = {&kvb_cache_recompute, &kvb_cache_slab, &kvb_cache_seq};
    for (size_t i = 0; i < N(types); i++) {
        rig r;
        const uint32_t three[] = {0, 9, 63}, two[] = {0, 63}, other[] = {5}, long_step[] = {0, 0, 0, 0};
        rig_open(&r, types[i], 32, 4, 2, 4);
        const kvb_seq_face *seq = kvb_cache_seq(r.cache);
        assert_int_equal(step(&r, three, 3), -ENOSPC);
        assert_int_equal(seq->seq_len(r.cache, 9), 0);
        assert_int_equal(step(&r, two, 2), 0);
        assert_int_equal(step(&r, other, 1), -ENOSPC);
        assert_int_equal(seq->seq_cp(r.cache, 0, 5, 0, KVB_POS_END), -ENOSPC);
        assert_int_equal(step(&r, long_step, 4), -ENOSPC);
        assert_int_equal(step(&r, long_step, 3), 0);
        assert_int_equal(seq->seq_rm(r.cache, 63, 0, KVB_POS_END), 0);
        assert_int_equal(step(&r, other, 1), 0);
        rig_close(&r);
    }
}

/* Rule 6: queries that are not the tail never get CAUSAL. */
static void test_rule_6_not_the_tail(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint32_t a[4] = {0}, b[3] = {1, 1, 1}, more[2] = {0, 0};
    const uint64_t want[] = {0, 1, 2, 3, 7};
    rig_open(&r, &kvb_cache_seq, 32, 32, 4, 4);
    const kvb_seq_face *seq = kvb_cache_seq(r.cache);
    positions_set(0, 4, 0);
    positions_set(4, 3, 0);
    positions_set(7, 2, 4);
    assert_int_equal(step(&r, a, 4), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(step(&r, b, 3), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_RUNS);
    assert_int_equal(seq->seq_rm(r.cache, 1, 0, 2), 0); /* cells 4 and 5 are free, 6 is not */
    assert_int_equal(step(&r, more, 2), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_RUNS);
    rig_assert_sees(&r, pos_of, 2, 0, want, N(want));
    rig_close(&r);
}

/* Rules 6 and 8: a hole in the window is no fast path, though the new tokens are its tail. */
static void test_rule_6_hole(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint32_t a[5] = {0};
    const uint64_t want[] = {0, 2, 3, 4, 5};
    rig_open(&r, &kvb_cache_seq, 32, 32, 4, 4);
    positions_set(0, 7, 0);
    assert_int_equal(step(&r, a, 5), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 0, 1, 2), 0);
    assert_int_equal(step(&r, a, 2), 0); /* two do not fit in the hole of one */
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.k.cells, 7);
    rig_assert_sees(&r, pos_of, 2, 0, want, N(want));
    rig_close(&r);
}

/* Rule 7: memory comes in steps from min_chunk on; a slab has it all at once. */
static void test_rule_7_lazy_growth(void **state)
{
    (void)state;
    const size_t cell_bytes = RIG_LAYERS * RIG_KV_HEADS * (RIG_K_DIM + RIG_V_DIM) * sizeof(float);
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        rig r;
        rig_open(&r, *type, 100, 25, 4, 8);
        if (*type == &kvb_cache_slab) {
            assert_true(rig_usage(&r).reserved_bytes >= 100 * cell_bytes);
            rig_close(&r);
            continue;
        }
        assert_int_equal(rig_usage(&r).reserved_bytes, 0);
        assert_int_equal(extend(&r, 1), 0);
        size_t first = rig_usage(&r).reserved_bytes;
        assert_true(first >= 8 * cell_bytes && first < 100 * cell_bytes);
        assert_int_equal(extend(&r, 7), 0);
        assert_int_equal(rig_usage(&r).reserved_bytes, first);
        assert_int_equal(extend(&r, 1), 0);
        size_t second = rig_usage(&r).reserved_bytes;
        assert_true(second > first && second < 100 * cell_bytes);
        assert_int_equal(kvb_cache_clear(r.cache), 0);
        assert_int_equal(rig_usage(&r).reserved_bytes, second); /* clear keeps its memory */
        rig_close(&r);
    }
}

/* Rule 8: one sequence without holes needs no mask: NONE for one query, CAUSAL for several. */
static void test_rule_8_fast_path(void **state)
{
    (void)state;
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        rig r;
        kvb_attend_spec spec;
        bool forgets = *type == &kvb_cache_recompute;
        rig_open(&r, *type, 32, 32, 4, 4);
        positions_set(0, 8, 0);
        assert_int_equal(extend(&r, 5), 0);
        rig_store(&r, pos_of, &spec);
        assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
        assert_int_equal(extend(&r, 1), 0);
        rig_store(&r, pos_of, &spec);
        assert_int_equal(spec.mask.kind, forgets ? KVB_MASK_CAUSAL : KVB_MASK_NONE);
        assert_int_equal(extend(&r, 2), 0);
        rig_store(&r, pos_of, &spec);
        assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
        assert_int_equal(spec.k.cells, 8);
        for (uint32_t c = 0; c < 8; c++) /* in place, in order */
            assert_true(*(const float *)kvb_view_row(&spec.k, 0, c) == (float)c);
        rig_close(&r);
    }
}

/* Rule 9: any pair of pool types stores; the spec says which. */
static void test_rule_9_formats(void **state)
{
    (void)state;
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        for (uint32_t i = 0; kvb_builtin_pools[i]; i++) {
            kvb_allocator a = {0};
            kvb_cache *cache;
            char why[160];
            kvb_attend_spec spec;
            static const float rows[2 * RIG_CODED_DIM];
            const uint32_t position = 0;
            const kvb_model_facts facts = {1, 2, 2, RIG_CODED_DIM, RIG_CODED_DIM};
            const kvb_cache_options options = {.capacity = 8,
                                               .seq_capacity = 8,
                                               .max_seqs = 1,
                                               .min_chunk = 8,
                                               .k_pool = kvb_builtin_pools[i],
                                               .v_pool = kvb_builtin_pools[0],
                                               .allocator = &a};
            assert_int_equal((*type)->open(*type, &facts, &options, &cache, why, sizeof why), 0);
            assert_int_equal((*type)->base->begin_step(cache, 1), 0);
            assert_int_equal((*type)->bytes->update_and_fetch(cache, 0, &position, rows, rows, 1, &spec), 0);
            assert_ptr_equal(spec.k.format, kvb_builtin_pools[i]->format);
            assert_ptr_equal(spec.v.format, kvb_builtin_pools[0]->format);
            (*type)->close(cache);
            assert_int_equal(a.current_bytes, 0);
        }
    }
}

/* Opening refuses what makes no sense, naming it. */
static void test_open_refuses(void **state)
{
    (void)state;
    const struct {
        uint32_t capacity, seq_capacity, max_seqs, min_chunk;
        const char *what;
    } bad[] = {
        {0, 8, 1, 4, "capacity"},  {8, 0, 1, 4, "seq_capacity"}, {8, 8, 0, 4, "max_seqs"},
        {8, 8, 65, 4, "max_seqs"}, {8, 8, 1, 0, "min_chunk"},
    };
    for (const kvb_cache_type *const *type = kvb_builtin_caches; *type; type++) {
        for (size_t i = 0; i < N(bad); i++) {
            rig r = {0};
            assert_int_equal(
                rig_try_open(&r, *type, bad[i].capacity, bad[i].seq_capacity, bad[i].max_seqs, bad[i].min_chunk),
                -EINVAL);
            assert_non_null(strstr(r.why, bad[i].what));
            assert_int_equal(r.allocator.current_bytes, 0);
        }
    }
    rig r = {0};
    assert_int_equal(rig_try_open(&r, &kvb_cache_slab, 8, UINT32_MAX, 64, 4), -EINVAL); /* 2^38 cells */
}

/* recompute asks for everything again, in an order in which what a token sees comes before it. */
static void test_recompute_feed(void **state)
{
    (void)state;
    rig r;
    kvb_attend_spec spec;
    const uint64_t *feed;
    const uint32_t trunk[3] = {0}, mixed[] = {1, 0, 1}, one[] = {1};
    const uint64_t branch[] = {0, 1, 3, 5, 7}, both[] = {0, 1, 2, 4, 6, 3, 5, 8, 9};
    rig_open(&r, &kvb_cache_recompute, 32, 32, 4, 4);
    memcpy(pos_of, (uint32_t[]){0, 1, 2, 2, 3, 3, 4, 4}, 8 * sizeof *pos_of);
    assert_int_equal(step(&r, trunk, 3), 0);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(kvb_cache_seq_cp(r.cache, 0, 1, 0, 2), 0);
    assert_int_equal(step(&r, mixed, 3), 0); /* ordinals 3, 4, 5 */
    rig_store(&r, pos_of, &spec);
    pos_of[6] = 4;
    assert_int_equal(step(&r, (uint32_t[]){0}, 1), 0); /* 6 */
    rig_store(&r, pos_of, &spec);
    assert_int_equal(step(&r, one, 1), 0); /* 7: only sequence 1 is fed */
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 5);
    assert_memory_equal(feed, branch, sizeof branch);
    rig_store(&r, pos_of, &spec);
    assert_int_equal(spec.mask.kind, KVB_MASK_CAUSAL);
    assert_int_equal(kvb_cache_seq_rm(r.cache, 1, 4, KVB_POS_END), 0);
    pos_of[8] = 5, pos_of[9] = 4;
    assert_int_equal(step(&r, (uint32_t[]){0, 1}, 2), 0);
    assert_int_equal(kvb_cache_feed(r.cache, &feed), 9);
    assert_memory_equal(feed, both, sizeof both);
    assert_int_equal(rig_usage(&r).cells_written, 3 + 6 + 5 + 5);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faces),
        cmocka_unit_test(test_rule_1_one_plan),
        cmocka_unit_test(test_rule_1_plan_is_checked),
        cmocka_unit_test(test_rule_2_3_fork),
        cmocka_unit_test(test_rule_3_last_leaves),
        cmocka_unit_test(test_rule_3_slab_copies),
        cmocka_unit_test(test_rule_4_occupancy),
        cmocka_unit_test(test_rule_5_capacity),
        cmocka_unit_test(test_rule_5_sequences),
        cmocka_unit_test(test_rule_6_not_the_tail),
        cmocka_unit_test(test_rule_6_hole),
        cmocka_unit_test(test_rule_7_lazy_growth),
        cmocka_unit_test(test_rule_8_fast_path),
        cmocka_unit_test(test_rule_9_formats),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_recompute_feed),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("rules of caches/cache.h", tests, NULL, NULL);
}
