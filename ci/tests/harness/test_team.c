/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that a team runs each part once per run, whatever the number of threads, asleep or awake, on the cores that
 * may be used. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/machine/team.h"
#include "harness/replay/heap_watch.h"
#include "kernels/attend.h"

typedef struct tally {
    atomic_uint calls[64];
    uint32_t plain[64]; /* written by its part only: a race would be seen by the thread sanitizer */
} tally;

static void part(void *ctx, uint32_t i, uint32_t n)
{
    tally *t = ctx;
    assert_true(i < n);
    atomic_fetch_add(&t->calls[i], 1);
    t->plain[i]++;
}

static void every_part_runs_once(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        kvb_threads *threads;
        tally t = {0};
        assert_int_equal(kvb_threads_start(n, false, &threads), 0);
        const kvb_team *team = kvb_threads_team(threads);
        assert_int_equal(team->n, n);
        for (uint32_t round = 1; round <= 300; round++) {
            team->run(team, part, &t);
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(t.plain[i], round);
            if (round % 100 == 0) /* long enough for the others to fall asleep */
                nanosleep(&(struct timespec){0, 3000000}, NULL);
        }
        for (uint32_t i = n; i < 64; i++)
            assert_int_equal(atomic_load(&t.calls[i]), 0);
        kvb_threads_end(threads);
    }
}

/* Exits with how many cores there are to a process that may use one processor; 100: it cannot be bound. */
static void bound_to_one_processor(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    for (int i = 0; sched_getaffinity(0, sizeof all, &all) == 0 && i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    _exit(sched_setaffinity(0, sizeof one, &one) ? 100 : (int)kvb_cores());
}

static void only_cores_that_may_be_used_count(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* the sanitizer's own thread may use every processor, and a process may use what its threads may */
#endif
    int status;
    pid_t pid = fork(); /* before this process asks: it would ask once */
    assert_true(pid >= 0);
    if (!pid)
        bound_to_one_processor();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

static void binding_needs_a_core_for_each(void **state)
{
    (void)state;
    kvb_threads *threads;
    uint32_t cores = kvb_cores();
    assert_true(cores >= 1);
    assert_int_equal(kvb_threads_start(cores + 1, true, &threads), -EINVAL);
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(kvb_threads_start(cores, true, &threads), 0);
    kvb_threads_end(threads);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after)); /* what the caller starts next may run anywhere */
}

static void a_team_is_bound_later(void **state)
{
    (void)state;
    kvb_threads *threads;
    cpu_set_t bound;
    assert_int_equal(kvb_threads_start(1, false, &threads), 0);
    assert_int_equal(kvb_threads_bind(threads), 0);
    assert_int_equal(sched_getaffinity(0, sizeof bound, &bound), 0);
    assert_true(CPU_COUNT(&bound) <= 2); /* one core, of one hardware thread or two */
    kvb_threads_end(threads);
}

static void a_team_ends_without_a_run(void **state)
{
    (void)state;
    kvb_threads *threads;
    assert_int_equal(kvb_threads_start(3, false, &threads), 0);
    kvb_threads_end(threads);
    kvb_threads_end(NULL);
}

static void nothing(void *ctx, uint32_t i, uint32_t n)
{
    (void)ctx, (void)i, (void)n;
}

/* A thread that is still getting ready would allocate, or free, while a kernel is watched. */
static void threads_are_ready_when_started(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        kvb_threads *threads;
        assert_int_equal(kvb_threads_start(4, false, &threads), 0);
        kvb_heap_watch_start();
        kvb_threads_team(threads)->run(kvb_threads_team(threads), nothing, NULL);
        assert_int_equal(kvb_heap_watch_stop(), 0);
        kvb_threads_end(threads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_cores_that_may_be_used_count), cmocka_unit_test(every_part_runs_once),
        cmocka_unit_test(binding_needs_a_core_for_each),     cmocka_unit_test(a_team_is_bound_later),
        cmocka_unit_test(a_team_ends_without_a_run),         cmocka_unit_test(threads_are_ready_when_started),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
