/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: children, signals, shards, the record of memory, and the names of machines. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "ci/tests/tests.h"
#include "harness/program.h"
#include "harness/machine/host.h"
#include "harness/replay/child.h"
#include "harness/replay/meter.h"
#include "harness/selection/partial_run.h"

/* Shows: a child dies with its parent, even when it was stopped while it started. */

static void waits(void *ctx)
{
    (void)ctx;
    for (;;)
        pause();
}

/* Starts a child, stops it, writes its pid to `told` and is killed. */
static void starts_and_dies(int told)
{
    pid_t pid = kvb_process_start(waits, NULL);
    kill(pid, SIGSTOP);
    if (write(told, &pid, sizeof pid) != sizeof pid)
        _exit(1);
    raise(SIGKILL);
}

TEST(stopped_dies_too)
{
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    for (int i = 0; i < 100; i++) {
        int told[2], status = 0;
        pid_t child = 0;
        assert_int_equal(pipe(told), 0);
        pid_t parent = fork();
        if (!parent)
            starts_and_dies(told[1]);
        assert_int_equal(read(told[0], &child, sizeof child), sizeof child);
        close(told[0]);
        close(told[1]);
        assert_true(child > 0);
        assert_int_equal(waitpid(parent, &status, 0), parent);
        assert_true(WIFSIGNALED(status));
        bool in_time = kvb_process_wait(child, 60, &status);
        assert_true(in_time);
        assert_true(WIFSIGNALED(status));
    }
}

/* Shows: the first signal asks the program to stop and ends its waiting; one that comes together with it counts as the
 * same; a later one kills the program as usual. A signal that was ignored stays ignored. */

static void second_ends(void)
{
    kvb_stop_catch();
    raise(SIGTERM);
    if (kvb_stopped != SIGTERM || kvb_wait_readable(-1, 1e6))
        _exit(1);
    nanosleep(&(struct timespec){.tv_nsec = (long)(1.5e9 * KVB_ASKED_ONCE)}, NULL);
    raise(SIGTERM);
}

static void both_are_one(void)
{
    kvb_stop_catch();
    raise(SIGTERM);
    raise(SIGTERM);
    _exit(kvb_stopped == SIGTERM ? 7 : 1);
}

static void asked_and_dies(void)
{
    kvb_stop_catch();
    raise(SIGINT);
    kvb_stop_die();
}

static void ignored_before(void)
{
    signal(SIGHUP, SIG_IGN);
    kvb_stop_catch();
    raise(SIGHUP);
    _exit(kvb_stopped ? 1 : 7);
}

static int status_of(void (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (!pid) {
        body();
        _exit(2);
    }
    waitpid(pid, &status, 0);
    return status;
}

TEST(signals_stop)
{
    int second = status_of(second_ends), first = status_of(asked_and_dies), ignored = status_of(ignored_before);
    int both = status_of(both_are_one);
    assert_true(WIFSIGNALED(second) && WTERMSIG(second) == SIGTERM);
    assert_true(WIFSIGNALED(first) && WTERMSIG(first) == SIGINT);
    assert_int_equal(WEXITSTATUS(ignored), 7);
    assert_true(WIFEXITED(both) && WEXITSTATUS(both) == 7);
}

TEST(waiting_ends)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_false(kvb_wait_readable(ends[0], 0));
    assert_false(kvb_wait_readable(ends[0], 0.01));
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_true(kvb_wait_readable(ends[0], 0));
    assert_true(kvb_wait_readable(ends[0], -1));
}

/* Shows: shards are parsed and written, and divide all combinations, each once. */

static char why[256];

TEST(words_are_taken_or_refused)
{
    static const char *const bad[] = {"0/3",   "4/3",  "1/0",  "1/65",  "1",
                                      "/",     "1/",   "/2",   "a/b",   "1/2x",
                                      "1/2/3", "-1/2", " 1/2", "1.0/2", "99999999999999999999/2",
                                      "1k/2"};
    kvb_shard shard;
    assert_int_equal(kvb_shard_parse("2/3", &shard, why, sizeof why), 0);
    assert_true(shard.index == 1 && shard.of == 3);
    assert_int_equal(kvb_shard_parse("64/64", &shard, why, sizeof why), 0);
    assert_int_equal(kvb_shard_parse(NULL, &shard, why, sizeof why), 0);
    assert_true(shard.index == 0 && shard.of == 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (kvb_shard_parse(bad[i], &shard, why, sizeof why) != -EINVAL)
            fail_msg("%s was taken", bad[i]);
}

TEST(every_combination_is_in_one)
{
    for (uint32_t of = 1; of <= 7; of++)
        for (size_t total = 0; total <= 30; total++) {
            size_t all = 0;
            for (uint32_t index = 0; index < of; index++) {
                size_t n = 0;
                for (size_t i = 0; i < total; i++)
                    n += kvb_shard_has((kvb_shard){index, of}, i);
                assert_int_equal(kvb_shard_count((kvb_shard){index, of}, total), n);
                all += n;
            }
            assert_int_equal(all, total);
        }
}

/* Shows: the record of memory keeps the first, the last and the highest points of a replay of any length. */

/* Reports n events that hold 1000 bytes, 10 of them live; event most_live has more live bytes, most_held holds more. */
static void log_report(uint32_t n, uint32_t most_live, uint32_t most_held, kvb_result *r)
{
    kvb_memory_log log = {0};
    kvb_result_init(r);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(
            kvb_memory_log_add(&log, (kvb_memory_point){i, i == most_live ? 11 : 10, i == most_held ? 1001 : 1000}), 0);
    kvb_memory_log_report(&log, r);
    kvb_memory_log_free(&log);
}

static bool has_event(const kvb_result *r, uint32_t event, double live, double held)
{
    for (uint32_t i = 0; i < r->memory.n_timeline; i++)
        if (r->memory.timeline[i].event == event)
            return r->memory.timeline[i].live_bytes == live && r->memory.timeline[i].held_bytes == held;
    return false;
}

TEST(few_events_are_all_kept)
{
    kvb_result r;
    for (uint32_t n = 0; n <= KVB_MEMORY_POINTS; n++) {
        log_report(n, n, n, &r);
        assert_int_equal(r.memory.n_timeline, n);
        for (uint32_t i = 0; i < n; i++)
            assert_true(r.memory.timeline[i].event == i);
    }
}

TEST(many_events_keep_ends_and_peaks)
{
    kvb_result r;
    static const uint32_t lengths[] = {KVB_MEMORY_POINTS + 1, 100, 127, 1000, 12345};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint32_t peak = 0; peak < lengths[l]; peak += 1 + lengths[l] / 61) {
            uint32_t n = lengths[l], other = n - 1 - peak;
            log_report(n, peak, other, &r);
            assert_in_range(r.memory.n_timeline, KVB_MEMORY_POINTS - 2, KVB_MEMORY_POINTS);
            assert_true(r.memory.timeline[0].event == 0);
            assert_true(r.memory.timeline[r.memory.n_timeline - 1].event == n - 1);
            assert_true(has_event(&r, peak, 11, peak == other ? 1001 : 1000));
            assert_true(has_event(&r, other, peak == other ? 11 : 10, 1001));
            for (uint32_t i = 1; i < r.memory.n_timeline; i++) {
                double gap = r.memory.timeline[i].event - r.memory.timeline[i - 1].event;
                assert_true(gap > 0 && gap <= n / (KVB_MEMORY_POINTS - 3) + 1);
            }
        }
}

/* Shows the manifest of recorded machines, and when OpenBLAS's choice of core must be corrected. */

/* Describes a machine with these files in /proc. */
static kvb_manifest described(const char *cpuinfo)
{
    const char *root = tests_folder();
    kvb_manifest m = {0};
    tests_text(tests_path("%s/proc/cpuinfo", root), cpuinfo);
    tests_text(tests_path("%s/proc/loadavg", root), "0.75 1.50 3.25 1/200 4242\n");
    tests_text(tests_path("%s/proc/meminfo", root), "MemTotal:        1024 kB\nMemFree:  1 kB\n");
    kvb_host_describe(root, &m);
    return m;
}

TEST(x86_is_described)
{
    const kvb_manifest m = described("processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU: 3 GHz\n"
                                     "cpu MHz\t\t: 2450.500\nflags\t\t: fpu avx avx2x avx2 f16c avx512f_not fma\n");
    assert_string_equal(m.cpu_model, "Some CPU: 3 GHz");
    assert_string_equal(m.cpu_features, "avx f16c fma avx2"); /* whole words only */
    assert_int_equal(m.memory_bytes, 1024 * 1024);
    assert_int_equal(strlen(m.date), 20);
    assert_true(m.host.cpus > 0);
    assert_true(*m.host.name);
    assert_true(m.host.load_1m == 0.75 && m.host.load_15m == 3.25);
    assert_true(m.host.mhz == 2450.5);
    assert_string_equal(m.host.governor, "");
    assert_string_equal(m.host.unknown, "governor: the system has no cpufreq; caches: the system does not list them");
}

TEST(arm_is_described)
{
    kvb_manifest m =
        described("processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n");
    assert_string_equal(m.cpu_model, "Neoverse V1");
    assert_string_equal(m.cpu_features, "asimd sve");
    m = described("processor\t: 0\nCPU implementer\t: 0x61\nCPU part\t: 0x023\n"); /* no name here */
    assert_string_equal(m.cpu_model, "implementer 0x61, part 0x023");
}

TEST(nothing_to_read_is_no_crash)
{
    kvb_manifest m = {0};
    kvb_host_describe("/nonexistent", &m);
    assert_string_equal(m.cpu_model, "");
    assert_int_equal(m.memory_bytes, 0);
    assert_true(isnan(m.host.load_1m) && isnan(m.host.mhz));
    assert_contains(m.host.unknown, "load: No such file");
}

TEST(busy_is_a_load_that_others_make)
{
    char text[256];
    assert_false(kvb_is_busy(&(kvb_host){.load_1m = NAN}, text, sizeof text));
    assert_false(kvb_is_busy(&(kvb_host){.load_1m = 0.1}, text, sizeof text));
    assert_true(kvb_is_busy(&(kvb_host){.load_1m = 5000}, text, sizeof text));
    assert_contains(text, "a load of 5000.0 over the last minute");
}
