/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows: the history names the tokens that each query sees, in layers with and without limits: forks, holes,
 * copies onto living sequences, trees, rewinds. Every list is written by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>

#include "ci/tests/oracle/hand.h"
#include "workloads/history.h"

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
    };
    return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
