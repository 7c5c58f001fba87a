/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that the failure of any single request for memory (the n-th of a random scenario, for every n, in any group)
 * leaves the cache as before the call: tokens, cells, counts, the plan in force and the rows that it reads. The call
 * then succeeds when repeated, the scenario goes on with the same rows bit for bit, and no byte is lost. For every
 * cache, over formats of every kind of storage, with growth by copies and by reserved pages.
 */
#include "ci/fuzz/verbs.h"
#include "ci/tests/caches/named.h"
#include "ci/tests/caches/rig.h"
#include "ci/tests/caches/states.h"

enum { CAPACITY = 232, SEQ_CAPACITY = 216, MAX_SEQS = 3, MAX_CALLS = 12, ROLLBACK = 4, PAGE = 3, DEPTH = 2 };

/* Digests of a cache: of its counts, and of the rows that queries of the plan in force read. */
typedef struct picture {
    uint64_t counts, read;
} picture;

typedef struct scenario {
    const kvb_cache_type *type;
    const kvb_pool_type *pool;
    kvb_growth growth;
    bool scans; /* the third group scans */
    call calls[MAX_CALLS];
    uint32_t n;
    picture before[MAX_CALLS + 1]; /* before each call, and at the end */
    size_t bytes;                  /* held at the end */
} scenario;

static rules model;

static rig scenario_begin(const scenario *s, uint64_t fail)
{
    rig r = {.pool = s->pool,
             .growth = s->growth,
             .allocator.fail_request = fail,
             .n_groups = 3,
             .groups = {{.latent = true}, {.window = 20, .sinks = 2}, {.chunk = 30}},
             .rollback = ROLLBACK,
             .state_depth = DEPTH,
             .page_cells = PAGE};
    if (s->scans)
        r.groups[2] = (kvb_group)STATES_GROUP(KVB_F32);
    rig_model_make(&r);
    return r;
}

static void model_begin(const scenario *s, const kvb_model *m)
{
    kvb_rules_close(&model);
    model.type = s->type;
    model.model = m;
    model.capacity = CAPACITY;
    model.seq_capacity = SEQ_CAPACITY;
    model.n_ids = KVB_SEQ_IDS;
    model.max_seqs = MAX_SEQS;
    model.rollback = ROLLBACK;
    model.state_depth = DEPTH;
    model.page_cells = PAGE;
    model.residual = s->pool && s->pool->format->residual_cells;
    kvb_slots_open();
    assert_int_equal(kvb_rules_open(&model), 0);
}

/* Draws legal calls. For a format with residual cells the first steps fill so many cells that some are encoded. */
static void scenario_draw(scenario *s, uint64_t seed)
{
    static const uint32_t some[] = {3, 20, 1, 10}, many[] = {3, 70, 1, 67};
    const uint32_t *sizes = s->pool && s->pool->format->residual_cells ? many : some;
    const rig r = scenario_begin(s, 0);
    model_begin(s, &r.model);
    drawer draws = {.state = seed, .seqs = 3};
    for (uint32_t i = 0; i < 4; i++) {
        s->calls[s->n] = (call){.kind = EXTEND, .n = sizes[i]};
        assert_int_equal(kvb_rules_call(&model, &s->calls[s->n++]), 0);
    }
    while (s->n < MAX_CALLS) {
        call c = kvb_draw_call(&draws, &model);
        if (c.kind != CLEAR && (c.kind != REWIND || c.p0 > 12) && kvb_rules_call(&model, &c) == 0)
            s->calls[s->n++] = c;
    }
}

/* ---- what a call must not change ---------------------------------------------------------------------------- */

#define DIGEST(d, array, n) (*(d) = rig_digest(*(d), array, (n) * sizeof *(array)))

static uint64_t counts_digest(const rig *r)
{
    const uint64_t *feed;
    uint32_t fed = kvb_cache_feed(r->cache, &feed), lens[1 + KVB_SEQ_IDS] = {kvb_cache_pending(r->cache, 0)};
    uint64_t d = 1;
    for (uint32_t g = 0; g < r->model.n_groups; g++) {
        kvb_cache_usage u = rig_usage_of(r, g);
        uint64_t counts[] = {u.cells_live, u.cells_peak, u.high_water, u.cells_written, u.cells_moved};
        DIGEST(&d, counts, N(counts));
    }
    for (uint32_t s = 0; s < KVB_SEQ_IDS; s++)
        lens[1 + s] = kvb_cache_length(r->cache, s);
    DIGEST(&d, lens, N(lens));
    DIGEST(&d, &fed, 1);
    if (fed)
        DIGEST(&d, feed, fed);
    return d;
}

/* Digest of the runs of cells that each query reads, and of each row that any reads. */
static void layer_digest(const kvb_attend_spec *spec, uint32_t n, uint64_t *d)
{
    float row[RIG_CODED_DIM];
    bool read[MAX_SEQS * (SEQ_CAPACITY + 2 * PAGE)] = {false};
    uint32_t shape[] = {spec->mask.kind, spec->k.cells, n};
    DIGEST(d, shape, N(shape));
    for (uint32_t q = 0; q < n; q++) {
        uint32_t cursor = 0;
        kvb_run run;
        while (kvb_mask_next(&spec->mask, n, spec->k.cells, q, &cursor, &run)) {
            DIGEST(d, &run, 1);
            memset(read + run.begin, true, run.end - run.begin);
        }
    }
    for (uint32_t h = 0; h < spec->group->kv_heads; h++)
        for (uint32_t c = 0; c < spec->k.cells; c++)
            for (uint32_t v = 0; v < 2 && read[c]; v++) {
                const kvb_view *view = v ? &spec->v : &spec->k;
                kvb_view_read(view, h, c, 1, row);
                DIGEST(d, row, view->dim);
            }
}

/* Digest of a layer's slots. Scans once, since a scan changes some states in place. made: it was done before. */
static void slots_digest(rig *r, uint32_t layer, const uint64_t *feed, uint32_t n, bool made, uint64_t *d)
{
    static uint32_t positions[RULES_TOKENS];
    kvb_scan_spec spec;
    for (uint32_t i = 0; i < n; i++)
        positions[i] = model.pos[feed[i]];
    assert_int_equal(kvb_cache_fetch_states(r->cache, layer, positions, n, &spec), 0);
    DIGEST(d, spec.from, n);
    DIGEST(d, spec.to, n);
    assert_true(made || !kvb_call_scan(&model, r->cache, layer, feed, n));
}

/* Stores the step in force. check: queries must see what the rules say. made: states were made before. look: also
 * digests the rows. Returns the digest; 0: there is no step. */
static uint64_t step_store(rig *r, bool check, bool made, bool look)
{
    static uint64_t want[RULES_LEN], seen[RULES_LEN];
    const uint64_t *feed;
    uint32_t n = kvb_cache_feed(r->cache, &feed);
    uint64_t d = 2;
    for (uint32_t layer = 0; layer < RIG_LAYERS && n; layer++) {
        kvb_attend_spec spec;
        if (kvb_group_scans(rig_group(r, layer))) {
            slots_digest(r, layer, feed, n, made, &d);
            continue;
        }
        assert_int_equal(rig_fetch(r, layer, model.pos, &spec), 0);
        if (look)
            layer_digest(&spec, n, &d);
        for (uint32_t q = 0; q < n && check; q += n > 3 ? n / 3 : 1) {
            const uint32_t n_want = kvb_rules_visible(&model, spec.group, feed[q], want);
            assert_int_equal(rig_seen(r, &spec, layer, model.now->moved ? NULL : model.pos, n, q, seen), n_want);
            assert_memory_equal(seen, want, n_want * sizeof *want);
        }
    }
    return n ? d : 0;
}

/* ---- one run ------------------------------------------------------------------------------------------------ */

/* Opens the cache. If the refused request is one of the open, opens it again and returns true. */
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

/* Checks the cache after a failed call. Rows with residual cells are not stored again, as this would be another
 * write. */
static void failure_check(rig *r, const scenario *s, uint32_t i)
{
    assert_true(kvb_cache_why(r->cache)[0] != 0);
    assert_true(counts_digest(r) == s->before[i].counts);
    if (s->before[i].read && !(s->pool && s->pool->format->residual_cells))
        assert_true(step_store(r, false, true, true) == s->before[i].read);
    assert_true(counts_digest(r) == s->before[i].counts);
}

/* Plays the scenario with request number `fail` refused; 0: none, and the pictures are taken. Did a call fail? */
static bool scenario_run(scenario *s, uint64_t fail)
{
    rig r = scenario_begin(s, fail);
    bool noticed = scenario_open(&r, s);
    model_begin(s, &r.model);
    if (!fail)
        s->before[0] = (picture){counts_digest(&r), 0};
    for (uint32_t i = 0; i < s->n; i++) {
        int error = kvb_call_make(r.cache, &s->calls[i]);
        if (error == -ENOMEM) {
            assert_false(noticed);
            noticed = true;
            failure_check(&r, s, i);
            error = kvb_call_make(r.cache, &s->calls[i]);
        }
        assert_int_equal(error, 0);
        assert_int_equal(kvb_rules_call(&model, &s->calls[i]), 0);
        const bool look = !fail || noticed; /* before the failure nothing can differ */
        const uint64_t read = step_store(&r, !fail, s->calls[i].kind == SAVE, look); /* SAVE leaves the plan in force */
        if (!fail)
            s->before[i + 1] = (picture){counts_digest(&r), read};
        assert_true(counts_digest(&r) == s->before[i + 1].counts && (!look || read == s->before[i + 1].read));
    }
    if (!fail)
        s->bytes = r.allocator.current_bytes;
    assert_int_equal(r.allocator.current_bytes, s->bytes);
    /* Growth was of the chosen kind; a slab does not grow. */
    for (uint32_t g = 0; g < r.model.n_groups; g++)
        if (!kvb_group_scans(&r.model.groups[g]))
            assert_int_equal(rig_usage_of(&r, g).copied_bytes > 0,
                             s->growth == KVB_GROWTH_DOUBLE && s->type != &kvb_cache_slab);
    rig_close(&r);
    return noticed;
}

/* ---- all of them -------------------------------------------------------------------------------------------- */

/* One format of each kind of storage: floats, blocks, side tables, residual windows, head scales. NULL: f32 with exact
 * rows. */
static const char *const names[] = {NULL, "f16", "q8_0", "a4g64", "kivi4-k", "e4m3-head"};

static void cache_check(const kvb_cache_type *type)
{
    uint64_t requests = 0, runs = 0;
    for (size_t i = 0; i < N(names); i++) {
        const kvb_pool_type *pool = names[i] ? pool_named(names[i]) : kvb_builtin_pools[0];
        char why[160];
        for (int g = KVB_GROWTH_DOUBLE; kvb_cache_takes(type, pool, pool, why, sizeof why) && g <= KVB_GROWTH_RESERVE;
             g += KVB_GROWTH_RESERVE) {
            scenario s = {
                .type = type, .pool = names[i] ? pool_named(names[i]) : NULL, .growth = (kvb_growth)g, .scans = i % 2};
            uint64_t fail = 0;
            scenario_draw(&s, 1 + i * 2 + (uint64_t)g / 2);
            assert_false(scenario_run(&s, 0));
            while (scenario_run(&s, ++fail))
                continue;
            assert_true(fail > 20);
            requests += fail - 1;
            runs++;
        }
    }
    print_message("# %s: %lu scenarios, each of %lu requests refused once\n", type->name, (unsigned long)runs,
                  (unsigned long)requests);
}

TEST(test_every_cache)
{
    EACH_CACHE(type, 0)
    cache_check(type);
}
