/* SPDX-License-Identifier: Apache-2.0 */
/*
 * States over a history: a fork, a rollback, a tree of drafts, one of them committed, and a load. Who follows whom is told by hand;
 * honest kernels are within their bounds through it, and a token that begins with another's state, or a slot that holds another's, is not.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "kernels/kernels.h"
#include "oracle/descent.h"
#include "ci/tests/oracle/hand.h"

#define PROMPT 70u /* more than a chunk of `scan` */
#define NONE   UINT32_MAX

static void run_alone(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    part(ctx, 0, 1);
}
static const kvb_team alone = {.n = 1, .run = run_alone};

/* The tokens behind the prompt, event by event, and whom each follows. */
static const uint32_t parents[] = {
    69,             /* 70: sequence 0 */
    70, 70,         /* 71, 72: 0, and 1, its fork */
    69,             /* 73: 0, rolled back to the prompt */
    72, 74, 74, 76, /* 74 .. 77: a tree on 1; 74 and 76 are committed */
    76,             /* 78: 1 */
    76,             /* 79: 2, loaded from what was saved of 1 before */
};
static const uint32_t firsts[] = {0, 70, 71, 73, 74, 78, 79, 80};
#define CALLS  (sizeof firsts / sizeof *firsts - 1)
#define TOKENS 80u

static void history_make(hand *h, kvb_group_scan scan)
{
    *h = (hand){.tokens = 0};
    h->trace.header.model = (kvb_model){.n_layers = 2, .n_groups = 1};
    h->trace.header.model.groups[0] = (kvb_group){.kind = KVB_GROUP_SCAN, .scan = scan};
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, PROMPT);
    hand_step(h, 1, (uint32_t[]){70}, (uint32_t[]){0});
    *hand_event(h, KVB_EVENT_SEQ_CP) =
        (kvb_event){.kind = KVB_EVENT_SEQ_CP, .src = 0, .dst = 1, .p1 = KVB_TRACE_POS_END};
    hand_step(h, 2, (uint32_t[]){71, 71}, (uint32_t[]){0, 1});
    *hand_event(h, KVB_EVENT_SEQ_RM) =
        (kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = 0, .p0 = 70, .p1 = KVB_TRACE_POS_END};
    hand_step(h, 1, (uint32_t[]){70}, (uint32_t[]){0});
    hand_propose_in(h, 4, (uint32_t[]){1, 1, 1, 1}, (int32_t[]){-1, 0, 0, 2});
    h->events[h->trace.n_events - 1].pos = hand_copy(h, (uint32_t[]){72, 73, 73, 74}, 4 * sizeof(uint32_t));
    kvb_event *commit = hand_event(h, KVB_EVENT_COMMIT);
    commit->n = 2;
    commit->src = 1;
    commit->accepted = hand_copy(h, (uint32_t[]){0, 2}, 2 * sizeof(uint32_t));
    *hand_event(h, KVB_EVENT_SAVE) = (kvb_event){.kind = KVB_EVENT_SAVE, .src = 1};
    hand_step(h, 1, (uint32_t[]){74}, (uint32_t[]){1});
    *hand_event(h, KVB_EVENT_LOAD) = (kvb_event){.kind = KVB_EVENT_LOAD, .src = 2};
    hand_step(h, 1, (uint32_t[]){74}, (uint32_t[]){2});
    assert_int_equal(h->tokens, TOKENS);
    h->trace.needs.tokens = h->trace.needs.queries = TOKENS;
}

/* What is done wrong. */
typedef struct mistake {
    uint32_t token, from; /* begins with that slot */
    bool spoiled;         /* the last call's state is another afterwards */
    double nudge;         /* added to the token's output in the middle channel */
} mistake;

/* Slots by identity. */
static uint32_t slot_before(uint32_t token)
{
    return token == 0 ? KVB_SCAN_ZERO : token < PROMPT ? KVB_SCAN_PREVIOUS : parents[token - PROMPT];
}

static void call_make(const kvb_values *v, const kvb_scan_kernel *kernel, kvb_scan_part part, uint32_t call,
                      const mistake *wrong, char *slots, size_t slot_bytes, kvb_heirs *heirs,
                      const kvb_scan_diffs *diffs)
{
    const kvb_group *g = &v->model->groups[0];
    const uint32_t first = firsts[call], n = firsts[call + 1] - first, layer = 1;
    const bool conv = part == KVB_PART_CONV;
    uint32_t from[PROMPT], to[PROMPT];
    uint64_t tokens[PROMPT];
    for (uint32_t t = 0; t < n; t++) {
        tokens[t] = first + t;
        from[t] = first + t == wrong->token && wrong->nudge == 0 ? wrong->from : slot_before(first + t);
        to[t] = first + t + 1 < PROMPT ? KVB_SCAN_NONE : first + t;
    }
    kvb_scan x = {.problem = {.kind = conv ? KVB_SCAN_CONV : g->scan.kind,
                              .n_tok = n,
                              .run = n,
                              .heads = conv ? 1 : g->scan.heads,
                              .groups = conv ? 1 : g->scan.groups,
                              .out_elem = KVB_F32,
                              .d_k = conv ? g->scan.conv_width - 1 : g->scan.d_k,
                              .d_v = conv ? g->scan.conv_channels : g->scan.d_v,
                              .state_elem = conv ? g->scan.conv_elem : g->scan.state_elem,
                              .silu = conv && g->scan.silu},
                  .v = kvb_values_rows(v, conv ? KVB_ROWS_X : KVB_ROWS_V, layer, first),
                  .a = v->constant[conv ? KVB_CONSTANT_TAPS : KVB_CONSTANT_A][layer],
                  .bias = conv ? v->constant[KVB_CONSTANT_BIAS][layer] : NULL,
                  .states = {slots, slot_bytes, TOKENS},
                  .from = from,
                  .to = to,
                  .team = &alone};
    if (!conv) {
        x.q = kvb_values_rows(v, KVB_ROWS_Q, layer, first);
        x.k = kvb_values_rows(v, KVB_ROWS_K, layer, first);
        x.gate = kvb_values_rows(v, KVB_ROWS_GATE, layer, first);
        x.beta = kvb_values_rows(v, KVB_ROWS_BETA, layer, first);
    }
    char why[200];
    if (!kernel->supports(&x.problem, why, sizeof why))
        fail_msg("%s", why);
    const size_t bytes = kernel->scratch_bytes ? kernel->scratch_bytes(&x.problem, 1) : 0;
    x.scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    x.out = malloc((size_t)n * x.problem.heads * x.problem.d_v * sizeof(float));
    assert_int_equal(kernel->scan(&x), 0);
    if (wrong->nudge != 0 && wrong->token >= first && wrong->token < first + n) {
        const size_t row = (size_t)x.problem.heads * x.problem.d_v;
        float *at = (float *)x.out + (wrong->token - first) * row + row / 2;
        *at = (float)((double)*at + wrong->nudge);
    }
    if (wrong->spoiled && call + 1 == CALLS)
        memset(slots + (TOKENS - 1) * slot_bytes, 0x41, 2);
    kvb_scan_arithmetic a;
    kernel->arithmetic(&x.problem, &a);
    const kvb_scan_made made = {
        .event = call, .layer = layer, .part = part, .call = &x, .tokens = tokens, .n_own = n, .arithmetic = &a};
    assert_int_equal(kvb_heirs_follow(heirs, &made, diffs), 0);
    free(x.scratch);
    free(x.out);
}

static const kvb_oracle_options followed = {.max_pairs = UINT64_MAX},
                                glanced = {.max_pairs = 1, .opinion_pairs = UINT64_MAX, .team = &alone};

static void play(const kvb_oracle_options *options, const kvb_group_scan *scan, const kvb_scan_kernel *kernel,
                 kvb_scan_part part, mistake wrong, kvb_scan_diffs *diffs)
{
    hand h;
    kvb_values *v;
    kvb_descent *d;
    kvb_heirs *heirs;
    char why[256] = "";
    history_make(&h, *scan);
    if (kvb_values_open(&h.trace, "llama", 7, NULL, NULL, &v, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(kvb_descent_open(&h.trace, v, options, &d), 0);
    for (uint32_t t = 0; t < TOKENS; t++)
        assert_int_equal(d->parent[t], t == 0 ? KVB_DESCENT_ROOT : t < PROMPT ? t - 1 : parents[t - PROMPT]);
    assert_int_equal(kvb_heirs_open(d, &heirs), 0);
    const size_t slot_bytes = kvb_group_slot_bytes(&h.trace.header.model.groups[0], part == KVB_PART_CONV);
    char *slots = aligned_alloc(64, TOKENS * slot_bytes);
    memset(slots, 0xff, TOKENS * slot_bytes); /* NaN until written */
    *diffs->out = *diffs->states = *diffs->opinion = (kvb_diff){.rho = 0};
    for (uint32_t call = 0; call < CALLS; call++)
        call_make(v, kernel, part, call, &wrong, slots, slot_bytes, heirs, diffs);
    const size_t *first = &d->lane_first[KVB_SCAN_PARTS + part];
    const size_t n_followed = d->lane_glanced[KVB_SCAN_PARTS + part] - first[0];
    assert_int_equal(diffs->out->rows, TOKENS * n_followed);
    assert_int_equal(diffs->opinion->rows, TOKENS * (first[1] - first[0] - n_followed));
    free(slots);
    kvb_heirs_free(heirs);
    kvb_descent_free(d);
    kvb_values_free(v);
    hand_free(&h);
}

static const kvb_group_scan scans[] = {
    {KVB_SCAN_MAMBA1, 1, 1, 8, 48, 4, 48, true, KVB_F32, KVB_F32},
    {KVB_SCAN_MAMBA2, 4, 2, 16, 32, 4, 48, true, KVB_BF16, KVB_BF16},
    {KVB_SCAN_LIGHTNING, 4, 2, 16, 16, 3, 48, false, KVB_F16, KVB_F32},
    {KVB_SCAN_DELTA, 4, 2, 16, 32, 4, 48, true, KVB_F32, KVB_BF16},
};
static const kvb_scan_kernel *const kernels[] = {&kvb_scan_kernel_reference, &kvb_scan_kernel_vector};

#define EACH(scan, kernel, part)                                                                                       \
    for (size_t scan = 0; scan < sizeof scans / sizeof *scans; scan++)                                                 \
        for (size_t kernel = 0; kernel < 2; kernel++)                                                                  \
            for (int part = 0; part < KVB_SCAN_PARTS; part++)

static kvb_diff out, states, opinion;
static kvb_scan_diffs diffs = {.out = &out, .states = &states, .opinion = &opinion};

static void test_honest(void **state)
{
    (void)state;
    EACH(s, k, part)
    {
        play(&followed, &scans[s], kernels[k], (kvb_scan_part)part, (mistake){.token = NONE}, &diffs);
        assert_true(out.rho <= 1 && states.rho <= 1);
        assert_true(out.elements > 0 && states.elements > 0 && opinion.elements == 0);
        assert_true(out.max_abs > 0 || part == KVB_PART_CONV);
        play(&glanced, &scans[s], kernels[k], (kvb_scan_part)part, (mistake){.token = NONE}, &diffs);
        assert_true(out.rho <= 1 && opinion.rho <= 1);
        assert_true(opinion.elements > 0);
    }
}

/* A token begins with the state of another: not rolled back, of a sibling, of a draft that was not accepted. */
static void test_wrong_parents(void **state)
{
    (void)state;
    static const mistake wrongs[] = {{.token = 73, .from = 71}, {.token = 71, .from = 69},
                                     {.token = 76, .from = 75}, {.token = 78, .from = 77},
                                     {.token = 79, .from = 78}, {.token = 70, .from = KVB_SCAN_ZERO}};
    EACH(s, k, part)
    for (size_t w = 0; w < sizeof wrongs / sizeof *wrongs; w++) {
        play(&followed, &scans[s], kernels[k], (kvb_scan_part)part, wrongs[w], &diffs);
        assert_true(out.rho > 1);
        assert_true(states.rho > 1);
        assert_int_equal(out.first.part, 1 + part);
        play(&glanced, &scans[s], kernels[k], (kvb_scan_part)part, wrongs[w], &diffs);
        assert_true(opinion.rho > 1);
        assert_int_equal(opinion.first.part, 1 + part);
    }
}

/* One element is off, in a prompt or a decoded token: the second opinion sees ten times its bound, which is some times the
 * element's own. */
static void test_nudged(void **state)
{
    (void)state;
    static const uint32_t tokens[] = {5, 68, 70, 77, 79};
    EACH(s, k, part)
    for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++) {
        mistake wrong = {.token = tokens[t], .nudge = 1e6};
        play(&followed, &scans[s], kernels[k], (kvb_scan_part)part, wrong, &diffs);
        const double own = out.worst.bound;
        play(&glanced, &scans[s], kernels[k], (kvb_scan_part)part, wrong, &diffs);
        const kvb_diff_place at = opinion.worst;
        assert_true(opinion.rho > 1 && out.rho <= 1);
        assert_true(at.bound >= 0.99 * own && at.bound <= 10 * own);
        wrong.nudge = 10 * at.bound;
        play(&glanced, &scans[s], kernels[k], (kvb_scan_part)part, wrong, &diffs);
        assert_true(opinion.rho > 8 && opinion.failed == 1 && out.rho <= 1);
        assert_int_equal(opinion.worst.channel, at.channel);
        assert_int_equal(opinion.worst.head, at.head);
    }
}

/* Nobody reads the last token's slot again: only a look at it shows what is in it. */
static void test_spoiled_slot(void **state)
{
    (void)state;
    EACH(s, k, part)
    {
        play(&followed, &scans[s], kernels[k], (kvb_scan_part)part, (mistake){.token = NONE, .spoiled = true}, &diffs);
        assert_true(out.rho <= 1);
        assert_true(states.rho > 1);
        assert_int_equal(states.worst.row, 1);
    }
}

/* A budget follows the first and the last lane at least. */
static void test_budget(void **state)
{
    (void)state;
    hand h;
    kvb_values *v;
    kvb_descent *d;
    char why[256];
    history_make(&h, scans[1]);
    assert_int_equal(kvb_values_open(&h.trace, "llama", 7, NULL, NULL, &v, why, sizeof why), 0);
    assert_int_equal(kvb_descent_open(&h.trace, v, &(kvb_oracle_options){.max_pairs = 1, .opinion_pairs = 1}, &d), 0);
    assert_int_equal(kvb_descent_lanes(d, 1), 2 + 2);
    assert_int_equal(d->total, 2 * (4 * 2 + 3));
    assert_int_equal(d->lane_first[2 * KVB_SCAN_PARTS], 2 * (2 + 2)); /* no second opinion */
    assert_null(d->rows);
    assert_int_equal(d->lanes[1].head, 3);
    assert_int_equal(d->lanes[1].first, 16);
    assert_int_equal(d->lanes[1].n, 16);
    kvb_descent_free(d);
    kvb_values_free(v);
    hand_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_honest),       cmocka_unit_test(test_wrong_parents), cmocka_unit_test(test_nudged),
        cmocka_unit_test(test_spoiled_slot), cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
