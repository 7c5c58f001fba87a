/* SPDX-License-Identifier: Apache-2.0 */
/* Pools by name, a team of one, traces written in a test. */
#ifndef KVB_TEST_PARTS_H
#define KVB_TEST_PARTS_H

#include "ci/tests/tests.h"
#include "ci/tests/caches/named.h"
#include "workloads/trace.h"

static inline void run_here(const kvb_team *team, void (*part)(void *ctx, uint32_t i, uint32_t n), void *ctx)
{
    part(ctx, 0, team->n);
}

static const kvb_team team_of_one = {1, run_here};

/* The larger of two errors; infinity if one is NaN, which fmax() would ignore. */
static inline double worse(double a, double b)
{
    return isnan(a) || isnan(b) ? INFINITY : fmax(a, b);
}

/* Does the kernel add in f16? Then its bound is wide and may hide a mistake in one cell. */
static inline bool sums_in_f16(const char *kernel)
{
    return !strcmp(kernel, "flash-f16");
}

static inline kvb_trace *trace_at(const char *path)
{
    kvb_trace *trace;
    char why[512];
    if (kvb_trace_load(path, 0, &trace, why, sizeof why))
        fail_msg("%s", why);
    return trace;
}

/* A trace with Gaussian rows. model, events: JSON with ' in place of ". */
static inline kvb_trace *trace_of(const char *model, const char *events)
{
    char text[8192];
    assert_in_range(snprintf(text, sizeof text,
                             "{'kvbench_trace':2,'name':'t','source':'test','model':%s,"
                             "'values':{'profile':'gaussian','seed':5}}\n%s\n",
                             model, events),
                    1, sizeof text - 1);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return trace_at(tests_text("t.jsonl", text));
}

#endif
