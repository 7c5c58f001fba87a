/* SPDX-License-Identifier: Apache-2.0 */
/* Shows: counters of PAPI and of perf, and those that need neither. */
#include <time.h>
#include <sys/wait.h>
#include <sys/mman.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <papi.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "ci/tests/tests.h"
#include "harness/counters/counters.h"
#include "harness/rounds.h"

/* NULL: the result has no counter of that name. */
static const kvb_counter *find(const kvb_result *r, const char *name)
{
    for (uint32_t i = 0; i < r->n_counters; i++)
        if (!strcmp(r->counters[i].name, name))
            return &r->counters[i];
    return NULL;
}

/* ---- work that is counted ---------------------------------------------------------------------------------------- */

/* Computes for so many microseconds on the CPU. */
static void spin(uint32_t us)
{
    const double end = kvb_thread_ns() + 1e3 * us;
    while (kvb_thread_ns() < end)
        ;
}

/* Sleeps n times. */
static void doze(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/* Allocates and touches n pages of memory. */
static void pages_touch(uint32_t n)
{
    size_t bytes = n * 4096ul;
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    madvise(at, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += 4096)
        at[i] = 1;
    munmap(at, bytes);
}

static void *pages_touch_beside(void *n)
{
    pages_touch(*(uint32_t *)n);
    return NULL;
}

/* The same in a new thread. */
static void thread_touch(uint32_t n)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, pages_touch_beside, &n), 0);
    pthread_join(thread, NULL);
}

static kvb_own_counts own;

/* Adds a different amount to every field, so that no two can be confused. */
static void own_add(uint32_t n)
{
    own.cells_read += n;
    own.bytes_read += 1000000007ll * n;
    own.bytes_walk += 4000000063ll * n;
    own.mask_words += 13ll * n;
    own.rescales += 101ll * n;
}

typedef struct job {
    void (*work)(uint32_t n);
    uint32_t n;
} job;

/* Counts the job in so many regions, before and behind which `beside` is done: this is not counted. Returns the result
 * of the last call; NULL: counters cannot be opened. */
static const kvb_result *counted(const char *const *events, uint32_t regions, job of, job beside)
{
    static kvb_result r;
    kvb_counters *c;
    r = (kvb_result){0};
    own = (kvb_own_counts){0};
    if (kvb_counters_open(events, &own, &c))
        return NULL;
    for (uint32_t i = 0; i < regions; i++) {
        beside.work(beside.n);
        kvb_counters_start(c);
        of.work(of.n);
        kvb_counters_stop(c);
    }
    beside.work(beside.n);
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    return &r;
}

static const job none = {own_add, 0};

/* Runs body in a child process and returns its result. */
static int forked(int (*body)(void))
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        _exit(body());
    assert_true(waitpid(pid, &status, 0) == pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Shows that counters are right, add up over many regions, and cost little per pair of calls. */

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

TEST(work_is_counted)
{
    const kvb_result *r = counted(NULL, 1, (job){pages_touch, 300}, (job){pages_touch, 4000});
    assert_in_range(value(r, "page_faults_minor"), 300, 3999);
    if (perf_here(r))
        assert_in_range(faults(r), 300, 3999);
    r = counted(NULL, 1, (job){spin, 25000}, none);
    assert_true(value(r, "user_ns") + value(r, "system_ns") >= 10e6); /* the kernel's ticks are coarse */
    assert_true(value(r, "max_resident_bytes") > 1 << 20);
    assert_true(value(r, "page_faults_major") >= 0 && value(r, "switches_involuntary") >= 0);
    if (perf_here(r))
        assert_in_range(value(r, "task_clock_ns"), 20e6, 2000e6);
}

TEST(regions_add_up)
{
    const kvb_result *r = counted(NULL, 200, (job){pages_touch, 10}, (job){pages_touch, 100});
    assert_in_range(value(r, "page_faults_minor"), 2000, 19999); /* a sanitizer's shadow adds a few */
    if (perf_here(r))
        assert_in_range(faults(r), 2000, 19999);
}

TEST(sleep_is_a_switch)
{
    const kvb_result *r = counted(NULL, 1, (job){doze, 10}, none);
    assert_true(value(r, "switches_voluntary") >= 10);
    const kvb_counter *switches = find(r, "context_switches");
    if (switches->unavailable[0])
        print_message("# %s\n", switches->unavailable);
    else
        assert_true(switches->value >= 10);
}

TEST(later_threads_are_counted)
{
    const kvb_result *r = counted(NULL, 1, (job){thread_touch, 500}, none);
    if (perf_here(r))
        assert_true(faults(r) >= 500);
}

TEST(own_counts_come_back_exactly)
{
    const kvb_result *r = counted(NULL, 2000, (job){own_add, 1001}, (job){own_add, 3});
    const double n = 2000.0 * 1001;
    assert_true(value(r, "sde:::kvbench::cells_read") == n);
    assert_true(value(r, "sde:::kvbench::bytes_read") == 1000000007.0 * n);
    assert_true(value(r, "sde:::kvbench::bytes_walk") == 4000000063.0 * n);
    assert_true(value(r, "sde:::kvbench::mask_words") == 13.0 * n);
    assert_true(value(r, "sde:::kvbench::rescales") == 101.0 * n);
}

TEST(wanted_events_take_the_place_of_defaults)
{
    static const char *const events[] = {"PAPI_BR_MSP", "sde:::kvbench::rescales", "nosuch::EVENT", NULL};
    const kvb_result *r = counted(events, 1, (job){own_add, 1}, none);
    assert_null(find(r, "PAPI_TOT_CYC"));
    assert_string_equal(r->counters[0].name, "PAPI_BR_MSP");
    assert_contains(find(r, "nosuch::EVENT")->unavailable, "PAPI ");
    assert_true(value(r, "sde:::kvbench::rescales") == 101); /* once */
    assert_int_equal(r->n_counters, 2 + 5 + 4 + 7);

    const char *many[KVB_COUNTERS + 1] = {NULL};
    kvb_counters *c;
    for (uint32_t i = 0; i < KVB_COUNTERS; i++)
        many[i] = "PAPI_TOT_CYC";
    assert_int_equal(kvb_counters_open(many, &own, &c), -E2BIG);
}

static int child_counts(void)
{
    const kvb_result *r = counted(NULL, 10, (job){own_add, 2}, none);
    const kvb_counter *cells = r ? find(r, "sde:::kvbench::cells_read") : NULL;
    if (!cells || cells->unavailable[0] || cells->value != 20)
        return 2;
    const kvb_counter *cycles = find(r, "PAPI_TOT_CYC");
    return !cycles->unavailable[0] && !(cycles->value > 0) ? 3 : 0;
}

TEST(forked_children_count_for_themselves)
{
    kvb_own_counts parents = {0};
    kvb_counters *c;
    kvb_result r = {0};
    assert_int_equal(kvb_counters_open(NULL, &parents, &c), 0);
    kvb_counters_start(c);
    parents.cells_read = 1;
    assert_int_equal(forked(child_counts), 0); /* while the parent's are open */
    kvb_counters_stop(c);
    kvb_counters_report(c, &r);
    assert_true(value(&r, "sde:::kvbench::cells_read") == 1);
    kvb_counters_close(c);
    assert_int_equal(forked(child_counts), 0); /* after they were closed */
    assert_int_equal(child_counts(), 0);       /* and in this process again */
}

TEST(the_list_tells_all)
{
    kvb_result r = {0};
    uint32_t papi = 0, own_counts = 0;
    assert_int_equal(kvb_counters_describe(&r), 0);
    assert_int_equal(r.n_counters, 5 + 5 + 4 + 7);
    for (uint32_t i = 0; i < r.n_counters; i++) {
        const kvb_counter *c = &r.counters[i];
        papi += !strcmp(kvb_counters_source(&r, i), "PAPI");
        own_counts += !strncmp(c->name, KVB_SDE_PREFIX, strlen(KVB_SDE_PREFIX)) && !*c->unavailable;
        if (!strcmp(c->name, "user_ns"))
            assert_string_equal(kvb_counters_source(&r, i), "getrusage");
    }
    assert_int_equal(papi, 10);
    assert_int_equal(own_counts, 5);
    assert_string_equal(find(&r, "user_ns")->unavailable, "");
}

/* Compares with the cost of a system call on this machine, which a sandbox makes ten times higher. */
TEST(a_pair_is_cheap)
{
    kvb_counters *c;
    struct rusage u;
    double pair = INFINITY, call = INFINITY;
    assert_int_equal(kvb_counters_open(NULL, &own, &c), 0);
    for (int round = 0; round < 20; round++) {
        double t0 = kvb_now_ns();
        for (int i = 0; i < 500; i++) {
            kvb_counters_start(c);
            kvb_counters_stop(c);
        }
        double t1 = kvb_now_ns();
        for (int i = 0; i < 500; i++)
            getrusage(RUSAGE_SELF, &u);
        pair = fmin(pair, (t1 - t0) / 500);
        call = fmin(call, (kvb_now_ns() - t1) / 500);
    }
    kvb_counters_close(c);
    print_message("# start and stop: %.0f ns; getrusage: %.0f ns\n", pair, call);
    assert_true(pair < 100 * call);
}

/* Shows that an unavailable counter gives its reason: on a CPU without counters, for a user without rights, in a
 * sandbox. */

/* Can PAPI itself count the event here? A component may be enabled and have no event, as under a hypervisor. */
static bool papi_counts(const char *event)
{
    int set = PAPI_NULL;
    long long ignored[1];
    bool counts = PAPI_create_eventset(&set) == PAPI_OK && PAPI_add_named_event(set, event) == PAPI_OK &&
                  PAPI_start(set) == PAPI_OK && PAPI_stop(set, ignored) == PAPI_OK;
    PAPI_cleanup_eventset(set);
    PAPI_destroy_eventset(&set);
    return counts;
}

/* 0, or the number of the first condition that fails. */
static int hardware_told(void)
{
    static const char *const names[] = {"PAPI_TOT_CYC", "PAPI_TOT_INS", "PAPI_L3_TCM", "dram_bytes_read",
                                        "energy_package_nj"};
    const kvb_result *r = counted(NULL, 6, (job){spin, 2000}, none); /* events that do not fit take turns */
    if (!r)
        return 1;
    const PAPI_component_info_t *cpu = PAPI_get_component_info(0);
    for (uint32_t i = 0; i < 5; i++) {
        const kvb_counter *k = &r->counters[i];
        const char *why = k->unavailable;
        print_message("# %s: %s\n", k->name, why);
        if (strcmp(k->name, names[i]))
            return 2;
        if (!why[0] && !(i < 2 ? k->value > 0 : k->value >= 0))
            return 3;
        if (why[0] &&
            (!isnan(k->value) || strncmp(why, "PAPI ", 5) || strlen(why) >= 95)) /* the reason must be whole */
            return 4;
        if (i < 3 && !why[0] != papi_counts(k->name))
            return 5;
        if (i < 3 && cpu->disabled &&
            (strncmp(why + 5, cpu->name, strlen(cpu->name)) || !strstr(why, cpu->disabled_reason)))
            return 6;
    }
    return 0;
}

/* PAPI takes the CPU for a model whose events it does not have, as is usual in a virtual machine. */
static int hardware_of_another_cpu_told(void)
{
    return setenv("LIBPFM_FORCE_PMU", "skx", 1) ? 100 : hardware_told();
}

TEST(hardware_counts_or_says_why)
{
    assert_int_equal(forked(hardware_of_another_cpu_told), 0); /* first: PAPI identifies the CPU once per process */
    assert_int_equal(hardware_told(), 0);
}

/* Counts as a user without rights in the kernel: perf_event_paranoid 2 allows user-mode counts of own processes. */
static int stranger_counts(void)
{
    if (setuid(65534))
        return 77; /* a container without other users */
    const kvb_result *r = counted(NULL, 1, (job){pages_touch, 300}, none);
    if (!r)
        return 1;
    const char *clock = find(r, "task_clock_ns")->unavailable;
    if (clock[0])
        return strncmp(clock, "perf_event_open: ", 17) ? 2 : 0;
    if (find(r, "page_faults"))
        return find(r, "context_switches")->unavailable[0] ? 3 : 0; /* paranoid 1 or less */
    const kvb_counter *user = find(r, "page_faults:u"), *switches = find(r, "context_switches");
    if (!user || user->value < 300)
        return 4;
    return isnan(switches->value) && strstr(switches->unavailable, "perf_event_paranoid") ? 0 : 5;
}

TEST(a_user_without_rights_is_told)
{
    int told = geteuid() == 0 ? forked(stranger_counts) : 77;
    if (told == 77) {
        print_message("# cannot become another user\n");
        skip();
    }
    assert_int_equal(told, 0);
}

/* Counts with perf_event_open forbidden, as in containers: hardware and kernel events of PAPI and perf are
 * unavailable. */
static int sandboxed_counts(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
        return 77;
    int told = hardware_told();
    const kvb_result *r = counted(NULL, 0, none, none);
    if (told || !r)
        return told + 1;
    static const char *const names[] = {"task_clock_ns", "page_faults", "context_switches", "cpu_migrations"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const kvb_counter *k = find(r, names[i]);
        if (!k || strncmp(k->unavailable, "perf_event_open: Operation not permitted", 40))
            return 20;
    }
    return 0;
}

TEST(a_sandbox_without_perf_is_told)
{
    int told = forked(sandboxed_counts);
    if (told == 77) {
        print_message("# no seccomp filters here\n");
        skip();
    }
    assert_int_equal(told, 0);
}

TEST(unknown_events_are_refused)
{
    static const char *const unknown[] = {"PAPI_NO_SUCH", "nosuch::EVENT", "", "sde:::kvbench::cell_read",
                                          "sde:::other::count"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char why[256] = "";
        tests_refused(kvb_counters_check(unknown[i], why, sizeof why), -EINVAL, why, "PAPI ");
        if (!strncmp(unknown[i], "sde", 3))
            assert_string_equal(why, "PAPI sde: Event does not exist");
        print_message("# \"%s\": %s\n", unknown[i], why);
    }
    static const char *const known[] = {"PAPI_TOT_CYC", "dram_bytes_read", "energy_package_nj",
                                        "sde:::kvbench::cells_read"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char why[256] = "";
        int code = kvb_counters_check(known[i], why, sizeof why); /* known, whether or not it can be counted here */
        assert_true(code == 0 || code == -ENOTSUP);
    }
    char why[256], name[200];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(kvb_counters_check(name, why, sizeof why), -EINVAL);
}

/* Shows that any PAPI user in the process sees the harness's own counts, and that sets of PAPI events take turns. */

/* Reads them as another PAPI tool in the process would: by name, in its own set. */
TEST(another_tool_sees_own_counts)
{
    char why[96];
    int set = PAPI_NULL;
    long long got = -1;
    own = (kvb_own_counts){0};
    assert_int_equal(kvb_papi_init(), 0);
    assert_int_equal(kvb_sde_publish(&own, why, sizeof why), 0);
    kvb_own_counts second = {0};
    assert_int_equal(kvb_sde_publish(&second, why, sizeof why), -EBUSY);
    assert_int_equal(PAPI_create_eventset(&set), PAPI_OK);
    assert_int_equal(PAPI_add_named_event(set, "sde:::kvbench::mask_words"), PAPI_OK);
    assert_int_equal(PAPI_start(set), PAPI_OK);
    own_add(3);
    assert_int_equal(PAPI_read(set, &got), PAPI_OK);
    assert_int_equal(got, 39);
    own_add(1); /* while it runs */
    assert_int_equal(PAPI_stop(set, &got), PAPI_OK);
    assert_int_equal(got, 52);
    PAPI_cleanup_eventset(set);
    PAPI_destroy_eventset(&set);
    kvb_sde_retract(&own);
}

/* Three sets of software-defined events, of two, two and one, on a component that counts one set at a time. */
TEST(events_that_do_not_fit_take_turns)
{
    char why[96];
    uint32_t events[5];
    double got, share, shares = 0;
    own = (kvb_own_counts){0};
    assert_int_equal(kvb_papi_init(), 0);
    assert_int_equal(kvb_sde_publish(&own, why, sizeof why), 0);
    kvb_papi_sets *sets = kvb_papi_sets_new(2);
    assert_non_null(sets);
    for (int i = 0; i < 5; i++)
        assert_int_equal(kvb_papi_sets_add(sets, kvb_sde_events[i], &events[i]), PAPI_OK);
    kvb_papi_sets_begin(sets);
    kvb_papi_sets_start(sets);
    own_add(1);
    kvb_papi_sets_stop(sets);
    assert_int_equal(kvb_papi_sets_value(sets, events[4], &got, &share), PAPI_OK);
    assert_true(share == 0); /* its turn is still to come */
    for (int i = 1; i < 300; i++) {
        kvb_papi_sets_start(sets);
        own_add(1);
        spin(50);
        kvb_papi_sets_stop(sets);
    }
    for (int i = 0; i < 5; i++) {
        assert_int_equal(kvb_papi_sets_value(sets, events[i], &got, &share), PAPI_OK);
        long long truth[] = {own.cells_read, own.bytes_read, own.bytes_walk, own.mask_words, own.rescales};
        assert_true(share > 0 && share < 1);
        /* Every set counted in 100 of 300 regions: unscaled, its value is exact. */
        assert_true(fabs(got * share / (double)truth[i] * 3 - 1) < 1e-9);
        shares += i % 2 ? 0 : share;
    }
    assert_true(fabs(shares - 1) < 1e-9);
    kvb_papi_sets_free(sets);
    kvb_sde_retract(&own);
}
