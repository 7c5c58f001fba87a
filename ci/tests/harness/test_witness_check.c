/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows that whatever a query sees too much, too little, twice, torn or from elsewhere is found and named; what it may
 * see is its group's business: windows, sinks, chunks, latent rows.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "harness/replay/witness_check.h"
#include "kernels/witness.h"
#include "workloads/values.h"

enum { TOKENS = 6, HEADS = 2, LAYER = 5, CELLS = 8, NEVER = 400000 };

/* Codes of 19 bits of token, 6 of layer, 6 of head. */
static const kvb_model model = {.n_layers = 63, .n_groups = 1, .groups = {{.kv_heads = 64}}};

/* The query is the last of two that the kernel had; the one before is a token fed again, and is not asked about. */
static const kvb_problem problem = {.n_tok = 2, .n_kv_heads = HEADS, .n_cells = CELLS};

typedef struct rig {
    kvb_history *history;
    kvb_witness_check check;
    uint32_t scratch[2 * HEADS + 2 * 2 * HEADS * CELLS];
} rig;

/* Sequence 0 holds tokens 0 .. 4 and, as the query, 5. */
static int rig_open(void **state)
{
    static rig r;
    static uint32_t pos[] = {0, 1, 2, 3, 4, 5}, seq[TOKENS] = {0};
    static const kvb_event past = {.kind = KVB_EVENT_PREFILL, .n = 5, .first = 0, .pos = pos, .seq = seq};
    static const kvb_event step = {.kind = KVB_EVENT_STEP, .n = 1, .first = 5, .pos = pos + 5, .seq = seq};
    memset(&r, 0, sizeof r);
    assert_int_equal(kvb_history_open(64, &r.history), 0);
    assert_int_equal(kvb_history_apply(r.history, &past), 0);
    assert_int_equal(kvb_history_apply(r.history, &step), 0);
    assert_int_equal(kvb_witness_check_open(&r.check, &model, TOKENS + 1), 0); /* the trace has one more, later */
    *state = &r;
    return 0;
}

static int rig_close(void **state)
{
    rig *r = *state;
    kvb_history_free(r->history);
    kvb_witness_check_close(&r->check);
    return 0;
}

static uint32_t *pair_of(rig *r, uint32_t head, uint32_t i)
{
    return (uint32_t *)(uintptr_t)kvb_witness_seen(r->scratch, &problem, 1, head) + 2 * i;
}

/* Every head saw just these tokens, all rows their own. */
static void witness(rig *r, const uint32_t *tokens, uint32_t n, bool latent)
{
    for (uint32_t h = 0; h < HEADS; h++) {
        *(uint32_t *)(uintptr_t)kvb_witness_count(r->scratch, &problem, 1, h) = n;
        for (uint32_t i = 0; i < n; i++) {
            pair_of(r, h, i)[0] = kvb_tag_code(r->check.tag, tokens[i], LAYER, h, false);
            pair_of(r, h, i)[1] = kvb_tag_code(r->check.tag, tokens[i], LAYER, h, !latent);
        }
    }
}

static void says(rig *r, const kvb_group *group, const char *what)
{
    char why[200] = "", want[200] = "";
    int found = kvb_witness_check_step(&r->check, r->history, group, &problem, r->scratch, 1, LAYER, why, sizeof why);
    if (what)
        snprintf(want, sizeof want, "query 0, layer %d, %s", LAYER, what);
    assert_string_equal(why, want);
    assert_int_equal(found, what != NULL);
}

static const kvb_group plain = {0}, latent = {.latent = true}, window = {.window = 2},
                       sinks = {.window = 2, .sinks = 1}, wide = {.window = 6}, chunk = {.chunk = 4};

static void visible_sets(void **state)
{
    static const struct {
        const kvb_group *group;
        uint32_t n, tokens[CELLS];
        const char *what; /* NULL: well */
    } cases[] = {
        {&plain, 6, {0, 1, 2, 3, 4, 5}, NULL},
        {&plain, 6, {3, 5, 0, 4, 1, 2}, NULL}, /* in any order */
        {&latent, 6, {5, 4, 3, 2, 1, 0}, NULL},
        {&window, 2, {4, 5}, NULL},
        {&sinks, 3, {4, 5, 0}, NULL},
        {&wide, 6, {0, 1, 2, 3, 4, 5}, NULL},
        {&chunk, 2, {5, 4}, NULL},
        {&plain, 5, {0, 1, 2, 4, 5}, "KV head 0 did not see token 3"},
        {&plain, 0, {0}, "KV head 0 did not see token 0"},
        {&plain, 6, {0, 1, 2, 3, 3, 5}, "KV head 0 saw token 3 twice"},
        {&plain, 7, {0, 1, 2, 3, 4, 5, 6}, "KV head 0 saw token 6, which it must not see"},
        {&plain, 7, {0, 1, 2, 3, 4, 5, NEVER}, "KV head 0 saw token 400000, which it must not see"},
        /* a window of another group, off by one, or forgotten */
        {&plain, 2, {4, 5}, "KV head 0 did not see token 0"},
        {&window, 6, {5, 4, 3, 2, 1, 0}, "KV head 0 saw token 3, which it must not see"},
        {&window, 3, {4, 5, 3}, "KV head 0 saw token 3, which it must not see"},
        {&window, 1, {5}, "KV head 0 did not see token 4"},
        {&window, 3, {4, 5, 0}, "KV head 0 saw token 0, which it must not see"},
        {&sinks, 2, {4, 5}, "KV head 0 did not see token 0"},
        {&sinks, 4, {4, 5, 0, 1}, "KV head 0 saw token 1, which it must not see"},
        {&chunk, 4, {2, 3, 4, 5}, "KV head 0 saw token 2, which it must not see"},
        {&chunk, 1, {5}, "KV head 0 did not see token 4"},
    };
    rig *r = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        witness(r, cases[i].tokens, cases[i].n, cases[i].group->latent);
        says(r, cases[i].group, cases[i].what);
    }
    assert_int_equal(r->check.queries, 7 * HEADS);
    assert_int_equal(r->check.cells, HEADS * (6 + 6 + 6 + 2 + 3 + 6 + 2));
}

/* One head alone. */
static void every_head_is_asked(void **state)
{
    rig *r = *state;
    witness(r, (const uint32_t[]){4, 5}, 2, false);
    pair_of(r, 1, 0)[0] = kvb_tag_code(r->check.tag, 3, LAYER, 1, false);
    pair_of(r, 1, 0)[1] = kvb_tag_code(r->check.tag, 3, LAYER, 1, true);
    says(r, &window, "KV head 1 saw token 3, which it must not see");
}

static void rows_from_elsewhere(void **state)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5};
    const kvb_tag tag = kvb_tag_of(&model);
    const struct {
        const kvb_group *group;
        int side;
        uint32_t code;
        const char *what;
    } cases[] = {
        {&plain, 1, kvb_tag_code(tag, 0, LAYER, 0, true),
         "KV head 0 saw K of token 1 with a V row that is not its own (code 80280000)"},
        {&plain, 1, kvb_tag_code(tag, 1, LAYER, 0, false),
         "KV head 0 saw K of token 1 with a V row that is not its own (code 00280001)"},
        {&latent, 1, kvb_tag_code(tag, 1, LAYER, 0, true),
         "KV head 0 saw K of token 1 with a V row that is not its own (code 80280001)"},
        {&plain, 0, kvb_tag_code(tag, 1, LAYER - 1, 0, false),
         "KV head 0 saw a K row of another layer or head (code 00200001)"},
        {&plain, 0, kvb_tag_code(tag, 1, LAYER, 1, false),
         "KV head 0 saw a K row of another layer or head (code 02280001)"},
        {&plain, 0, KVB_WITNESS_TORN, "KV head 0 saw a torn K row"},
        {&plain, 1, KVB_WITNESS_TORN, "KV head 0 saw a torn V row"},
    };
    rig *r = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        witness(r, all, TOKENS, cases[i].group->latent);
        pair_of(r, 0, 1)[cases[i].side] = cases[i].code;
        says(r, cases[i].group, cases[i].what);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(visible_sets, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(every_head_is_asked, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(rows_from_elsewhere, rig_open, rig_close),
    };
    return cmocka_run_group_tests_name("witness check", tests, NULL, NULL);
}
