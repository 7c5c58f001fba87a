/* SPDX-License-Identifier: Apache-2.0 */
/* Shows that what cannot be counted says why: on a CPU without counters, for a user without rights, in a sandbox. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <papi.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "counting.h"
#include "harness/counters/source.h"

/* Does PAPI itself count the event here? That a component is enabled says nothing: behind a hypervisor it may have no
 * event. */
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

/* 0, or which of its demands does not hold. */
static int hardware_told(void)
{
    static const char *const names[] = {"PAPI_TOT_CYC", "PAPI_TOT_INS", "PAPI_L3_TCM", "dram_bytes_read",
                                        "energy_package_nj"};
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    if (kvb_counters_open(NULL, &own, &c))
        return 1;
    for (int i = 0; i < 6; i++) { /* events that do not fit into the CPU together take turns */
        kvb_counters_start(c);
        milliseconds_spin(2);
        kvb_counters_stop(c);
    }
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    const PAPI_component_info_t *cpu = PAPI_get_component_info(0);
    for (uint32_t i = 0; i < 5; i++) {
        const kvb_counter *k = &r.counters[i];
        const char *why = k->unavailable;
        print_message("# %s: %s\n", k->name, why);
        if (strcmp(k->name, names[i]))
            return 2;
        if (!why[0] && !(i < 2 ? k->value > 0 : k->value >= 0))
            return 3;
        if (why[0] && (!isnan(k->value) || strncmp(why, "PAPI ", 5) || strlen(why) >= 95)) /* nothing was cut off */
            return 4;
        if (i < 3 && !why[0] != papi_counts(k->name))
            return 5;
        if (i < 3 && cpu->disabled &&
            (strncmp(why + 5, cpu->name, strlen(cpu->name)) || !strstr(why, cpu->disabled_reason)))
            return 6;
    }
    return 0;
}

/* PAPI takes the CPU for one that it knows, whose events the CPU does not have: a virtual machine's usual case. */
static int hardware_of_another_cpu_told(void)
{
    return setenv("LIBPFM_FORCE_PMU", "skx", 1) ? 100 : hardware_told();
}

static void hardware_counts_or_says_why(void **state)
{
    (void)state;
    assert_int_equal(forked(hardware_of_another_cpu_told), 0); /* first: PAPI asks for the CPU once in a process */
    assert_int_equal(hardware_told(), 0);
}

/* As a user who may not look into the kernel; perf_event_paranoid 2 allows to count oneself in user mode. */
static int stranger_counts(void)
{
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    size_t pages = 300;
    if (setuid(65534))
        return 77; /* a container without other users */
    if (kvb_counters_open(NULL, &own, &c))
        return 1;
    kvb_counters_start(c);
    pages_touch(&pages);
    kvb_counters_stop(c);
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    const char *clock = find(&r, "task_clock_ns")->unavailable;
    if (clock[0])
        return strncmp(clock, "perf_event_open: ", 17) ? 2 : 0;
    if (find(&r, "page_faults"))
        return find(&r, "context_switches")->unavailable[0] ? 3 : 0; /* paranoid 1 or less */
    const kvb_counter *user = find(&r, "page_faults:u"), *switches = find(&r, "context_switches");
    if (!user || user->value < 300)
        return 4;
    return isnan(switches->value) && strstr(switches->unavailable, "perf_event_paranoid") ? 0 : 5;
}

static void a_user_without_rights_is_told(void **state)
{
    (void)state;
    int told = geteuid() == 0 ? forked(stranger_counts) : 77;
    if (told == 77) {
        print_message("# cannot become another user\n");
        skip();
    }
    assert_int_equal(told, 0);
}

/* Where perf_event_open is forbidden as containers forbid it: no counter of PAPI's or perf's hardware and kernel
 * events. */
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
    kvb_own_counts own = {0};
    kvb_result r = {0};
    kvb_counters *c;
    if (told || kvb_counters_open(NULL, &own, &c))
        return told + 1;
    kvb_counters_report(c, &r);
    kvb_counters_close(c);
    static const char *const names[] = {"task_clock_ns", "page_faults", "context_switches", "cpu_migrations"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const kvb_counter *k = find(&r, names[i]);
        if (!k || strncmp(k->unavailable, "perf_event_open: Operation not permitted", 40))
            return 20;
    }
    return 0;
}

static void a_sandbox_without_perf_is_told(void **state)
{
    (void)state;
    int told = forked(sandboxed_counts);
    if (told == 77) {
        print_message("# no seccomp filters here\n");
        skip();
    }
    assert_int_equal(told, 0);
}

static void unknown_events_are_refused(void **state)
{
    (void)state;
    static const char *const unknown[] = {"PAPI_NO_SUCH", "nosuch::EVENT", "", "sde:::kvbench::cell_read",
                                          "sde:::other::count"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char why[256] = "";
        assert_int_equal(kvb_counters_check(unknown[i], why, sizeof why), -EINVAL);
        assert_non_null(strstr(why, "PAPI "));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hardware_counts_or_says_why),
        cmocka_unit_test(a_user_without_rights_is_told),
        cmocka_unit_test(a_sandbox_without_perf_is_told),
        cmocka_unit_test(unknown_events_are_refused),
    };
    return cmocka_run_group_tests_name("counters that are not there", tests, NULL, NULL);
}
