/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: which tokens each query sees, which share a prefix, and which rows of a trace are checked. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/sample.h"
#include "workloads/history.h"

/*
 * Shows: the history names the tokens that each query sees, in layers with and without limits: forks, holes,
 * copies onto living sequences, trees, rewinds. Every list is written by hand.
 */

#define END KVB_TRACE_POS_END

/* Position p sees: all; p-2 .. p; those and 0, 1; p / 4 * 4 .. p. */
enum { GROUPS = 4 };
static const kvb_group groups[GROUPS] = {{0}, {.window = 3}, {.window = 3, .sinks = 2}, {.chunk = 4}};
static const char *const group_names[GROUPS] = {"all", "window", "window with sinks", "chunk"};

/* What query i of an event sees in a layer of each group: identities, ascending by position. */
typedef struct sight {
    uint32_t event, i;
    const char *seen[GROUPS];
} sight;

/* After each event of the trace, the queries of it that are listed; in order of events. */
static void check(hand *h, const sight *sights, size_t n)
{
    kvb_history *history;
    size_t at = 0;
    assert_int_equal(kvb_history_open(1000000, &history), 0);
    for (uint32_t e = 0; e < h->trace.n_events; e++) {
        assert_int_equal(kvb_history_apply(history, &h->events[e]), 0);
        for (; at < n && sights[at].event == e; at++)
            for (int g = 0; g < GROUPS; g++) {
                char text[256] = "";
                const kvb_row_run *runs;
                int64_t count = kvb_history_visible(history, &groups[g], sights[at].i, &runs);
                for (int64_t r = 0; r < count; r++)
                    for (uint32_t i = 0; i < runs[r].n; i++)
                        sprintf(text + strlen(text), "%s%u", *text ? " " : "", runs[r].row + i);
                if (strcmp(text, sights[at].seen[g]))
                    fail_msg("event %u, query %u, %s: sees %s, expected %s", e, sights[at].i, group_names[g], text,
                             sights[at].seen[g]);
            }
    }
    assert_int_equal(at, n);
    kvb_history_free(history);
    hand_free(h);
}

static void one_sequence(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 5, 0, 5); /* 0 .. 4 */
    hand_extend(&h, KVB_EVENT_FILL, 5, 5, 3);    /* 5 6 7 */
    hand_extend(&h, KVB_EVENT_STEP, 5, 8, 2);    /* 8 9 */
    static const sight sights[] = {
        {0, 0, {"0", "0", "0", "0"}},
        {0, 2, {"0 1 2", "0 1 2", "0 1 2", "0 1 2"}},
        {0, 3, {"0 1 2 3", "1 2 3", "0 1 2 3", "0 1 2 3"}}, /* a sink in the window is seen once */
        {0, 4, {"0 1 2 3 4", "2 3 4", "0 1 2 3 4", "4"}},   /* the window begins where the sinks end */
        {2, 0, {"0 1 2 3 4 5 6 7 8", "6 7 8", "0 1 6 7 8", "8"}},
        {2, 1, {"0 1 2 3 4 5 6 7 8 9", "7 8 9", "0 1 7 8 9", "8 9"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

static void sequences_see_themselves_only(void **state)
{
    (void)state;
    hand h = {0};
    hand_step(&h, 5, (const uint32_t[]){0, 0, 1, 1, 2}, (const uint32_t[]){0, 9, 0, 9, 9});
    hand_step(&h, 2, (const uint32_t[]){3, 2}, (const uint32_t[]){9, 0}); /* 5 6 */
    hand_event(&h, KVB_EVENT_SEQ_KEEP)->src = 9;
    hand_step(&h, 2, (const uint32_t[]){0, 4}, (const uint32_t[]){0, 9}); /* 7 8 */
    static const sight sights[] = {
        {0, 2, {"0 2", "0 2", "0 2", "0 2"}},
        {0, 3, {"1 3", "1 3", "1 3", "1 3"}},
        {0, 4, {"1 3 4", "1 3 4", "1 3 4", "1 3 4"}},
        {1, 0, {"1 3 4 5", "3 4 5", "1 3 4 5", "1 3 4 5"}},
        {1, 1, {"0 2 6", "0 2 6", "0 2 6", "0 2 6"}},
        {3, 0, {"7", "7", "7", "7"}}, /* all but 9 were dropped */
        {3, 1, {"1 3 4 5 8", "4 5 8", "1 3 4 5 8", "8"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

static void hand_add(hand *h, uint32_t seq, uint32_t p0, uint32_t p1, int32_t delta)
{
    kvb_event *e = hand_event(h, KVB_EVENT_SEQ_ADD);
    e->src = seq;
    e->p0 = p0;
    e->p1 = p1;
    e->delta = delta;
}

/* Prefixes of the same history: the moved rows as they are told after so many events. */
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

static void moved_tokens_have_other_rows(void **state)
{
    (void)state;
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
    static const sight sights[] = {
        {5, 0, {"0 1000000 1000001 1000003 6", "1000003 6", "0 1000000 1000003 6", "1000003 6"}},
        {5, 1, {"0 1 2 3 4 5 7", "4 5 7", "0 1 4 5 7", "4 5 7"}},
        {9,
         0,
         {"0 1000000 1000001 1000004 1000005 8", "1000004 1000005 8", "0 1000000 1000004 1000005 8",
          "1000004 1000005 8"}},
    };
    moved_check(&h, 4, moved, 3);
    moved_check(&h, 6, moved, 4);
    moved_check(&h, 10, moved, 6);
    check(&h, sights, sizeof sights / sizeof *sights);
    hand d = {0}; /* divided: each by its own distance, several at one position, then moved once more before a step */
    hand_extend(&d, KVB_EVENT_PREFILL, 0, 0, 6);
    hand_add(&d, 0, 1, 6, 0);
    d.events[1].kind = KVB_EVENT_SEQ_DIV;
    d.events[1].divisor = 2;
    hand_add(&d, 0, 2, END, 3);
    hand_cp(&d, 0, 1, 0, END);
    hand_extend(&d, KVB_EVENT_STEP, 1, 6, 1);
    static const kvb_moved_row divided[] = {{1, 1, -1}, {2, 2, -1}, {3, 3, -2}, {4, 4, -2},
                                            {5, 5, -3}, {4, 4, 1},  {5, 5, 0}};
    static const sight sees[] = {{4,
                                  0,
                                  {"0 1000000 1000001 1000002 1000005 1000006 6", "1000005 1000006 6",
                                   "0 1000000 1000001 1000002 1000005 1000006 6", "1000005 1000006 6"}}};
    moved_check(&d, 5, divided, 7);
    check(&d, sees, 1);
    hand t = {0};
    hand_extend(&t, KVB_EVENT_PREFILL, 0, 0, 2);
    hand_add(&t, 0, 0, END, 1);
    hand_propose_in(&t, 1, (const uint32_t[]){1}, (const int32_t[]){-1}); /* turns rows, as a step does */
    hand_add(&t, 0, 0, END, 1);
    static const kvb_moved_row twice[] = {{0, 0, 1}, {1, 1, 1}, {1000000, 0, 1}, {1000001, 1, 1}};
    moved_check(&t, 4, twice, 4);
    hand_free(&t);
}

static void a_fork_shares_its_range(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 6); /* 0 .. 5 */
    hand_cp(&h, 0, 1, 0, END);
    hand_cp(&h, 0, 2, 1, 3);                                                    /* positions 1 and 2 */
    hand_step(&h, 3, (const uint32_t[]){6, 6, 3}, (const uint32_t[]){0, 1, 2}); /* 6 7 8 */
    hand_extend(&h, KVB_EVENT_STEP, 2, 4, 1);                                   /* 9 */
    hand_cp(&h, 1, 3, 0, END);                                                  /* a branch of a branch */
    hand_rm(&h, 1, 0, END);
    hand_extend(&h, KVB_EVENT_STEP, 3, 7, 1); /* 10 */
    hand_extend(&h, KVB_EVENT_STEP, 1, 0, 1); /* 11: a sequence that died lives again */
    hand_rm(&h, 9, 0, END);                   /* one that never was */
    static const sight sights[] = {
        {3, 0, {"0 1 2 3 4 5 6", "4 5 6", "0 1 4 5 6", "4 5 6"}},
        {3, 1, {"0 1 2 3 4 5 7", "4 5 7", "0 1 4 5 7", "4 5 7"}},
        {3, 2, {"1 2 8", "1 2 8", "1 2 8", "1 2 8"}},
        {4, 0, {"1 2 8 9", "2 8 9", "1 2 8 9", "9"}}, /* a sink is a position, not the first token */
        {7, 0, {"0 1 2 3 4 5 7 10", "5 7 10", "0 1 5 7 10", "4 5 7 10"}},
        {8, 0, {"11", "11", "11", "11"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

/* A window counts positions: of a hole in it nothing is made up for. */
static void holes_and_cut_tails(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 8); /* 0 .. 7 */
    hand_rm(&h, 0, 1, 5);
    hand_extend(&h, KVB_EVENT_STEP, 0, 8, 1); /* 8 */
    hand_rm(&h, 0, 6, 8);
    hand_extend(&h, KVB_EVENT_STEP, 0, 9, 1); /* 9 */
    hand_cp(&h, 0, 1, 0, 9);                  /* a fork takes holes along */
    hand_extend(&h, KVB_EVENT_STEP, 1, 9, 1); /* 10 */
    hand_rm(&h, 0, 8, END);                   /* the tail: the next position is that of the largest left, and 1 */
    hand_extend(&h, KVB_EVENT_STEP, 0, 6, 2); /* 11 12 */
    hand_rm(&h, 1, 8, 10);
    hand_extend(&h, KVB_EVENT_STEP, 1, 6, 1); /* 13 */
    hand_event(&h, KVB_EVENT_SEQ_KEEP)->src = 0;
    hand_event(&h, KVB_EVENT_REWIND)->len = 7;
    hand_extend(&h, KVB_EVENT_STEP, 0, 7, 1); /* 14 */
    hand_event(&h, KVB_EVENT_CLEAR);
    hand_extend(&h, KVB_EVENT_STEP, 0, 0, 1); /* 15 */
    static const sight sights[] = {
        {2, 0, {"0 5 6 7 8", "6 7 8", "0 6 7 8", "8"}},
        {4, 0, {"0 5 8 9", "8 9", "0 8 9", "8 9"}},
        {6, 0, {"0 5 8 10", "8 10", "0 8 10", "8 10"}},
        {8, 0, {"0 5 11", "5 11", "0 5 11", "5 11"}},
        {8, 1, {"0 5 11 12", "5 11 12", "0 5 11 12", "5 11 12"}},
        {10, 0, {"0 5 13", "5 13", "0 5 13", "5 13"}},
        {13, 0, {"0 5 11 14", "5 11 14", "0 5 11 14", "5 11 14"}},
        {15, 0, {"15", "15", "15", "15"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

/* The range is put where its positions belong: behind, before, between and beyond what the destination holds. */
static void copies_onto_living_sequences(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 8); /* 0 .. 7 */
    hand_extend(&h, KVB_EVENT_STEP, 1, 0, 3);    /* 8 9 10 */
    hand_cp(&h, 0, 1, 3, 6);
    hand_extend(&h, KVB_EVENT_STEP, 1, 6, 1); /* 11 */
    hand_rm(&h, 1, 0, 2);
    hand_cp(&h, 0, 1, 0, 2);
    hand_extend(&h, KVB_EVENT_STEP, 1, 7, 1); /* 12 */
    hand_extend(&h, KVB_EVENT_STEP, 2, 0, 1); /* 13 */
    hand_cp(&h, 0, 2, 5, 8);                  /* positions 1 .. 4 stay empty */
    hand_cp(&h, 1, 2, 2, 4);
    hand_extend(&h, KVB_EVENT_STEP, 2, 8, 1); /* 14 */
    hand_cp(&h, 0, 3, 0, END);
    hand_rm(&h, 3, 2, 3);
    hand_rm(&h, 3, 5, 6);
    hand_cp(&h, 1, 4, 2, 3);
    hand_cp(&h, 1, 4, 5, 6);
    hand_cp(&h, 3, 4, 0, 8);                  /* a range with holes, into which the others fit */
    hand_extend(&h, KVB_EVENT_STEP, 4, 8, 1); /* 15 */
    hand_extend(&h, KVB_EVENT_STEP, 0, 8, 1); /* 16: the source is as it was */
    static const sight sights[] = {
        {3, 0, {"8 9 10 3 4 5 11", "4 5 11", "8 9 4 5 11", "4 5 11"}},
        {6, 0, {"0 1 10 3 4 5 11 12", "5 11 12", "0 1 5 11 12", "4 5 11 12"}},
        {10, 0, {"13 10 3 5 6 7 14", "6 7 14", "13 6 7 14", "14"}},
        {17, 0, {"0 1 10 3 4 5 6 7 15", "6 7 15", "0 1 6 7 15", "15"}},
        {18, 0, {"0 1 2 3 4 5 6 7 16", "6 7 16", "0 1 6 7 16", "16"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

static void hand_slot(hand *h, kvb_event_kind kind, uint32_t slot, uint32_t seq)
{
    kvb_event *e = hand_event(h, kind);
    e->slot = slot;
    e->src = seq;
}

/* What is saved stays as it was, whatever becomes of the sequence; all of them replace all. */
static void saved_and_loaded(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 4); /* 0 .. 3 */
    hand_rm(&h, 0, 1, 2);
    hand_slot(&h, KVB_EVENT_SAVE, 7, 0);
    hand_step(&h, 1, (const uint32_t[]){4}, (const uint32_t[]){0}); /* 4 */
    hand_slot(&h, KVB_EVENT_LOAD, 7, 2);
    hand_slot(&h, KVB_EVENT_SAVE, 1, KVB_TRACE_ALL);
    hand_step(&h, 2, (const uint32_t[]){5, 4}, (const uint32_t[]){0, 2}); /* 5 6 */
    hand_extend(&h, KVB_EVENT_PREFILL, 3, 0, 2);                          /* 7 8 */
    hand_slot(&h, KVB_EVENT_LOAD, 1, KVB_TRACE_ALL);
    hand_step(&h, 3, (const uint32_t[]){5, 4, 0}, (const uint32_t[]){0, 2, 3}); /* 9 10 11 */
    static const sight sights[] = {
        {6, 0, {"0 2 3 4 5", "3 4 5", "0 3 4 5", "4 5"}},
        {6, 1, {"0 2 3 6", "2 3 6", "0 2 3 6", "6"}},
        {9, 0, {"0 2 3 4 9", "3 4 9", "0 3 4 9", "4 9"}},
        {9, 1, {"0 2 3 10", "2 3 10", "0 2 3 10", "10"}},
        {9, 2, {"11", "11", "11", "11"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

/* Sequences take each other's places at once; one source goes to two; an empty one empties. */
static void reordered(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 3); /* 0 1 2 */
    hand_extend(&h, KVB_EVENT_PREFILL, 1, 0, 2); /* 3 4 */
    hand_extend(&h, KVB_EVENT_PREFILL, 2, 0, 4); /* 5 .. 8 */
    hand_rm(&h, 2, 1, 2);
    hand_reorder(&h, 4, (const uint32_t[]){0, 1, 3, 2}, (const uint32_t[]){1, 2, 2, 0});
    hand_step(&h, 4, (const uint32_t[]){2, 4, 3, 4}, (const uint32_t[]){0, 1, 2, 3}); /* 9 .. 12 */
    hand_reorder(&h, 2, (const uint32_t[]){1, 2}, (const uint32_t[]){2, 9});
    hand_step(&h, 3, (const uint32_t[]){4, 0, 5}, (const uint32_t[]){1, 2, 3}); /* 13 14 15 */
    static const sight sights[] = {
        {5, 0, {"3 4 9", "3 4 9", "3 4 9", "3 4 9"}},
        {5, 1, {"5 7 8 10", "7 8 10", "5 7 8 10", "10"}},
        {5, 2, {"0 1 2 11", "1 2 11", "0 1 2 11", "0 1 2 11"}},
        {5, 3, {"5 7 8 12", "7 8 12", "5 7 8 12", "12"}},
        {7, 0, {"0 1 2 11 13", "2 11 13", "0 1 2 11 13", "13"}},
        {7, 1, {"14", "14", "14", "14"}},
        {7, 2, {"5 7 8 12 15", "8 12 15", "5 8 12 15", "12 15"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

/* Nodes are at the committed length and their depth, whatever is proposed beside them. */
static void trees(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 5);             /* 0 .. 4 */
    hand_propose(&h, 5, (const int32_t[]){-1, -1, 0, 0, 2}); /* 5 6 7 8 9 */
    hand_propose(&h, 2, (const int32_t[]){4, 1});            /* 10 11: the same tree goes on */
    hand_commit(&h, 3, (const uint32_t[]){0, 2, 4});         /* 5 7 9 take positions 5 6 7 */
    hand_extend(&h, KVB_EVENT_STEP, 0, 8, 1);                /* 12 */
    hand_propose(&h, 1, (const int32_t[]){-1});              /* 13 */
    hand_commit(&h, 0, NULL);                                /* nothing is kept */
    hand_propose(&h, 2, (const int32_t[]){-1, 0});           /* 14 15: numbered from 0 again */
    hand_event(&h, KVB_EVENT_CLEAR);                         /* the nodes go, too */
    hand_propose(&h, 5, (const int32_t[]){-1, 0, 1, 2, 3});  /* 16 .. 20: the sinks are nodes */
    static const sight sights[] = {
        {1, 0, {"0 1 2 3 4 5", "3 4 5", "0 1 3 4 5", "4 5"}},
        {1, 1, {"0 1 2 3 4 6", "3 4 6", "0 1 3 4 6", "4 6"}},
        {1, 2, {"0 1 2 3 4 5 7", "4 5 7", "0 1 4 5 7", "4 5 7"}},
        {1, 3, {"0 1 2 3 4 5 8", "4 5 8", "0 1 4 5 8", "4 5 8"}},
        {1, 4, {"0 1 2 3 4 5 7 9", "5 7 9", "0 1 5 7 9", "4 5 7 9"}},
        {2, 0, {"0 1 2 3 4 5 7 9 10", "7 9 10", "0 1 7 9 10", "10"}},
        {2, 1, {"0 1 2 3 4 6 11", "4 6 11", "0 1 4 6 11", "4 6 11"}},
        {4, 0, {"0 1 2 3 4 5 7 9 12", "7 9 12", "0 1 7 9 12", "12"}},
        {7, 0, {"0 1 2 3 4 5 7 9 12 14", "9 12 14", "0 1 9 12 14", "12 14"}},
        {7, 1, {"0 1 2 3 4 5 7 9 12 14 15", "12 14 15", "0 1 12 14 15", "12 14 15"}},
        {9, 1, {"16 17", "16 17", "16 17", "16 17"}},
        {9, 4, {"16 17 18 19 20", "18 19 20", "16 17 18 19 20", "20"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

/* Trees of several sequences, whose nodes come between each other's; each is committed by itself, while others go on.
 */
static void trees_beside_sequences(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 2);                                              /* 0 1 */
    hand_extend(&h, KVB_EVENT_PREFILL, 2, 0, 3);                                              /* 2 3 4 */
    hand_propose_in(&h, 4, (const uint32_t[]){2, 0, 2, 0}, (const int32_t[]){-1, -1, -1, 0}); /* 5 6 7 8 */
    hand_extend(&h, KVB_EVENT_STEP, 1, 0, 1);                                                 /* 9 */
    hand_propose_in(&h, 2, (const uint32_t[]){2, 3}, (const int32_t[]){1, -1});               /* 10 11 */
    hand_commit(&h, 2, (const uint32_t[]){1, 2});
    h.events[h.trace.n_events - 1].src = 2;                               /* 7 10 */
    hand_propose_in(&h, 1, (const uint32_t[]){0}, (const int32_t[]){1});  /* 12: 0's tree goes on */
    hand_step(&h, 2, (const uint32_t[]){5, 1}, (const uint32_t[]){2, 1}); /* 13 14 */
    hand_commit(&h, 1, (const uint32_t[]){0});                            /* 6 */
    hand_extend(&h, KVB_EVENT_STEP, 0, 3, 1);                             /* 15 */
    static const sight sights[] = {
        {2, 0, {"2 3 4 5", "3 4 5", "2 3 4 5", "2 3 4 5"}},
        {2, 1, {"0 1 6", "0 1 6", "0 1 6", "0 1 6"}},
        {2, 2, {"2 3 4 7", "3 4 7", "2 3 4 7", "2 3 4 7"}},
        {2, 3, {"0 1 6 8", "1 6 8", "0 1 6 8", "0 1 6 8"}},
        {3, 0, {"9", "9", "9", "9"}},
        {4, 0, {"2 3 4 7 10", "4 7 10", "2 3 4 7 10", "10"}},
        {4, 1, {"11", "11", "11", "11"}},
        {6, 0, {"0 1 6 8 12", "6 8 12", "0 1 6 8 12", "12"}},
        {7, 0, {"2 3 4 7 10 13", "7 10 13", "2 3 7 10 13", "10 13"}},
        {7, 1, {"9 14", "9 14", "9 14", "9 14"}},
        {9, 0, {"0 1 6 15", "1 6 15", "0 1 6 15", "0 1 6 15"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

/* A tree over a sequence with a hole. */
static void trees_behind_holes(void **state)
{
    (void)state;
    hand h = {0};
    hand_extend(&h, KVB_EVENT_PREFILL, 0, 0, 7); /* 0 .. 6 */
    hand_rm(&h, 0, 0, 1);
    hand_rm(&h, 0, 4, 6);
    hand_propose(&h, 3, (const int32_t[]){-1, 0, -1}); /* 7 8 9 at 7 8 7 */
    static const sight sights[] = {
        {3, 0, {"1 2 3 6 7", "6 7", "1 6 7", "6 7"}},
        {3, 1, {"1 2 3 6 7 8", "6 7 8", "1 6 7 8", "8"}},
        {3, 2, {"1 2 3 6 9", "6 9", "1 6 9", "6 9"}},
    };
    check(&h, sights, sizeof sights / sizeof *sights);
}

static void long_sequences(void **state)
{
    (void)state;
    const kvb_group wide = {.window = 100000, .sinks = 10};
    const kvb_row_run *runs;
    hand h = {0};
    kvb_history *history;
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 200000);
    hand_extend(&h, KVB_EVENT_STEP, 0, 200000, 1);
    assert_int_equal(kvb_history_open(1000000, &history), 0);
    for (int e = 0; e < 2; e++)
        assert_int_equal(kvb_history_apply(history, &h.events[e]), 0);
    assert_int_equal(kvb_history_visible(history, &groups[0], 0, &runs), 1);
    assert_true(runs[0].row == 0 && runs[0].n == 200001);
    assert_int_equal(kvb_history_visible(history, &wide, 0, &runs), 2);
    assert_true(runs[0].row == 0 && runs[0].n == 10 && runs[1].row == 100001 && runs[1].n == 100000);
    kvb_history_free(history);
    hand_free(&h);
}

/*
 * Shows: which tokens have one and the same prefix, over random histories of few vocabulary ids: values and history
 * agree with whole lists of ids. A wrong claim is answered with the place where the prefixes differ.
 */

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

/* Shows: a trace within the budget is checked in full, a dearer one by a seeded sample that holds the corners. */

enum { LAYERS = 3, HEADS = 8, FEWER = 4, WINDOW = 100 };

/* The layer in the middle has fewer heads than the others, and a window. */
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
        if (i) { /* ascending, none twice */
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

/* Of all queries in the layers of each group. */
static const uint64_t all_rows = (200 + 20 + 40) * (2 * HEADS + FEWER);
static const uint64_t all_pairs =
    (200 * 201 / 2 + 20 * 1201 + 190 + 40 * 1221 + 780) * UINT64_C(2) * HEADS +
    (WINDOW * (WINDOW + 1) / 2 + (200 - WINDOW) * WINDOW + (20 + 40) * WINDOW) * UINT64_C(1) * FEWER;

static void within_the_budget_all_rows(void **state)
{
    (void)state;
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

static void budget_is_kept_and_spent(void **state)
{
    (void)state;
    hand h = {0};
    trace_make(&h);
    for (uint64_t part = 2; part <= 8; part *= 2) {
        kvb_sample s = choose(&h, all_pairs / part, UINT64_MAX, 1);
        assert_true(s.pairs <= all_pairs / part);
        assert_true(s.pairs >= all_pairs / part * 8 / 10);
        assert_int_equal(s.total_rows, all_rows);
        kvb_sample_free(&s);
    }
    /* a little more than the fixed rows cost: the luck of the draw must not overspend it */
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

static void sampled_events_hold_their_corners(void **state)
{
    (void)state;
    static const uint32_t borders[] = {0, 15, 16, 31, 32, 63, 64, 127, 128};
    hand h = {0};
    trace_make(&h);
    for (uint64_t budget = 1; budget < all_pairs; budget *= 7) {
        kvb_sample s = choose(&h, budget, UINT64_MAX, 3);
        bool sampled[HAND_EVENTS] = {false};
        for (size_t i = 0; i < s.n; i++)
            sampled[s.rows[i].event] = true;
        assert_true(sampled[0] && sampled[22]); /* first and last */
        assert_false(sampled[1]);               /* a fill asks nothing */
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

static void a_few_rows_however_dear(void **state)
{
    (void)state;
    hand h = {0};
    trace_make(&h);
    kvb_sample s = choose(&h, 1, UINT64_MAX, 1);
    assert_true(s.n >= KVB_SAMPLE_MIN_ROWS && s.n < 3 * KVB_SAMPLE_MIN_ROWS);
    kvb_sample_free(&s);
    hand_free(&h);

    hand one = {0}; /* a single decode step has fewer rows than that */
    model_set(&one);
    hand_extend(&one, KVB_EVENT_FILL, 0, 0, 5000);
    hand_extend(&one, KVB_EVENT_STEP, 0, 5000, 1);
    s = choose(&one, 1, UINT64_MAX, 1);
    assert_int_equal(s.n, 2 * HEADS + FEWER);
    kvb_sample_free(&s);
    hand_free(&one);
}

static void seeded(void **state)
{
    (void)state;
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

static void no_queries_no_rows(void **state)
{
    (void)state;
    hand h = {0};
    model_set(&h);
    hand_extend(&h, KVB_EVENT_FILL, 0, 0, 10);
    kvb_sample s = choose(&h, 100, 100, 1);
    assert_int_equal(s.n, 0);
    assert_int_equal(s.total_rows, 0);
    kvb_sample_free(&s);
    hand_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sequence),
        cmocka_unit_test(sequences_see_themselves_only),
        cmocka_unit_test(a_fork_shares_its_range),
        cmocka_unit_test(moved_tokens_have_other_rows),
        cmocka_unit_test(holes_and_cut_tails),
        cmocka_unit_test(copies_onto_living_sequences),
        cmocka_unit_test(reordered),
        cmocka_unit_test(saved_and_loaded),
        cmocka_unit_test(trees),
        cmocka_unit_test(trees_beside_sequences),
        cmocka_unit_test(trees_behind_holes),
        cmocka_unit_test(long_sequences),
        cmocka_unit_test(both_say_what_lists_say),
        cmocka_unit_test(what_differs_is_said),
        cmocka_unit_test(within_the_budget_all_rows),
        cmocka_unit_test(budget_is_kept_and_spent),
        cmocka_unit_test(sampled_events_hold_their_corners),
        cmocka_unit_test(a_few_rows_however_dear),
        cmocka_unit_test(seeded),
        cmocka_unit_test(no_queries_no_rows),
    };
    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
