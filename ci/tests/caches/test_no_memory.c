/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the failure of any single request for memory, the n-th for every n of a random scenario, leaves the cache
 * as it was before the call: tokens, cells, counts, the plan in force, every stored row bit for bit; that the call then
 * succeeds when made again, that all ends as if nothing had failed, and that no byte is lost. For every cache, over
 * formats of every shape of storage, growing by copies and by reserved pages.
 */
#include "calls.h"

#include "caches/core.h"

enum { CAPACITY = 232, SEQ_CAPACITY = 216, MAX_SEQS = 3, MAX_CALLS = 16 };

typedef struct scenario {
    const kvb_cache_type *type;
    call calls[MAX_CALLS];
    uint32_t n;
    uint64_t state[MAX_CALLS + 1]; /* digest before each call, and at the end */
    size_t bytes;                  /* held at the end */
} scenario;

static naive *model_make(const kvb_cache_type *type)
{
    naive *m = calloc(1, sizeof *m);
    assert_non_null(m);
    *m = (naive){.type = type, .capacity = CAPACITY, .seq_capacity = SEQ_CAPACITY, .max_seqs = MAX_SEQS};
    m->pos = calloc(NAIVE_TOKENS, sizeof *m->pos);
    assert_non_null(m->pos);
    return m;
}

static void model_free(naive *m)
{
    free(m->pos);
    free(m);
}

/* Legal calls. For a format with a window the first steps fill more cells than it keeps apart, so that what follows
 * meets encoded groups. */
static void scenario_draw(scenario *s, const kvb_cache_type *type, const kvb_pool_type *pool, uint64_t seed)
{
    static const uint32_t some[] = {3, 20, 1, 10}, many[] = {3, 70, 1, 67};
    const uint32_t *sizes = pool && pool->format->residual_cells ? many : some;
    naive *m = model_make(type);
    *s = (scenario){.type = type};
    random_state = seed;
    random_seqs = 3;
    for (uint32_t i = 0; i < 4; i++) {
        s->calls[s->n] = (call){.kind = EXTEND, .n = sizes[i]};
        assert_int_equal(model_call(m, &s->calls[s->n++]), 0);
    }
    while (s->n < MAX_CALLS) {
        call c = call_draw(m);
        if (c.kind != CLEAR && (c.kind != REWIND || c.p0 > 12) && model_call(m, &c) == 0)
            s->calls[s->n++] = c;
    }
    model_free(m);
}

/* ---- what a call must not change ---------------------------------------------------------------------------- */

static void digest(uint64_t *d, const void *bytes, size_t n)
{
    for (const char *p = bytes; n; p += n < 8 ? n : 8, n -= n < 8 ? n : 8) {
        uint64_t word = 0;
        memcpy(&word, p, n < 8 ? n : 8);
        *d = (*d ^ word) * 0x9e3779b97f4a7c15u;
        *d ^= *d >> 29;
    }
}

#define DIGEST(d, array, n) digest(d, array, (n) * sizeof *(array))

static void rows_digest(const kvb_core *core, const bool *written, uint64_t *d)
{
    float row[RIG_CODED_DIM];
    for (size_t i = 0; i < 2 * RIG_LAYERS; i++) {
        kvb_view view;
        core->pools[i]->type->view(core->pools[i], core->high_water, &view);
        for (uint32_t h = 0; h < RIG_KV_HEADS; h++)
            for (uint32_t c = 0; c < core->high_water; c++)
                if (written[c]) {
                    view.format->read(&view, h, c, 1, row);
                    DIGEST(d, row, view.dim);
                }
    }
}

/* All that can be seen of a cache but its memory; written: cells that hold a row. */
static uint64_t state_digest(const rig *r, const bool *written)
{
    const kvb_core *core = (const kvb_core *)r->cache;
    const kvb_plan *plan = &core->plan;
    kvb_cache_usage u = rig_usage(r);
    uint64_t d = 1, counts[] = {u.cells_live, u.cells_peak, u.high_water, u.cells_written, u.cells_moved, plan->valid};
    uint32_t lens[2 + KVB_MAX_SEQS] = {kvb_cache_length(r->cache, 0)};
    lens[1] = kvb_cache_type_of(r->cache)->flags & KVB_CACHE_TREE ? kvb_cache_pending(r->cache) : 0;
    for (uint32_t s = 0; kvb_cache_seq(r->cache) && s < KVB_MAX_SEQS; s++)
        lens[2 + s] = kvb_cache_length(r->cache, s);
    DIGEST(&d, counts, sizeof counts / sizeof *counts);
    DIGEST(&d, lens, 2 + KVB_MAX_SEQS);
    rows_digest(core, written, &d);
    if (!plan->valid)
        return d;
    uint32_t shape[] = {plan->n, plan->window, plan->mask, plan->is_run, plan->stored};
    DIGEST(&d, shape, sizeof shape / sizeof *shape);
    DIGEST(&d, plan->ordinals, plan->n);
    DIGEST(&d, plan->cells, plan->n);
    DIGEST(&d, plan->positions, plan->n);
    if (plan->mask == KVB_MASK_RUNS) {
        DIGEST(&d, plan->row_start, plan->n + 1);
        DIGEST(&d, plan->runs, plan->row_start[plan->n]);
    }
    return d;
}

/* ---- one run ------------------------------------------------------------------------------------------------ */

/* Store the step in force. Where nothing fails, what each query sees is what the model says. */
static void step_store(rig *r, const naive *m, bool check, bool *written)
{
    static uint64_t want[2 * NAIVE_LEN], seen[2 * NAIVE_LEN];
    const kvb_plan *plan = &((const kvb_core *)r->cache)->plan;
    kvb_attend_spec spec;
    for (uint32_t layer = 0; layer < RIG_LAYERS; layer++) {
        assert_int_equal(rig_fetch(r, layer, m->pos, &spec), 0);
        for (uint32_t q = check ? 0 : plan->n; q<plan->n; q += plan->n> 3 ? plan->n / 3 : 1) {
            uint32_t n = naive_visible(m, plan->ordinals[q], want);
            assert_int_equal(rig_seen(r, &spec, layer, plan->n, q, seen), n);
            assert_memory_equal(seen, want, n * sizeof *want);
        }
    }
    for (uint32_t q = 0; q < plan->n; q++) {
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(&spec.mask, plan->n, spec.k.cells, q, &cursor, &run))
            memset(written + run.begin, true, run.end - run.begin);
    }
}

/* Opened with the fail-th request refused; was that while opening? */
static bool scenario_open(rig *r, const scenario *s)
{
    int error = rig_try_open(r, s->type, CAPACITY, SEQ_CAPACITY, MAX_SEQS, 2);
    if (!error)
        return false;
    assert_int_equal(error, -ENOMEM);
    assert_true(r->why[0] != 0);
    assert_int_equal(r->allocator.current_bytes, 0);
    assert_int_equal(rig_try_open(r, s->type, CAPACITY, SEQ_CAPACITY, MAX_SEQS, 2), 0);
    return true;
}

/* The scenario with its fail-th request refused (0: none, and the digests are kept). Was it noticed? */
static bool scenario_run(scenario *s, const kvb_pool_type *pool, kvb_growth growth, uint64_t fail)
{
    rig r = {.pool = pool, .growth = growth, .allocator.fail_request = fail};
    bool written[MAX_SEQS * SEQ_CAPACITY] = {false};
    naive *m = model_make(s->type);
    bool noticed = scenario_open(&r, s);
    for (uint32_t i = 0; i < s->n; i++) {
        if (!fail)
            s->state[i] = state_digest(&r, written);
        int error = cache_call(r.cache, &s->calls[i]);
        bool failed = error == -ENOMEM;
        if (failed) {
            assert_false(noticed);
            assert_true(r.cache->why[0] != 0);
            assert_true(state_digest(&r, written) == s->state[i]);
            error = cache_call(r.cache, &s->calls[i]);
        }
        noticed |= failed;
        assert_int_equal(error, 0);
        assert_int_equal(model_call(m, &s->calls[i]), 0);
        if (m->valid)
            step_store(&r, m, !fail, written);
        if (failed && i + 1 < s->n)
            assert_true(state_digest(&r, written) == s->state[i + 1]);
    }
    if (!fail) {
        s->state[s->n] = state_digest(&r, written);
        s->bytes = r.allocator.current_bytes;
    }
    assert_true(state_digest(&r, written) == s->state[s->n]);
    assert_int_equal(r.allocator.current_bytes, s->bytes);
    /* It grew in the way that was asked for; a slab does not grow. */
    assert_int_equal(rig_usage(&r).copied_bytes > 0, growth == KVB_GROWTH_DOUBLE && s->type != &kvb_cache_slab);
    rig_close(&r);
    model_free(m);
    return noticed;
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

/* One format of each way of storing: floats, blocks, tables beside the codes, windows, head scales. NULL: f32, with rows
 * that are read to the bit. */
static const char *const names[] = {NULL, "f16", "q8_0", "a4g64", "kivi4-k", "e4m3-head"};

static const kvb_pool_type *pool_find(const char *name)
{
    for (const kvb_pool_type *const *p = kvb_builtin_pools; *p; p++)
        if (!strcmp((*p)->name, name))
            return *p;
    fail_msg("there is no pool %s", name);
    return NULL;
}

static void cache_check(const kvb_cache_type *type)
{
    uint64_t requests = 0, runs = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const kvb_pool_type *pool = names[i] ? pool_find(names[i]) : NULL;
        for (int g = KVB_GROWTH_DOUBLE; g <= KVB_GROWTH_RESERVE; g += KVB_GROWTH_RESERVE) {
            scenario s;
            uint64_t fail = 0;
            scenario_draw(&s, type, pool, 1 + i * 2 + (uint64_t)g / 2);
            assert_false(scenario_run(&s, pool, (kvb_growth)g, 0));
            while (scenario_run(&s, pool, (kvb_growth)g, ++fail))
                continue;
            assert_true(fail > 20);
            requests += fail - 1;
            runs++;
        }
    }
    print_message("# %s: %lu scenarios, each of %lu requests refused once\n", type->name, (unsigned long)runs,
                  (unsigned long)requests);
}

static void test_recompute(void **state)
{
    (void)state;
    cache_check(&kvb_cache_recompute);
}
static void test_slab(void **state)
{
    (void)state;
    cache_check(&kvb_cache_slab);
}
static void test_contiguous(void **state)
{
    (void)state;
    cache_check(&kvb_cache_contiguous);
}
static void test_seq(void **state)
{
    (void)state;
    cache_check(&kvb_cache_seq);
}
static void test_tree(void **state)
{
    (void)state;
    cache_check(&kvb_cache_tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute), cmocka_unit_test(test_slab), cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_seq),       cmocka_unit_test(test_tree),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("every request for memory failing once", tests, NULL, NULL);
}
