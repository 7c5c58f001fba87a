/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: which tokens have one and the same prefix, over random histories of few vocabulary ids: values and history
 * agree with whole lists of ids. A wrong claim is answered with the place where the prefixes differ.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/history.h"

enum { SEQS = 4, LONGEST = 24, EVENTS = 60, TOKENS = 400, HOLE = -1 };

/* A token's prefix, itself included; n 0: it has none that is known. */
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

/* The prefix of what a sequence holds: known if each of its tokens has the prefix that it should have there. */
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

static void both_say_what_lists_say(void **state)
{
    uint32_t alike = 0;
    (void)state;
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

/* Positions 0 .. 3 under key 0, then prompts that differ in one thing. */
static void what_differs_is_said(void **state)
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
    (void)state;
    assert_int_equal(kvb_history_open(TOKENS, &history), 0);
    kvb_history_know_prefixes(history);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kvb_history_apply(history, &prompts[i]), 0);
    assert_true(kvb_history_same_prefix(history, 0, 4, why, sizeof why));
    assert_false(kvb_history_same_prefix(history, 3, 7, why, sizeof why));
    assert_string_equal(why, "position 3: token 3 is behind another prefix: id 6 where 9 was asked for, at position 1");
    assert_false(kvb_history_same_prefix(history, 0, 8, why, sizeof why));
    assert_string_equal(why, "position 0: token 0 is of another extra key");
    assert_false(kvb_history_same_prefix(history, 1, 4, why, sizeof why));
    assert_string_equal(why, "position 0: token 1 has another position");
    assert_false(kvb_history_same_prefix(history, 9, 4, why, sizeof why));
    assert_string_equal(why, "token 9 was not there before");
    after.first = 13;
    after.seq = three;
    assert_int_equal(kvb_history_apply(history, &node), 0);
    assert_int_equal(kvb_history_apply(history, &after), 0);
    assert_true(kvb_history_same_prefix(history, 0, 13, why, sizeof why)); /* ordinals go on behind the node's */
    assert_false(kvb_history_same_prefix(history, 12, 13, why, sizeof why));
    kvb_history_free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_say_what_lists_say),
        cmocka_unit_test(what_differs_is_said),
    };
    return cmocka_run_group_tests_name("tokens behind one prefix", tests, NULL, NULL);
}
