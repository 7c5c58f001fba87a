/* SPDX-License-Identifier: Apache-2.0 */
/* Medians of new / base over each kernel and each cache. */
#include "results/compare_groups.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "results/compare_time.h"
#include "results/statistics.h"
#include "results/student.h"

static const struct axis {
    const char *name;
    size_t offset; /* of its value in a kvb_result */
} axes[] = {{"kernel", offsetof(kvb_result, kernel)}, {"cache", offsetof(kvb_result, cache)}};
#define AXES (sizeof axes / sizeof *axes)

typedef struct member {
    const char *name;         /* the axis' value */
    const kvb_result *result; /* its workload and pools */
    double change;            /* log(new / base) */
} member;

static int names_order(const void *a, const void *b)
{
    return strcmp(((const member *)a)->name, ((const member *)b)->name);
}

static int stretch_order(const member *x, const member *y)
{
    int order = strcmp(x->result->workload, y->result->workload);

    order = order ? order : strcmp(x->result->pool_k, y->result->pool_k);
    return order ? order : strcmp(x->result->pool_v, y->result->pool_v);
}

static int members_order(const void *a, const void *b)
{
    int order = names_order(a, b);

    return order ? order : stretch_order(a, b);
}

/* The median of each stretch (one workload and pool) of n members in members_order. Returns how many. */
static size_t stretches_take(const member *members, size_t n, double *changes, double *scratch)
{
    size_t stretches = 0;

    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && !stretch_order(&members[i], &members[end]); end++)
            scratch[end - i] = members[end].change;
        changes[stretches++] = kvb_quantile(scratch, end - i, 0.5);
    }
    return stretches;
}

static void group_judge(kvb_group *g, const double *sorted, size_t n, double tail, double machine, double threshold)
{
    size_t k = kvb_sign_rank(n, tail);
    double estimate = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;

    g->ratio = exp(estimate);
    if (k == 0) {
        g->low = g->high = NAN;
        g->verdict = KVB_VERDICT_UNDECIDED;
        snprintf(g->reason, sizeof g->reason, "too few for an interval: %zu workloads and pools", n);
        return;
    }
    double low = sorted[k - 1], high = sorted[n - k];

    g->verdict = kvb_interval_judge(estimate, &low, &high, machine, threshold);
    g->low = exp(low);
    g->high = exp(high);
    if (g->verdict == KVB_VERDICT_UNDECIDED)
        snprintf(g->reason, sizeof g->reason,
                 low <= 0 && high >= 0 ? "the interval holds no change and more than the threshold %.3g %%"
                                       : "the estimate does not reach the threshold %.3g %%",
                 100 * threshold);
}

/* One group of n members; scratch: 2 n numbers. */
static void group_fill(kvb_group *g, const member *members, size_t n, double tail, double machine,
                       const kvb_compare_options *options, double *scratch)
{
    double threshold = 0; /* the most that any member is allowed */

    for (size_t i = 0; i < n; i++)
        threshold = fmax(threshold, kvb_thresholds_of(options->thresholds, members[i].result, KVB_LIMIT_TIME));
    size_t stretches = stretches_take(members, n, scratch, scratch + n);
    snprintf(g->name, sizeof g->name, "%s", members->name);
    g->n = n;
    kvb_quantile(scratch, stretches, 0.5); /* sorts */
    group_judge(g, scratch, stretches, tail, machine, threshold);
}

static size_t members_take(const kvb_comparison *c, const struct axis *axis, member *members)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++) {
        const kvb_finding *f = &c->findings[i];
        if (f->metric == KVB_METRIC_TIME && f->ratio > 0)
            members[n++] = (member){(const char *)f->new + axis->offset, f->new, log(f->ratio)};
    }
    qsort(members, n, sizeof *members, members_order);
    return n;
}

static size_t names_count(const member *members, size_t n)
{
    size_t names = n > 0;

    for (size_t i = 1; i < n; i++)
        names += names_order(&members[i - 1], &members[i]) != 0;
    return names;
}

int kvb_groups_judge(kvb_comparison *c, double machine, const kvb_compare_options *options)
{
    member *members[AXES] = {0};
    size_t n = 0, names = 0;
    double *scratch = calloc(2 * c->n + 1, sizeof *scratch);
    int error = scratch ? 0 : -ENOMEM;

    for (size_t a = 0; a < AXES && !error; a++) {
        members[a] = calloc(c->n + 1, sizeof **members);
        if (!members[a])
            error = -ENOMEM;
        else if ((n = members_take(c, &axes[a], members[a])))
            names += names_count(members[a], n);
    }
    c->groups = calloc(names + 1, sizeof *c->groups);
    if (!c->groups)
        error = -ENOMEM;
    double tail = (1 - options->thresholds->confidence) / (double)names;
    for (size_t a = 0; a < AXES && !error; a++)
        for (size_t i = 0, end; i < n; i = end) {
            for (end = i; end < n && !names_order(&members[a][i], &members[a][end]);)
                end++;
            kvb_group *g = &c->groups[c->n_groups++];
            g->axis = axes[a].name;
            group_fill(g, &members[a][i], end - i, tail, machine, options, scratch);
        }
    for (size_t a = 0; a < AXES; a++)
        free(members[a]);
    free(scratch);
    return error;
}
