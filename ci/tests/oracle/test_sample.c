/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: a trace within the budget is checked in full, a dearer one by a seeded sample that holds the corners. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ci/tests/oracle/hand.h"
#include "oracle/sample.h"

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
        cmocka_unit_test(within_the_budget_all_rows),
        cmocka_unit_test(budget_is_kept_and_spent),
        cmocka_unit_test(sampled_events_hold_their_corners),
        cmocka_unit_test(a_few_rows_however_dear),
        cmocka_unit_test(seeded),
        cmocka_unit_test(no_queries_no_rows),
    };
    return cmocka_run_group_tests_name("oracle/sample", tests, NULL, NULL);
}
