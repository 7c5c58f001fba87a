/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: poison in hidden cells; checks of witnesses; checks of pools alone. */
#include "ci/tests/tests.h"
#include "harness/replay/poison.h"
#include "harness/replay/replay.h"
#include "harness/replay/pass.h"
#include "kernels/witness.h"
#include "workloads/values.h"

/*
 * Shows: poison fills just what belongs to hidden cells only (rows, scales, zeros, residual f16 rows, scales that only
 * hidden cells share), and restoring brings every byte back.
 */

#define HEADS 2u
#define CELLS 12u
#define ROOM  4096u /* bytes of memory that a view lies in */
#define SLOT  5u    /* slot of the f16 rows of cells 4 .. 7 */

static unsigned char memory[ROOM], before[ROOM], expected[ROOM];
static kvb_poison poison;

static void start(void)
{
    for (size_t i = 0; i < ROOM; i++)
        memory[i] = (unsigned char)(i % 251);
    memcpy(before, memory, ROOM);
    memcpy(expected, memory, ROOM);
}

static void expect(size_t at, size_t bytes)
{
    assert_true(at + bytes <= ROOM);
    memset(expected + at, 0xff, bytes);
}

/* Fills and checks every byte of the memory, then restores and checks again. */
static void check(const kvb_view *view, size_t row_bytes, uint64_t visible)
{
    assert_int_equal(kvb_poison_fill(&poison, view, HEADS, row_bytes, &visible), 0);
    assert_memory_equal(memory, expected, ROOM);
    kvb_poison_restore(&poison);
    assert_memory_equal(memory, before, ROOM);
}

static bool is_hidden(uint64_t visible, uint32_t c)
{
    return !(visible >> c & 1);
}

TEST(rows_with_gaps)
{
    static const kvb_format f32 = {.elem = KVB_F32};
    const kvb_view v = {
        .base = memory + 8, .head_stride = 1000, .cell_stride = 24, .cells = CELLS, .dim = 4, .format = &f32};
    const uint64_t visible = 0x0f5 | ~UINT64_C(0) << CELLS; /* bits past the cells mean nothing */
    start();
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t c = 0; c < CELLS; c++)
            if (is_hidden(visible, c))
                expect(8 + h * 1000 + c * 24, 16);
    check(&v, 16, visible);
    start();
    check(&v, 16, (1u << CELLS) - 1); /* nothing is hidden */
}

TEST(scales_and_zeros)
{
    static const kvb_format a8 = {
        .elem = KVB_UINT8, .axis = KVB_AXIS_CHANNELS, .group = 32, .scale_elem = KVB_F16, .zero_elem = KVB_F16};
    static const kvb_format int8 = {
        .elem = KVB_INT8, .axis = KVB_AXIS_CHANNELS, .group = KVB_GROUP_ROW, .scale_elem = KVB_F32};
    kvb_view v = {.base = memory,
                  .head_stride = 64 * CELLS,
                  .cell_stride = 64,
                  .cells = CELLS,
                  .dim = 64,
                  .scales = memory + 2000,
                  .scale_head_stride = 200,
                  .scale_cell_stride = 4,
                  .zero_head_stride = 200,
                  .zero_cell_stride = 6};
    for (int zeros = 0; zeros < 2; zeros++) {
        v.format = zeros ? &a8 : &int8;
        v.zeros = zeros ? memory + 3000 : NULL;
        start();
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t c = 3; c < CELLS; c++) {
                expect(h * 64 * CELLS + c * 64, 64);
                expect(2000 + h * 200 + c * 4, 4); /* a8: two groups */
                if (zeros)
                    expect(3000 + h * 200 + c * 6, 4);
            }
        check(&v, 64, 7);
    }
}

/* Each scale belongs to 4 cells; the second four cells are f16. */
TEST(shared_scales_and_recent_rows)
{
    static const kvb_format kivi = {.elem = KVB_UINT4,
                                    .axis = KVB_AXIS_TOKENS,
                                    .group = 4,
                                    .scale_elem = KVB_F16,
                                    .zero_elem = KVB_F16,
                                    .residual_cells = 4};
    static const uint32_t slots[] = {KVB_SLOT_NONE, SLOT, KVB_SLOT_NONE};
    const kvb_view v = {.base = memory,
                        .head_stride = 100,
                        .cell_stride = 8,
                        .cells = CELLS - 1, /* the last group is not full */
                        .dim = 16,
                        .format = &kivi,
                        .scales = memory + 300,
                        .scale_head_stride = 100,
                        .scale_cell_stride = 32,
                        .zeros = memory + 600,
                        .zero_head_stride = 100,
                        .zero_cell_stride = 32,
                        .recent = memory + 900,
                        .recent_slot = slots,
                        .recent_slot_stride = 256,
                        .recent_head_stride = 128};
    const uint64_t visible = 1 << 2 | 1 << 5; /* only the scales of the third four cells are hidden */
    start();
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t c = 0; c < CELLS - 1; c++) {
            if (is_hidden(visible, c))
                expect(h * 100 + c * 8, 8);
            if (is_hidden(visible, c) && c / 4 == 1)
                expect(900 + SLOT * 256 + h * 128 + c % 4 * 32, 32);
        }
        expect(300 + h * 100 + 2 * 32, 32);
        expect(600 + h * 100 + 2 * 32, 32);
    }
    check(&v, 8, visible);
}

/* A plug-in's own encoding: a row at base has row_bytes less the tables that the format names, and ends before the next
 * row. */
TEST(opaque_rows)
{
    static const kvb_format told = {.elem = KVB_OPAQUE, .axis = KVB_AXIS_CHANNELS, .group = 8, .scale_elem = KVB_F32},
                            untold = {.elem = KVB_OPAQUE, .axis = KVB_AXIS_TOKENS};
    kvb_view v = {.base = memory,
                  .head_stride = 20,
                  .cell_stride = 48,
                  .cells = CELLS,
                  .dim = 16,
                  .format = &told,
                  .scales = memory + 2000,
                  .scale_head_stride = 100,
                  .scale_cell_stride = 8};
    const uint64_t visible = 0x0f5;
    for (int named = 1; named >= 0; named--) {
        start();
        v.format = named ? &told : &untold;
        for (uint32_t h = 0; h < HEADS; h++)
            for (uint32_t c = 0; c < CELLS; c++)
                if (is_hidden(visible, c)) {
                    expect(h * 20 + c * 48, named ? 16 : 20);
                    if (named)
                        expect(2000 + h * 100 + c * 8, 8);
                }
        check(&v, 24, visible);
    }
}

/* Views of K and V that overlap are filled one after the other and restored. */
TEST(overlaps_come_back)
{
    static const kvb_format f32 = {.elem = KVB_F32};
    const kvb_view k = {
        .base = memory, .head_stride = 400, .cell_stride = 32, .cells = CELLS, .dim = 8, .format = &f32};
    kvb_view v = k;
    const uint64_t visible = 0x11;
    v.base = memory + 12;
    start();
    assert_int_equal(kvb_poison_fill(&poison, &k, HEADS, 32, &visible), 0);
    assert_int_equal(kvb_poison_fill(&poison, &v, HEADS, 32, &visible), 0);
    kvb_poison_restore(&poison);
    assert_memory_equal(memory, before, ROOM);
}

static int poison_end(void **state)
{
    kvb_poison_free(&poison);
    return 0;
}

static CMFixtureFunction tests_teardown = poison_end;

/*
 * Shows that a row that a query should not see, misses, or sees twice, torn or from elsewhere is found and named. The
 * query's group has windows, sinks, chunks or latent rows.
 */

enum { TOKENS = 6, WITNESS_HEADS = 2, WITNESS_LAYER = 5, WITNESS_CELLS = 8, NO_TOKEN = 400000 };

/* Codes of 19 bits of token, 6 of layer, 6 of head. */
static const kvb_model model = {.n_layers = 63, .n_groups = 1, .groups = {{.kv_heads = 64}}};

/* The query is the second of two in the call; the first is a token fed again, which is not checked. */
static const kvb_problem problem = {.n_tok = 2, .n_kv_heads = WITNESS_HEADS, .n_cells = WITNESS_CELLS};

typedef struct rig {
    kvb_history *history;
    kvb_witness_check check;
    uint32_t scratch[2 * WITNESS_HEADS + 2 * 2 * WITNESS_HEADS * WITNESS_CELLS];
} rig;

/* Sequence 0 holds tokens 0 .. 4, and token 5, the query. */
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

/* Makes a witness whose heads saw exactly these tokens, with the right rows. */
static void witness(rig *r, const uint32_t *tokens, uint32_t n, bool latent)
{
    for (uint32_t h = 0; h < WITNESS_HEADS; h++) {
        *(uint32_t *)(uintptr_t)kvb_witness_count(r->scratch, &problem, 1, h) = n;
        for (uint32_t i = 0; i < n; i++) {
            pair_of(r, h, i)[0] = kvb_tag_code(r->check.tag, tokens[i], WITNESS_LAYER, h, false);
            pair_of(r, h, i)[1] = kvb_tag_code(r->check.tag, tokens[i], WITNESS_LAYER, h, !latent);
        }
    }
}

static void says(rig *r, const kvb_group *group, const char *what)
{
    char why[200] = "", want[200] = "";
    int found =
        kvb_witness_check_step(&r->check, r->history, group, &problem, r->scratch, 1, WITNESS_LAYER, why, sizeof why);
    if (what)
        snprintf(want, sizeof want, "query 0, layer %d, %s", WITNESS_LAYER, what);
    assert_string_equal(why, want);
    assert_int_equal(found, what != NULL);
}

static const kvb_group plain = {0}, latent = {.latent = true}, window = {.window = 2},
                       sinks = {.window = 2, .sinks = 1}, wide = {.window = 6}, chunk = {.chunk = 4};

TEST_IN(visible_sets, rig_open, rig_close)
{
    static const struct {
        const kvb_group *group;
        uint32_t n, tokens[WITNESS_CELLS];
        const char *what; /* the finding; NULL: none */
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
        {&plain, 7, {0, 1, 2, 3, 4, 5, NO_TOKEN}, "KV head 0 saw token 400000, which it must not see"},
        /* the window of another group, one too long or short, or none */
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
    rig *r = *tests_state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        witness(r, cases[i].tokens, cases[i].n, cases[i].group->latent);
        says(r, cases[i].group, cases[i].what);
    }
    assert_int_equal(r->check.queries, 7 * WITNESS_HEADS);
    assert_int_equal(r->check.cells, WITNESS_HEADS * (6 + 6 + 6 + 2 + 3 + 6 + 2));
}

/* Only one head is wrong. */
TEST_IN(every_head_is_asked, rig_open, rig_close)
{
    rig *r = *tests_state;
    witness(r, (const uint32_t[]){4, 5}, 2, false);
    pair_of(r, 1, 0)[0] = kvb_tag_code(r->check.tag, 3, WITNESS_LAYER, 1, false);
    pair_of(r, 1, 0)[1] = kvb_tag_code(r->check.tag, 3, WITNESS_LAYER, 1, true);
    says(r, &window, "KV head 1 saw token 3, which it must not see");
}

TEST_IN(rows_from_elsewhere, rig_open, rig_close)
{
    static const uint32_t all[] = {0, 1, 2, 3, 4, 5};
    const kvb_tag tag = kvb_tag_of(&model);
    const struct {
        const kvb_group *group;
        int side;
        uint32_t code;
        const char *what;
    } cases[] = {
        {&plain, 1, kvb_tag_code(tag, 0, WITNESS_LAYER, 0, true),
         "KV head 0 saw K of token 1 with a V row that is not its own (code 80280000)"},
        {&plain, 1, kvb_tag_code(tag, 1, WITNESS_LAYER, 0, false),
         "KV head 0 saw K of token 1 with a V row that is not its own (code 00280001)"},
        {&latent, 1, kvb_tag_code(tag, 1, WITNESS_LAYER, 0, true),
         "KV head 0 saw K of token 1 with a V row that is not its own (code 80280001)"},
        {&plain, 0, kvb_tag_code(tag, 1, WITNESS_LAYER - 1, 0, false),
         "KV head 0 saw a K row of another layer or head (code 00200001)"},
        {&plain, 0, kvb_tag_code(tag, 1, WITNESS_LAYER, 1, false),
         "KV head 0 saw a K row of another layer or head (code 02280001)"},
        {&plain, 0, KVB_WITNESS_TORN, "KV head 0 saw a torn K row"},
        {&plain, 1, KVB_WITNESS_TORN, "KV head 0 saw a torn V row"},
    };
    rig *r = *tests_state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        witness(r, all, TOKENS, cases[i].group->latent);
        pair_of(r, 0, 1)[cases[i].side] = cases[i].code;
        says(r, cases[i].group, cases[i].what);
    }
}

/* Shows: every built-in pool, plain and transformed, passes the check of pools alone. harness/faults/pools.c has wrong
 * pools. */

TEST(built_in_pools_are_right)
{
    char place[256], why[1024];
    for (size_t p = 0; kvb_builtin_pools[p]; p++)
        for (const kvb_pool_type *type = kvb_builtin_pools[p]; type; type = type->rotated)
            if (kvb_pool_alone(type, place, sizeof place, why, sizeof why))
                fail_msg("%s", why);
}
