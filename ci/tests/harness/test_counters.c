/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that counters count what happened, that they add up over many regions, and that a pair of calls is cheap. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "counting.h"
#include "harness/counters/source.h"

static double value(const kvb_result *r, const char *name)
{
    const kvb_counter *c = find(r, name);
    if (!c)
        fail_msg("no counter %s", name);
    if (c->unavailable[0])
        fail_msg("%s: %s", name, c->unavailable);
    assert_true(isnan(c->share));
    return c->value;
}

static bool perf_here(const kvb_result *r)
{
    if (!find(r, "task_clock_ns")->unavailable[0])
        return true;
    print_message("# no perf software events: %s\n", find(r, "task_clock_ns")->unavailable);
    return false;
}

static double faults(const kvb_result *r)
{
    return value(r, find(r, "page_faults") ? "page_faults" : "page_faults:u");
}

static void work_is_counted(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    size_t pages = 4000, few = 300;
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    pages_touch(&pages); /* not counted */
    kvb_counters_start(c);
    pages_touch(&few);
    milliseconds_spin(20);
    kvb_counters_stop(c);
    pages_touch(&pages); /* not counted */
    kvb_counters_report(c, &r);
    kvb_counters_close(c);

    double minor = value(&r, "page_faults_minor");
    assert_true(minor >= 300 && minor < 4000);
    assert_true(value(&r, "user_ns") + value(&r, "system_ns") >= 10e6); /* the kernel's ticks are coarse */
    assert_true(value(&r, "max_resident_bytes") > 1 << 20);
    assert_true(value(&r, "page_faults_major") >= 0 && value(&r, "switches_involuntary") >= 0);
    if (!perf_here(&r))
        return;
    assert_true(faults(&r) >= 300 && faults(&r) < 4000);
    double clock = value(&r, "task_clock_ns");
    assert_true(clock >= 20e6 && clock < 2000e6);
}

static void regions_add_up(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    size_t pages = 10, many = 100; /* a sanitizer's shadow of them adds a few */
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    for (int i = 0; i < 200; i++) {
        kvb_counters_start(c);
        pages_touch(&pages);
        kvb_counters_stop(c);
        pages_touch(&many); /* not counted */
    }
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    assert_true(value(&r, "page_faults_minor") >= 2000 && value(&r, "page_faults_minor") < 20000);
    if (perf_here(&r))
        assert_true(faults(&r) >= 2000 && faults(&r) < 20000);
}

static void sleep_is_a_switch(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    kvb_counters_start(c);
    for (int i = 0; i < 10; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    kvb_counters_stop(c);
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    assert_true(value(&r, "switches_voluntary") >= 10);
    const kvb_counter *switches = find(&r, "context_switches");
    if (switches->unavailable[0])
        print_message("# %s\n", switches->unavailable);
    else
        assert_true(switches->value >= 10);
}

static void later_threads_are_counted(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    pthread_t thread;
    size_t pages = 500;
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    kvb_counters_start(c);
    assert_int_equal(pthread_create(&thread, NULL, pages_touch, &pages), 0);
    pthread_join(thread, NULL);
    kvb_counters_stop(c);
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    if (perf_here(&r))
        assert_true(faults(&r) >= 500);
}

/* Every field by another amount, so that no two can be mistaken for one another. */
static void own_add(kvb_own_counts *own, long long n)
{
    own->cells_read += n;
    own->bytes_read += 1000000007 * n;
    own->bytes_walk += 4000000063 * n;
    own->mask_words += 13 * n;
    own->rescales += 101 * n;
}

static void own_counts_come_back_exactly(void **state)
{
    (void)state;
    kvb_own_counts own = {5, 6, 7, 8, 9};
    kvb_result r = {0};
    kvb_counters *c;
    long long n = 0;
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    for (long long i = 1; i <= 2000; i++) {
        kvb_counters_start(c);
        own_add(&own, i);
        n += i;
        kvb_counters_stop(c);
        own_add(&own, 3); /* outside: not counted */
        if (i == 1) {
            kvb_counters_report(c, &r);
            assert_true(value(&r, "sde:::kvbench::bytes_read") == 1000000007);
            r.n_counters = 0;
        }
    }
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    assert_true(value(&r, "sde:::kvbench::cells_read") == (double)n);
    assert_true(value(&r, "sde:::kvbench::bytes_read") == 1000000007.0 * (double)n);
    assert_true(value(&r, "sde:::kvbench::bytes_walk") == 4000000063.0 * (double)n);
    assert_true(value(&r, "sde:::kvbench::mask_words") == 13.0 * (double)n);
    assert_true(value(&r, "sde:::kvbench::rescales") == 101.0 * (double)n);
}

static void wanted_events_take_the_place_of_defaults(void **state)
{
    (void)state;
    static const char *const events[] = {"PAPI_BR_MSP", "sde:::kvbench::rescales", "nosuch::EVENT", NULL};
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    assert_int_equal(kvb_counters_open(events, &own, &c), 0);
    kvb_counters_start(c);
    own.rescales = 17;
    kvb_counters_stop(c);
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    assert_null(find(&r, "PAPI_TOT_CYC"));
    assert_string_equal(r.counters[0].name, "PAPI_BR_MSP");
    assert_non_null(strstr(find(&r, "nosuch::EVENT")->unavailable, "PAPI "));
    assert_true(value(&r, "sde:::kvbench::rescales") == 17); /* once */
    assert_int_equal(r.n_counters, 2 + 5 + 4 + 7);

    const char *many[KVB_COUNTERS + 1] = {NULL};
    for (uint32_t i = 0; i < KVB_COUNTERS; i++)
        many[i] = "PAPI_TOT_CYC";
    assert_int_equal(kvb_counters_open(many, &own, &c), -E2BIG);
}

static int child_counts(void)
{
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    if (kvb_counters_open(NULL, &own, &c))
        return 1;
    for (int i = 0; i < 10; i++) {
        kvb_counters_start(c);
        own_add(&own, 2);
        kvb_counters_stop(c);
    }
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    const kvb_counter *cells = find(&r, "sde:::kvbench::cells_read");
    if (!cells || cells->unavailable[0] || cells->value != 20)
        return 2;
    const kvb_counter *cycles = find(&r, "PAPI_TOT_CYC");
    return !cycles->unavailable[0] && !(cycles->value > 0) ? 3 : 0;
}

static void forked_children_count_for_themselves(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    kvb_counters *c;
    kvb_result r = {0};
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    kvb_counters_start(c);
    own_add(&own, 1);
    assert_int_equal(forked(child_counts), 0); /* while the parent's are open */
    kvb_counters_stop(c);
    kvb_counters_report(c, &r);
    assert_true(value(&r, "sde:::kvbench::cells_read") == 1);
    kvb_counters_close(c);
    assert_int_equal(forked(child_counts), 0); /* after they were closed */
    assert_int_equal(child_counts(), 0);       /* and here again */
}

static void note(void *ctx, const char *name, const char *source, const char *why_not)
{
    int *counts = ctx;
    counts[0]++;
    counts[1] += !strcmp(source, "PAPI");
    counts[2] += !strcmp(name, "user_ns") && !strcmp(source, "getrusage") && !why_not;
    counts[3] += !strncmp(name, KVB_SDE_PREFIX, strlen(KVB_SDE_PREFIX)) && !why_not;
}

static void the_list_tells_all(void **state)
{
    (void)state;
    int counts[4] = {0};
    assert_int_equal(kvb_counters_describe(note, counts), 0);
    assert_int_equal(counts[0], 5 + 5 + 4 + 7);
    assert_int_equal(counts[1], 10);
    assert_int_equal(counts[2], 1);
    assert_int_equal(counts[3], 5);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Against what a call of the system costs here, which differs tenfold between a bare machine and a sandbox. */
static void a_pair_is_cheap(void **state)
{
    (void)state;
    kvb_own_counts own = {0};
    kvb_counters *c;
    struct rusage u;
    double pair = INFINITY, call = INFINITY;
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    for (int round = 0; round < 20; round++) {
        double t0 = now_ns();
        for (int i = 0; i < 500; i++) {
            kvb_counters_start(c);
            kvb_counters_stop(c);
        }
        double t1 = now_ns();
        for (int i = 0; i < 500; i++)
            getrusage(RUSAGE_SELF, &u);
        pair = fmin(pair, (t1 - t0) / 500);
        call = fmin(call, (now_ns() - t1) / 500);
    }
    kvb_counters_close(c);
    print_message("# start and stop: %.0f ns; getrusage: %.0f ns\n", pair, call);
    assert_true(pair < 100 * call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(regions_add_up),
        cmocka_unit_test(sleep_is_a_switch),
        cmocka_unit_test(later_threads_are_counted),
        cmocka_unit_test(own_counts_come_back_exactly),
        cmocka_unit_test(wanted_events_take_the_place_of_defaults),
        cmocka_unit_test(forked_children_count_for_themselves),
        cmocka_unit_test(the_list_tells_all),
        cmocka_unit_test(a_pair_is_cheap),
    };
    return cmocka_run_group_tests_name("counters", tests, NULL, NULL);
}
