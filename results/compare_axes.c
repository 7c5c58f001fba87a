/* SPDX-License-Identifier: Apache-2.0 */
#include "results/compare_axes.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "results/statistics.h"

static const struct axis {
    const char *name;
    size_t offset; /* of the name in a kvb_result */
} axes[] = {{"kernel", offsetof(kvb_result, kernel)}, {"cache", offsetof(kvb_result, cache)}};
#define AXES (sizeof axes / sizeof *axes)

typedef struct member {
    const char *name; /* of the kernel or cache */
    const kvb_result *result;
    double change; /* log(new / base) */
} member;

static int names_order(const void *a, const void *b)
{
    return strcmp(((const member *)a)->name, ((const member *)b)->name);
}

static int place_order(const member *x, const member *y)
{
    int order = strcmp(x->result->workload, y->result->workload);

    order = order ? order : strcmp(x->result->pool_k, y->result->pool_k);
    return order ? order : strcmp(x->result->pool_v, y->result->pool_v);
}

static int members_order(const void *a, const void *b)
{
    int order = names_order(a, b);

    return order ? order : place_order(a, b);
}

/* Takes the median change of each place, one workload and pools, of n members in members_order. Returns how many. */
static size_t places_take(const member *members, size_t n, double *changes, double *scratch)
{
    size_t places = 0;

    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && !place_order(&members[i], &members[end]); end++)
            scratch[end - i] = members[end].change;
        changes[places++] = kvb_quantile(scratch, end - i, 0.5);
    }
    return places;
}

/* What is common to all combinations of a comparison: by how much it may reach, and whether others show how far it did.
 */
typedef struct common {
    double reach;  /* a logarithm */
    double others; /* the median change of all that do not belong to what is judged; NaN: they are too few */
} common;

/*
 * Judges n sorted changes. Noise that differs between two runs, not within one, moves all combinations alike: without
 * others that show it, no interval is narrower than that; with others, what they changed by may be the machine, as far
 * as noise reaches.
 */
static void axis_judge(kvb_compared_axis *g, const double *sorted, size_t n, double tail, const common *shift,
                       double machine, double threshold)
{
    size_t k = kvb_sign_rank(n, tail);
    double estimate = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    bool alone = isnan(shift->others);
    double others = alone ? 0 : fmax(fmin(shift->others, shift->reach), -shift->reach);

    g->ratio = exp(estimate);
    if (k == 0) {
        g->low = g->high = NAN;
        g->verdict = KVB_VERDICT_UNDECIDED;
        snprintf(g->reason, sizeof g->reason, "too few for an interval: %zu workloads and pools", n);
        return;
    }
    bool same = sorted[0] == 0 && sorted[n - 1] == 0; /* the same measurements */
    double half = alone && !same ? shift->reach : 0;
    double low = fmin(sorted[k - 1], estimate - half), high = fmax(sorted[n - k], estimate + half);

    g->verdict = kvb_interval_judge(estimate, &low, &high, fmin(fmin(machine, others), 0),
                                    fmax(fmax(machine, others), 0), threshold);
    g->low = exp(low);
    g->high = exp(high);
    if (g->verdict != KVB_VERDICT_UNDECIDED)
        return;
    if (fabs(others) >= log1p(threshold))
        snprintf(g->reason, sizeof g->reason, "the others changed, too, by %+.1f %%: it may be the machine",
                 100 * expm1(shift->others));
    else
        snprintf(g->reason, sizeof g->reason,
                 low <= 0 && high >= 0 ? "the interval holds no change and more than the threshold %.3g %%"
                                       : "the estimate does not reach the threshold %.3g %%",
                 100 * threshold);
}

#define FEW_OTHERS 12u /* fewer show nothing */

/* The median change of `all` members but those from first up to end. */
static double others_of(const member *members, size_t all, size_t first, size_t end, double *scratch)
{
    size_t n = 0;

    for (size_t i = 0; i < all; i++)
        if (i < first || i >= end)
            scratch[n++] = members[i].change;
    return n < FEW_OTHERS ? NAN : kvb_quantile(scratch, n, 0.5);
}

/* Judges n members of one name. scratch: room for 2 n numbers. */
static void axis_fill(kvb_compared_axis *g, const member *members, size_t n, double tail, const common *shift,
                      double machine, const kvb_compare_options *options, double *scratch)
{
    double threshold = 0; /* the largest that any member has */

    for (size_t i = 0; i < n; i++)
        threshold = fmax(threshold, kvb_thresholds_of(options->thresholds, members[i].result, KVB_LIMIT_TIME));
    size_t places = places_take(members, n, scratch, scratch + n);
    snprintf(g->name, sizeof g->name, "%s", members->name);
    g->n = n;
    kvb_quantile(scratch, places, 0.5); /* for its sorting */
    axis_judge(g, scratch, places, tail, shift, machine, threshold);
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

int kvb_axes_judge(kvb_comparison *c, const kvb_compare_noise *noise, const kvb_compare_options *options)
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
    c->axes = calloc(names + 1, sizeof *c->axes);
    if (!c->axes)
        error = -ENOMEM;
    double tail = (1 - options->thresholds->confidence) / (double)names;
    double reach = kvb_common_reach(noise->common, tail, noise->nulls);
    for (size_t a = 0; a < AXES && !error; a++)
        for (size_t i = 0, end; i < n; i = end) {
            for (end = i; end < n && !names_order(&members[a][i], &members[a][end]);)
                end++;
            kvb_compared_axis *g = &c->axes[c->n_axes++];
            g->axis = axes[a].name;
            common shift = {reach, options->paired ? NAN : others_of(members[a], n, i, end, scratch)};
            axis_fill(g, &members[a][i], end - i, tail, &shift, noise->machine, options, scratch);
        }
    for (size_t a = 0; a < AXES; a++)
        free(members[a]);
    free(scratch);
    return error;
}
