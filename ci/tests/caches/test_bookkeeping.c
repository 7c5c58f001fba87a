/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the bookkeeping and the models, without a cache. */
#include <float.h>

#include "ci/tests/tests.h"
#include "ci/tests/caches/rig.h"
#include "caches/bookkeeping/plan.h"
#include "kernels/model.h"
#include "kernels/scan.h"

/* Shows the bookkeeping, integers only: lists of spans against an array, runs and masks of plans by hand. */

/* ---- spans against an array of what lies at each position -------------------------------------------------- */

enum { POSITIONS = 40, NOTHING = 0 };

static uint32_t draw(uint32_t n)
{
    static uint64_t seed = 88172645463325252u;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 20) % n;
}

static void spans_check(const kvb_spans *s, const uint64_t *at)
{
    uint32_t tokens = 0, next = 0;
    for (size_t i = 0; i < s->n; i++) {
        assert_true(s->span[i].n > 0 && (i == 0 || s->span[i].pos >= s->span[i - 1].pos + s->span[i - 1].n));
        for (uint32_t j = 0; j < s->span[i].n; j++)
            assert_int_equal(s->span[i].at + j, at[s->span[i].pos + j]);
    }
    for (uint32_t p = 0; p < POSITIONS; p++) {
        tokens += at[p] != NOTHING;
        next = at[p] != NOTHING ? p + 1 : next;
    }
    assert_int_equal(s->tokens, tokens);
    assert_int_equal(kvb_spans_next(s), next);
}

/* Two lists; now and then one is added to the other. Tokens that were added together form one span again. */
TEST(test_spans)
{
    kvb_allocator a = {0};
    kvb_spans s[2] = {{0}, {0}};
    uint64_t at[2][POSITIONS] = {{0}, {0}}, next = 1;
    uint32_t added = 0;
    for (uint32_t i = 0; i < 40000; i++) {
        uint32_t me = draw(2), p0 = draw(POSITIONS), p1 = draw(3) ? p0 + draw(6) : UINT32_MAX, where, want = UINT32_MAX;
        uint32_t end = p1 < POSITIONS ? p1 : POSITIONS, pos = kvb_spans_next(&s[me]) + (draw(4) == 0);
        switch (draw(4)) {
        case 0:
        case 1:
            assert_int_equal(kvb_spans_reserve(&s[me], &a, 1), 0);
            next += draw(4) == 0;
            if (pos < POSITIONS) {
                kvb_spans_append(&s[me], pos, next);
                at[me][pos] = next++;
            }
            break;
        case 2:
            for (uint32_t p = end; p-- > p0;)
                want = at[0][p] && at[1][p] ? p : want;
            assert_int_equal(kvb_spans_meet(&s[0], &s[1], p0, p1, &where), want != UINT32_MAX);
            if (want != UINT32_MAX) {
                assert_int_equal(where, want);
                break;
            }
            assert_int_equal(kvb_spans_reserve(&s[me], &a, s[!me].n), 0);
            kvb_spans_add(&s[me], &s[!me], p0, p1);
            for (uint32_t p = p0; p < end; p++) {
                added += at[!me][p] != NOTHING;
                at[me][p] = at[!me][p] ? at[!me][p] : at[me][p];
            }
            for (size_t k = 1; k < s[me].n; k++) { /* no two neighbours could be joined */
                const kvb_span *x = &s[me].span[k - 1];
                assert_false(x->pos + x->n == x[1].pos && x->at + x->n == x[1].at);
            }
            break;
        default:
            assert_int_equal(kvb_spans_reserve(&s[me], &a, 1), 0);
            kvb_spans_cut(&s[me], p0, p1);
            for (uint32_t p = p0; p < end; p++)
                at[me][p] = NOTHING;
        }
        spans_check(&s[0], at[0]);
        spans_check(&s[1], at[1]);
    }
    assert_true(added > 1000);
    kvb_spans_free(&s[0], &a);
    kvb_spans_free(&s[1], &a);
    assert_int_equal(a.current_bytes, 0);
}

/* Positions 4 and 5 move down by 2, into a hole; 6 and 7, right behind them, stay. */
TEST(test_shift_of_the_middle)
{
    kvb_allocator allocator = {0};
    kvb_account a = {.allocator = &allocator, .seq_capacity = 8, .max_seqs = 1, .n_ids = 1};
    const kvb_change step = {.kind = KVB_CHANGE_STEP, .n = 8}, remove = {.kind = KVB_CHANGE_REMOVE, .p0 = 2, .p1 = 4},
                     shift = {.kind = KVB_CHANGE_SHIFT, .p0 = 4, .p1 = 6, .delta = -2};
    uint32_t positions[8];
    char why[100];
    assert_int_equal(kvb_account_open(&a), 0);
    assert_int_equal(kvb_account_reserve(&a, &step), 0);
    kvb_account_admit(&a, &step, positions);
    for (int i = 0; i < 2; i++) {
        const kvb_change *change = i ? &shift : &remove;
        assert_int_equal(kvb_account_check(&a, change, why, sizeof why), 0);
        assert_int_equal(kvb_account_reserve(&a, change), 0);
        kvb_account_apply(&a, change);
    }
    const uint64_t revision = UINT64_C(1) << KVB_REVISION_AT;
    const kvb_span want[] = {{0, 0, 2}, {revision | 4, 2, 2}, {6, 6, 2}};
    assert_int_equal(a.seq[0].n, N(want));
    for (uint32_t i = 0; i < N(want); i++)
        assert_true(a.seq[0].span[i].at == want[i].at && a.seq[0].span[i].pos == want[i].pos &&
                    a.seq[0].span[i].n == want[i].n);
    assert_true(a.held == 6 && a.seq[0].tokens == 6 && a.next_ordinal == 8 && a.shifts == 1 && a.shifted);
    kvb_account_close(&a);
    assert_int_equal(allocator.current_bytes, 0);
}

/* ---- plans -------------------------------------------------------------------------------------------------- */

TEST(test_first_seen)
{
    static const struct {
        kvb_group group;
        uint32_t pos, first;
    } cases[] = {
        {{0}, 0, 0},
        {{0}, UINT32_MAX, 0},
        {{.window = 1}, 0, 0},
        {{.window = 1}, 7, 7},
        {{.window = 4}, 2, 0},
        {{.window = 4}, 3, 0},
        {{.window = 4}, 4, 1},
        {{.window = 4}, UINT32_MAX, UINT32_MAX - 3},
        {{.chunk = 4}, 3, 0},
        {{.chunk = 4}, 4, 4},
        {{.chunk = 4}, 7, 4},
        {{.window = UINT32_MAX}, UINT32_MAX, 1},
        {{.chunk = 1}, 9, 9},
        {{.chunk = 5}, 14, 10},
        {{.window = 9, .sinks = 3}, 20, 12},
    };
    for (size_t i = 0; i < N(cases); i++)
        assert_int_equal(kvb_first_seen(&cases[i].group, cases[i].pos), cases[i].first);
}

/* Queries of one sequence: positions 0 to 3 lie in cells 0 to 3, 4 and 5 in cells 6 and 7, 6 in cell 4, 9 in cell 5. */
TEST(test_runs)
{
    kvb_span lie[] = {{0, 0, 4}, {6, 4, 2}, {4, 6, 1}, {5, 9, 1}};
    const kvb_spans spans = {.span = lie, .n = N(lie), .tokens = 8};
    static const struct {
        kvb_group group;
        uint32_t n, pos[2];
        kvb_mask_kind mask;
        uint32_t row_start[3];
        kvb_run runs[5];
        uint32_t extent;
    } cases[] = {
        {{0}, 1, {3}, KVB_MASK_NONE, {0, 1}, {{0, 4}}, 4},
        {{0}, 2, {2, 3}, KVB_MASK_CAUSAL, {0, 1, 2}, {{0, 3}, {0, 4}}, 4},
        {{0}, 2, {3, 2}, KVB_MASK_RUNS, {0, 1, 2}, {{0, 4}, {0, 3}}, 4},
        {{0}, 2, {3, 3}, KVB_MASK_RUNS, {0, 1, 2}, {{0, 4}, {0, 4}}, 4},
        {{0}, 2, {1, 3}, KVB_MASK_RUNS, {0, 1, 2}, {{0, 2}, {0, 4}}, 4},
        {{0}, 1, {5}, KVB_MASK_RUNS, {0, 2}, {{0, 4}, {6, 8}}, 8},
        {{0}, 2, {6, 9}, KVB_MASK_RUNS, {0, 2, 3}, {{0, 5}, {6, 8}, {0, 8}}, 8}, /* ascending, joined */
        {{0}, 1, {8}, KVB_MASK_RUNS, {0, 2}, {{0, 5}, {6, 8}}, 8},
        {{0}, 1, {9}, KVB_MASK_NONE, {0, 1}, {{0, 8}}, 8}, /* all cells, in another order */
        /* With limits: in the order of positions. */
        {{.window = 3}, 1, {6}, KVB_MASK_RUNS, {0, 2}, {{6, 8}, {4, 5}}, 8},
        {{.window = 1}, 2, {2, 3}, KVB_MASK_RUNS, {0, 1, 2}, {{2, 3}, {3, 4}}, 4},
        {{.window = 4}, 1, {9}, KVB_MASK_RUNS, {0, 1}, {{4, 6}}, 6},
        {{.window = 4}, 2, {3, 4}, KVB_MASK_RUNS, {0, 1, 3}, {{0, 4}, {1, 4}, {6, 7}}, 7},
        {{.window = 4}, 2, {2, 3}, KVB_MASK_CAUSAL, {0, 1, 2}, {{0, 3}, {0, 4}}, 4}, /* the window is not full yet */
        {{.window = 3, .sinks = 1}, 1, {6}, KVB_MASK_RUNS, {0, 3}, {{0, 1}, {6, 8}, {4, 5}}, 8},
        {{.window = 3, .sinks = 9}, 1, {6}, KVB_MASK_RUNS, {0, 3}, {{0, 4}, {6, 8}, {4, 5}}, 8},
        {{.window = 6, .sinks = 1}, 1, {6}, KVB_MASK_RUNS, {0, 3}, {{0, 4}, {6, 8}, {4, 5}}, 8}, /* they touch */
        {{.window = 5, .sinks = 1}, 1, {6}, KVB_MASK_RUNS, {0, 4}, {{0, 1}, {2, 4}, {6, 8}, {4, 5}}, 8},
        {{.chunk = 4}, 2, {3, 6}, KVB_MASK_RUNS, {0, 1, 3}, {{0, 4}, {6, 8}, {4, 5}}, 8},
        {{.chunk = 3}, 1, {9}, KVB_MASK_RUNS, {0, 1}, {{5, 6}}, 6},
    };
    kvb_allocator a = {0};
    kvb_plan plan = {.allocator = &a};
    for (size_t i = 0; i < N(cases); i++) {
        assert_int_equal(kvb_plan_start(&plan, cases[i].n), 0);
        for (uint32_t q = 0; q < cases[i].n; q++) {
            plan.cells[q] = 3 + 2 * q;
            assert_int_equal(kvb_plan_attend(&plan, &cases[i].group, &spans, cases[i].pos[q]), 0);
        }
        kvb_plan_finish(&plan);
        assert_memory_equal(plan.row_start, cases[i].row_start, (cases[i].n + 1) * sizeof(uint32_t));
        assert_memory_equal(plan.runs, cases[i].runs, plan.n_runs * sizeof(kvb_run));
        if (plan.mask != cases[i].mask)
            fail_msg("case %zu: mask %d", i, (int)plan.mask);
        assert_int_equal(plan.extent, cases[i].extent);
        assert_int_equal(plan.is_run, cases[i].n == 1);
        assert_int_equal(kvb_plan_mask(&plan).kind, cases[i].mask);
    }
    kvb_plan_close(&plan);
    assert_int_equal(a.current_bytes, 0);
}

/* Shows rule 10: a model with any wrong field is refused, in one line that names group and field. */

#define PLAIN .heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 0.125
#define WIDE  KVB_MODEL_WIDTH
#define SCAN(KIND, HEADS, GROUPS, ROWS, ...)                                                                           \
    .kind = KVB_GROUP_SCAN,                                                                                            \
    .scan = {.kind = KVB_SCAN_##KIND, .heads = HEADS, .groups = GROUPS, .d_k = ROWS, .d_v = __VA_ARGS__}

static const float well[8], infinite[8] = {[7] = INFINITY}, none[8] = {[0] = NAN};

/* Group 1 of a model of three layers in two groups. why NULL: the group is well. */
static const struct {
    kvb_group group;
    const char *why;
} groups[] = {
    {{PLAIN}, NULL},
    {{PLAIN, .window = 1, .sinks = UINT32_MAX, .softcap = 30, .sink_logits = well}, NULL},
    {{PLAIN, .window = UINT32_MAX}, NULL},
    {{PLAIN, .chunk = 1, .latent = true}, NULL},
    {{.heads = WIDE, .kv_heads = WIDE, .k_dim = WIDE, .v_dim = WIDE, .latent = true, .scale = FLT_MAX}, NULL},
    {{.heads = 1, .kv_heads = 1, .k_dim = 1, .v_dim = 1, .scale = FLT_MIN}, NULL},
    {{PLAIN, .rope = {.known = true, .first = 32, .dims = 32, .base = 1e4}}, NULL},
    {{PLAIN, .rope = {.known = true, .first = 33, .dims = 32, .base = 1e4}}, "group 1: rope turns 32 dims from 33 on"},
    {{PLAIN, .rope = {.known = true, .dims = 7, .base = 1e4}}, "group 1: rope turns 7 dims from 0 on"},
    {{PLAIN, .rope = {.known = true, .dims = 8}}, "group 1: rope's base is 0: expected a number above 0"},
    {{0}, "group 1: heads is 0: expected 1 .. 4096"},
    {{.heads = WIDE + 1, .kv_heads = 1, .k_dim = 64, .v_dim = 32, .scale = 1}, "group 1: heads is 4097"},
    {{.heads = 8, .kv_heads = 0, .k_dim = 64, .v_dim = 32, .scale = 1}, "group 1: kv_heads is 0"},
    {{.heads = 8, .kv_heads = WIDE + 1, .k_dim = 64, .v_dim = 32, .scale = 1}, "group 1: kv_heads is 4097"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 0, .v_dim = 32, .scale = 1}, "group 1: k_dim is 0"},
    {{.heads = 8, .kv_heads = 4, .k_dim = UINT32_MAX, .v_dim = 32, .scale = 1}, "group 1: k_dim is 4294967295"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 0, .scale = 1}, "group 1: v_dim is 0"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = WIDE + 1, .scale = 1}, "group 1: v_dim is 4097"},
    {{.heads = 6, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 1}, "6 heads are no multiple of 4 kv_heads"},
    {{.heads = 4, .kv_heads = 8, .k_dim = 64, .v_dim = 32, .scale = 1}, "4 heads are no multiple of 8 kv_heads"},
    {{.heads = 8, .kv_heads = 1, .k_dim = 64, .v_dim = 65, .latent = true, .scale = 1},
     "k_dim 64 cannot hold v_dim 65"},
    {{PLAIN, .window = 4, .chunk = 8}, "group 1: window 4 and chunk 8: expected one of them"},
    {{PLAIN, .sinks = 4}, "group 1: 4 sinks without a window"},
    {{PLAIN, .chunk = 8, .sinks = 4}, "group 1: 4 sinks without a window"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32}, "group 1: scale is 0"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = -1}, "group 1: scale is -1"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 1e39}, "group 1: scale is 1e+39"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = 1e-40}, "group 1: scale is 1e-40"},
    {{.heads = 8, .kv_heads = 4, .k_dim = 64, .v_dim = 32, .scale = (double)NAN}, "scale is nan"},
    {{PLAIN, .softcap = -1}, "group 1: softcap is -1"},
    {{PLAIN, .softcap = INFINITY}, "group 1: softcap is inf"},
    {{PLAIN, .softcap = NAN}, "softcap is nan"},
    {{PLAIN, .sink_logits = infinite}, "group 1: sink logit 7 is no finite number"},
    {{PLAIN, .sink_logits = none}, "group 1: sink logit 0 is no finite number"},
    {{PLAIN, .kind = (kvb_group_kind)2}, "group 1: there is no kind of layers of number 2"},
    {{SCAN(MAMBA2, 8, 2, 16, 64)}, NULL},
    {{SCAN(DELTA, 8, 2, 16, 64, .conv_width = 2, .conv_channels = 65536, .state_elem = KVB_BF16, .conv_elem = KVB_F16)},
     NULL},
    {{SCAN(MAMBA1, 1, 1, 4096, 65536)}, NULL},
    {{.kind = KVB_GROUP_SCAN}, "group 1: heads is 0: expected 1 .. 4096"},
    {{SCAN(CONV, 8, 2, 16, 64)}, "group 1: there is no recurrence of number 4"},
    {{SCAN(KINDS, 8, 2, 16, 64)}, "group 1: there is no recurrence of number 5"},
    {{SCAN(MAMBA2, 8, 3, 16, 64)}, "group 1: 8 heads are no multiple of 3 groups"},
    {{SCAN(MAMBA2, 8, 2, 16, 8193)}, "group 1: heads x v_dim is 65544: expected 1 .. 65536"},
    {{SCAN(MAMBA1, 8, 2, 16, 64)}, "group 1: 8 heads: mamba1 has one"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .conv_width = 1, .conv_channels = 8)}, "convolution's width is 1"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .conv_width = 4)}, "convolution's channels is 0: expected 1 .. 65536"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .conv_channels = 4)}, "convolution's channels is 4: expected 0 .. 0"},
    {{SCAN(MAMBA2, 8, 2, 16, 64, .state_elem = KVB_E4M3)}, "group 1: states are f32, f16 or bf16"},
    {{PLAIN, SCAN(MAMBA2, 8, 2, 16, 64)}, "group 1: a recurrence attends nothing"},
};

static kvb_model model_of(const kvb_group *group)
{
    return (kvb_model){.n_layers = 3, .n_groups = 2, .group_of = {0, 1, 0}, .groups = {{PLAIN}, *group}};
}

/* The reason never runs past the end of `why`, whatever its size. */
static void refused(const kvb_model *model, const char *what)
{
    for (size_t room = 1; room <= 160; room++) {
        char why[161];
        memset(why, '#', sizeof why);
        assert_int_equal(kvb_model_check(model, why, room), -EINVAL);
        assert_true(memchr(why, '\0', room) && why[room] == '#');
        assert_null(strchr(why, '\n'));
        if (room == 160 && !strstr(why, what))
            fail_msg("\"%s\" does not say \"%s\"", why, what);
    }
}

TEST(test_groups)
{
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        const kvb_model model = model_of(&groups[i].group);
        char why[160] = "";
        if (groups[i].why)
            refused(&model, groups[i].why);
        else if (kvb_model_check(&model, why, sizeof why))
            fail_msg("group %zu: %s", i, why);
    }
}

TEST(test_layers)
{
    static const struct {
        uint32_t n_layers, n_groups;
        uint8_t second; /* group of layer 1 */
        const char *why;
    } cases[] = {
        {0, 2, 1, "0 layers in 2 groups: expected 1 .. 1024 and 1 .. 32"},
        {KVB_MODEL_LAYERS + 1, 2, 1, "1025 layers in 2 groups"},
        {3, 0, 1, "3 layers in 0 groups"},
        {3, KVB_MODEL_GROUPS + 1, 1, "3 layers in 33 groups"},
        {3, 2, 2, "layer 1 is in no group"},
        {3, 2, 255, "layer 1 is in no group"},
        {3, 2, 0, "group 1: no layers"},
        {1, 2, 1, "group 1: no layers"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_model model = model_of(&groups[0].group);
        model.n_layers = cases[i].n_layers;
        model.n_groups = cases[i].n_groups;
        model.group_of[1] = cases[i].second;
        refused(&model, cases[i].why);
    }
    kvb_model most = {.n_layers = KVB_MODEL_LAYERS, .n_groups = KVB_MODEL_GROUPS};
    char why[160] = "";
    for (uint32_t layer = 0; layer < KVB_MODEL_LAYERS; layer++)
        most.group_of[layer] = (uint8_t)(layer % KVB_MODEL_GROUPS);
    for (uint32_t g = 0; g < KVB_MODEL_GROUPS; g++)
        most.groups[g] = groups[0].group;
    assert_int_equal(kvb_model_check(&most, why, sizeof why), 0);
    assert_int_equal(kvb_model_layers_of(&most, 31), KVB_MODEL_LAYERS / KVB_MODEL_GROUPS);
    assert_ptr_equal(kvb_model_group(&most, 33), &most.groups[1]);
}
