/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that the failure of any single allocation, the n-th for every n of a script, leaves the cache as it
 * was before the call, that the call then succeeds when tried again, and that no byte is lost. */
#include "rig.h"
#include "naive.h"

typedef enum op_kind { STEP, COPY, REMOVE, PROPOSE, COMMIT } op_kind;

typedef struct op {
    op_kind kind;
    uint32_t n; /* tokens, nodes; COPY: source; REMOVE: sequence */
    uint32_t dst, p0;
    uint32_t ids[40];
    int32_t parents[40];
} op;

#define OF_ZERO                                                                                                        \
    {                                                                                                                  \
        0                                                                                                              \
    }
#define TURNS                                                                                                          \
    {                                                                                                                  \
        0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2                                         \
    }
#define TREE_24                                                                                                        \
    {                                                                                                                  \
        -1, -1, 0, 0, 1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 9, 9, 10, 11, 12, 13, 14, 15, 16                                \
    }

static const op single[] = {
    {.kind = STEP, .n = 3, .ids = OF_ZERO},
    {.kind = STEP, .n = 1, .ids = OF_ZERO},
    {.kind = STEP, .n = 40, .ids = OF_ZERO},
    {.kind = STEP, .n = 1, .ids = OF_ZERO},
};
static const op many[] = {
    {.kind = STEP, .n = 20, .ids = OF_ZERO},
    {.kind = COPY, .n = 0, .dst = 1},
    {.kind = STEP, .n = 24, .ids = TURNS},
    {.kind = COPY, .n = 1, .dst = 5},
    {.kind = REMOVE, .n = 0, .p0 = 10},
    {.kind = STEP, .n = 24, .ids = TURNS},
    {.kind = REMOVE, .n = 1},
    {.kind = STEP, .n = 4, .ids = {5, 2, 5, 0}},
};
static const op tree[] = {
    {.kind = STEP, .n = 20, .ids = OF_ZERO},        {.kind = PROPOSE, .n = 24, .parents = TREE_24},
    {.kind = PROPOSE, .n = 2, .parents = {3, 24}},  {.kind = COMMIT, .n = 3, .ids = {1, 4, 9}},
    {.kind = PROPOSE, .n = 24, .parents = TREE_24}, {.kind = COMMIT, .n = 0},
    {.kind = STEP, .n = 2, .ids = OF_ZERO},
};

static int op_run(rig *r, const op *o)
{
    kvb_cache *c = r->cache;
    switch (o->kind) {
    case STEP:
        return kvb_cache_seq(c) ? kvb_cache_seq(c)->begin_step(c, o->ids, o->n)
                                : kvb_cache_base(c)->begin_step(c, o->n);
    case COPY:
        return kvb_cache_seq(c)->seq_cp(c, o->n, o->dst, 0, KVB_POS_END);
    case REMOVE:
        return kvb_cache_seq(c)->seq_rm(c, o->n, o->p0, KVB_POS_END);
    case PROPOSE:
        return kvb_cache_tree(c)->propose(c, o->parents, o->n);
    case COMMIT:
        return kvb_cache_tree(c)->commit(c, o->ids, o->n);
    }
    return -ENOSYS;
}

static int op_model(naive *m, const op *o)
{
    switch (o->kind) {
    case STEP:
        return naive_step(m, o->ids, o->n);
    case COPY:
        return naive_cp(m, o->n, o->dst, 0, KVB_POS_END);
    case REMOVE:
        return naive_rm(m, o->n, o->p0, KVB_POS_END);
    case PROPOSE:
        return naive_propose(m, o->parents, o->n);
    case COMMIT:
        return naive_commit(m, o->ids, o->n);
    }
    return -ENOSYS;
}

static void state_check(rig *r, naive *m)
{
    static uint64_t want[NAIVE_LEN];
    const uint64_t *feed;
    uint32_t n = kvb_cache_bytes(r->cache)->feed(r->cache, &feed);
    assert_int_equal(n > 0, m->valid);
    for (uint32_t q = 0; q < n; q++)
        rig_assert_sees(r, m->pos, n, q, want, naive_visible(m, feed[q], want));
    assert_int_equal(rig_usage(r).cells_live, naive_live(m));
    assert_int_equal(kvb_cache_base(r->cache)->length(r->cache), naive_len(m, 0));
    for (uint32_t s = 0; kvb_cache_seq(r->cache) && s < KVB_MAX_SEQS; s++)
        assert_int_equal(kvb_cache_seq(r->cache)->seq_len(r->cache, s), naive_len(m, s));
    if (kvb_cache_tree(r->cache))
        assert_int_equal(kvb_cache_tree(r->cache)->pending(r->cache), m->n_nodes);
}

/* The script with its fail-th request refused. Returns how many calls noticed. */
static uint32_t script_run(const kvb_cache_type *type, const op *ops, size_t n_ops, uint64_t fail, uint64_t *requests)
{
    rig r = {.allocator = {.fail_request = fail}};
    naive *m = calloc(1, sizeof *m);
    uint32_t noticed = 0;
    assert_non_null(m);
    *m = (naive){.type = type, .capacity = 200, .seq_capacity = 100, .max_seqs = 4};
    m->pos = calloc(NAIVE_TOKENS, sizeof *m->pos);
    assert_non_null(m->pos);
    int error = rig_try_open(&r, type, m->capacity, m->seq_capacity, m->max_seqs, 2);
    if (error) {
        assert_int_equal(error, -ENOMEM);
        assert_true(r.why[0] != 0);
        assert_int_equal(r.allocator.current_bytes, 0);
        noticed++;
        assert_int_equal(rig_try_open(&r, type, m->capacity, m->seq_capacity, m->max_seqs, 2), 0);
    }
    for (size_t i = 0; i < n_ops; i++) {
        error = op_run(&r, &ops[i]);
        if (error == -ENOMEM) {
            assert_true(r.cache->why[0] != 0);
            noticed++;
            state_check(&r, m);
            error = op_run(&r, &ops[i]);
        }
        assert_int_equal(error, 0);
        assert_int_equal(op_model(m, &ops[i]), 0);
        state_check(&r, m);
    }
    *requests = r.allocator.requests;
    rig_close(&r);
    free(m->pos);
    free(m);
    return noticed;
}

static void script_check(const kvb_cache_type *type, const op *ops, size_t n_ops)
{
    uint64_t total, requests;
    assert_int_equal(script_run(type, ops, n_ops, 0, &total), 0);
    assert_true(total > 10);
    for (uint64_t fail = 1; fail <= total; fail++)
        assert_int_equal(script_run(type, ops, n_ops, fail, &requests), 1);
    print_message("# %s: each of %lu requests refused once\n", type->name, (unsigned long)total);
}

#define CHECK(type, ops) script_check(type, ops, sizeof(ops) / sizeof *(ops))

static void test_recompute(void **state)
{
    (void)state;
    CHECK(&kvb_cache_recompute, single);
    CHECK(&kvb_cache_recompute, many);
    CHECK(&kvb_cache_recompute, tree);
}
static void test_slab(void **state)
{
    (void)state;
    CHECK(&kvb_cache_slab, single);
    CHECK(&kvb_cache_slab, many);
}
static void test_contiguous(void **state)
{
    (void)state;
    CHECK(&kvb_cache_contig, single);
}
static void test_seq(void **state)
{
    (void)state;
    CHECK(&kvb_cache_seq_cells, single);
    CHECK(&kvb_cache_seq_cells, many);
}
static void test_tree(void **state)
{
    (void)state;
    CHECK(&kvb_cache_tree_nodes, single);
    CHECK(&kvb_cache_tree_nodes, tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recompute), cmocka_unit_test(test_slab), cmocka_unit_test(test_contiguous),
        cmocka_unit_test(test_seq),       cmocka_unit_test(test_tree),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("every allocation failing once", tests, NULL, NULL);
}
