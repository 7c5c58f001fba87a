/* SPDX-License-Identifier: Apache-2.0 */
/* Counters: their sources, and those that need no library: perf software events and getrusage. */
#include "harness/counters/counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness/counters/source.h"
#include "harness/machine/profile.h"

/*
 * The kernel's software events, through perf_event_open: of the calling thread and, by inheritance, of the threads that
 * it starts after the counters were opened. They are read in two groups. Both reads together take 0.5 us, or 0.9 us
 * while another thread runs; switching groups on and off with ioctl would interrupt that thread's core (8 us).
 */

/* The part of an event that can be counted if the kernel is hidden from users. */
typedef enum left { LEFT_ALL, LEFT_USER, LEFT_NOTHING } left;

/* The clock has a group of its own, because it belongs to another PMU: in a group of both PMUs some members count only
 * from the next context switch on (seen on Linux 6.18). */
static const struct {
    const char *name;
    uint64_t config;
    uint32_t group;
    left without_kernel;
} events_known[] = {
    {"task_clock_ns", PERF_COUNT_SW_TASK_CLOCK, 0, LEFT_ALL},
    {"page_faults", PERF_COUNT_SW_PAGE_FAULTS, 1, LEFT_USER},
    {"context_switches", PERF_COUNT_SW_CONTEXT_SWITCHES, 1, LEFT_NOTHING},
    {"cpu_migrations", PERF_COUNT_SW_CPU_MIGRATIONS, 1, LEFT_NOTHING},
};
#define EVENTS (sizeof events_known / sizeof *events_known)
#define GROUPS 2

typedef struct group {
    int fds[EVENTS]; /* the leader first */
    uint32_t n;
    uint64_t base[EVENTS], sum[EVENTS];
} group;

typedef struct perf {
    group groups[GROUPS];
    struct {
        uint32_t place; /* in its group */
        bool user_only;
        char why[KVB_COUNTER_WHY];
    } events[EVENTS];
    int read_error; /* errno of a read that failed; 0 */
} perf;

static int event_open(uint64_t config, int leader, bool user_only)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof attr,
        .config = config,
        .inherit = 1,
        .exclude_kernel = user_only,
        .exclude_hv = 1,
        .read_format = PERF_FORMAT_GROUP,
    };
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, leader, PERF_FLAG_FD_CLOEXEC);
}

static void event_add(perf *s, size_t i)
{
    char paranoid[40], level[16];
    group *g = &s->groups[events_known[i].group];
    uint64_t config = events_known[i].config;
    int leader = g->n ? g->fds[0] : -1, fd = event_open(config, leader, false), error = errno;
    bool kernel_hidden = fd < 0 && (error == EACCES || error == EPERM);
    if (kernel_hidden) {
        fd = event_open(config, leader, true);
        error = errno;
    }
    if (kvb_line_read("", "/proc/sys/kernel/perf_event_paranoid", level, sizeof level))
        snprintf(level, sizeof level, "not to be read");
    snprintf(paranoid, sizeof paranoid, "perf_event_paranoid %s", level); /* it limits what users may count */
    if (fd < 0) {                                                         /* nothing at all may be counted */
        snprintf(s->events[i].why, KVB_COUNTER_WHY, "perf_event_open: %s, %s", strerror(error), paranoid);
        return;
    }
    if (kernel_hidden && events_known[i].without_kernel == LEFT_NOTHING) {
        snprintf(s->events[i].why, KVB_COUNTER_WHY, "perf: happens in the kernel, not to be seen with %s", paranoid);
        close(fd);
        return;
    }
    s->events[i].user_only = kernel_hidden && events_known[i].without_kernel == LEFT_USER;
    s->events[i].place = g->n;
    g->fds[g->n++] = fd;
}

static bool group_read(perf *s, const group *g, uint64_t *values)
{
    struct {
        uint64_t n, values[EVENTS];
    } now;
    if (!g->n)
        return false;
    if (read(g->fds[0], &now, sizeof now) < 0) {
        s->read_error = errno;
        return false;
    }
    memcpy(values, now.values, g->n * sizeof *values);
    return true;
}

static void perf_report(const perf *s, kvb_result *result)
{
    for (size_t i = 0; i < EVENTS; i++) {
        char name[KVB_COUNTER_NAME], why[KVB_COUNTER_WHY];
        /* ":u" as perf has it: user mode only */
        snprintf(name, sizeof name, "%s%s", events_known[i].name, s->events[i].user_only ? ":u" : "");
        snprintf(why, sizeof why, "%s", s->events[i].why);
        if (!why[0] && s->read_error)
            snprintf(why, sizeof why, "perf: read: %s", strerror(s->read_error));
        kvb_counter_append(result, name, (double)s->groups[events_known[i].group].sum[s->events[i].place], NAN, why);
    }
}

/*
 * getrusage's counts, for the whole process. The kernel splits a process's time into user and system by timer ticks: over
 * regions far shorter than a tick (1 to 10 ms) the split is rough, the sum is right.
 */

static const char *const names[] = {"user_ns",           "system_ns",          "page_faults_minor",
                                    "page_faults_major", "switches_voluntary", "switches_involuntary"};
#define COUNTS (sizeof names / sizeof *names)

typedef struct usage {
    long long sum[COUNTS];
    long max_resident_kib;
} usage;

static long long ns_of(struct timeval t)
{
    return 1000000000ll * t.tv_sec + 1000ll * t.tv_usec;
}

/* Adds sign times the counts of now. About 0.3 us. */
static void usage_add(usage *s, int sign)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    const long long now[COUNTS] = {ns_of(u.ru_utime), ns_of(u.ru_stime), u.ru_minflt,
                                   u.ru_majflt,       u.ru_nvcsw,        u.ru_nivcsw};
    for (size_t i = 0; i < COUNTS; i++)
        s->sum[i] += sign * now[i];
    s->max_resident_kib = u.ru_maxrss;
}

/* ---- all sources ------------------------------------------------------------------------------------------------- */

/* In the order of the report. They start in the opposite order and stop in this one, so that hardware counters see as
 * little as possible of the others. */
struct kvb_counters {
    kvb_papi *papi;
    perf perf;
    usage usage;
};

int kvb_counters_open(const char *const *events, kvb_own_counts *own, kvb_counters **counters)
{
    kvb_counters *c = calloc(1, sizeof *c);
    int error = c ? kvb_papi_open(events, own, &c->papi) : -ENOMEM;
    if (error) {
        free(c);
        return error;
    }
    for (size_t i = 0; i < EVENTS; i++)
        event_add(&c->perf, i);
    *counters = c;
    return 0;
}

void kvb_counters_start(kvb_counters *c)
{
    usage_add(&c->usage, -1);
    for (uint32_t i = GROUPS; i-- > 0;)
        group_read(&c->perf, &c->perf.groups[i], c->perf.groups[i].base);
    kvb_papi_start(c->papi);
}

void kvb_counters_stop(kvb_counters *c)
{
    kvb_papi_stop(c->papi);
    for (group *g = c->perf.groups; g < c->perf.groups + GROUPS; g++) {
        uint64_t now[EVENTS];
        for (uint32_t k = 0, n = group_read(&c->perf, g, now) ? g->n : 0; k < n; k++)
            g->sum[k] += now[k] - g->base[k];
    }
    usage_add(&c->usage, +1);
}

void kvb_counters_report(const kvb_counters *c, kvb_result *result)
{
    kvb_papi_report(c->papi, result);
    perf_report(&c->perf, result);
    for (size_t i = 0; i < COUNTS; i++)
        kvb_counter_append(result, names[i], (double)c->usage.sum[i], NAN, "");
    kvb_counter_append(result, "max_resident_bytes", 1024.0 * (double)c->usage.max_resident_kib, NAN, "");
}

void kvb_counters_close(kvb_counters *c)
{
    if (!c)
        return;
    kvb_papi_close(c->papi);
    for (uint32_t i = 0; i < GROUPS; i++)
        for (uint32_t k = 0; k < c->perf.groups[i].n; k++)
            close(c->perf.groups[i].fds[k]);
    free(c);
}

int kvb_counters_admit(const char *command, const kvb_words *events)
{
    char why[256];
    for (size_t i = 0; i < events->n; i++) {
        int error = kvb_counters_check(events->at[i], why, sizeof why);
        if (error == -EINVAL)
            return kvb_complain(command, KVB_EXIT_USAGE, "--set events=%s: %s", events->at[i], why);
        if (error)
            kvb_complain(command, 0, "note: --set events=%s cannot be counted here: %s", events->at[i], why);
    }
    return KVB_EXIT_OK;
}

int kvb_counters_describe(void (*each)(void *ctx, const char *name, const char *source, const char *why_not), void *ctx)
{
    kvb_own_counts own = {0};
    kvb_counters *c;
    kvb_result *result = calloc(1, sizeof *result);
    int error = result ? kvb_counters_open(NULL, &own, &c) : -ENOMEM;
    if (!error)
        kvb_counters_report(c, result);
    for (uint32_t i = 0, n = error ? 0 : result->n_counters; i < n; i++) {
        const kvb_counter *counter = &result->counters[i];
        const char *source = i + COUNTS + 1 >= n ? "getrusage" : i + COUNTS + 1 + EVENTS >= n ? "perf" : "PAPI";
        each(ctx, counter->name, source, counter->unavailable[0] ? counter->unavailable : NULL);
    }
    if (!error)
        kvb_counters_close(c);
    free(result);
    return error;
}
