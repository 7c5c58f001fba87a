/* SPDX-License-Identifier: Apache-2.0 */
/* Which contestant is next, which leave, and what a base differs from itself. */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "harness/duel/duel.h"
#include "harness/interrupt.h"
#include "harness/rounds.h"

/* Two sides go A B, B A, A B, B A. */
static void test_two(void **state)
{
    static const size_t want[] = {0, 1, 1, 0, 0, 1, 1, 0};
    (void)state;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(kvb_rounds_place(2, i / 2, i % 2), want[i]);
}

/* Each side has each place equally often, comes after all, and stands to those that it comes after as any other does.
 */
static void test_balance(void **state)
{
    (void)state;
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

/* Both drift to the double; one is 3 % slower all the time. */
static void test_null(void **state)
{
    kvb_result a, b;
    (void)state;
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

/* A contestant that takes so long, and counts its samples. */
typedef struct taker {
    double seconds;
    uint32_t calls, last; /* NAN after so many samples */
    bool stops;           /* as a signal does */
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

/* Makes rounds of three; each keeps its samples. */
static uint32_t three_run(taker t[3], const kvb_rounds *rounds, kvb_contestant c[3], double samples[3][MOST])
{
    for (int i = 0; i < 3; i++)
        c[i] = (kvb_contestant){.take = count_take, .ctx = &t[i], .samples = samples[i]};
    const uint32_t n = kvb_rounds_run(rounds, c, 3);
    kvb_stopped = 0;
    return n;
}

/* A slow one leaves after the least rounds and the others keep their parts; a limit stays. */
static void test_slow(void **state)
{
    taker t[3] = {{0, 0, UINT32_MAX, false}, {0.02, 0, UINT32_MAX, false}, {0, 0, UINT32_MAX, false}};
    kvb_contestant c[3];
    double samples[3][MOST];
    (void)state;
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

/* One that returns NAN leaves at once: alone, or the round is the last. */
static void test_leaves(void **state)
{
    kvb_contestant c[3];
    double samples[3][MOST];
    (void)state;
    for (int together = 0; together < 2; together++) {
        taker t[3] = {{0, 0, UINT32_MAX, false}, {0, 0, 4, false}, {0, 0, UINT32_MAX, false}};
        const kvb_rounds rounds = {.least = 9, .most = 9, .together = together};
        assert_int_equal(three_run(t, &rounds, c, samples), together ? 5 : 9);
        assert_int_equal(c[0].n, together ? 5 : 9);
        assert_int_equal(c[1].n, 4);
        assert_int_equal(t[1].calls, 5);
    }
}

/* A signal ends a round, which does not count. */
static void test_stopped(void **state)
{
    taker t[3] = {{0, 0, UINT32_MAX, false}, {0, 0, UINT32_MAX, false}, {0, 0, UINT32_MAX, true}};
    kvb_contestant c[3];
    double samples[3][MOST];
    (void)state;
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

/* Long enough for a busy neighbour on the same core to be given it. */
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

/* With a team a sample is taken until one was left alone, a few times; then the least counts. The team is woken before
 * each. Here a neighbour wants the only core. */
static void test_quiet(void **state)
{
    uint32_t samples, most = 0;
    double sample;
    kvb_contestant c = {.ctx = &samples, .samples = &sample, .team = &alone};
    cpu_set_t before, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &before))
            CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const pid_t neighbour = fork();
    if (neighbour == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where an assertion fails */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two),     cmocka_unit_test(test_balance), cmocka_unit_test(test_null),
        cmocka_unit_test(test_quiet),   cmocka_unit_test(test_slow),    cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_stopped),
    };
    return cmocka_run_group_tests_name("rounds", tests, NULL, NULL);
}
