/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that every cache, after thousands of random control calls, lets each query see exactly the tokens of
 * a naive model, answers each call as the model does, and changes nothing when a call fails. */
#include "calls.h"

typedef struct tally {
    uint32_t steps, by_mask[KVB_MASK_KINDS], refused, no_memory;
} tally;

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

static void step_check(rig *r, const naive *m, tally *t)
{
    static uint64_t want[2 * NAIVE_LEN], seen[2 * NAIVE_LEN];
    const uint64_t *ordinals;
    uint32_t n = kvb_cache_feed(r->cache, &ordinals);
    uint32_t swap = random_below(2);
    for (uint32_t i = 0; i < RIG_LAYERS; i++) {
        uint32_t layer = i ^ swap;
        kvb_attend_spec spec;
        assert_int_equal(rig_fetch(r, layer, m->pos, &spec), 0);
        if (random_below(4) == 0) /* the same layer again */
            assert_int_equal(rig_fetch(r, layer, m->pos, &spec), 0);
        assert_true(spec.k.cells <= rig_usage_of(r, r->model.group_of[layer]).high_water);
        assert_true(spec.mask.kind != KVB_MASK_NONE || n == 1);
        for (uint32_t q = 0; q < n; q++) {
            uint32_t n_want = naive_visible(m, layer, ordinals[q], want);
            assert_int_equal(rig_seen(r, &spec, layer, n, q, seen), n_want);
            assert_memory_equal(seen, want, n_want * sizeof *want);
        }
        t->by_mask[spec.mask.kind]++;
    }
    t->steps++;
}

static void state_check(rig *r, naive *m)
{
    uint32_t live = naive_live(m);
    kvb_cache_usage usage = rig_usage(r);
    assert_int_equal(usage.cells_live, live);
    assert_true(usage.cells_peak >= live && usage.cells_peak <= m->capacity);
    if (r->model.n_groups == 2)
        assert_int_equal(rig_usage_of(r, 1).cells_live, naive_live_in(m, 1));
    for (uint32_t s = 0; s < KVB_MAX_SEQS; s++)
        assert_int_equal(kvb_cache_length(r->cache, s), naive_len(m, s));
    assert_int_equal(kvb_cache_pending(r->cache), m->n_nodes);
    if (m->type->flags & KVB_CACHE_TREE) {
        assert_true(live == m->capacity || kvb_cache_can_propose(r->cache, m->capacity - live));
        assert_false(kvb_cache_can_propose(r->cache, m->capacity - live + 1));
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
    assert_int_equal(kvb_cache_update_and_fetch(r->cache, 0, &pos, rows, rows, 1, &spec), -EINVAL);
}

/* ---- the run ------------------------------------------------------------------------------------------- */

static void random_run(const kvb_cache_type *type, uint64_t seed, uint32_t calls, tally *t)
{
    static const kvb_group limits[] = {{.window = 6, .sinks = 2}, {.chunk = 8}, {.window = 3}, {.window = 0}};
    rig r = {.growth = seed % 3 ? KVB_GROWTH_DOUBLE : KVB_GROWTH_RESERVE, .rollback = (uint32_t)seed % 5};
    r.limits = limits[seed % (type == &kvb_cache_window ? 3 : 4)];
    naive *m = calloc(1, sizeof *m);
    assert_non_null(m);
    *m = (naive){.type = type, .capacity = 72, .seq_capacity = 40, .max_seqs = 5};
    m->pos = calloc(NAIVE_TOKENS, sizeof *m->pos);
    assert_non_null(m->pos);
    random_state = seed;
    random_seqs = seed % 4 ? 5 : 1;
    assert_int_equal(rig_try_open(&r, type, m->capacity, m->seq_capacity, m->max_seqs, 4), 0);
    m->rollback = r.rollback;
    for (uint32_t layer = 0; layer < 2; layer++)
        m->group[layer] = kvb_model_group(&r.model, layer);
    for (uint32_t i = 0; i < calls; i++) {
        call c = call_draw(m);
        if (c.kind == EXTEND || c.kind == STEP) {
            static const uint32_t zeros[NAIVE_LEN];
            bool admitted = naive_admit(m, c.kind == STEP ? c.ids : zeros, c.n) == 0;
            assert_int_equal(kvb_cache_can_extend(r.cache, c.kind == STEP ? c.ids : NULL, c.n), admitted);
        }
        r.allocator.fail_request = random_below(4) ? 0 : r.allocator.requests + 1 + random_below(4);
        int got = cache_call(r.cache, &c);
        r.allocator.fail_request = 0;
        if (got == -ENOMEM) {
            t->no_memory++;
            state_check(&r, m);
            plan_check(&r, m, t);
            got = cache_call(r.cache, &c);
        }
        int want = model_call(m, &c);
        if (got != want)
            print_message("# %s seed %lu call %u kind %d n %u: %s\n", type->name, (unsigned long)seed, i, (int)c.kind,
                          c.n, kvb_cache_why(r.cache));
        assert_int_equal(got, want);
        t->refused += want != 0;
        state_check(&r, m);
        plan_check(&r, m, t);
    }
    rig_close(&r);
    free(m->pos);
    free(m);
}

static void cache_run(const kvb_cache_type *type, uint32_t calls, bool has_runs)
{
    tally t = {0};
    for (uint64_t seed = 1; seed <= 80; seed++) /* many young caches: growing is where memory can fail */
        random_run(type, seed, calls / 80, &t);
    print_message("# %s: %u steps checked; NONE %u CAUSAL %u RUNS %u; %u calls refused, %u without memory\n",
                  type->name, t.steps, t.by_mask[KVB_MASK_NONE], t.by_mask[KVB_MASK_CAUSAL], t.by_mask[KVB_MASK_RUNS],
                  t.refused, t.no_memory);
    assert_true(t.steps > calls / 2 && t.refused > 20);
    assert_true(t.by_mask[KVB_MASK_NONE] > 20 && t.by_mask[KVB_MASK_CAUSAL] > 20);
    assert_true(has_runs == (t.by_mask[KVB_MASK_RUNS] > 0));
    assert_true(t.no_memory > 20);
}

static void test_recompute(void **state)
{
    (void)state;
    cache_run(&kvb_cache_recompute, 16000, true);
}
static void test_slab(void **state)
{
    (void)state;
    cache_run(&kvb_cache_slab, 16000, true);
}
static void test_contiguous(void **state)
{
    (void)state;
    cache_run(&kvb_cache_contiguous, 16000, true);
}
static void test_seq(void **state)
{
    (void)state;
    cache_run(&kvb_cache_seq, 16000, true);
}
static void test_window(void **state)
{
    (void)state;
    cache_run(&kvb_cache_window, 16000, true);
}
static void test_tree(void **state)
{
    (void)state;
    cache_run(&kvb_cache_tree, 16000, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute), cmocka_unit_test(test_slab),   cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_seq),       cmocka_unit_test(test_window), cmocka_unit_test(test_tree),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("random calls against a naive model", tests, NULL, NULL);
}
