/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: the timing loop, its samples, kinds of steps, and statistics. */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "ci/tests/tests.h"
#include "harness/duel/duel.h"
#include "harness/program.h"
#include "harness/matrix/ground_truth.h"
#include "harness/replay/meter.h"
#include "harness/rounds.h"
#include "workloads/history.h"

/* Which contestant is next, which leave, and how much a base differs from itself. */

/* Two contestants go A B, B A, A B, B A. */
TEST(test_two)
{
    static const size_t want[] = {0, 1, 1, 0, 0, 1, 1, 0};
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(kvb_rounds_place(2, i / 2, i % 2), want[i]);
}

/* Each contestant has each place equally often, follows each other one, and all follow one another equally often. */
TEST(test_balance)
{
    for (size_t n = 2; n <= 3; n++) {
        size_t rounds = 2 * n, in_place[3][3] = {{0}}, after[3][3] = {{0}};
        for (size_t i = 0; i < rounds * n; i++) {
            size_t now = kvb_rounds_place(n, i / n, i % n), next = kvb_rounds_place(n, (i + 1) / n, (i + 1) % n);
            in_place[now][i % n]++;
            after[now][next]++;
        }
        for (size_t a = 0; a < n; a++)
            for (size_t b = 0; b < n; b++) {
                assert_int_equal(in_place[a][b], 2);
                assert_true(after[a][b] > 0);
                assert_int_equal(after[a][b], after[(a + 1) % n][(b + 1) % n]);
            }
    }
}

/* Both become twice as slow; one is 3 % slower all the time. */
TEST(test_null)
{
    kvb_result a, b;
    kvb_result_init(&a);
    kvb_result_init(&b);
    assert_true(isnan(kvb_duel_null(&a, &b)));
    a.time.n_series = 40;
    b.time.n_series = 38; /* it ended earlier */
    for (size_t i = 0; i < 40; i++) {
        a.time.series[i] = 1000 * (1 + (double)i / 40);
        b.time.series[i] = 1.03 * a.time.series[i];
    }
    assert_float_equal(kvb_duel_null(&a, &b), 0.03, 1e-12);
    assert_float_equal(kvb_duel_null(&a, &a), 0, 0);
}

enum { MOST = 64 };

/* A contestant that takes `seconds`, and counts its samples. */
typedef struct taker {
    double seconds;
    uint32_t calls, last; /* returns NAN after `last` samples */
    bool stops;           /* stops the program, as a signal does */
} taker;

static double count_take(void *ctx)
{
    taker *t = ctx;
    const double end = kvb_now_seconds() + t->seconds;
    while (kvb_now_seconds() < end)
        ;
    kvb_stopped = t->stops;
    return t->calls++ == t->last ? NAN : (double)t->calls;
}

/* Runs rounds of three contestants, each with its samples. */
static uint32_t three_run(taker t[3], const kvb_rounds *rounds, kvb_contestant c[3], double samples[3][MOST])
{
    for (int i = 0; i < 3; i++)
        c[i] = (kvb_contestant){.take = count_take, .ctx = &t[i], .samples = samples[i]};
    const uint32_t n = kvb_rounds_run(rounds, c, 3);
    kvb_stopped = 0;
    return n;
}

/* A slow contestant leaves after the least number of rounds and the others go on; one with `limit` stays. */
TEST(test_slow)
{
    taker t[3] = {{0, 0, UINT32_MAX, false}, {0.02, 0, UINT32_MAX, false}, {0, 0, UINT32_MAX, false}};
    kvb_contestant c[3];
    double samples[3][MOST];
    assert_int_equal(three_run(t, &(kvb_rounds){.least = 2, .most = MOST, .seconds = 0.09}, c, samples), MOST);
    assert_int_equal(c[0].n, MOST);
    assert_int_equal(c[1].n, 2);
    assert_float_equal(samples[0][MOST - 1], MOST, 0);
    assert_float_equal(samples[1][1], 2, 0);
    assert_true(isnan(samples[1][2]));
    t[1].calls = 0;
    c[1].limit = true;
    const uint32_t rounds = kvb_rounds_run(&(kvb_rounds){.least = 2, .most = 6, .seconds = 0.09}, c, 3);
    assert_true(rounds >= 4 && c[1].n == rounds && t[1].calls == rounds);
}

/* A contestant that returns NAN leaves at once. With `together` that round is the last. */
TEST(test_leaves)
{
    kvb_contestant c[3];
    double samples[3][MOST];
    for (int together = 0; together < 2; together++) {
        taker t[3] = {{0, 0, UINT32_MAX, false}, {0, 0, 4, false}, {0, 0, UINT32_MAX, false}};
        const kvb_rounds rounds = {.least = 9, .most = 9, .together = together};
        assert_int_equal(three_run(t, &rounds, c, samples), together ? 5 : 9);
        assert_int_equal(c[0].n, together ? 5 : 9);
        assert_int_equal(c[1].n, 4);
        assert_int_equal(t[1].calls, 5);
    }
}

/* A signal ends the round, which does not count. */
TEST(test_stopped)
{
    taker t[3] = {{0, 0, UINT32_MAX, false}, {0, 0, UINT32_MAX, false}, {0, 0, UINT32_MAX, true}};
    kvb_contestant c[3];
    double samples[3][MOST];
    assert_int_equal(three_run(t, &(kvb_rounds){.least = 9, .most = 9}, c, samples), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(c[i].n, 0);
    assert_int_equal(t[1].calls, 1);
}

static uint32_t woken;
static void run_here(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    (void)team;
    woken++;
    part(ctx, 0, 1);
}
static const kvb_team alone = {1, run_here};

/* Computes long enough for the scheduler to switch to a busy neighbour on the same core. */
static void spin(void)
{
    const double end = kvb_now_seconds() + 0.012;
    while (kvb_now_seconds() < end)
        ;
}

static double fall_take(void *ctx)
{
    uint32_t *samples = ctx;
    spin();
    return 10 - (*samples)++;
}

static double none_take(void *ctx)
{
    spin();
    ++*(uint32_t *)ctx;
    return NAN;
}

/* With a team a sample is repeated, a few times, until one was undisturbed; else the least counts. The team is woken
 * before each. In this test a neighbour competes for the only core. */
TEST(test_quiet)
{
    uint32_t samples, most = 0;
    double sample;
    kvb_contestant c = {.ctx = &samples, .samples = &sample, .team = &alone};
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const pid_t neighbour = fork();
    if (neighbour == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also if an assertion fails */
        for (volatile int forever = 1; forever;)
            ;
    }
    assert_true(neighbour > 0);
    for (int i = 0; i < 9; i++) {
        samples = woken = 0;
        c.take = fall_take;
        kvb_rounds_run(&(kvb_rounds){.least = 1, .most = 1}, &c, 1);
        assert_true(samples >= 1 && samples <= 4 && woken == samples);
        assert_true(sample == 11 - (double)samples);
        most = samples > most ? samples : most;
        samples = 0;
        c.take = none_take;
        kvb_rounds_run(&(kvb_rounds){.least = 1, .most = 1}, &c, 1);
        assert_true(samples == 1 && c.n == 0);
    }
    assert_true(most > 1);
    kill(neighbour, SIGKILL);
    waitpid(neighbour, NULL, 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

/* Shows how step times of several passes become a median, its interval, a warm-up and a null comparison. */

/* Adds a pass: a prefill, and ten decode steps of about 100 ns, all times `factor`. */
static void pass_add(kvb_samples times[KVB_STEP_KINDS], double factor, double decode)
{
    assert_int_equal(kvb_sample_add(&times[KVB_KIND_PREFILL], 300 * factor), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(kvb_sample_add(&times[KVB_KIND_DECODE], (decode + i) * factor), 0);
    assert_int_equal(kvb_sample_add(&times[KVB_KIND_CONTROL], 7 * factor), 0);
}

static void free_all(kvb_samples times[KVB_STEP_KINDS])
{
    for (int k = 0; k < KVB_STEP_KINDS; k++)
        kvb_samples_free(&times[k]);
}

/* Whatever the times are: rates of two kernels belong to the same steps. */
TEST(the_main_kind_has_the_most_operations)
{
    double flops[KVB_STEP_KINDS] = {[KVB_KIND_FILL] = 9, [KVB_KIND_PREFILL] = 3, [KVB_KIND_VERIFY] = 4};
    assert_int_equal(kvb_kind_main(flops), KVB_KIND_VERIFY); /* a fill attends to no cell */
    flops[KVB_KIND_PREFILL] = 5;
    assert_int_equal(kvb_kind_main(flops), KVB_KIND_PREFILL);
}

TEST(kinds_are_told_apart)
{
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    pass_add(times, 1, 100);
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, 1, 0, &r), 0);
    assert_int_equal(r.time.all.samples, 11); /* control is not attention */
    assert_int_equal(r.time.kinds[KVB_KIND_DECODE].samples, 10);
    assert_true(r.time.kinds[KVB_KIND_DECODE].median == 104.5);
    assert_true(r.time.kinds[KVB_KIND_PREFILL].median == 300);
    assert_true(r.time.kinds[KVB_KIND_CONTROL].total == 7);
    assert_int_equal(r.time.kinds[KVB_KIND_VERIFY].samples, 0);
    assert_true(isnan(r.time.kinds[KVB_KIND_VERIFY].median));
    assert_int_equal(r.time.all.outliers, 1); /* the prefill among decode steps */
    free_all(times);
}

TEST(slow_first_passes_are_warmup)
{
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    static const double factors[] = {9, 5, 3, 1, 1.01, 1, 0.99, 1, 1.01, 1, 1, 1};
    size_t passes = sizeof factors / sizeof *factors;
    kvb_result_init(&r);
    for (size_t i = 0; i < passes; i++)
        pass_add(times, factors[i], 100);
    size_t warmup = kvb_warmup_passes(times, passes);
    assert_in_range(warmup, 3, 5);
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, passes, warmup, &r), 0);
    const kvb_time_stats *decode = &r.time.kinds[KVB_KIND_DECODE];
    assert_int_equal(decode->samples, 10 * (passes - warmup));
    assert_true(decode->low > 103 && decode->low <= decode->median && decode->median <= decode->high);
    assert_true(decode->high < 106);
    assert_true(decode->max < 120); /* no step of a warm-up pass is a sample */
    assert_true(r.time.null_difference >= 0 && r.time.null_difference < 0.02);
    assert_true(kvb_samples_width(&times[KVB_KIND_DECODE], passes, warmup) < 0.03);
    free_all(times);
}

TEST(a_null_comparison_sees_passes_that_differ)
{
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    for (int i = 0; i < 8; i++)
        pass_add(times, i % 2 ? 1.5 : 1, 100);
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, 8, 0, &r), 0);
    assert_true(fabs(r.time.null_difference - 0.5) < 1e-9);
    assert_true(kvb_samples_width(&times[KVB_KIND_DECODE], 8, 0) > 0.2);
    free_all(times);
}

TEST(few_passes_and_none)
{
    kvb_samples times[KVB_STEP_KINDS] = {0};
    kvb_result r;
    kvb_result_init(&r);
    assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, 1, 0, &r), 0); /* no step attended */
    assert_int_equal(r.time.all.samples, 0);
    assert_true(isnan(r.time.null_difference));
    pass_add(times, 2, 100);
    pass_add(times, 1, 100);
    assert_int_equal(kvb_warmup_passes(times, 1), 0);
    assert_int_equal(kvb_warmup_passes(times, 2), 1);
    assert_true(isinf(kvb_samples_width(&times[KVB_KIND_DECODE], 2, 0)));
    assert_true(kvb_samples_pass(&times[KVB_KIND_DECODE], 2, 0) == 2 * 1045);
    assert_true(kvb_samples_pass(&times[KVB_KIND_DECODE], 2, 1) == 1045);
    free_all(times);
}

/* Adds n passes of three prefill steps, whose median is the number of the pass, from 1 on. */
static void numbered_passes_add(kvb_samples times[KVB_STEP_KINDS], int n)
{
    for (int i = 1; i <= n; i++)
        for (int j = -1; j <= 1; j++)
            assert_int_equal(kvb_sample_add(&times[KVB_KIND_PREFILL], i + 0.25 * j), 0);
}

TEST(a_series_is_the_median_of_each_pass)
{
    static const struct {
        int passes, warmup, n;
        double first, last;
    } cases[] = {
        {3, 0, 0, 0, 0},          {5, 2, 0, 0, 0},    {4, 0, 4, 1, 4},      {10, 3, 7, 4, 10},
        {64, 0, 64, 1, 64},       {66, 2, 64, 3, 66}, {130, 0, 43, 3, 129}, /* blocks of 3, the first pass left out */
        {129, 1, 64, 2.5, 128.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kvb_samples times[KVB_STEP_KINDS] = {0};
        kvb_result r;
        kvb_result_init(&r);
        numbered_passes_add(times, cases[i].passes);
        assert_int_equal(kvb_samples_report(times, KVB_KIND_DECODE, cases[i].passes, cases[i].warmup, &r), 0);
        assert_int_equal(r.time.n_series, cases[i].n);
        if (cases[i].n) {
            assert_true(r.time.series[0] == cases[i].first);
            assert_true(r.time.series[cases[i].n - 1] == cases[i].last);
        }
        free_all(times);
    }
}

/* Reports passes of n steps; step i reads cells[i] and takes 10 ns a cell, in the first pass ten times that. */
static void contexts_make(const double *cells, size_t n, size_t passes, kvb_result *r)
{
    kvb_samples times = {0}, read = {0};
    kvb_result_init(r);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(kvb_sample_add(&read, cells[i]), 0);
    for (size_t p = 0; p < passes; p++)
        for (size_t i = 0; i < n; i++)
            assert_int_equal(kvb_sample_add(&times, cells[i] * (p ? 10 : 100)), 0);
    assert_int_equal(kvb_contexts_report(&times, &read, passes, 1, r), 0);
    kvb_samples_free(&times);
    kvb_samples_free(&read);
}

TEST(contexts_are_told_apart_in_any_order)
{
    static const double cells[] = {300, 100, 200, 100, 100};
    kvb_result r;
    contexts_make(cells, 5, 3, &r);
    assert_int_equal(r.time.n_contexts, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(r.time.contexts[i].cells == 100 * (i + 1));
        assert_true(r.time.contexts[i].ns == 1000 * (i + 1)); /* the slow first pass is warm-up */
        assert_int_equal(r.time.contexts[i].samples, i ? 2 : 6);
    }
    contexts_make(cells, 0, 3, &r);
    assert_int_equal(r.time.n_contexts, 0);
}

TEST(many_contexts_are_joined_evenly)
{
    double cells[1000];
    uint64_t samples = 0;
    kvb_result r;
    for (int i = 0; i < 1000; i++)
        cells[i] = 5000 - 5 * i;
    contexts_make(cells, 1000, 2, &r);
    assert_int_equal(r.time.n_contexts, KVB_CONTEXTS);
    for (uint32_t i = 0; i < KVB_CONTEXTS; i++) {
        const kvb_context_point *c = &r.time.contexts[i];
        assert_in_range(c->samples, 31, 32);
        assert_true(c->ns == 10 * c->cells);
        assert_true(i == 0 || c->cells > r.time.contexts[i - 1].cells);
        samples += c->samples;
    }
    assert_int_equal(samples, 1000);
    for (int i = 0; i < 1000; i++) /* one context far more often than all others: it does not share its point */
        cells[i] = i < 900 ? 7 : i;
    contexts_make(cells, 1000, 2, &r);
    assert_in_range(r.time.n_contexts, 4, KVB_CONTEXTS);
    assert_true(r.time.contexts[0].cells == 7 && r.time.contexts[0].samples == 900);
}

/* Shows: a step of two sequences that share their first row is a fork; a step of others is not. */

static kvb_history *history;

/* Applies the event. Returns its kind. */
static kvb_step_kind kind_of(kvb_event event)
{
    char why[200];
    assert_int_equal(kvb_history_take(history, &event, 0, why, sizeof why), 0);
    return kvb_step_kind_of(&event);
}

/* A step of the next tokens of two sequences; n 1: of the first only. */
static kvb_step_kind step(uint32_t n, uint32_t a, uint32_t b)
{
    uint32_t seq[] = {a, b}, pos[] = {kvb_history_next(history, a), kvb_history_next(history, b) + (a == b)};
    return kind_of((kvb_event){.kind = KVB_EVENT_STEP, .n = n, .seq = seq, .pos = pos});
}

static void copy(uint32_t src, uint32_t dst)
{
    kind_of((kvb_event){.kind = KVB_EVENT_SEQ_CP, .src = src, .dst = dst, .p1 = KVB_TRACE_POS_END});
}

static void drop(uint32_t seq, uint32_t p0)
{
    kind_of((kvb_event){.kind = KVB_EVENT_SEQ_RM, .src = seq, .p0 = p0, .p1 = KVB_TRACE_POS_END});
}

static int begin(void **state)
{
    return kvb_history_open(KVB_TRACE_MAX_CELLS, &history);
}

static int end(void **state)
{
    kvb_history_free(history);
    return 0;
}

TEST_IN(kinds, begin, end)
{
    uint32_t seq[] = {7, 7}, pos[] = {0, 1};
    int32_t parents[] = {-1, 0};
    kvb_event event = {.kind = KVB_EVENT_PREFILL, .n = 2, .seq = seq, .pos = pos, .parents = parents};
    assert_int_equal(step(1, 0, 0), KVB_KIND_DECODE);
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE);
    assert_int_equal(step(2, 3, 3), KVB_KIND_PREFILL);
    assert_int_equal(kind_of(event), KVB_KIND_PREFILL);
    event.kind = KVB_EVENT_FILL;
    assert_int_equal(kind_of(event), KVB_KIND_FILL);
    event.kind = KVB_EVENT_PROPOSE;
    assert_int_equal(kind_of(event), KVB_KIND_VERIFY);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_COMMIT, .src = 7}), KVB_KIND_CONTROL);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_SEQ_CP, .dst = 8}), KVB_KIND_CONTROL);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_SEQ_ADD, .delta = 1, .p1 = 9}), KVB_KIND_CONTROL);
}

TEST_IN(forks, begin, end)
{
    copy(0, 5); /* copies no token */
    step(2, 0, 0);
    copy(0, 1);
    step(2, 1, 1);
    copy(1, 63); /* a branch of a branch */
    assert_int_equal(step(2, 0, 1), KVB_KIND_FORK);
    assert_int_equal(step(2, 0, 63), KVB_KIND_FORK);
    assert_int_equal(step(1, 63, 0), KVB_KIND_DECODE); /* alone */
    assert_int_equal(step(2, 5, 63), KVB_KIND_DECODE); /* with an unrelated sequence */
    drop(63, 3);                                       /* a suffix */
    assert_int_equal(step(2, 1, 63), KVB_KIND_FORK);
    assert_int_equal(step(2, 63, 63), KVB_KIND_PREFILL);
    drop(63, 0); /* all: the next sequence of that id is unrelated */
    assert_int_equal(step(2, 1, 63), KVB_KIND_DECODE);
    assert_int_equal(step(2, 0, 1), KVB_KIND_FORK);
    assert_int_equal(kind_of((kvb_event){.kind = KVB_EVENT_SEQ_ADD, .src = 1, .delta = 1, .p1 = KVB_TRACE_POS_END}),
                     KVB_KIND_CONTROL);
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE); /* moved rows are not shared */
    kind_of((kvb_event){.kind = KVB_EVENT_SEQ_KEEP, .src = 0});
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE);
}

/* A reordered sequence keeps its trunk. */
TEST_IN(reordered, begin, end)
{
    kvb_event event = {.kind = KVB_EVENT_REORDER, .n = 3, .dsts = (uint32_t[]){0, 1, 2}, .srcs = (uint32_t[]){1, 1, 0}};
    step(2, 0, 1);
    assert_int_equal(kind_of(event), KVB_KIND_CONTROL);
    assert_int_equal(step(2, 0, 1), KVB_KIND_FORK); /* both are what 1 was */
    assert_int_equal(step(2, 0, 2), KVB_KIND_DECODE);
    event.srcs[0] = 2;
    event.srcs[1] = event.srcs[2] = 0;
    kind_of(event);
    assert_int_equal(step(2, 1, 2), KVB_KIND_FORK);
    assert_int_equal(step(2, 0, 1), KVB_KIND_DECODE);
}

/* A step of branches of different trunks is no fork, whatever their ids; nor is one of a trunk without branches. */
TEST_IN(many_sequences, begin, end)
{
    for (uint32_t s = 0; s < KVB_TRACE_MAX_SEQS; s += 2) {
        step(1, s, s);
        copy(s, s + 1);
    }
    for (uint32_t s = 0; s + 64 < KVB_TRACE_MAX_SEQS; s += 2) {
        assert_int_equal(step(2, s, s + 1), KVB_KIND_FORK);
        assert_int_equal(step(2, s + 1, s + 64), KVB_KIND_DECODE);
    }
    assert_int_equal(step(2, 4095, 4095), KVB_KIND_PREFILL);
    drop(100, 0), drop(101, 0), drop(4094, 0);
    step(1, 101, 101);
    copy(101, 4094); /* a new trunk, which no other sequence has */
    assert_int_equal(step(2, 101, 4094), KVB_KIND_FORK);
    for (uint32_t s = 0; s < 4094; s++)
        assert_true(s == 101 || step(2, s, 4094) == KVB_KIND_DECODE);
}

/* Shows that calibration finds the largest magnitude of each layer and KV head in every group, of transformed rows if
 * the format has a transform, and does nothing for formats without head scales. */

enum { TOKENS = 5 };

/* Layers 0 and 2 are alike; layer 1 has latent rows of another shape. */
static const kvb_model model = {
    .n_layers = 3,
    .n_groups = 2,
    .group_of = {0, 1, 0},
    .groups = {{.heads = 3, .kv_heads = 3, .k_dim = 4, .v_dim = 2, .scale = 1},
               {.heads = 2, .kv_heads = 1, .k_dim = 8, .v_dim = 4, .latent = true, .scale = 1}},
};
static float rows[2][TOKENS * (12 + 8 + 12)]; /* K, V */
static size_t at[2][3] = {{0, TOKENS * 12, TOKENS *(12 + 8)}, {0, TOKENS * 6, TOKENS * 6}};
static const kvb_values values = {.tokens = TOKENS,
                                  .model = &model,
                                  .block = {[KVB_ROWS_K] = rows[0], [KVB_ROWS_V] = rows[1]},
                                  .layer_at = {[KVB_ROWS_K] = at[0], [KVB_ROWS_V] = at[1]}};

static int rows_reset(void **state)
{
    for (size_t i = 0; i < sizeof rows[0] / sizeof *rows[0]; i++)
        rows[0][i] = rows[1][i] = (float)(i % 7) * (i % 2 ? 0.5f : -0.5f);
    return 0;
}

static float *row_at(kvb_rows kind, uint32_t layer, uint32_t token, uint32_t h)
{
    uint32_t dim =
        kind == KVB_ROWS_K ? model.groups[model.group_of[layer]].k_dim : model.groups[model.group_of[layer]].v_dim;
    return (float *)(uintptr_t)kvb_values_rows(&values, kind, layer, token) + h * dim;
}

static const float **calibrated(kvb_rows kind, kvb_format format)
{
    const float **amax = (const float **)rows;
    assert_int_equal(kvb_calibrate(&model, &values, kind, &format, &amax), 0);
    return amax;
}

TEST_IN(largest_of_each_head, rows_reset, NULL)
{
    for (kvb_rows kind = KVB_ROWS_K; kind <= KVB_ROWS_V; kind++) {
        row_at(kind, 0, 4, 1)[1] = -100; /* the last token, a negative one */
        row_at(kind, 2, 0, 2)[0] = 50;
        row_at(kind, 2, 4, 2)[0] = 49;
        row_at(kind, 2, 2, 0)[1] = NAN;
        if (kind == KVB_ROWS_K)
            row_at(kind, 1, 4, 0)[7] = 70; /* the last channel */
        const float **amax =
            calibrated(kind, (kvb_format){.name = "x", .elem = KVB_E4M3, .head_scale = KVB_STATIC_HEAD});
        assert_true(amax[0][1] == 100 && amax[2][2] == 50);
        assert_true(amax[0][0] <= 3 && amax[0][0] > 0 && amax[0][2] <= 3 && amax[2][0] <= 3 && amax[2][0] > 0 &&
                    amax[2][1] <= 3);
        if (kind == KVB_ROWS_K)
            assert_true(amax[1][0] == 70);
        else
            assert_null(amax[1]); /* its V has no rows */
        free(amax);
    }
}

/* A Hadamard transform of 4 makes a row of tens (20, 0, 0, 0); one of 8 multiplies the first by sqrt(8). */
TEST_IN(after_the_transform, rows_reset, NULL)
{
    const kvb_format format = {
        .name = "x", .elem = KVB_E4M3, .head_scale = KVB_STATIC_TENSOR, .transform = KVB_TRANSFORM_HADAMARD};
    for (uint32_t c = 0; c < 8; c++)
        row_at(KVB_ROWS_K, 2, 3, 1)[c % 4] = row_at(KVB_ROWS_K, 1, 3, 0)[c] = 10;
    const float **amax = calibrated(KVB_ROWS_K, format);
    assert_true(amax[2][1] == 20);
    assert_true(fabsf(amax[1][0] - 10 * sqrtf(8)) < 1e-5f);
    free(amax);
}

TEST_IN(nothing_to_do, rows_reset, NULL)
{
    assert_null(calibrated(KVB_ROWS_K, (kvb_format){.name = "x", .elem = KVB_E4M3}));
}

/* Shows that unique cells and (query, cell) pairs are counted exactly, for every kind of mask. */

static uint64_t seen[8];

static void count(const kvb_mask *mask, uint32_t n_tok, uint32_t n_cells, uint64_t unique, uint64_t pairs)
{
    kvb_traffic t;
    kvb_traffic_count(mask, n_tok, n_cells, seen, &t);
    assert_int_equal(t.unique_cells, unique);
    assert_int_equal(t.pairs, pairs);
}

TEST(none_and_causal)
{
    count(&(kvb_mask){.kind = KVB_MASK_NONE}, 3, 130, 130, 3 * 130);
    count(&(kvb_mask){.kind = KVB_MASK_NONE}, 1, 64, 64, 64);
    count(&(kvb_mask){.kind = KVB_MASK_CAUSAL}, 4, 100, 100, 97 + 98 + 99 + 100);
    count(&(kvb_mask){.kind = KVB_MASK_CAUSAL}, 4, 4, 4, 1 + 2 + 3 + 4);
}

TEST(runs_overlap)
{
    const uint32_t start[] = {0, 2, 3, 3};
    const kvb_run runs[] = {{0, 10}, {60, 70}, {5, 66}}; /* union 0..70; the third query sees nothing */
    count(&(kvb_mask){.kind = KVB_MASK_RUNS, .row_start = start, .runs = runs}, 3, 200, 70, 20 + 61);
}

TEST(explicit_bits)
{
    const uint64_t bits[] = {0x5, 0x1, 0x4, ~(uint64_t)0}; /* two queries, two words each, 70 cells */
    count(&(kvb_mask){.kind = KVB_MASK_EXPLICIT, .bits = bits, .row_words = 2}, 2, 70, 2 + 6, 3 + 7);
}
