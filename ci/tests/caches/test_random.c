/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that every cache, over models of one to three groups, after thousands of random control calls lets each query
 * see exactly the tokens of a naive model, answers each call as the model does, says beforehand whether a step will be
 * taken, and changes nothing, in no group, when a call fails.
 */
#include "calls.h"

typedef struct tally {
    uint32_t steps, by_mask[KVB_MASK_KINDS], refused, no_memory, no_space, no_reach, joined, long_seqs, reordered,
        loaded, beside, trees, scanned;
} tally;

/* Models by what limits their groups; step and rollback are for cache window. */
static const struct shape {
    uint32_t n_groups;
    kvb_group groups[RIG_GROUPS];
    uint32_t seq_capacity, step, rollback, state_depth;
} shapes[] = {
    {.n_groups = 1, .seq_capacity = 40},
    {.n_groups = 2, .groups = {{.latent = true}, {.window = 6, .sinks = 2}}, .seq_capacity = 40, .rollback = 4},
    {.n_groups = 2, .groups = {{.chunk = 8}, {.window = 0}}, .seq_capacity = 60, .rollback = 1},
    {.n_groups = 3,
     .groups = {{.window = 3, .latent = true}, {.window = 9, .sinks = 1}, {.chunk = 5}},
     .seq_capacity = 200,
     .step = 6,
     .rollback = 3},
    {.n_groups = 1, .groups = {{.window = 5}}, .seq_capacity = 200, .step = 14},
    {.n_groups = 2, .groups = {{.window = 0}, NAIVE_SCAN(KVB_F32)}, .seq_capacity = 60, .state_depth = 3},
    {.n_groups = 3,
     .groups = {{.window = 4}, {.latent = true}, NAIVE_SCAN(KVB_BF16)},
     .seq_capacity = 200,
     .rollback = 2,
     .state_depth = 1},
    {.n_groups = 2, .groups = {NAIVE_SCAN(KVB_F16), {.window = 0}}, .seq_capacity = 200, .state_depth = 20},
    {.n_groups = 1, .groups = {NAIVE_SCAN(KVB_F32)}, .seq_capacity = 200},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const uint32_t limited[] = {1, 2, 6, 3, 4, 6}; /* which of them have windows or chunks */

/* ---- checks ------------------------------------------------------------------------------------------- */

static void feed_check(const rig *r, const naive *m)
{
    const uint64_t *ordinals;
    uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    assert_true(n >= m->n_new);
    for (uint32_t i = 0; i < m->n_new; i++)
        assert_int_equal(ordinals[n - m->n_new + i], m->first + i);
    if (m->type != &kvb_cache_recompute) {
        assert_int_equal(n, m->n_new);
        return;
    }
    uint32_t want = 0;
    for (uint64_t o = 0; o < m->next; o++)
        want += naive_role(m, o) != -2;
    assert_int_equal(n, want);
}

/* Masks have numbers: one for the layers of a group in a step, and for no other. */
static void generation_check(uint64_t generation, uint64_t step, uint32_t group)
{
    static struct {
        uint64_t generation, step;
        uint32_t group;
    } last[64]; /* of every cache */
    static uint32_t n;
    assert_true(generation != 0);
    for (uint32_t i = 0; i < 64; i++)
        if (last[i].generation) {
            bool same = last[i].step == step && last[i].group == group;
            assert_int_equal(last[i].generation == generation, same);
        }
    last[n].generation = generation, last[n].step = step, last[n].group = group;
    n = (n + 1) % 64;
}

static void step_check(rig *r, const naive *m, tally *t)
{
    static uint64_t want[2 * NAIVE_LEN], seen[2 * NAIVE_LEN], made;
    static uint64_t last_first = UINT64_MAX;
    static const kvb_cache *last_cache;
    const uint64_t *ordinals;
    uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    uint32_t turn = random_below(RIG_LAYERS);
    const bool fresh = last_cache != r->cache || last_first != m->first; /* not one that a failed call left in force */
    made += fresh;
    last_cache = r->cache, last_first = m->first;
    for (uint32_t i = 0; i < RIG_LAYERS; i++) {
        uint32_t layer = (i + turn) % RIG_LAYERS, group = r->model.group_of[layer];
        kvb_attend_spec spec;
        if (naive_scans(m, group)) {
            if (fresh)
                assert_null(naive_scan(m, r->cache, layer, ordinals, n));
            t->scanned += fresh;
            continue;
        }
        assert_int_equal(rig_fetch(r, layer, m->pos, &spec), 0);
        if (random_below(4) == 0) /* the same layer again */
            assert_int_equal(rig_fetch(r, layer, m->pos, &spec), 0);
        assert_true(spec.k.cells <= rig_usage_of(r, group).high_water);
        assert_true(spec.mask.kind != KVB_MASK_NONE || n == 1);
        generation_check(spec.generation, made, group);
        for (uint32_t q = 0; q < n; q++) {
            uint32_t n_want = naive_visible(m, layer, ordinals[q], want);
            assert_int_equal(rig_seen(r, &spec, layer, naive_moved(m, ordinals[q]) ? NULL : m->pos, n, q, seen),
                             n_want);
            assert_memory_equal(seen, want, n_want * sizeof *want);
        }
        t->by_mask[spec.mask.kind]++;
    }
    t->steps++;
}

static void state_check(rig *r, naive *m, tally *t)
{
    for (uint32_t g = 0; g < m->model->n_groups; g++) {
        uint32_t live = naive_live(m, g, false);
        kvb_cache_usage usage = rig_usage_of(r, g);
        const bool anew = naive_scans(m, g) && m->type == &kvb_cache_recompute; /* slots of a step */
        assert_true(anew || usage.cells_live == live);
        assert_true((anew || usage.cells_peak >= live) && usage.cells_peak <= naive_cells(m, g));
    }
    for (uint32_t s = 0; s < m->n_ids; s++) {
        assert_int_equal(kvb_cache_length(r->cache, s), naive_len(m, s));
        assert_int_equal(kvb_cache_pending(r->cache, s), naive_pending(m, s));
        t->long_seqs += m->seqs[s].n > m->capacity && naive_attends(m);
    }
}

static void plan_check(rig *r, naive *m, tally *t)
{
    const uint64_t *ordinals;
    static const float rows[64];
    const uint32_t pos = 0;
    kvb_attend_spec spec;
    if (m->valid) {
        feed_check(r, m);
        step_check(r, m, t);
        return;
    }
    assert_int_equal(kvb_cache_feed(r->cache, &ordinals), 0);
    kvb_scan_spec states;
    assert_int_equal(kvb_cache_update_and_fetch(r->cache, 0, &pos, rows, rows, 1, &spec), -EINVAL);
    assert_int_equal(kvb_cache_fetch_states(r->cache, 0, &pos, 1, &states), -EINVAL);
}

/* ---- the run ------------------------------------------------------------------------------------------- */

/* The call made, with the n-th request for memory from now on refused (0: none). What fails changes no count of any
 * group. */
static int call_make(rig *r, const call *c, uint64_t fail)
{
    kvb_cache_usage before[RIG_GROUPS];
    for (uint32_t g = 0; g < r->model.n_groups; g++)
        before[g] = rig_usage_of(r, g);
    r->allocator.fail_request = fail ? r->allocator.requests + fail : 0;
    int error = cache_call(r->cache, c);
    r->allocator.fail_request = 0;
    for (uint32_t g = 0; g < r->model.n_groups && error; g++) {
        kvb_cache_usage after = rig_usage_of(r, g);
        rig_assert_same(&before[g], &after);
    }
    assert_true(error == 0 || kvb_cache_why(r->cache)[0] != 0);
    return error;
}

/* Does the cache say of a step, before it is made, what will become of it? Saying so takes no memory. */
static void forecast_check(rig *r, const naive *m, const call *c)
{
    static const uint32_t zeros[NAIVE_STEP];
    uint64_t requests = r->allocator.requests;
    if (c->kind == EXTEND || c->kind == STEP) {
        const uint32_t *ids = c->kind == STEP ? c->ids : NULL;
        assert_int_equal(kvb_cache_can_extend(r->cache, ids, c->n), naive_extends(m, ids ? ids : zeros, c->n));
    }
    bool has_tree = m->type->flags & KVB_CACHE_TREE;
    assert_int_equal(kvb_cache_can_propose(r->cache, NULL, c->n), has_tree && naive_proposable(m, zeros, c->n));
    if (c->kind == PROPOSE)
        assert_int_equal(kvb_cache_can_propose(r->cache, c->ids, c->n), naive_proposable(m, c->ids, c->n));
    assert_int_equal(r->allocator.requests, requests);
}

/* The whole cache goes to a file and comes back: nothing is another than before. */
static void saved_and_loaded(rig *r, naive *m)
{
    const char *path = slot_path(NAIVE_SLOTS);
    assert_int_equal(kvb_cache_save(r->cache, KVB_SEQ_ALL, path), 0);
    assert_int_equal(kvb_cache_load(r->cache, KVB_SEQ_ALL, path), 0);
    m->valid = false;
    unlink(path);
}

static void random_run(const kvb_cache_type *type, const struct shape *shape, uint64_t seed, uint32_t calls, tally *t)
{
    static uint32_t pos[NAIVE_TOKENS];
    static naive m;
    rig r = {.growth = seed % 3 ? KVB_GROWTH_DOUBLE : KVB_GROWTH_RESERVE,
             .seq_ids = seed % 2 ? 5 + (uint32_t)(seed % 9) : 0,
             .rollback = shape->rollback,
             .step = shape->step,
             .state_depth = shape->state_depth,
             .page_cells = (uint32_t[]){1, 4, 7}[seed % 3],
             .n_groups = shape->n_groups};
    memcpy(r.groups, shape->groups, sizeof r.groups);
    m = (naive){.type = type,
                .model = &r.model,
                .capacity = 72,
                .seq_capacity = shape->seq_capacity,
                .n_ids = r.seq_ids ? r.seq_ids : KVB_SEQ_IDS,
                .max_seqs = 5,
                .rollback = shape->rollback,
                .step = shape->step,
                .state_depth = shape->state_depth,
                .page_cells = r.page_cells,
                .pos = pos};
    random_state = seed;
    slots_open();
    random_saves = seed % 3 == 0; /* loading ends what would become long */
    random_seqs = seed % 4 ? 5 : 1;
    random_trees = !(type->flags & KVB_CACHE_SEQ) || seed / 3 % 2;
    assert_int_equal(rig_try_open(&r, type, m.capacity, m.seq_capacity, m.max_seqs, 4), 0);
    for (uint32_t i = 0; i < calls; i++) {
        call c = call_draw(&m);
        bool joins = c.kind == COPY && c.dst < m.n_ids && m.seqs[c.dst].n;
        uint32_t had = joins ? m.seqs[c.dst].n : 0;
        forecast_check(&r, &m, &c);
        int got = call_make(&r, &c, random_below(4) ? 0 : 1 + random_below(4 * r.model.n_groups));
        if (got == -ENOMEM) {
            t->no_memory++;
            state_check(&r, &m, t);
            plan_check(&r, &m, t);
            got = call_make(&r, &c, 0);
        }
        int want = model_call(&m, &c);
        if (got != want)
            print_message("# %s seed %lu call %u kind %d n %u: %s\n", type->name, (unsigned long)seed, i, (int)c.kind,
                          c.n, kvb_cache_why(r.cache));
        assert_int_equal(got, want);
        t->refused += want != 0;
        t->no_space += want == -ENOSPC;
        t->no_reach += want == -ENOTSUP && c.kind != SAVE && c.kind != LOAD;
        t->beside += c.kind == STEP && !want && m.n_nodes;
        t->trees += c.kind == COMMIT && !want && m.n_nodes;
        t->reordered += c.kind == REORDER && c.n > 1 && !want;
        t->joined += joins && !want && m.seqs[c.dst].n > had;
        t->loaded += c.kind == LOAD && !want;
        state_check(&r, &m, t);
        plan_check(&r, &m, t);
        if (seed % 8 == 0 && type->flags & KVB_CACHE_SAVES && !m.n_nodes && !m.shifted) {
            saved_and_loaded(&r, &m);
            state_check(&r, &m, t);
        }
    }
    rig_close(&r);
}

static void cache_run(const kvb_cache_type *type)
{
    enum { CACHES = 80, CALLS_EACH = 200 }; /* many young caches: growing is where memory can fail */
    bool pages = type == &kvb_cache_paged || type == &kvb_cache_paged_prefix, drops = type == &kvb_cache_window;
    bool limits = drops || type == &kvb_cache_paged, seqs = type->flags & KVB_CACHE_SEQ;
    tally t = {0};
    for (uint64_t seed = 1; seed <= CACHES; seed++)
        random_run(type, &shapes[drops ? limited[seed % N(limited)] : seed % SHAPES], seed, CALLS_EACH, &t);
    print_message(
        "# %s: %u steps checked; NONE %u CAUSAL %u RUNS %u PAGES %u; %u calls refused, %u for want of cells, "
        "%u without "
        "memory, %u out of reach; %u copies joined a sequence, %u times what was saved was loaded, %u times "
        "one was longer than the capacity; %u reordered, %u steps beside nodes, %u commits, %u states scanned\n",
        type->name, t.steps, t.by_mask[KVB_MASK_NONE], t.by_mask[KVB_MASK_CAUSAL], t.by_mask[KVB_MASK_RUNS],
        t.by_mask[KVB_MASK_PAGES], t.refused, t.no_space, t.no_memory, t.no_reach, t.joined, t.loaded, t.long_seqs,
        t.reordered, t.beside, t.trees, t.scanned);
    assert_true(t.steps > CACHES * CALLS_EACH / 2 && t.refused > 20 && t.no_space > 20 && t.no_memory > 20);
    assert_true(t.by_mask[KVB_MASK_NONE] > 20 && t.by_mask[KVB_MASK_CAUSAL] > 20 && t.by_mask[KVB_MASK_RUNS] > 20);
    assert_int_equal(t.by_mask[KVB_MASK_PAGES] > 20, pages);
    bool both = seqs && type->flags & KVB_CACHE_TREE; /* steps and commits while other sequences have nodes */
    assert_true(both ? t.beside > 100 && t.trees > 100 : t.beside + t.trees == 0);
    assert_true(type->flags & KVB_CACHE_REORDER ? t.reordered > 100 : t.reordered == 0);
    assert_true(seqs ? t.joined > 20 : t.joined == 0);
    assert_true(t.no_reach > 20 && t.scanned > 1000);
    assert_true(limits ? t.long_seqs > 20 : pages || t.long_seqs == 0); /* pages hold more than the capacity */
    assert_true(type->flags & KVB_CACHE_SAVES ? t.loaded > 20 : t.loaded == 0);
}

static void test_recompute(void **state)
{
    (void)state;
    cache_run(&kvb_cache_recompute);
}
static void test_slab(void **state)
{
    (void)state;
    cache_run(&kvb_cache_slab);
}
static void test_contiguous(void **state)
{
    (void)state;
    cache_run(&kvb_cache_contiguous);
}
static void test_seq(void **state)
{
    (void)state;
    cache_run(&kvb_cache_seq);
}
static void test_window(void **state)
{
    (void)state;
    cache_run(&kvb_cache_window);
}
static void test_paged(void **state)
{
    (void)state;
    cache_run(&kvb_cache_paged);
}
static void test_paged_prefix(void **state)
{
    (void)state;
    cache_run(&kvb_cache_paged_prefix);
}
static void test_shared_prefix(void **state)
{
    (void)state;
    cache_run(&kvb_cache_shared_prefix);
}
static void test_tree(void **state)
{
    (void)state;
    cache_run(&kvb_cache_tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute), cmocka_unit_test(test_slab),         cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_seq),       cmocka_unit_test(test_window),       cmocka_unit_test(test_tree),
        cmocka_unit_test(test_paged),     cmocka_unit_test(test_paged_prefix), cmocka_unit_test(test_shared_prefix),
    };
    return cmocka_run_group_tests_name("random calls against a naive model", tests, NULL, NULL);
}
