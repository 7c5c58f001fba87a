/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: which tokens each query sees, which share a prefix, and which rows of a trace are checked. */
#include "ci/tests/tests.h"
#include "ci/tests/oracle/hand.h"
#include "oracle/sample.h"
#include "workloads/history.h"

/* The traces of ci/tests/caches/traces ("sees") show what queries see. */

#define END KVB_TRACE_POS_END

/* The history must list these moved rows after so many events. */
static void moved_check(const hand *h, size_t n_events, const kvb_moved_row *want, size_t n)
{
    kvb_history *history;
    const kvb_moved_row *moved;
    assert_int_equal(kvb_history_open(1000000, &history), 0);
    for (size_t e = 0; e < n_events; e++)
        assert_int_equal(kvb_history_apply(history, &h->events[e]), 0);
    assert_int_equal(kvb_history_moved(history, &moved), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(moved[i].of, want[i].of);
        assert_int_equal(moved[i].token, want[i].token);
        assert_int_equal(moved[i].delta, want[i].delta);
        assert_int_equal(kvb_history_token(history, 1000000 + i), want[i].token);
    }
    assert_int_equal(kvb_history_token(history, 5), 5);
    kvb_history_free(history);
}

TEST(moved_tokens_have_other_rows)
{
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 6); /* 0 .. 5 */
    hand_cp(&h, 0, 1, 0, END);
    hand_rm(&h, 0, 1, 3);
    hand_add(&h, 0, 3, END, -2);                                          /* 3 4 5 to positions 1 2 3 */
    hand_add(&h, 0, 3, END, 2);                                           /* 5 up again, before a step */
    hand_step(&h, 2, (const uint32_t[]){6, 6}, (const uint32_t[]){0, 1}); /* 6 7 */
    hand_add(&h, 0, 5, END, -1);                                          /* 5 and 6 */
    hand_add(&h, 0, 0, END, 0);
    hand_add(&h, 7, 0, END, 3);
    hand_extend(&h, KVB_EVENT_STEP, 0, 6, 1); /* 8 */
    static const kvb_moved_row moved[] = {{3, 3, -2}, {4, 4, -2}, {5, 5, -2}, {5, 5, 0}, {1000003, 5, -1}, {6, 6, -1}};
    moved_check(&h, 4, moved, 3);
    moved_check(&h, 6, moved, 4);
    moved_check(&h, 10, moved, 6);
    hand_free(&h);
    hand d = {0}; /* divided: each moves by its own distance, several to one position; then moved again before a step */
    hand_extend(&d, KVB_EVENT_PREFILL, 0, 0, 6);
    hand_add(&d, 0, 1, 6, 0);
    d.events[1].kind = KVB_EVENT_SEQ_DIV;
    d.events[1].divisor = 2;
    hand_add(&d, 0, 2, END, 3);
    hand_cp(&d, 0, 1, 0, END);
    hand_extend(&d, KVB_EVENT_STEP, 1, 6, 1);
    static const kvb_moved_row divided[] = {{1, 1, -1}, {2, 2, -1}, {3, 3, -2}, {4, 4, -2},
                                            {5, 5, -3}, {4, 4, 1},  {5, 5, 0}};
    moved_check(&d, 5, divided, 7);
    hand_free(&d);
    hand t = {0};
    hand_extend(&t, KVB_EVENT_PREFILL, 0, 0, 2);
    hand_add(&t, 0, 0, END, 1);
    hand_propose_in(&t, 1, (const uint32_t[]){1}, (const int32_t[]){-1}); /* rotates rows, as a step does */
    hand_add(&t, 0, 0, END, 1);
    static const kvb_moved_row twice[] = {{0, 0, 1}, {1, 1, 1}, {1000000, 0, 1}, {1000001, 1, 1}};
    moved_check(&t, 4, twice, 4);
    hand_free(&t);
}

TEST(long_sequences)
{
    const kvb_group wide = {.window = 100000, .sinks = 10};
    const kvb_row_run *runs;
    hand h = {0};
    kvb_history *history;
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 200000);
    hand_extend(&h, KVB_EVENT_STEP, 0, 200000, 1);
    assert_int_equal(kvb_history_open(1000000, &history), 0);
    for (int e = 0; e < 2; e++)
        assert_int_equal(kvb_history_apply(history, &h.events[e]), 0);
    assert_int_equal(kvb_history_visible(history, &(kvb_group){0}, 0, &runs), 1);
    assert_true(runs[0].row == 0 && runs[0].n == 200001);
    assert_int_equal(kvb_history_visible(history, &wide, 0, &runs), 2);
    assert_true(runs[0].row == 0 && runs[0].n == 10 && runs[1].row == 100001 && runs[1].n == 100000);
    kvb_history_free(history);
    hand_free(&h);
}

/*
 * Shows: which tokens have the same prefix, over random histories with few token ids: values and history agree with
 * whole lists of ids. After a wrong claim the history names the place where the prefixes differ.
 */

enum { SEQS = 4, LONGEST = 24, EVENTS = 60, TOKENS = 400, HOLE = -1 };

/* A token's prefix, itself included; n 0: unknown. */
typedef struct prefix {
    uint32_t n;
    uint64_t key;
    int32_t tok[LONGEST];
} prefix;

static struct {
    int at[SEQS][LONGEST]; /* identities, or HOLE */
    uint32_t n[SEQS];
    uint64_t key[SEQS];
} held;
static prefix prefixes[TOKENS];
static uint32_t n_tokens;
static kvb_event events[EVENTS];
static uint32_t positions[EVENTS][LONGEST], sequences[EVENTS][LONGEST];
static int32_t toks[EVENTS][LONGEST];

static uint32_t below(uint32_t n)
{
    static uint64_t x = 88172645463325252u; /* xorshift64 */
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (uint32_t)(x % n);
}

static bool same(const prefix *a, const prefix *b)
{
    return a->n && a->n == b->n && a->key == b->key && !memcmp(a->tok, b->tok, a->n * sizeof *a->tok);
}

/* The prefix of all that a sequence holds; n UINT32_MAX: unknown, since a token has another prefix than this. */
static prefix prefix_of(uint32_t s)
{
    prefix all = {.n = 0, .key = held.key[s]};
    for (uint32_t i = 0; i < held.n[s]; i++) {
        const prefix *p = held.at[s][i] == HOLE ? NULL : &prefixes[held.at[s][i]];
        if (!p || p->n != i + 1 || p->key != all.key || memcmp(p->tok, all.tok, i * sizeof *all.tok))
            return (prefix){.n = UINT32_MAX};
        all.tok[all.n++] = p->tok[i];
    }
    return all;
}

static void tokens_draw(kvb_event *e, uint32_t number)
{
    const uint32_t s = below(SEQS), n = 1 + below(4);
    const bool known = below(8);
    *e = (kvb_event){.kind = held.n[s] ? KVB_EVENT_STEP : KVB_EVENT_PREFILL, .first = n_tokens};
    e->pos = positions[number];
    e->seq = sequences[number];
    e->tok = known ? toks[number] : NULL;
    e->reuse = held.n[s] == 0 && known;
    e->extra_key = e->reuse ? below(2) : 0;
    if (held.n[s] == 0)
        held.key[s] = e->extra_key;
    for (uint32_t i = 0; i < n && held.n[s] < LONGEST && n_tokens < TOKENS; i++) {
        prefix p = prefix_of(s);
        toks[number][i] = (int32_t)below(2);
        if (p.n != UINT32_MAX && known)
            p.tok[p.n++] = toks[number][i];
        else
            p.n = 0;
        positions[number][i] = held.n[s];
        sequences[number][i] = s;
        held.at[s][held.n[s]++] = (int)n_tokens;
        prefixes[n_tokens++] = p;
        e->n++;
    }
}

static void cut(uint32_t s, uint32_t p0, uint32_t p1)
{
    for (uint32_t i = p0; i < p1 && i < held.n[s]; i++)
        held.at[s][i] = HOLE;
    while (held.n[s] && held.at[s][held.n[s] - 1] == HOLE)
        held.n[s]--;
}

static void range_draw(kvb_event *e)
{
    const uint32_t src = below(SEQS), dst = below(SEQS), p0 = below(2) ? below(6) : 0,
                   p1 = below(2) ? LONGEST : below(12);
    bool apart = true;
    *e = (kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = src, .dst = dst, .p0 = p0, .p1 = p1 < p0 ? p0 : p1};
    for (uint32_t i = e->p0; i < e->p1 && i < held.n[src]; i++)
        apart = apart && (held.at[src][i] == HOLE || i >= held.n[dst] || held.at[dst][i] == HOLE);
    if (below(2) || !apart) {
        cut(src, e->p0, e->p1);
        return;
    }
    e->kind = KVB_EVENT_SEQ_CP;
    if (e->p0 == 0 && held.n[src] && held.at[src][0] != HOLE && e->p1)
        held.key[dst] = held.key[src];
    for (uint32_t i = e->p0; i < e->p1 && i < held.n[src]; i++) {
        if (held.at[src][i] == HOLE)
            continue;
        while (held.n[dst] <= i)
            held.at[dst][held.n[dst]++] = HOLE;
        held.at[dst][i] = held.at[src][i];
    }
}

static void reorder_draw(kvb_event *e)
{
    static uint32_t dsts[] = {0, 1}, srcs[] = {1, 0};
    *e = (kvb_event){.kind = KVB_EVENT_REORDER, .n = 2, .dsts = dsts, .srcs = srcs};
    for (uint32_t i = 0; i < LONGEST; i++) {
        const int was = held.at[0][i];
        held.at[0][i] = held.at[1][i];
        held.at[1][i] = was;
    }
    const uint32_t n = held.n[0];
    const uint64_t key = held.key[0];
    held.n[0] = held.n[1], held.key[0] = held.key[1];
    held.n[1] = n, held.key[1] = key;
}

TEST(both_say_what_lists_say)
{
    uint32_t alike = 0;
    for (uint32_t round = 0; round < 300; round++) {
        kvb_trace trace = {.events = events, .n_events = EVENTS, .needs = {.seqs = SEQS, .seq_len = LONGEST}};
        kvb_history *history;
        uint32_t *like;
        memset(&held, 0, sizeof held);
        n_tokens = 0;
        for (uint32_t i = 0; i < EVENTS; i++) {
            const uint32_t kind = below(10);
            if (kind < 6)
                tokens_draw(&events[i], i);
            else if (kind < 9)
                range_draw(&events[i]);
            else
                reorder_draw(&events[i]);
        }
        trace.needs.tokens = n_tokens;
        assert_int_equal(kvb_alike_find(&trace, &like), 0);
        assert_int_equal(kvb_history_open(TOKENS, &history), 0);
        kvb_history_know_prefixes(history);
        for (uint32_t i = 0; i < EVENTS; i++) {
            const kvb_event *e = &events[i];
            assert_int_equal(kvb_history_apply(history, e), 0);
            for (uint32_t t = 0; t < e->n && e->kind <= KVB_EVENT_PREFILL; t++) {
                const kvb_row_run *runs;
                const uint64_t own = e->first + t;
                const int64_t n = kvb_history_visible(history, &(kvb_group){.heads = 1}, t, &runs);
                assert_int_equal(runs[n - 1].row + runs[n - 1].n - 1, own);
                uint32_t first = 0;
                while (first < own && !same(&prefixes[first], &prefixes[own]))
                    first++;
                assert_int_equal(like[own], first);
                assert_int_equal(kvb_history_token(history, own), first);
                alike += first < own;
                char why[200];
                const uint64_t claimed = own ? below((uint32_t)own) : 0;
                assert_int_equal(own && kvb_history_same_prefix(history, claimed, own, why, sizeof why),
                                 own && same(&prefixes[claimed], &prefixes[own]));
            }
        }
        free(like);
        kvb_history_free(history);
    }
    print_message("# %u tokens were like an earlier one\n", alike);
    assert_true(alike > 2000);
}

/* Positions 0 .. 3 under key 0, then prompts with one difference each. */
TEST(what_differs_is_said)
{
    static uint32_t pos[] = {0, 1, 2, 3}, seq[] = {0, 0, 0, 0}, one[] = {1, 1, 1, 1}, two[] = {2, 2, 2, 2},
                    three[] = {3, 3, 3, 3};
    static int32_t a[] = {5, 6, 7, 8}, b[] = {5, 9, 7, 8};
    const kvb_event prompts[] = {
        {.kind = KVB_EVENT_PREFILL, .n = 4, .first = 0, .pos = pos, .seq = seq, .tok = a, .reuse = true},
        {.kind = KVB_EVENT_PREFILL, .n = 4, .first = 4, .pos = pos, .seq = one, .tok = b, .reuse = true},
        {.kind = KVB_EVENT_PREFILL,
         .n = 4,
         .first = 8,
         .pos = pos,
         .seq = two,
         .tok = a,
         .reuse = true,
         .extra_key = 1},
    };
    static int32_t root[] = {-1};
    static const uint32_t end[] = {4};
    const kvb_event node = {
        .kind = KVB_EVENT_PROPOSE, .n = 1, .first = 12, .pos = (uint32_t *)(uintptr_t)end, .seq = one, .parents = root};
    kvb_event after = prompts[0];
    kvb_history *history;
    char why[200];
    assert_int_equal(kvb_history_open(TOKENS, &history), 0);
    kvb_history_know_prefixes(history);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kvb_history_apply(history, &prompts[i]), 0);
    assert_true(kvb_history_same_prefix(history, 0, 4, why, sizeof why));
    assert_false(kvb_history_same_prefix(history, 3, 7, why, sizeof why));
    assert_string_equal(why, "position 3: token 3 is behind another prefix: id 6 where 9 was asked for, at position 1");
    assert_false(kvb_history_same_prefix(history, 0, 8, why, sizeof why));
    assert_string_equal(why, "position 0: token 0 has another extra key");
    assert_false(kvb_history_same_prefix(history, 1, 4, why, sizeof why));
    assert_string_equal(why, "position 0: token 1 has another position");
    assert_false(kvb_history_same_prefix(history, 9, 4, why, sizeof why));
    assert_string_equal(why, "token 9 was not there before");
    after.first = 13;
    after.seq = three;
    assert_int_equal(kvb_history_apply(history, &node), 0);
    assert_int_equal(kvb_history_apply(history, &after), 0);
    assert_true(kvb_history_same_prefix(history, 0, 13, why, sizeof why)); /* ordinals continue after the node's */
    assert_false(kvb_history_same_prefix(history, 12, 13, why, sizeof why));
    kvb_history_free(history);
}

/* Shows: a trace within the budget is checked in full, a more expensive one by a seeded sample with the corners. */

enum { LAYERS = 3, HEADS = 8, FEWER = 4, WINDOW = 100 };

/* The middle layer has fewer heads than the others, and a window. */
static void model_set(hand *h)
{
    h->trace.header.model = (kvb_model){.n_layers = LAYERS,
                                        .n_groups = 2,
                                        .group_of = {0, 1, 0},
                                        .groups = {{.heads = HEADS}, {.heads = FEWER, .window = WINDOW}}};
}

/* A prefill of 200, twenty decode steps, a chunk of 40 at the end. */
static void trace_make(hand *h)
{
    model_set(h);
    hand_extend(h, KVB_EVENT_PREFILL, 0, 0, 200);
    hand_extend(h, KVB_EVENT_FILL, 0, 200, 1000);
    for (uint32_t i = 0; i < 20; i++)
        hand_extend(h, KVB_EVENT_STEP, 0, 1200 + i, 1);
    hand_extend(h, KVB_EVENT_PREFILL, 0, 1220, 40);
}

static kvb_sample choose(const hand *h, uint64_t max_pairs, uint64_t max_rows, uint64_t seed)
{
    kvb_census census;
    kvb_sample sample;
    kvb_sample_options options = {max_pairs, max_rows, seed};
    assert_int_equal(kvb_census_take(&h->trace, &census), 0);
    assert_int_equal(kvb_sample_choose(&census, &options, &sample), 0);
    uint64_t pairs = 0;
    for (size_t i = 0; i < sample.n; i++) {
        const kvb_sample_row *r = &sample.rows[i];
        assert_true(r->layer < LAYERS && r->head < (r->layer == 1 ? FEWER : HEADS));
        assert_true(r->query < h->events[r->event].n);
        pairs += census.visible[kvb_census_place(&census, census.first[r->event] + r->query, r->layer)];
        if (i) { /* strictly ascending */
            const kvb_sample_row *b = r - 1;
            uint64_t x = ((uint64_t)b->event << 40) | (uint64_t)b->layer << 32 | b->query << 8 | b->head;
            uint64_t y = ((uint64_t)r->event << 40) | (uint64_t)r->layer << 32 | r->query << 8 | r->head;
            assert_true(x < y);
        }
    }
    assert_int_equal(pairs, sample.pairs);
    kvb_census_free(&census);
    return sample;
}

static bool holds(const kvb_sample *s, uint32_t event, uint32_t layer, uint32_t query, uint32_t head)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->rows[i].event == event && s->rows[i].layer == layer && s->rows[i].query == query &&
            s->rows[i].head == head)
            return true;
    return false;
}

/* All queries in all layers. */
static const uint64_t all_rows = (200 + 20 + 40) * (2 * HEADS + FEWER);
static const uint64_t all_pairs =
    (200 * 201 / 2 + 20 * 1201 + 190 + 40 * 1221 + 780) * UINT64_C(2) * HEADS +
    (WINDOW * (WINDOW + 1) / 2 + (200 - WINDOW) * WINDOW + (20 + 40) * WINDOW) * UINT64_C(1) * FEWER;

TEST(within_the_budget_all_rows)
{
    hand h = {0};
    trace_make(&h);
    kvb_sample s = choose(&h, all_pairs, UINT64_MAX, 1);
    assert_int_equal(s.total_rows, all_rows);
    assert_int_equal(s.n, s.total_rows);
    assert_int_equal(s.pairs, all_pairs);
    kvb_sample_free(&s);
    s = choose(&h, all_pairs - 1, UINT64_MAX, 1);
    assert_true(s.n < s.total_rows && s.n > s.total_rows / 2);
    kvb_sample_free(&s);
    hand_free(&h);
}

TEST(budget_is_kept_and_spent)
{
    hand h = {0};
    trace_make(&h);
    for (uint64_t part = 2; part <= 8; part *= 2) {
        kvb_sample s = choose(&h, all_pairs / part, UINT64_MAX, 1);
        assert_true(s.pairs <= all_pairs / part);
        assert_true(s.pairs >= all_pairs / part * 8 / 10);
        assert_int_equal(s.total_rows, all_rows);
        kvb_sample_free(&s);
    }
    /* a budget little above the fixed rows' cost: no draw may exceed it */
    for (uint64_t seed = 1; seed <= 20; seed++)
        for (uint64_t budget = 110000; budget < 150000; budget += 5000) {
            kvb_sample s = choose(&h, budget, UINT64_MAX, seed);
            assert_true(s.pairs <= budget);
            kvb_sample_free(&s);
        }
    kvb_sample s = choose(&h, all_pairs, 1000, 1);
    assert_true(s.n <= 1000 && s.n > 700);
    kvb_sample_free(&s);
    hand_free(&h);
}

TEST(sampled_events_hold_their_corners)
{
    static const uint32_t borders[] = {0, 15, 16, 31, 32, 63, 64, 127, 128};
    hand h = {0};
    trace_make(&h);
    for (uint64_t budget = 1; budget < all_pairs; budget *= 7) {
        kvb_sample s = choose(&h, budget, UINT64_MAX, 3);
        bool sampled[HAND_EVENTS] = {false};
        for (size_t i = 0; i < s.n; i++)
            sampled[s.rows[i].event] = true;
        assert_true(sampled[0] && sampled[22]); /* first and last */
        assert_false(sampled[1]);               /* a fill has no queries */
        for (uint32_t e = 0; e < h.trace.n_events; e++) {
            if (!sampled[e])
                continue;
            uint32_t n = h.events[e].n;
            assert_true(holds(&s, e, 0, n - 1, 0) && holds(&s, e, LAYERS - 1, n - 1, HEADS - 1));
            for (size_t b = 0; b < sizeof borders / sizeof *borders; b++)
                if (borders[b] < n)
                    assert_true(holds(&s, e, 0, borders[b], 0) && holds(&s, e, LAYERS - 1, borders[b], HEADS - 1));
        }
        kvb_sample_free(&s);
    }
    hand_free(&h);
}

TEST(a_few_rows_however_dear)
{
    hand h = {0};
    trace_make(&h);
    kvb_sample s = choose(&h, 1, UINT64_MAX, 1);
    assert_true(s.n >= KVB_SAMPLE_MIN_ROWS && s.n < 3 * KVB_SAMPLE_MIN_ROWS);
    kvb_sample_free(&s);
    hand_free(&h);

    hand one = {0}; /* a single decode step has fewer rows than the sample's least */
    model_set(&one);
    hand_extend(&one, KVB_EVENT_FILL, 0, 0, 5000);
    hand_extend(&one, KVB_EVENT_STEP, 0, 5000, 1);
    s = choose(&one, 1, UINT64_MAX, 1);
    assert_int_equal(s.n, 2 * HEADS + FEWER);
    kvb_sample_free(&s);
    hand_free(&one);
}

TEST(seeded)
{
    hand h = {0};
    trace_make(&h);
    kvb_sample a = choose(&h, all_pairs / 4, UINT64_MAX, 1), b = choose(&h, all_pairs / 4, UINT64_MAX, 1),
               c = choose(&h, all_pairs / 4, UINT64_MAX, 2);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.rows, b.rows, a.n * sizeof *a.rows);
    assert_true(a.n != c.n || memcmp(a.rows, c.rows, a.n * sizeof *a.rows) != 0);
    kvb_sample_free(&a);
    kvb_sample_free(&b);
    kvb_sample_free(&c);
    hand_free(&h);
}

TEST(no_queries_no_rows)
{
    hand h = {0};
    model_set(&h);
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 10);
    kvb_sample s = choose(&h, 100, 100, 1);
    assert_int_equal(s.n, 0);
    assert_int_equal(s.total_rows, 0);
    kvb_sample_free(&s);
    hand_free(&h);
}
