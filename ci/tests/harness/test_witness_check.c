/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that whatever a query sees too much, too little, twice, torn or from elsewhere is found and named. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "harness/replay/witness_check.h"
#include "kernels/witness.h"
#include "workloads/values.h"

enum { TOKENS = 3, HEADS = 2, LAYER = 5, CELLS = 8 };

static const kvb_problem problem = {.n_tok = 1, .n_kv_heads = HEADS, .n_cells = CELLS};

typedef struct rig {
    kvb_history *history;
    kvb_witness_check check;
    uint32_t scratch[HEADS + 2 * HEADS * CELLS];
    char why[200];
} rig;

/* Sequence 0 holds tokens 0, 1 and, as the query, 2; the witness saw just these. */
static int rig_open(void **state)
{
    static rig r;
    static uint32_t pos[] = {0, 1, 2}, seq[] = {0, 0, 0};
    static const kvb_event past = {.kind = KVB_EVENT_PREFILL, .n = 2, .first = 0, .pos = pos, .seq = seq};
    static const kvb_event step = {.kind = KVB_EVENT_STEP, .n = 1, .first = 2, .pos = pos + 2, .seq = seq};
    memset(&r, 0, sizeof r);
    assert_int_equal(kvb_history_open(&r.history), 0);
    assert_int_equal(kvb_history_apply(r.history, &past), 0);
    assert_int_equal(kvb_history_apply(r.history, &step), 0);
    assert_int_equal(kvb_witness_check_open(&r.check, TOKENS), 0);
    for (uint32_t h = 0; h < HEADS; h++) {
        r.scratch[h] = TOKENS;
        for (uint32_t i = 0; i < TOKENS; i++) {
            uint32_t *pair = (uint32_t *)(uintptr_t)kvb_witness_seen(r.scratch, &problem, 0, h) + 2 * i;
            pair[0] = kvb_tag_code(i, LAYER, h, false);
            pair[1] = kvb_tag_code(i, LAYER, h, true);
        }
    }
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
    return (uint32_t *)(uintptr_t)kvb_witness_seen(r->scratch, &problem, 0, head) + 2 * i;
}

static void refuses(rig *r, const char *what)
{
    assert_int_equal(
        kvb_witness_check_step(&r->check, r->history, &problem, r->scratch, 1, LAYER, r->why, sizeof r->why), 1);
    assert_non_null(strstr(r->why, what));
}

static void exactly_the_visible_set_passes(void **state)
{
    rig *r = *state;
    uint32_t swap[2];
    memcpy(swap, pair_of(r, 1, 0), sizeof swap); /* in any order */
    memcpy(pair_of(r, 1, 0), pair_of(r, 1, 2), sizeof swap);
    memcpy(pair_of(r, 1, 2), swap, sizeof swap);
    assert_int_equal(
        kvb_witness_check_step(&r->check, r->history, &problem, r->scratch, 1, LAYER, r->why, sizeof r->why), 0);
    assert_int_equal(r->check.queries, HEADS);
    assert_int_equal(r->check.cells, HEADS * TOKENS);
}

static void one_too_few(void **state)
{
    rig *r = *state;
    r->scratch[1] = TOKENS - 1;
    refuses(r, "KV head 1 did not see token 2");
}

static void one_twice(void **state)
{
    rig *r = *state;
    memcpy(pair_of(r, 0, 2), pair_of(r, 0, 1), 2 * sizeof(uint32_t));
    refuses(r, "saw token 1 twice");
}

static void one_too_many(void **state)
{
    rig *r = *state;
    kvb_witness_check_close(&r->check);
    assert_int_equal(kvb_witness_check_open(&r->check, 7), 0);
    r->scratch[0] = TOKENS + 1;
    pair_of(r, 0, 3)[0] = kvb_tag_code(6, LAYER, 0, false);
    pair_of(r, 0, 3)[1] = kvb_tag_code(6, LAYER, 0, true);
    refuses(r, "saw token 6, which it must not see");
}

static void a_token_that_never_was(void **state)
{
    rig *r = *state;
    pair_of(r, 0, 2)[0] = kvb_tag_code(400000, LAYER, 0, false);
    pair_of(r, 0, 2)[1] = kvb_tag_code(400000, LAYER, 0, true);
    refuses(r, "saw token 400000, which it must not see");
}

static void rows_from_elsewhere(void **state)
{
    rig *r = *state;
    pair_of(r, 0, 1)[1] = kvb_tag_code(0, LAYER, 0, true);
    refuses(r, "V row that is not its own");
    pair_of(r, 0, 1)[0] = kvb_tag_code(1, LAYER - 1, 0, false);
    refuses(r, "K row of another layer or head");
    pair_of(r, 0, 1)[0] = KVB_WITNESS_TORN;
    refuses(r, "torn K row");
    pair_of(r, 0, 0)[1] = KVB_WITNESS_TORN;
    refuses(r, "torn V row");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(exactly_the_visible_set_passes, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(one_too_few, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(one_twice, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(one_too_many, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(a_token_that_never_was, rig_open, rig_close),
        cmocka_unit_test_setup_teardown(rows_from_elsewhere, rig_open, rig_close),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("witness check", tests, NULL, NULL);
}
