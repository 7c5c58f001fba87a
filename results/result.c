/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of records without a file: words of the schema, statistics of step times, names and order. */
#include "results/result.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "workloads/array.h"
#include "results/schema.h"
#include "results/statistics.h"

const char *kvb_status_name(kvb_status status)
{
    static const char *const names[KVB_STATUSES] = {"pass", "fail", "skip", "crash", "timeout", "counted"};

    assert(status < KVB_STATUSES);
    return names[status];
}

const char *kvb_step_kind_name(kvb_step_kind kind)
{
    static const char *const names[KVB_STEP_KINDS] = {"prefill", "decode", "fork", "verify", "fill", "control"};

    assert(kind < KVB_STEP_KINDS);
    return names[kind];
}

static const kvb_time_stats no_time = {
    .median = NAN, .p99 = NAN, .mad = NAN, .min = NAN, .max = NAN, .total = NAN, .low = NAN, .high = NAN};

void kvb_result_init(kvb_result *result)
{
    memset(result, 0, sizeof *result);
    result->status = KVB_STATUS_SKIP;
    strcpy(result->out, "f32");
    kvb_fields_clear(kvb_result_fields, result);
}

/*
 * Median absolute deviation of n sorted samples. Left of the median the deviations fall with the index, right of it
 * they rise. So a merge from the median outwards meets them in ascending order, and needs no copy.
 */
static double deviation(const double *sorted, size_t n, double median)
{
    size_t right = n / 2, left = right; /* the merge takes sorted[right] or sorted[left - 1] next */
    double last = 0, before = 0;

    for (size_t taken = 0; taken <= n / 2; taken++) {
        bool take_left = right == n || (left > 0 && median - sorted[left - 1] < sorted[right] - median);

        before = last;
        last = take_left ? median - sorted[--left] : sorted[right++] - median;
    }
    return n % 2 ? last : (before + last) / 2;
}

void kvb_time_stats_of(double *samples, size_t n, kvb_time_stats *stats)
{
    *stats = no_time;
    if (n == 0)
        return;
    stats->samples = n;
    stats->median = kvb_quantile(samples, n, 0.5); /* sorts them */
    stats->min = samples[0];
    stats->max = samples[n - 1];
    stats->p99 = samples[(n * 99 + 99) / 100 - 1]; /* nearest rank: ceil(0.99 n), counted from 1 */
    stats->mad = deviation(samples, n, stats->median);
    stats->total = 0;
    for (size_t i = 0; i < n; i++) {
        assert(!isnan(samples[i]));
        stats->total += samples[i];
    }
}

/* ---- combinations -------------------------------------------------------------------------------------- */

int kvb_results_add(kvb_results *results, const kvb_result *result)
{
    if (kvb_array_reserve(&results->at, &results->room, results->n + 1, sizeof *results->at))
        return -ENOMEM;
    results->at[results->n++] = *result;
    return 0;
}

int kvb_key_order(const kvb_result *a, const kvb_result *b)
{
    const char *const pairs[][2] = {
        {a->workload, b->workload}, {a->cache, b->cache},   {a->pool_k, b->pool_k}, {a->pool_v, b->pool_v},
        {a->kernel, b->kernel},     {a->growth, b->growth}, {a->out, b->out}};

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        int order = strcmp(pairs[i][0], pairs[i][1]);

        if (order)
            return order;
    }
    return (a->threads > b->threads) - (a->threads < b->threads);
}

/* ---- what may be ranked ----------------------------------------------------------------------------------------- */

static int order_on(kvb_ranked_axis axis, const kvb_result *a, const kvb_result *b)
{
    int order = 0;
    switch (axis) {
    case KVB_RANKED_CACHE:
        return strcmp(a->cache, b->cache);
    case KVB_RANKED_POOLS:
        order = strcmp(a->pool_k, b->pool_k);
        return order ? order : strcmp(a->pool_v, b->pool_v);
    case KVB_RANKED_KERNEL:
        return strcmp(a->kernel, b->kernel);
    case KVB_RANKED_THREADS:
        return (a->threads > b->threads) - (a->threads < b->threads);
    case KVB_RANKED_GROWTH:
        return strcmp(a->growth, b->growth);
    default:
        order = strcmp(a->workload, b->workload);
        order = order ? order : strcmp(a->out, b->out);
        order = order ? order : strcmp(a->setting, b->setting);
        return order || !*a->time.cache_state || !*b->time.cache_state /* of what did not run it is not known */
                   ? order
                   : strcmp(a->time.cache_state, b->time.cache_state);
    }
}

uint32_t kvb_results_differ(const kvb_result *a, const kvb_result *b)
{
    uint32_t axes = 0;
    for (kvb_ranked_axis axis = 0; axis < KVB_RANKED_AXES; axis++)
        axes |= order_on(axis, a, b) ? UINT32_C(1) << axis : 0;
    return axes;
}

static int by_axis(const void *a, const void *b, void *axis)
{
    return order_on(*(const kvb_ranked_axis *)axis, *(const kvb_result *const *)a, *(const kvb_result *const *)b);
}

static int by_all(const void *a, const void *b, void *unused)
{
    int order = 0;
    for (kvb_ranked_axis axis = 0; axis < KVB_RANKED_AXES && !order; axis++)
        order = by_axis(a, b, &axis);
    return (void)unused, order;
}

bool kvb_comparable(const kvb_result *const *results, size_t n)
{
    const kvb_result **sorted = malloc((n + 1) * sizeof *sorted);
    size_t choices = 1;
    bool distinct = true;
    if (!sorted)
        return false;
    memcpy(sorted, results, n * sizeof *sorted);
    for (kvb_ranked_axis axis = 0; axis < KVB_RANKED_AXES; axis++) {
        size_t values = 1;
        qsort_r(sorted, n, sizeof *sorted, by_axis, &axis);
        for (size_t i = 1; i < n; i++)
            values += order_on(axis, sorted[i - 1], sorted[i]) != 0;
        choices *= values;
        distinct &= axis != KVB_RANKED_OTHER || values == 1;
    }
    qsort_r(sorted, n, sizeof *sorted, by_all, NULL);
    for (size_t i = 1; i < n; i++)
        distinct &= kvb_results_differ(sorted[i - 1], sorted[i]) != 0;
    free(sorted);
    return distinct && choices == n;
}

/* ---- texts of keys --------------------------------------------------------------------------------------------- */

void kvb_key_pools(const kvb_result *r, char text[KVB_KEY_PART])
{
    if (strcmp(r->pool_k, r->pool_v) != 0)
        snprintf(text, KVB_KEY_PART, "k=%s,v=%s", r->pool_k, r->pool_v);
    else
        snprintf(text, KVB_KEY_PART, "%s", r->pool_k);
}

void kvb_key_cache(const kvb_result *r, char text[KVB_KEY_PART])
{
    bool usual = !r->growth[0] || strcmp(r->growth, "double") == 0;

    snprintf(text, KVB_KEY_PART, usual ? "%s" : "%s, %s", r->cache, r->growth);
}

void kvb_key_name(const kvb_result *r, char text[KVB_KEY_TEXT])
{
    char pools[KVB_KEY_PART];

    kvb_key_pools(r, pools);
    bool wide = !strcmp(r->out, "f32");
    snprintf(text, KVB_KEY_TEXT, "%s/%s/%s/%s/%u/%s%s%s", r->workload, r->cache, pools, r->kernel, r->threads,
             r->growth, wide ? "" : "/", wide ? "" : r->out);
}

bool kvb_result_begins_workload(const kvb_result *results, size_t i)
{
    for (size_t j = i; j-- > 0;) /* backwards, because results of one workload mostly stand together */
        if (strcmp(results[j].workload, results[i].workload) == 0)
            return false;
    return true;
}

int kvb_results_null_quantile(const kvb_result *results, size_t n, double p, double *quantile, uint32_t *count)
{
    double *values = malloc((n + 1) * sizeof *values);

    *count = 0;
    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (results[i].time.null_difference >= 0) /* false for NaN */
            values[(*count)++] = results[i].time.null_difference;
    *quantile = kvb_quantile(values, *count, p);
    free(values);
    return 0;
}
