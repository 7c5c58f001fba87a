/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What getrusage counts, for the whole process. The kernel splits a process' time between user and system by what its
 * timer ticks saw: over regions far shorter than a tick (1 to 10 ms) the split is rough, the sum is right.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "harness/counters/source.h"

static const char *const names[] = {"user_ns",           "system_ns",          "page_faults_minor",
                                    "page_faults_major", "switches_voluntary", "switches_involuntary"};
#define COUNTS (sizeof names / sizeof *names)

typedef struct state {
    long long sum[COUNTS];
    long max_resident_kib;
} state;

static long long ns_of(struct timeval t)
{
    return 1000000000ll * t.tv_sec + 1000ll * t.tv_usec;
}

/* Adds sign times the counts of now. About 0.3 us. */
static void counts_add(state *s, int sign)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    const long long now[COUNTS] = {ns_of(u.ru_utime), ns_of(u.ru_stime), u.ru_minflt,
                                   u.ru_majflt,       u.ru_nvcsw,        u.ru_nivcsw};
    for (size_t i = 0; i < COUNTS; i++)
        s->sum[i] += sign * now[i];
    s->max_resident_kib = u.ru_maxrss;
}

static int rusage_open(const char *const *events, kvb_own_counts *own, void **out)
{
    (void)events, (void)own;
    *out = calloc(1, sizeof(state));
    return *out ? 0 : -ENOMEM;
}

static void rusage_start(void *opaque)
{
    counts_add(opaque, -1);
}

static void rusage_stop(void *opaque)
{
    counts_add(opaque, +1);
}

static void rusage_report(const void *opaque, kvb_result *result)
{
    const state *s = opaque;
    for (size_t i = 0; i < COUNTS; i++)
        kvb_counter_append(result, names[i], (double)s->sum[i], NAN, "");
    kvb_counter_append(result, "max_resident_bytes", 1024.0 * (double)s->max_resident_kib, NAN, "");
}

const kvb_counter_source kvb_counters_rusage = {"getrusage", rusage_open,   rusage_start,
                                                rusage_stop, rusage_report, free};
