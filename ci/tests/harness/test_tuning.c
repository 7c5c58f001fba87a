/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: tuning, the best kernel of a table, and teams of threads. */
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "ci/tests/tests.h"
#include "harness/machine/team.h"
#include "harness/replay/heap_watch.h"
#include "harness/selection/kernel_support.h"
#include "harness/selection/registry.h"
#include "harness/selection/selection.h"
#include "harness/tuning/tuning.h"
#include "kernels/attend.h"
#include "kernels/kernels.h"

/* Exits with the number of cores that a process with one processor counts; 100: it cannot be bound. */
static void bound_to_one_processor(void)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    for (int i = 0; sched_getaffinity(0, sizeof all, &all) == 0 && i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    _exit(sched_setaffinity(0, sizeof one, &one) ? 100 : (int)kvb_cores());
}

TEST(only_cores_that_may_be_used_count)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* the sanitizer's own thread may use every processor, and so the process may */
#endif
    int status;
    pid_t pid = fork(); /* before this process counts: it counts once */
    assert_true(pid >= 0);
    if (!pid)
        bound_to_one_processor();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

/* Shows: a machine's settings are written and read back, each field alone. */

static const kvb_manifest machine = {.cpu_model = "some CPU", .cores = 2};

/* Settings that differ between classes and seeds. */
static kvb_tuning some_tuning(uint32_t seed)
{
    kvb_tuning t = {.prefetch = *kvb_prefetch_here(), .steadily_gain = 1.5};
    t.prefetch.steadily = seed % 2;
    for (uint32_t i = 0; i < KVB_READINGS; i++) {
        const uint32_t n = i * 37 + seed * 11;
        t.prefetch.reading[i] = (kvb_reading){.ahead = n % (KVB_READING_AHEAD + 1),
                                              .near = n & 1,
                                              .again = n >> 1 & 1,
                                              .by_cells = n >> 2 & 1,
                                              .sums_by_cells = n >> 3 & 1,
                                              .pages = n >> 4 & 1,
                                              .beside = n >> 5 & 1};
        t.gain[i] = 1 + n % 8 * 0.25;
    }
    return t;
}

TEST(what_is_written_is_read)
{
    const char *path = tests_path("tuning.json");
    char why[400];
    for (uint32_t seed = 0; seed < 16; seed++) {
        const kvb_tuning written = some_tuning(seed);
        kvb_tuning read;
        assert_int_equal(kvb_tuning_write(path, &machine, &written, why, sizeof why), 0);
        if (kvb_tuning_read(path, &machine, &read, why, sizeof why))
            fail_msg("%s", why);
        assert_int_equal(read.prefetch.steadily, written.prefetch.steadily);
        for (uint32_t i = 0; i < KVB_READINGS; i++) {
            const kvb_reading *a = &written.prefetch.reading[i], *b = &read.prefetch.reading[i];
            assert_int_equal(a->ahead, b->ahead);
            assert_int_equal(a->near, b->near);
            assert_int_equal(a->again, b->again);
            assert_int_equal(a->pages, b->pages);
            assert_int_equal(a->by_cells, b->by_cells);
            assert_int_equal(a->sums_by_cells, b->sums_by_cells);
            assert_int_equal(a->beside, b->beside);
            assert_true(written.gain[i] == read.gain[i]);
        }
    }
}

/* Shows that --kernel best takes the fastest kernel that passed the same combination and is no witness; and which words
 * may stand beside it. */

static kvb_registry registry;
static char why[KVB_REASON];

static kvb_result record(const char *kernel, double median)
{
    kvb_result r;
    kvb_result_init(&r);
    snprintf(r.workload, KVB_NAME, "w@llama");
    snprintf(r.cache, KVB_NAME, "seq");
    snprintf(r.pool_k, KVB_NAME, "f16");
    snprintf(r.pool_v, KVB_NAME, "q8_0");
    snprintf(r.growth, KVB_NAME, "double");
    snprintf(r.kernel, KVB_NAME, "%s", kernel);
    r.threads = 2;
    r.status = KVB_STATUS_PASS;
    r.rho = 0.1;
    r.time.all.median = median;
    return r;
}

static const kvb_kernel *find(kvb_result *results, size_t n, const kvb_result *of)
{
    kvb_result_file file = {.results = results, .n = n};
    kvb_best best = {.path = "F", .file = &file, .registry = &registry};
    why[0] = '\0';
    return kvb_best_find(&best, of, why, sizeof why);
}

TEST(the_fastest_that_passed)
{
    kvb_result r[] = {record("reference", 30), record("openblas", 20), record("reference", 25), record("openblas", 50),
                      record("reference", 5),  record("witness", 1),   record("openblas", NAN)};
    r[4].status = KVB_STATUS_FAIL;
    r[5].rho = NAN;
    assert_ptr_equal(find(r, 7, &r[0]), &kvb_kernel_openblas);
    r[4].status = KVB_STATUS_PASS;
    assert_ptr_equal(find(r, 7, &r[0]), &kvb_kernel_reference);
    assert_null(find(r + 5, 2, &r[0]));
    assert_string_equal(why, "no kernel passed here in F");
}

TEST(of_the_very_combination)
{
    kvb_result all = record("reference", 30), other[6];
    for (size_t i = 0; i < 6; i++)
        other[i] = record("openblas", 1);
    strcpy(other[0].workload, "w");
    strcpy(other[1].cache, "tree");
    strcpy(other[2].pool_k, "q8_0");
    strcpy(other[3].pool_v, "f16");
    strcpy(other[4].growth, "reserve");
    other[5].threads = 1;
    for (size_t i = 0; i < 6; i++) {
        kvb_result r[] = {all, other[i]};
        assert_ptr_equal(find(r, 2, &all), &kvb_kernel_reference);
        assert_ptr_equal(find(r, 2, &other[i]), &kvb_kernel_openblas);
    }
}

TEST(a_kernel_that_is_not_loaded)
{
    kvb_result r[] = {record("online", 1), record("openblas", 2)};
    assert_null(find(r, 2, &r[0]));
    assert_string_equal(why, "kernel online, the fastest here in F, is not loaded (--plugin)");
}

static const char *const any[] = {"*", NULL};
static kvb_workload files[1] = {{.name = "a", .path = "x/a.jsonl"}};
static const kvb_workloads workloads = {.at = files, .n = 1, .folder = "x"};

/* Selects by --kernel with these two words; the second may be NULL. */
static int words_select(const char *first, const char *second, kvb_selection *s)
{
    const char *at[] = {first, second, NULL};
    kvb_suite_part part = {.workloads = any};
    kvb_selection_words words = {.kernels = {.at = at, .n = second ? 2 : 1}};
    return kvb_select(&words, &part, &registry, &workloads, false, s, why, sizeof why);
}

TEST(what_stands_beside_it)
{
    kvb_selection s;
    assert_int_equal(words_select("best", NULL, &s), 0);
    assert_int_equal(s.n_kernels, 1);
    assert_ptr_equal(s.kernels[0], &kvb_kernel_best);
    kvb_selection_free(&s);
    assert_int_equal(words_select("best", "best", &s), 0);
    assert_int_equal(s.n_kernels, 1);
    kvb_selection_free(&s);
    assert_int_equal(words_select("witness", "best", &s), 0);
    assert_int_equal(s.n_kernels, 2);
    kvb_selection_free(&s);
    assert_int_equal(words_select("best", "open*", &s), -EINVAL);
    assert_string_equal(why, "--kernel best chooses among all kernels; kernel openblas cannot be named beside it");
    kvb_selection_free(&s);
}

static int setup(void **state)
{
    kvb_registry_init(&registry);
    return 0;
}

static CMFixtureFunction tests_setup = setup;

/* Shows that a team runs each part once per run, with any number of threads, asleep or awake, on the allowed cores. */

typedef struct tally {
    atomic_uint calls[64];
    uint32_t plain[64]; /* only its part writes it: the thread sanitizer would see a race */
} tally;

static void part(void *ctx, uint32_t i, uint32_t n)
{
    tally *t = ctx;
    assert_true(i < n);
    atomic_fetch_add(&t->calls[i], 1);
    t->plain[i]++;
}

TEST(every_part_runs_once)
{
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

TEST(binding_needs_a_core_for_each)
{
    kvb_threads *threads;
    uint32_t cores = kvb_cores();
    assert_true(cores >= 1);
    assert_int_equal(kvb_threads_start(cores + 1, true, &threads), -EINVAL);
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(kvb_threads_start(cores, true, &threads), 0);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_COUNT(&after) <= 2); /* one core, of one hardware thread or two */
    kvb_threads_end(threads);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after)); /* the caller's own affinity has not changed */
}

TEST(a_team_ends_without_a_run)
{
    kvb_threads *threads;
    assert_int_equal(kvb_threads_start(3, false, &threads), 0);
    kvb_threads_end(threads);
    kvb_threads_end(NULL);
}

static void nothing(void *ctx, uint32_t i, uint32_t n)
{
    (void)ctx, (void)i, (void)n;
}

/* A thread that still starts up could allocate or free while a kernel is watched. */
TEST(threads_are_ready_when_started)
{
    for (int round = 0; round < 200; round++) {
        kvb_threads *threads;
        assert_int_equal(kvb_threads_start(4, false, &threads), 0);
        kvb_heap_watch_start();
        kvb_threads_team(threads)->run(kvb_threads_team(threads), nothing, NULL);
        assert_int_equal(kvb_heap_watch_stop(), 0);
        kvb_threads_end(threads);
    }
}
