/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows states over a history: a fork, a rollback, a tree of drafts, one of them committed, and a load. A table gives
 * each token's parent. Honest kernels stay within their bounds; a token that begins with a wrong state, or a slot with
 * a wrong state, does not. Random histories are fed in any order that a cache may choose.
 */
#include "ci/tests/tests.h"
#include "kernels/kernels.h"
#include "oracle/descent.h"
#include "ci/tests/oracle/hand.h"
#include "ci/tests/whole/parts.h"
#include "ci/tests/workloads/legal_trace.h"
#include "workloads/history.h"

#define PROMPT 70u /* more than a chunk of `scan` */
#define NONE   UINT32_MAX

/* The parent of each token behind the prompt, event by event. */
static const uint32_t parents[] = {
    69,             /* 70: sequence 0 */
    70, 70,         /* 71, 72: 0, and 1, its fork */
    69,             /* 73: 0, rolled back to the prompt */
    72, 74, 74, 76, /* 74 .. 77: a tree on 1; 74 and 76 are committed */
    76,             /* 78: 1 */
    76,             /* 79: 2, loaded from a save of 1 before that */
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

/* A planted mistake. */
typedef struct mistake {
    uint32_t token, from; /* the token begins with slot `from` */
    bool spoiled;         /* the last call's state is overwritten after the call */
    double nudge;         /* added to the token's output in the middle channel */
} mistake;

#define FED_MOST (LEGAL_MAX_EVENTS * LEGAL_MAX_TOKENS) /* most tokens of a trace */

/* The tokens of a call. Slots are numbered by identity. */
typedef struct feed {
    uint32_t event, n, n_own;
    uint64_t tokens[FED_MOST];
    uint32_t from[FED_MOST], to[FED_MOST];
} feed;

static void call_make(const kvb_values *v, const kvb_kernel *kernel, kvb_scan_part part, const feed *fed,
                      const mistake *wrong, kvb_scan_states states, kvb_heirs *heirs, const kvb_scan_diffs *diffs)
{
    const kvb_group *g = &v->model->groups[0];
    const uint32_t n = fed->n, layer = 1;
    const bool conv = part == KVB_PART_CONV;
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
                  .a = v->constant[conv ? KVB_CONSTANT_TAPS : KVB_CONSTANT_A][layer],
                  .bias = conv ? v->constant[KVB_CONSTANT_BIAS][layer] : NULL,
                  .states = states,
                  .from = fed->from,
                  .to = fed->to,
                  .team = &team_of_one};
    static const kvb_rows kinds[] = {KVB_ROWS_V, KVB_ROWS_Q, KVB_ROWS_K, KVB_ROWS_GATE, KVB_ROWS_BETA};
    const float **inputs[] = {&x.v, &x.q, &x.k, &x.gate, &x.beta};
    float *rows[5] = {NULL};
    for (int i = 0; i < (conv ? 1 : 5); i++) {
        const kvb_rows kind = conv ? KVB_ROWS_X : kinds[i];
        const size_t floats = kvb_values_floats(g, kind);
        rows[i] = malloc(n * floats * sizeof(float) + 1);
        for (uint32_t t = 0; t < n && floats; t++)
            memcpy(rows[i] + t * floats, kvb_values_rows(v, kind, layer, fed->tokens[t]), floats * sizeof(float));
        *inputs[i] = floats ? rows[i] : NULL;
    }
    char why[200];
    if (!kernel->scan->supports(&x.problem, why, sizeof why))
        fail_msg("%s", why);
    const size_t bytes = kernel->scan->scratch_bytes ? kernel->scan->scratch_bytes(&x.problem, 1) : 0;
    x.scratch = aligned_alloc(64, (bytes + 127) / 64 * 64);
    x.out = malloc((size_t)n * x.problem.heads * x.problem.d_v * sizeof(float));
    assert_int_equal(kernel->scan->scan(&x), 0);
    for (uint32_t t = 0; t < n && wrong->nudge != 0; t++)
        if (fed->tokens[t] == wrong->token) {
            const size_t row = (size_t)x.problem.heads * x.problem.d_v;
            float *at = (float *)x.out + t * row + row / 2;
            *at = (float)((double)*at + wrong->nudge);
        }
    if (wrong->spoiled && fed->tokens[n - 1] == states.slots - 1)
        memset((char *)states.base + (states.slots - 1) * states.slot_bytes, 0x41, 2);
    kvb_scan_arithmetic a;
    kernel->scan->arithmetic(&x.problem, &a);
    const kvb_scan_made made = {.event = fed->event,
                                .layer = layer,
                                .part = part,
                                .call = &x,
                                .tokens = fed->tokens,
                                .n_own = fed->n_own,
                                .arithmetic = &a};
    assert_int_equal(kvb_heirs_follow(heirs, &made, diffs), 0);
    for (int i = 0; i < 5; i++)
        free(rows[i]);
    free(x.scratch);
    free(x.out);
}

/* The tokens of a call of the history. A prompt is one run; each later token is its own run. */
static void history_feed(uint32_t call, const mistake *wrong, feed *fed)
{
    *fed = (feed){.event = call, .n = firsts[call + 1] - firsts[call]};
    fed->n_own = fed->n;
    for (uint32_t i = 0; i < fed->n; i++) {
        const uint32_t token = firsts[call] + i;
        const uint32_t before = token == 0       ? KVB_SCAN_ZERO
                                : token < PROMPT ? KVB_SCAN_PREVIOUS
                                                 : parents[token - PROMPT];
        fed->tokens[i] = token;
        fed->from[i] = token == wrong->token && wrong->nudge == 0 ? wrong->from : before;
        fed->to[i] = token + 1 < PROMPT ? KVB_SCAN_NONE : token;
    }
}

static const kvb_oracle_options followed = {.max_pairs = UINT64_MAX},
                                glanced = {.max_pairs = 1, .opinion_pairs = UINT64_MAX, .team = &team_of_one};

static void play(const kvb_oracle_options *options, const kvb_group_scan *scan, const kvb_kernel *kernel,
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
    static feed fed;
    for (uint32_t call = 0; call < CALLS; call++) {
        history_feed(call, &wrong, &fed);
        call_make(v, kernel, part, &fed, &wrong, (kvb_scan_states){slots, slot_bytes, TOKENS}, heirs, diffs);
    }
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
static const kvb_kernel *const kernels[] = {&kvb_kernel_scan_reference, &kvb_kernel_scan};

#define EACH(scan, kernel, part)                                                                                       \
    for (size_t scan = 0; scan < sizeof scans / sizeof *scans; scan++)                                                 \
        for (size_t kernel = 0; kernel < 2; kernel++)                                                                  \
            for (int part = 0; part < KVB_SCAN_PARTS; part++)

static kvb_diff out, states, opinion;
static kvb_scan_diffs diffs = {.out = &out, .states = &states, .opinion = &opinion};

TEST(test_honest)
{
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

/* A token begins with a wrong state: one that was not rolled back, a sibling's, that of a draft not accepted. */
TEST(test_wrong_parents)
{
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

/* One element is off, in a prompt or in a decoded token. The second opinion finds 10 times its own bound, which is a
 * few times the element's bound. */
TEST(test_nudged)
{
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

/* No call reads the last token's slot again: only a check of the slot itself finds a wrong state. */
TEST(test_spoiled_slot)
{
    EACH(s, k, part)
    {
        play(&followed, &scans[s], kernels[k], (kvb_scan_part)part, (mistake){.token = NONE, .spoiled = true}, &diffs);
        assert_true(out.rho <= 1);
        assert_true(states.rho > 1);
        assert_int_equal(states.worst.row, 1);
    }
}

/* Any budget covers at least the first and the last lane. */
TEST(test_budget)
{
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

/* ---- random histories -------------------------------------------------------------------------------------------- */

/* All ancestors of the event's tokens, in a random order with parents first. */
static void past_feed(const kvb_event *event, const uint32_t *parent, legal_trace *draws, feed *fed)
{
    bool in[FED_MOST] = {false}, goes_on = false;
    uint32_t ready[FED_MOST], n = 0; /* tokens whose parents are fed; the last token's children come last */
    for (uint32_t i = 0; i < event->n; i++)
        for (uint32_t t = parent[event->first + i]; t != KVB_DESCENT_ROOT && !in[t]; t = parent[t])
            in[t] = t < event->first;
    for (uint32_t t = 0; t < event->first; t++)
        if (in[t] && parent[t] == KVB_DESCENT_ROOT)
            ready[n++] = t;
    while (n) {
        const uint32_t at = goes_on && legal_draw(draws, 4) ? n - 1 : legal_draw(draws, n), token = ready[at];
        ready[at] = ready[--n];
        fed->tokens[fed->n++] = token;
        goes_on = false;
        for (uint32_t t = token + 1; t < event->first; t++)
            if (in[t] && parent[t] == token) {
                ready[n++] = t;
                goes_on = true;
            }
    }
}

/* A call of the event. past: with all ancestors of its tokens, from zeros; else from the slots of earlier calls. */
static void legal_feed(uint32_t number, const kvb_event *event, const uint32_t *parent, bool past, legal_trace *draws,
                       feed *fed)
{
    *fed = (feed){.event = number, .n_own = event->n};
    if (past)
        past_feed(event, parent, draws, fed);
    for (uint32_t i = 0; i < event->n; i++)
        fed->tokens[fed->n++] = event->first + i;
    for (uint32_t t = 0; t < fed->n; t++) {
        const uint32_t before = parent[fed->tokens[t]];
        const bool together = t && before == fed->tokens[t - 1] && legal_draw(draws, 4);
        fed->from[t] = before == KVB_DESCENT_ROOT ? KVB_SCAN_ZERO : together ? KVB_SCAN_PREVIOUS : before;
        fed->to[t] = (uint32_t)fed->tokens[t];
    }
    for (uint32_t t = 0; past && t + 1 < fed->n; t++) { /* joins runs: no other token begins with the state between */
        bool read = false;
        for (uint32_t u = t + 1; u < fed->n; u++)
            read = read || fed->from[u] == fed->tokens[t];
        if (!read && fed->from[t + 1] == KVB_SCAN_PREVIOUS)
            fed->to[t] = KVB_SCAN_NONE;
    }
}

static uint64_t n_alike; /* tokens that equal an earlier one */

static void legal_play(uint64_t seed, const kvb_group_scan *scan, kvb_scan_part part, bool past)
{
    static const mistake none = {.token = NONE};
    static legal_trace made;
    static feed fed;
    static kvb_event events[LEGAL_MAX_EVENTS];
    legal_trace_begin(&made, seed);
    while (made.n < LEGAL_MAX_EVENTS)
        legal_trace_next(&made);
    kvb_trace trace = {
        .header.model = {.n_layers = 2, .n_groups = 1, .groups = {{.kind = KVB_GROUP_SCAN, .scan = *scan}}},
        .events = events,
        .n_events = made.n,
        .needs = {.tokens = made.tokens, .queries = made.tokens}};
    kvb_values *v;
    kvb_descent *d;
    kvb_heirs *heirs;
    char why[256] = "";
    for (uint32_t e = 0; e < made.n; e++) {
        events[e] = made.events[e].event;
        for (uint32_t i = 0; events[e].tok && i < events[e].n; i++)
            events[e].tok[i] &= 1; /* so that prompts begin alike */
    }
    trace.needs.seqs = LEGAL_SEQS * LEGAL_ID_STEP;
    trace.needs.seq_len = 2048;
    assert_int_equal(kvb_alike_find(&trace, &trace.like), 0);
    if (kvb_values_open(&trace, "llama", seed, NULL, NULL, &v, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(kvb_descent_open(&trace, v, &followed, &d), 0);
    assert_int_equal(kvb_heirs_open(d, &heirs), 0);
    const size_t bytes = kvb_group_slot_bytes(&trace.header.model.groups[0], part == KVB_PART_CONV);
    kvb_scan_states slots = {aligned_alloc(64, made.tokens * bytes), bytes, (uint32_t)made.tokens};
    memset(slots.base, 0xff, made.tokens * bytes);
    *diffs.out = *diffs.states = *diffs.opinion = (kvb_diff){.rho = 0};
    for (uint32_t e = 0; e < made.n; e++) {
        if (events[e].kind > KVB_EVENT_PROPOSE)
            continue;
        if (past)
            memset(slots.base, 0xff, made.tokens * bytes);
        legal_feed(e, &events[e], d->parent, past, &made, &fed);
        call_make(v, &kvb_kernel_scan_reference, part, &fed, &none, slots, heirs, &diffs);
    }
    const size_t at = KVB_SCAN_PARTS + part;
    for (uint64_t t = 0; t < made.tokens; t++)
        n_alike += trace.like && trace.like[t] != t;
    assert_int_equal(out.rows, made.tokens * (d->lane_glanced[at] - d->lane_first[at]));
    free(slots.base);
    kvb_heirs_free(heirs);
    kvb_descent_free(d);
    kvb_values_free(v);
    free(trace.like);
}

/* In any order each token is compared, and honest calls stay within their bounds. */
TEST(test_every_order)
{
    for (uint64_t seed = 0; seed < 48; seed++)
        for (int past = 0; past < 2; past++) {
            const kvb_group_scan *scan = &scans[seed % 4];
            const kvb_scan_part part = (kvb_scan_part)(seed / 4 % KVB_SCAN_PARTS);
            legal_play(seed, scan, part, past);
            assert_true(out.rho <= 1 && states.rho <= 1);
        }
    assert_true(n_alike > 0);
}
